"""Adapter to TRL: the only module that knows its undocumented names, so if TRL changes one, only this file changes.

docs/private-names.md says for each name why it is used, and what to look at when it goes.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.modeling_utils import set_zero3_state
from trl import GRPOTrainer
from trl.extras.profiling import profiling_context
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration

from e1_trl.ports import free_port

# Names of `GRPOTrainer`. Without this list, an override of a method that is gone would silently not be called.
USED = {
    *("_calculate_rewards", "_generate_and_score_completions", "_get_per_token_logps_and_entropies", "_log_metric"),
    *("_log_completion_extra", "_tokenize_prompts", "aux_loss_enabled", "log_completions"),
    *("num_completions_to_print", "vllm_generation"),
}
if gone := USED.difference(dir(GRPOTrainer), GRPOTrainer.__init__.__code__.co_names):
    raise ImportError(f"GRPOTrainer has no {min(gone)}")


@contextmanager
def starting(revision: str | None, processes: int) -> Iterator[None]:
    """Let TRL start its colocated engine, if any, at the model's revision and at a port that nobody else takes.

    TRL passes only the model's name: configuration, tokenizer and end-of-sequence tokens would be the newest. On GPUs,
    kernels for experts other than Triton's reorder weights at the first load, but not in a sync. ZeRO-3 must not shard
    vLLM's model. Parts that read images are left out.
    """
    if processes == 1:
        # TRL tries the same port first in every run, so the later of two runs that start together would fail.
        os.environ.setdefault("MASTER_PORT", str(free_port()))
    engine = vllm_generation.LLM
    own = {"language_model_only": True, **({"moe_backend": "triton"} if torch.cuda.is_available() else {})}

    def start(**options: Any) -> Any:
        with set_zero3_state():
            return engine(**own, **options, revision=revision, tokenizer_revision=revision)

    vllm_generation.LLM = start
    try:
        yield
    finally:
        vllm_generation.LLM = engine


class TrlEngine:
    """TRL's vLLM: the `llm` of a group of processes, or a `server`, which only the main process knows."""

    def __init__(self, generation: VLLMGeneration):
        self._generation = generation
        fields = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
        self.sampling: dict[str, Any] = {each: getattr(generation, each) or 0 for each in fields}
        self.sampling["extra"] = generation.generation_kwargs
        self.model = generation.model  # the trained one
        self.llm: Any = None if generation.mode == "server" else generation.llm
        client = getattr(generation, "vllm_client", None)
        self.server = client and (f"{client.base_url}/v1", client.model)
        self.tensor_parallel_size = generation.tensor_parallel_size
        self.tp_group = getattr(generation, "tp_group", None)
        self.sync: Callable[[], None] = generation.sync_weights
        self.named_params = generation._iter_named_params  # gathered, under vLLM's names

    def replace_sync(self, sync: Callable[[], None]) -> None:
        """Replace the sync of weights, a collective operation, for TRL too."""
        self.sync = self._generation.sync_weights = sync

    def copy_merged(self) -> None:
        """Send copies of merged weights: TRL unmerges an adapter in place while vLLM still packs the last of them."""
        merged = self._generation._iter_named_params
        self._generation._iter_named_params = lambda: ((name, tensor.clone()) for name, tensor in merged())

    def wake(self) -> None:
        """Wake the engine if it sleeps between generations; this and `sleep` do as `VLLMGeneration.generate` does."""
        if self._generation.enable_sleep_mode:
            if self._generation._llm_weights_sleeping:
                self._generation.sync_weights()
            self.llm.wake_up(tags=["kv_cache"])

    def sleep(self) -> None:
        if self._generation.enable_sleep_mode:
            self.llm.sleep(level=2)
            self._generation._llm_weights_sleeping = True


def through_head(model: torch.nn.Module, inputs: dict[str, Any], targets: torch.Tensor) -> list[torch.Tensor]:
    """Return the log-probabilities of target tokens, and entropies if TRL's fused head computes any."""
    outputs = model(**inputs, shift_labels=targets, fused_lm_head=True)
    return [each for each in (outputs.log_probs, outputs.entropy) if each is not None]


class HookedTrainer(GRPOTrainer):
    """TRL's trainer with public names for its private ones, and hooks that `E1Trainer` implements."""

    log_metric = GRPOTrainer._log_metric
    log_column = GRPOTrainer._log_completion_extra  # of the table of completions
    tokenize = GRPOTrainer._tokenize_prompts
    profiled = profiling_context
    vllm = property(lambda self: TrlEngine(self.vllm_generation))
    has_aux_loss = property(lambda self: self.aux_loss_enabled)

    def show_table(self, shown: bool) -> None:
        """Set whether the next log writes the table of completions, which is never printed."""
        self.log_completions = shown
        self.num_completions_to_print = 0

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self.extend_rewards(rewards, inputs, completion_ids_list)
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Leave out old log-probabilities if one optimizer step learns from a whole generation.

        The policy is then the one that sampled, and without old log-probabilities TRL sets the ratio to 1. The old
        ones were only compared with vLLM's: they come from passes of other shapes, which round differently in 16 bits.
        """
        self.begin_generation(inputs)
        output = super()._generate_and_score_completions(inputs)
        if advantages := self.spread_advantages(output["completion_ids"].shape[1]):
            output["advantages"] = output["advantages"].new_tensor(advantages)
        if self.args.gradient_accumulation_steps % (self.args.steps_per_generation * self.num_iterations) == 0:
            output.pop("old_per_token_logps", None)
        return output

    def _get_per_token_logps_and_entropies(self, model: Any, *batch: Any, batch_size: Any = None, **more: Any) -> Any:
        with self.scoring():
            if self.layout == "padded":
                return super()._get_per_token_logps_and_entropies(model, *batch, batch_size=batch_size, **more)
            with profiling_context(self, "_get_per_token_logps_and_entropies"):
                return *self.score(model, *batch, batch_size), None  # no auxiliary loss, which needs whole batches
