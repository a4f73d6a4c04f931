"""Callbacks of the trainer: the order of problems, a limit of tokens, the memory of rewards, DeepSpeed's masters."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import is_peft_model
from safetensors import safe_open
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from transformers.utils import cached_file
from trl import GRPOConfig
from trl.trainer.utils import RepeatSampler, get_callable_name

from e1_trl.errors import UserError
from e1_trl.training.groups import GroupReward
from e1_trl.training.rewards import Reward

logger = logging.getLogger(__name__)

PARTS = ("thinking/mean_tokens", "solution/mean_tokens")  # of what is logged: sampled tokens


class DataOrder(TrainerCallback):
    """Has a training that resumes go on with the order that it would have had.

    TRL's sampler draws each epoch's order from a generator that no checkpoint keeps, and Transformers skips batches of
    the epoch that it resumes in alone. Without this, that epoch has the order of the first.
    """

    def on_train_begin(
        self, args: Any, state: TrainerState, control: Any, train_dataloader: Any = None, **_: Any
    ) -> None:
        batches = train_dataloader.batch_sampler
        sampler = getattr(batches, "batch_sampler", batches).sampler  # of all processes, where each has a part
        if isinstance(sampler, RepeatSampler):
            for _epoch in range(int(state.epoch or 0)):
                next(iter(sampler), None)  # draws the order of a whole epoch


def generated_tokens(history: Sequence[Mapping[str, Any]], rollouts: float) -> int:
    """Tokens that a training has sampled, of all its rollouts, by what it has logged; forced ones are none.

    Args:
        history: the `log_history` of its state.
        rollouts: of an optimizer step.
    """
    total, last = 0.0, 0
    for entry in history:
        if PARTS[0] in entry:
            total += (entry["step"] - last) * rollouts * sum(entry[part] for part in PARTS)
            last = entry["step"]
    return round(total)


def rollouts_of_a_step(args: GRPOConfig) -> float:
    """New rollouts of an optimizer step, of all processes: fewer where steps repeat a generation."""
    rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    return rows / args.num_iterations


class TokenLimit(TrainerCallback):
    """Ends the training with the first logged step that reaches `tokens` generated ones; never if that is `None`.

    Trainings are compared by tokens, since budgets change what a step costs.

    As at `max_steps`, an evaluation and a checkpoint follow where their strategy is `steps`; by epochs they do anyway.
    """

    def __init__(self, tokens: int | None):
        self.tokens = tokens

    def on_log(self, args: GRPOConfig, state: TrainerState, control: Any, **_: Any) -> None:
        if self.tokens is None or generated_tokens(state.log_history, rollouts_of_a_step(args)) < self.tokens:
            return
        control.should_training_stop = True
        if args.eval_strategy == IntervalStrategy.STEPS:
            control.should_evaluate = True
        if args.save_strategy == SaveStrategy.STEPS:
            control.should_save = True


class RewardState(TrainerCallback, ExportableState):
    """Saves what the rewards remember of past generations, and gives it back to them where a run resumes.

    Transformers writes it into a checkpoint's `trainer_state.json`, with which the checkpoint is whole. A run that
    resumes within a generation samples it anew, as TRL does, and remembers it anew.
    """

    def __init__(self, rewards: Sequence[Reward]):
        groups = {at: each for at, each in enumerate(rewards) if isinstance(each, GroupReward)}
        self.rewards = {f"{at} {get_callable_name(reward)}": reward for at, reward in groups.items()}

    def state(self) -> dict[str, Any]:
        """What Transformers saves, as it is now."""
        return {"args": {}, "attributes": {name: deepcopy(reward.memory) for name, reward in self.rewards.items()}}

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        for name, memory in self._saved(state).items():
            self.rewards[name].memory.clear()
            self.rewards[name].memory.update(memory)
        # Transformers looks it up at every save, and an older checkpoint has none.
        state.stateful_callbacks[type(self).__name__] = self.state()

    def check(self, checkpoint: str, keys: Collection[str]) -> None:
        """Refuse to resume with what was remembered of other problems.

        Raises:
            UserError: a reward remembers problems, none of which has one of these keys.
        """
        saved = self._saved(TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME)))
        for name, memory in saved.items():
            problems = memory.get("problems")
            if isinstance(problems, dict) and problems and problems.keys().isdisjoint(keys):
                raise UserError(
                    f"{checkpoint}: its reward {name.partition(' ')[2]} remembers {len(problems)} problems, none of "
                    "which is in the dataset; resume with the dataset that it was trained on, or start anew"
                )

    def _saved(self, state: TrainerState) -> dict[str, dict[str, Any]]:
        """What rewards of the same name and place remembered when a trainer's state was saved."""
        saved = state.stateful_callbacks.get(type(self).__name__, {}).get("attributes", {})
        return {name: memory for name, memory in saved.items() if name in self.rewards}


