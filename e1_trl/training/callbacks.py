"""Callbacks of the trainer: how it resumes and ends, memory of rewards, master weights, and a test of packed rows."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import is_peft_model
from safetensors import safe_open
from torch.distributed.fsdp import FSDPModule
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback, TrainerState
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from transformers.utils import cached_file
from trl import GRPOConfig

from e1_trl.errors import UserError
from e1_trl.training.arguments import GROSS
from e1_trl.training.groups import GroupReward
from e1_trl.training.rewards import Reward, name_of
from e1_trl.training.scoring import Layout

if TYPE_CHECKING:
    from e1_trl.training.trainer import E1Trainer

logger = logging.getLogger(__name__)

PROBE = 32  # tokens of each of the two rows that test packing
# Logged metrics of sampled tokens; earlier logs have only the second name of the thinking's.
THINKING = ("thinking/sampled_tokens", "thinking/mean_tokens")
SOLUTION = "solution/mean_tokens"


class DataOrder(TrainerCallback):
    """Gives a resumed training the order of problems that it would have had.

    TRL draws each epoch's order from a generator that no checkpoint keeps, so resumed epochs would repeat the first.
    """

    def on_train_begin(
        self, args: Any, state: TrainerState, control: Any, train_dataloader: Any = None, **_: Any
    ) -> None:
        batches = train_dataloader.batch_sampler
        sampler = getattr(batches, "batch_sampler", batches).sampler  # of all processes, if each has a part
        for _epoch in range(int(state.epoch or 0)):
            next(iter(sampler), None)  # draws the order of a whole epoch


class ResumedFields(TrainerCallback):
    """Gives a resumed training its recipe's intervals and, to Transformers' `own` optimizer, rate and Adam's fields."""

    def __init__(self, own: bool = True):
        self._own = own

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **given: Any) -> None:
        if state.global_step == 0:
            return
        if len(getattr(given.get("model"), "peft_config", ())) > 1:
            raise UserError("several adapters, as in a PeftModel with beta, cannot resume: pass base and peft_config")
        state.compute_steps(args, state.max_steps)
        if self._own and args.optim.startswith("adamw"):
            groups = given["optimizer"].param_groups
            groups[0]["weight_decay"] = args.weight_decay  # the second group has none
            for group in groups:
                group.update(betas=(args.adam_beta1, args.adam_beta2), eps=args.adam_epsilon)
        lr_scheduler = given.get("lr_scheduler")
        if self._own and isinstance(lr_scheduler, LambdaLR) and {*lr_scheduler.base_lrs} != {args.learning_rate}:
            lr_scheduler.base_lrs = [args.learning_rate for _ in lr_scheduler.base_lrs]
            lr_scheduler.last_epoch -= 1
            lr_scheduler.step()  # the last one again, which sets the rate of the next optimizer step


def generated_tokens(history: Sequence[Mapping[str, Any]], rollouts: int, steps: Fraction | int = 1) -> int:
    """Count the tokens that a training has sampled, from the `log_history` of its state; forced ones do not count.

    A generation has `rollouts` in all processes together, and lasts `steps` optimizer steps.
    """
    total = 0.0
    last = 0
    for entry in history:
        thinking = next((entry[name] for name in THINKING if name in entry), None)
        if thinking is not None:
            generations = math.ceil(entry["step"] / steps)
            total += (generations - last) * rollouts * (thinking + entry[SOLUTION])
            last = generations
    return round(total)


def generation_of(args: GRPOConfig) -> tuple[int, Fraction]:
    """Return the rollouts of a generation in all processes, and the optimizer steps that it lasts."""
    rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    return args.generation_batch_size, Fraction(args.generation_batch_size * args.num_iterations, rows)


