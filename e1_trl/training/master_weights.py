"""DeepSpeed's fp32 master weights, begun at the checkpoint's own numbers. Knows nothing about budgets.

DeepSpeed casts a model to bfloat16 before it copies the masters from it, so that they begin on bfloat16's grid. There a
step of 1e-6 is less than half of the distance to the next number almost everywhere: dozens of steps reach neither the
rollouts nor what is saved. From where the checkpoint is, the share of a weight's steps that arrives is the whole of
them, in expectation.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import is_peft_model
from safetensors import safe_open
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import cached_file

logger = logging.getLogger(__name__)


class MasterWeights(TrainerCallback):
    """Begins the masters of ZeRO-1, 2 and 3 at the checkpoint's fp32 numbers; a training that resumes has its own.

    Every process sets its own part of them. A checkpoint in 16 bits has no more to say than the masters know, and an
    adapter has none. A weight that is not the checkpoint's, rounded, is left as it is, with a warning.

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
