"""Refusals of adapters whose training would give vLLM, the reference or a later run other weights, without a word."""

from typing import Any

import torch
from accelerate.utils import is_peft_model

from e1_trl.arguments import OF_A_WHOLE_BASE
from e1_trl.errors import UserError
from e1_trl.training.config import E1Config

UNMERGED = ["ADALORA", "OSF", "TRAINABLE_TOKENS"]  # types of adapters, and fields of their configurations
UNMERGED += ["layer_replication", "alora_invocation_tokens", "trainable_token_indices", "is_prompt_learning"]


def check_adapter(args: E1Config, config: Any) -> None:
    """Raise a `UserError` for PEFT's configuration of an adapter that cannot be merged, or changes its base."""
    name = str(config.peft_type.value)
    plugin = args.deepspeed_plugin
    if plugin is not None and plugin.zero_stage < 3 and (args.bf16 or args.fp16):
        raise UserError(
            f"under ZeRO-{plugin.zero_stage} an adapter's base changes, as 16 bits round it at each merge for vLLM; "
            "use accelerate_config zero3, or dtype float32 without DeepSpeed"
        )
    if name in UNMERGED or (found := [each for each in UNMERGED if getattr(config, each, None)]):
        what = name if name in UNMERGED else f"{name} with {found[0]}"
        raise UserError(f"the adapter is {what}, which cannot be merged into the weights that vLLM gets; train LoRA")
    bias = getattr(config, "bias", "none")
    start = str(getattr(config, "init_lora_weights", True)).lower()
    if args.beta and (bias != "none" or start not in OF_A_WHOLE_BASE):
        raise UserError(f"beta compares with a base that bias {bias} or init_lora_weights {start} changes; unset it")


def check_adapters(args: E1Config, model: Any) -> None:
    """Raise a `UserError` for a model with adapters that train nothing, or that `check_adapter` or vLLM refuses."""
    if not is_peft_model(model):
        return
    if not any(each.requires_grad for each in model.parameters()):
        raise UserError("no weight of the adapter is trained; load it with is_trainable=True")
    for config in model.peft_config.values():
        check_adapter(args, config)
        if isinstance(config.target_modules, set):
            config.target_modules = sorted(config.target_modules)  # else the file differs from one save to the next
    base = model.get_base_model()
    ends: list[torch.nn.Module] = [*filter(None, (base.get_input_embeddings(), base.get_output_embeddings()))]
    trained = any(each.requires_grad for end in ends for each in end.parameters())
    if trained and base.config.get_text_config().tie_word_embeddings:
        raise UserError(
            "the adapter trains embeddings that are tied to the head, which vLLM would not get; leave them out of "
            "target_modules and modules_to_save"
        )
