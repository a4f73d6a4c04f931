"""TRL's GRPO with budget-constrained rollouts: `E1Config` and `E1Trainer`.

Everything that is not about the budget is TRL's: the loss, the advantages, importance-sampling correction, DeepSpeed,
PEFT, checkpoints, logging. The private names of TRL and vLLM that are touched are listed, with the reason for each, in
docs/private-names.md.
"""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from accelerate.utils import broadcast_object_list, gather_object, is_peft_model
from openai import OpenAI
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from trl import GRPOConfig, GRPOTrainer
from trl.extras.profiling import profiling_context

from e1_trl.budget import Budget, Marker
from e1_trl.engine import stream, stream_server
from e1_trl.rollout import Completion, Rollout, ThinkingEnd
from e1_trl.weights import reload_weights

# What follows from the budget; and a seed, which would make all rollouts of a prompt the same, each being a request.
OWN_SAMPLING_PARAMETERS = {
    *("n", "max_tokens", "min_tokens", "stop", "stop_token_ids", "logprobs", "detokenize", "output_kind", "seed"),
}


@dataclass
class E1Config(GRPOConfig):
    """GRPO's configuration plus the training budget `(t*, s*)` (arXiv 2505.05315, section 3.2).

    Parameters:
        thinking_budget (`int` or `None`, defaults to 1024):
            Tokens of thinking after which the close is forced; `None`: bounded by the context alone.
        solution_budget (`int` or `None`, defaults to 1024):
            Tokens of solution after which it is cut; `None`: bounded by the context alone.
        marker (`str`, defaults to `"</think>"`):
            The text that ends the thinking. It may be one token of the tokenizer or several.
        forced_text (`str`, *optional*):
            What is appended when the thinking budget runs out; the marker itself if unset.
        max_prompt_length (`int`, defaults to 1024):
            Longest prompt in tokens, chat template included. The engine is sized for it; the training script drops
            problems whose prompt is longer.
        eval_budgets (`list[str]`, defaults to `[]`):
            Budgets at which the training script evaluates every `eval_steps` steps, such as `"512+1024"`. The engine's
            context is sized for them, too.
        train_on_forced_close (`bool`, defaults to `False`):
            For comparison only: train on forced tokens as if the policy had sampled them, as the paper's own code does.
        max_logprob_gap (`float`, defaults to 0.1):
            Training stops when the mean absolute difference between vLLM's and the trainer's log-probabilities of a
            generation batch exceeds this many nats: the engine then samples from other weights than those trained.
            Checked whenever TRL computes both (`vllm_importance_sampling_correction`, on by default).
    """

    thinking_budget: int | None = field(
        default=1024, metadata={"help": "Tokens of thinking after which the close is forced; unset: the context."}
    )
    solution_budget: int | None = field(
        default=1024, metadata={"help": "Tokens of solution after which it is cut; unset: the context."}
    )
    marker: str = field(default="</think>", metadata={"help": "The text that ends the thinking."})
    forced_text: str | None = field(
        default=None, metadata={"help": "What is appended when the thinking budget runs out; unset: the marker."}
    )
    max_prompt_length: int = field(
        default=1024, metadata={"help": "Longest prompt in tokens; the training script drops longer ones."}
    )
    eval_budgets: list[str] = field(
        default_factory=list, metadata={"help": "Budgets to evaluate at every `eval_steps` steps, as `512+1024`."}
    )
    train_on_forced_close: bool = field(
        default=False, metadata={"help": "For comparison only: train on forced tokens as if they were sampled."}
    )
    max_logprob_gap: float = field(
        default=0.1,
        metadata={"help": "Largest allowed mean gap (nats) between vLLM's and the trainer's log-probabilities."},
    )
    max_completion_length: int | None = field(
        default=None, metadata={"help": "Follows from the budget: thinking + forced close + solution. Leave it unset."}
    )
    use_vllm: bool = field(default=True, metadata={"help": "Must be true: rollouts are budgeted inside vLLM."})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.budget  # noqa: B018 - raises on a budget that makes no sense
        self.evaluation_budgets  # noqa: B018
        if not self.use_vllm:
            raise ValueError("use_vllm is false; budgeted rollouts need vLLM (vllm_mode 'colocate' or 'server')")
        if self.vllm_structured_outputs_regex is not None:
            raise ValueError(
                "vllm_structured_outputs_regex constrains a whole completion; a budgeted one has two parts"
            )
        if isinstance(self.generation_kwargs, dict) and (
            own := OWN_SAMPLING_PARAMETERS & self.generation_kwargs.keys()
        ):
            raise ValueError(f"generation_kwargs sets {sorted(own)}, which budgeted rollouts decide; remove them")

    @property
    def budget(self) -> Budget:
        """The training budget."""
        return Budget(self.thinking_budget, self.solution_budget)

    @property
    def evaluation_budgets(self) -> list[Budget]:
        """The budgets of `eval_budgets`."""
        return [Budget.parse(text) for text in self.eval_budgets]

    def settle_lengths(self, marker: Marker, model_context: int) -> int:
        """Fill in the lengths that follow from the budget, and return the engine's context length in tokens.

        `model_context` is the longest sequence that the model takes. With a limited budget the engine is not asked
        for more than prompt and budget need.

        Raises:
            ValueError: `max_completion_length` contradicts the budget, or the budget does not fit the context.
        """
        forced = len(marker.forced_ids)
        longest = self.budget.completion_tokens(forced)
        lengths = [budget.completion_tokens(forced) for budget in (self.budget, *self.evaluation_budgets)]
        needed = max(model_context if length is None else self.max_prompt_length + length for length in lengths)
        context = self.vllm_max_model_length or min(needed, model_context)
        for budget in (self.budget, *self.evaluation_budgets):
            budget.thinking_limit(self.max_prompt_length, forced, context)
        longest = context - self.max_prompt_length if longest is None else longest
        if self.max_completion_length not in (None, longest):
            raise ValueError(
                f"max_completion_length is {self.max_completion_length}, but the budget {self.budget} with {forced} "
                f"forced tokens makes it {longest}; leave it unset"
            )
        self.max_completion_length = longest
        self.vllm_max_model_length: int | None = context
        return context


