"""What a training would not show while it runs, and is therefore refused or warned of before it begins."""

import logging
import os
from collections.abc import Sequence

import torch
from accelerate.utils import is_peft_model
from transformers import AutoConfig, PreTrainedModel

from e1_trl.errors import UserError
from e1_trl.training.arguments import ROUNDS_AWAY
from e1_trl.training.config import E1Config
from e1_trl.training.lengths import warn_of_scaling
from e1_trl.training.rewards import Reward, warn_of_thinking

logger = logging.getLogger(__name__)

MEANS_OVER_ROWS = {"grpo", "sapo", "dr_grpo", "luspo"}  # losses in which a row without a token counts all the same


def check_precision(args: E1Config, model: str | PreTrainedModel, adapter: bool = False) -> None:
    """Refuse to train weights of 16 bits that have no fp32 masters, which are DeepSpeed's and FSDP's.

    Args:
        args: say how the model will be loaded, and know of DeepSpeed.
        model: a name, or a model as it will be trained.
        adapter: whether an adapter, in fp32, will be added to the model and trained instead of it.

    Raises:
        UserError: names the dtype and what would be right.
    """
    shards = bool(args.fsdp) or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if args.deepspeed_plugin is not None or shards or adapter:
        return
    low = [dtype for dtype in _trained_dtypes(args, model) if dtype.itemsize == 2]
    if low:
        name = str(low[0]).removeprefix("torch.")
        raise UserError(f"dtype is {name}, and learning_rate is {args.learning_rate:g}: {ROUNDS_AWAY}")


def _trained_dtypes(args: E1Config, model: str | PreTrainedModel) -> set[torch.dtype]:
    if not isinstance(model, str):
        if getattr(model, "is_loaded_in_4bit", False) or getattr(model, "is_loaded_in_8bit", False):
            return set()  # TRL keeps adapters of a quantized model in bfloat16, as QLoRA's authors do
        return {each.dtype for each in model.parameters() if each.requires_grad}
    given = (args.model_init_kwargs or {}).get("dtype", "float32")  # as TRL has it
    if given in ("auto", None):
        revision = (args.model_init_kwargs or {}).get("revision")
        given = AutoConfig.from_pretrained(model, revision=revision, trust_remote_code=args.trust_remote_code).dtype
    dtype = getattr(torch, given) if isinstance(given, str) else given
    return set() if dtype is None else {dtype}


def warn_beforehand(args: E1Config, model: PreTrainedModel, rewards: Sequence[Reward], names: Sequence[str]) -> None:
    """Warn of what makes a training learn less, or something else, than its recipe says.

    Args:
        args: of the training.
        model: as it is trained, with its adapter if any.
        rewards: what completions are paid for.
        names: of these.
    """
    warn_of_thinking(names, rewards)
    if args.top_p < 1:
        logger.warning(
            "top_p is %g: vLLM samples from another distribution than the trainer computes; set it to 1", args.top_p
        )
    if is_peft_model(model) and any(each.itemsize == 2 and not each.requires_grad for each in model.parameters()):
        logger.warning(
            "vLLM gets the adapter merged into weights of 16 bits, where nearly all that it has learnt rounds away as "
            "long as that is little; set dtype to float32"
        )
    if args.mask_truncated_completions and args.loss_type in MEANS_OVER_ROWS:
        logger.warning(
            "mask_truncated_completions with loss_type %s: masked completions count in the loss's mean over rows, "
            "so the gradient shrinks by their share; loss_type dapo divides by the tokens that are left",
            args.loss_type,
        )
    if args.eval_strategy != "no" and not args.eval_budgets and args.budgets.fixed is None:
        logger.warning(
            "evaluations sample at the budgets that the schedule has for their step (%s), so that their curve shows "
            "policy and budget together; eval_budgets evaluates at fixed ones",
            args.budgets,
        )
    warn_of_scaling(rewards, args.scale_rewards, args.multi_objective_aggregation)