class TokenLimit(TrainerCallback, ExportableState):
    """Ends a training at the first logged step by which `tokens` were generated; `None` is no limit.

    Budgets change the cost of a step, so trainings are compared by tokens. As at `max_steps`, an evaluation and a
    checkpoint follow if their strategy is `steps`; by epochs they follow anyway. A finished training that resumes ends
    at once, also at `max_steps`, which Transformers checks only after a step. A training that resumes with another
    generation batch is refused, since logged means would be multiplied by the wrong size.
    """

    def __init__(self, tokens: int | None):
        self.tokens = tokens
        self.generation = ""

    def state(self) -> dict[str, Any]:
        return {"args": {"tokens": self.tokens}, "attributes": {"generation": self.generation}}

    def _is_reached(self, args: GRPOConfig, state: TrainerState) -> bool:
        return self.tokens is not None and generated_tokens(state.log_history, *generation_of(args)) >= self.tokens

    def on_train_begin(self, args: GRPOConfig, state: TrainerState, control: Any, **_: Any) -> None:
        rollouts, steps = generation_of(args)
        self.generation = f"{rollouts} rollouts for {steps} steps"
        saved = state.stateful_callbacks.get(type(self).__name__, {}).get("attributes", {}).get("generation")
        if self.tokens is not None and state.global_step and saved not in (None, "", self.generation):
            raise UserError(f"max_generated_tokens counts generations of {saved}; this run has {self.generation}")
        self.generation = saved or self.generation  # the first stays if a run without a limit follows
        state.stateful_callbacks[type(self).__name__] = self.state()
        control.should_training_stop |= state.global_step >= state.max_steps or self._is_reached(args, state)

    def on_log(self, args: GRPOConfig, state: TrainerState, control: Any, **_: Any) -> None:
        if self._is_reached(args, state):
            control.should_training_stop = True
            control.should_evaluate |= args.eval_strategy == IntervalStrategy.STEPS
            control.should_save |= args.save_strategy == SaveStrategy.STEPS


class RewardState(TrainerCallback, ExportableState):
    """Saves the memory of rewards in checkpoints, in `trainer_state.json`, and restores it when a run resumes."""

    def __init__(self, rewards: Sequence[Reward]):
        self.rewards = {
            f"{at} {name_of(reward)}": reward for at, reward in enumerate(rewards) if isinstance(reward, GroupReward)
        }

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {name: deepcopy(reward.memory) for name, reward in self.rewards.items()}}

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        saved = state.stateful_callbacks.get(type(self).__name__, {}).get("attributes", {})
        for name in saved.keys() & self.rewards.keys():  # rewards of equal name and place
            self.rewards[name].memory.clear()
            self.rewards[name].memory.update(saved[name])
        # Transformers looks up this entry at every save, and a resumed checkpoint may lack it.
        state.stateful_callbacks[type(self).__name__] = self.state()


class MasterWeights(TrainerCallback):
    """Sets DeepSpeed's fp32 master weights to the numbers of the checkpoint on the Hub or in a folder.

    DeepSpeed copies the masters from a model that it has cast to bfloat16. From rounded masters, dozens of steps of
    1e-6 reach neither the rollouts nor the saved weights; from the checkpoint's, all arrive in expectation.

    Every process sets its own part. Nothing is set if the training resumes, if an adapter is trained, or if the
    checkpoint is in 16 bits. A weight that is not the checkpoint's rounded one is left alone, with a warning.
    """

    def __init__(self, checkpoint: str, revision: str | None = None):
        self._checkpoint = checkpoint
        self._revision = revision

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, model: Any = None, **_: Any) -> None:
        rounded = {name: each for name, each in model.named_parameters() if each.requires_grad and each.itemsize == 2}
        if state.global_step > 0 or not rounded or is_peft_model(model):
            return
        left = set(rounded)
        for name, value in tensors(self._checkpoint, self._revision):
            if name in rounded and (value.itemsize == 2 or begin(rounded[name], value)):
                left.discard(name)
        if left and state.is_world_process_zero:
            logger.warning(
                "the master weights of %d of %d tensors, such as %s, begin rounded to bfloat16: the safetensors of %s "
                "hold no such tensor, or other values",
                *(len(left), len(rounded), min(left), self._checkpoint),
            )