class MasterWeights(TrainerCallback):
    """Begins DeepSpeed's fp32 master weights at the checkpoint's own numbers; a training that resumes has its own.

    DeepSpeed casts a model to bfloat16 before it copies the masters from it, so that they begin on bfloat16's grid.
    There a step of 1e-6 is less than half of the distance to the next number almost everywhere: dozens of steps reach
    neither the rollouts nor what is saved. From where the checkpoint is, the share of a weight's steps that arrives is
    the whole of them, in expectation.

    Under ZeRO-1, 2 and 3, every process sets its own part of them. A checkpoint in 16 bits has no more to say than the
    masters know, and an adapter has none. A weight that is not the checkpoint's, rounded, is left as it is, with a
    warning.

    Args:
        checkpoint: Hub id or folder of what the model was loaded from, or what a model in memory takes for that.
        revision: of it, on the Hub.
    """

    def __init__(self, checkpoint: str, revision: str | None = None):
        self._checkpoint = checkpoint
        self._revision = revision

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: PreTrainedModel | None = None,
        **kwargs: Any,
    ) -> None:
        assert model is not None
        rounded = {name: each for name, each in model.named_parameters() if each.requires_grad and each.itemsize == 2}
        if state.global_step > 0 or not rounded or is_peft_model(model):
            return
        left = set(rounded)
        for name, value in tensors(self._checkpoint, self._revision):
            if name in rounded and (value.itemsize == 2 or begin(rounded[name], value)):
                left.discard(name)
        if left and state.is_world_process_zero:
            logger.warning(
                "the master weights of %d of %d tensors, %s first, begin rounded to bfloat16: in the safetensors of %s "
                "there is no such tensor, or another one",
                *(len(left), len(rounded), min(left), self._checkpoint),
            )


def tensors(checkpoint: str, revision: str | None) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights of a checkpoint, one after the other, by name, as they are stored; none of one that is not there."""
    try:
        folder = Path(str(cached_file(checkpoint, "config.json", revision=revision))).parent
    except OSError:  # a model in memory may come from a folder that is gone
        return
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, "pt") as content:
            for name in content.keys():  # noqa: SIM118  (it is no dictionary)
                yield name, content.get_tensor(name)


def begin(parameter: torch.nn.Parameter, value: torch.Tensor) -> bool:
    """Set this process's part of a parameter's master to that of `value`, of the parameter's shape, in fp32.

    Returns:
        Whether the master was `value`, rounded, before.
    """
    # Takes seconds, and initializes DeepSpeed's accelerator: not where nothing is trained with it.
    from deepspeed.utils import safe_get_local_fp32_param, safe_set_full_fp32_param, safe_set_local_fp32_param

    if not hasattr(parameter, "ds_id"):  # ZeRO-1 and 2, where every process has the whole weight
        same = parameter.shape == value.shape and torch.equal(value.to(parameter), parameter)
        if same:
            safe_set_full_fp32_param(parameter, value)
        return same
    # DeepSpeed's own way to set a whole one of ZeRO-3 fails in the last process, whose part is padded.
    part = safe_get_local_fp32_param(parameter).detach().clone()
    start = torch.distributed.get_rank(parameter.ds_process_group) * part.numel()
    own = value.flatten()[start : start + part.numel()].to(part)
    begun = part[: own.numel()]
    same = value.numel() == parameter.ds_numel and torch.equal(own.to(parameter.dtype).to(part), begun)
    if same:
        begun.copy_(own)
        safe_set_local_fp32_param(parameter, part)
    return same