class E1Trainer(GRPOTrainer):
    """GRPO in which every completion is sampled under the separate budgets of Elastic Reasoning.

    Takes what `GRPOTrainer` takes, except `rollout_func`, `tools` and `environment_factory`. Reward functions receive,
    besides the dataset's columns, one value per completion of `solution` (the text after the close, "" if there is
    none), `thinking_end` (`"closed"`, `"forced"` or `"eos"`), `thinking_tokens`, `solution_tokens` and
    `solution_truncated`.

    Example:

    ```python
    >>> trainer = E1Trainer(
    ...     model="agentica-org/DeepScaleR-1.5B-Preview",
    ...     reward_funcs=make_rewards(["accuracy"], grader),
    ...     args=E1Config("E1-Math-1.5B", thinking_budget=1024, solution_budget=1024),
    ...     train_dataset=dataset,
    ... )
    >>> trainer.train()
    ```

    Raises:
        ValueError: budget, context length and configuration do not fit together; before the model is loaded.
        RuntimeError: while training, when the engine no longer samples from the weights that are trained.
    """

    _tag_names: ClassVar = ["trl", "grpo", "elastic-reasoning"]
    _name = "E1"
    _paper: ClassVar = {
        "title": "Scalable Chain of Thoughts via Elastic Reasoning",
        "id": "2505.05315",
        "citation": textwrap.dedent("""\
            @article{xu2025scalable,
                title        = {{Scalable Chain of Thoughts via Elastic Reasoning}},
                author       = {Yuhui Xu and Hanze Dong and Lei Wang and Doyen Sahoo and Junnan Li and
                                Caiming Xiong},
                year         = 2025,
                eprint       = {arXiv:2505.05315},
            }"""),
    }

    def __init__(
        self,
        model: str | PreTrainedModel,
        reward_funcs: Callable[..., Any] | list[Callable[..., Any]],
        args: E1Config,
        processing_class: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ):
        if own := {"rollout_func", "tools", "environment_factory"} & kwargs.keys():
            raise ValueError(f"E1Trainer makes its own rollouts; it does not take {sorted(own)}")
        name = model if isinstance(model, str) else model.name_or_path
        init_kwargs = dict(args.model_init_kwargs or {})
        hub_kwargs = {"revision": init_kwargs.get("revision"), "trust_remote_code": args.trust_remote_code}
        if processing_class is None:
            processing_class = AutoTokenizer.from_pretrained(
                name, padding_side="left", truncation_side="left", **hub_kwargs
            )
        config = AutoConfig.from_pretrained(name, **hub_kwargs) if isinstance(model, str) else model.config

        self.marker = Marker.from_tokenizer(processing_class, args.marker, args.forced_text)
        self.context = args.settle_lengths(self.marker, config.get_text_config().max_position_embeddings)
        super().__init__(
            model=model,
            reward_funcs=reward_funcs,
            args=args,
            processing_class=processing_class,
            rollout_func=E1Trainer.rollout,
            **kwargs,
        )

        generation = self.vllm_generation
        self._sampling = {
            "temperature": generation.temperature,
            "top_p": generation.top_p,
            "top_k": generation.top_k,
            "min_p": generation.min_p or 0.0,
            "repetition_penalty": generation.repetition_penalty,
            **generation.generation_kwargs,
        }
        if self.vllm_mode == "server":
            if self.accelerator.is_main_process:
                self._connect()
        elif self.accelerator.device.type == "cpu":
            generation.sync_weights = lambda: reload_weights(generation)

    def _connect(self) -> None:
        """Make a client of TRL's vLLM server, and check that its context is long enough."""
        trl_client = self.vllm_generation.vllm_client
        self._client = OpenAI(base_url=f"{trl_client.base_url}/v1", api_key="unused", max_retries=5)
        served = next(model for model in self._client.models.list() if model.id == trl_client.model)
        assert served.model_extra is not None
        if served.model_extra["max_model_len"] < self.context:
            raise ValueError(
                f"the vLLM server at {trl_client.base_url} has a context of {served.model_extra['max_model_len']} "
                f"tokens; the budget needs {self.context}: restart it with --max-model-len {self.context}"
            )

    @staticmethod
    def rollout(prompts: list[Any], trainer: "E1Trainer") -> dict[str, list[Any]]:
        """TRL's `rollout_func`: one budgeted completion for each of this process's prompts, and its bookkeeping."""
        prompt_ids, _, _ = trainer._tokenize_prompts(prompts)
        completions = trainer._complete(prompt_ids, trainer.args.budget)

        bookkeeping: dict[str, list[Any]] = {
            "thinking_end": [completion.thinking_end.value for completion in completions],
            "thinking_tokens": [completion.thinking_tokens for completion in completions],
            "solution_tokens": [completion.solution_tokens for completion in completions],
            "solution_truncated": [completion.solution_truncated for completion in completions],
        }
        for column, values in bookkeeping.items():
            trainer._log_completion_extra(column, values)
        for completion in completions:
            trainer._log_metric("thinking/mean_tokens", completion.thinking_tokens)
            trainer._log_metric("solution/mean_tokens", completion.solution_tokens)
            trainer._log_metric("solution/truncated_ratio", completion.solution_truncated)
            for end in ThinkingEnd:
                trainer._log_metric(f"thinking/{end}_ratio", completion.thinking_end is end)
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [completion.token_ids for completion in completions],
            "logprobs": [completion.logprobs for completion in completions],
            "env_mask": [
                [1] * len(completion.token_ids) if trainer.args.train_on_forced_close else completion.loss_mask
                for completion in completions
            ],
            "solution": trainer.processing_class.batch_decode(
                [completion.solution_ids for completion in completions], skip_special_tokens=True
            ),
            **bookkeeping,
        }

    def complete(self, prompts: list[Any], budget: Budget) -> list[Completion]:
        """Complete this process's prompts at any budget that fits `context`, with the weights of now.

        A collective operation. Nothing is logged and nothing is trained on.
        """
        self.vllm_generation.sync_weights()
        return self._complete(self._tokenize_prompts(prompts)[0], budget)

    def _complete(self, prompt_ids: list[list[int]], budget: Budget) -> list[Completion]:
        run = self._complete_on_server if self.vllm_mode == "server" else self._complete_in_process
        with profiling_context(self, "vLLM.generate"):
            return [rollout.completion for rollout in run(prompt_ids, budget)]

    def _start(self, prompt_ids: list[list[int]], budget: Budget) -> list[Rollout]:
        return [Rollout(ids, budget, self.marker, self.context) for ids in prompt_ids]

    def _complete_in_process(self, prompt_ids: list[list[int]], budget: Budget) -> list[Rollout]:
        """Run this process's prompts through the colocated engine, as `VLLMGeneration.generate` does with its own.

        In a tensor-parallel group every process runs the whole group's prompts, in the same order, and keeps its own.
        """
        generation = self.vllm_generation
        group_ids, rank = prompt_ids, 0
        if generation.tensor_parallel_size > 1:
            gathered: list[list[list[int]]] = [[] for _ in range(generation.tensor_parallel_size)]
            torch.distributed.all_gather_object(gathered, prompt_ids, group=generation.tp_group)
            group_ids = [ids for part in gathered for ids in part]
            rank = torch.distributed.get_rank(group=generation.tp_group)
        if generation.enable_sleep_mode:
            if generation._llm_weights_sleeping:
                generation.sync_weights()
            generation.llm.wake_up(tags=["kv_cache"])
        rollouts = self._start(group_ids, budget)
        if generation.tensor_parallel_size > 1 and is_peft_model(self.model):
            # The all-reduce of small LoRA gradients can race with vLLM's own collectives (trl issue 3671).
            accelerator = self.accelerator
            device_ids = [accelerator.local_process_index] if accelerator.device.type == "cuda" else None
            torch.distributed.barrier(device_ids=device_ids)
        stream(generation.llm, rollouts, self.marker, self._sampling)
        if generation.enable_sleep_mode:
            generation.llm.sleep(level=2)
            generation._llm_weights_sleeping = True
        return rollouts[rank * len(prompt_ids) : (rank + 1) * len(prompt_ids)]

    def _complete_on_server(self, prompt_ids: list[list[int]], budget: Budget) -> list[Rollout]:
        """Run every process's prompts from the main process, and hand each process its own."""
        rollouts = self._start(gather_object(prompt_ids), budget)
        if self.accelerator.is_main_process:
            model = self.vllm_generation.vllm_client.model
            stream_server(self._client, model, rollouts, self.marker, self._sampling)
        rollouts = broadcast_object_list([rollouts], from_process=0)[0]
        rank = self.accelerator.process_index
        return rollouts[rank * len(prompt_ids) : (rank + 1) * len(prompt_ids)]

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: list[Any],
        completions: list[Any],
        completion_ids_list: list[list[int]],
    ) -> torch.Tensor:
        """Add the mean reward of the completions that ended their thinking in each way, `reward/forced` and so on."""
        rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        rewards = (rewards_per_func * self.reward_weights.to(rewards_per_func.device)).nansum(dim=1).tolist()
        start = self.accelerator.process_index * len(inputs)
        for row, reward in zip(inputs, rewards[start : start + len(inputs)], strict=True):
            self._log_metric(f"reward/{row['thinking_end']}", reward)
        return rewards_per_func

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Stop when the engine samples from other weights than those trained, as a failed weight sync makes it do."""
        output = super()._generate_and_score_completions(inputs)
        metrics = self._metrics["train" if self.model.training else "eval"]
        gaps = metrics.get("sampling/sampling_logp_difference/mean", [])
        if gaps and gaps[-1] > self.args.max_logprob_gap:
            raise RuntimeError(
                f"step {self.state.global_step}: vLLM's log-probabilities differ from the trainer's by {gaps[-1]:.3g} "
                f"nats per token on average, more than max_logprob_gap = {self.args.max_logprob_gap}: its weights are "
                "stale, its precision is too low, or top_p, top_k, min_p or a penalty makes it sample from another "
                "distribution than the trainer computes"
            )
        return output