def tensors(checkpoint: str, revision: str | None) -> Iterator[tuple[str, torch.Tensor]]:
    """Iterate over the stored weights of a checkpoint by name; a missing checkpoint has none."""
    try:
        folder = Path(str(cached_file(checkpoint, "config.json", revision=revision))).parent
    except OSError:  # a model in memory may come from a folder that is gone
        return
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, "pt") as content:
            for name in content.keys():  # noqa: SIM118  (it is no dictionary)
                yield name, content.get_tensor(name)


def begin(parameter: torch.nn.Parameter, value: torch.Tensor) -> bool:
    """Set this process's part of a parameter's master to `value` if the parameter is `value` rounded; say whether."""
    # Imported late: it takes seconds, and initializes DeepSpeed's accelerator.
    from deepspeed.utils import safe_get_local_fp32_param, safe_set_full_fp32_param, safe_set_local_fp32_param

    if not hasattr(parameter, "ds_id"):  # ZeRO-1 and 2, where every process has the whole weight
        same = parameter.shape == value.shape and torch.equal(value.to(parameter), parameter)
        if same:
            safe_set_full_fp32_param(parameter, value)
        return same
    # DeepSpeed's own setter of a whole parameter of ZeRO-3 fails in the last process, whose part is padded.
    part = safe_get_local_fp32_param(parameter).detach().clone()
    start = torch.distributed.get_rank(parameter.ds_process_group) * part.numel()
    own = value.flatten()[start : start + part.numel()].to(part)
    begun = part[: own.numel()]
    same = value.numel() == parameter.ds_numel and torch.equal(own.to(parameter.dtype).to(part), begun)
    if same:
        begun.copy_(own)
        safe_set_local_fp32_param(parameter, part)
    return same


class StartChecks(TrainerCallback):
    """Prints the layout of rows and its reason as a training begins; turns packing into trimming if packed rows mix."""

    def __init__(self, trainer: "E1Trainer", why: str):
        self._trainer = trainer
        self._why = why

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        trainer = self._trainer
        if trainer.validation is None and trainer.args.eval_budgets:  # TRL would evaluate at another budget
            raise UserError("eval_budgets needs trainer.add_callback(Validation(trainer, …)), or must be unset")
        if trainer.layout is Layout.PACKED:
            gap = packing_gap(trainer)
            if not gap < GROSS:
                trainer.layout = Layout.TRIMMED
                self._why = f"packed, rows see each other in this model's attention ({gap:.2g} nats a token)"
        if state.is_world_process_zero:
            print(f"log-probabilities are computed {trainer.layout}: {self._why}", flush=True)


def packing_gap(trainer: "E1Trainer") -> float:
    """Return by how much packing changes the log-probabilities of two short rows: the larger mean, in nats a token.

    The rows are equal, so a row that sees the other can copy it, and changes most. A collective operation.
    """
    model = trainer.model
    layout = trainer.layout
    vocabulary = model.config.get_text_config().vocab_size
    row = torch.randint(vocabulary, (1, PROBE), generator=torch.Generator().manual_seed(0))
    ids = row.repeat(2, 1).to(trainer.accelerator.device)
    mask = torch.ones_like(ids)
    was_training = model.training
    model.eval()  # dropout would differ
    scores = []
    with torch.no_grad():
        for trainer.layout in (Layout.TRIMMED, Layout.PACKED):
            scores.append(trainer.score(model, ids, mask, PROBE - 1)[0])
    trainer.layout = layout
    model.train(was_training)
    for each in model.modules():
        if isinstance(each, FSDPModule):  # as a backward pass does, and as a sync of weights expects
            each.reshard()
    alone, packed = scores
    gaps: torch.Tensor = trainer.accelerator.gather((packed - alone).abs().mean(1).max())
    return gaps.max().item()
