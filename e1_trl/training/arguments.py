"""Fields of `E1Config` next to TRL's. Imports nothing heavy: `e1 train --help` is quick."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from e1_trl.arguments import Count, Positive, Share, Within, option
from e1_trl.budget import BudgetArguments

ROUNDS_AWAY = (
    "16-bit weights have no fp32 master copy without DeepSpeed, so small updates are lost to rounding; set dtype to "
    "float32 (with bf16: true it still computes in bfloat16), or launch with DeepSpeed (accelerate_config: zero2)"
)
GROSS = 0.1  # nats between log-probabilities; rounding in bfloat16 stays well below, another distribution does not
VARLEN = "varlen"  # an `attn_implementation`: attention of packed rows by PyTorch's own kernel


@dataclass
class TrlFields:
    """Fields of TRL that `e1 plan` reads without TRL, or whose limits TRL checks too late; with TRL's defaults."""

    attn_implementation: str | None = None
    beta: Annotated[float, Within(0)] = 0.0
    dtype: Any = "float32"
    eval_steps: float | None = None
    generation_batch_size: Count | None = None
    gradient_accumulation_steps: Count = 1
    gradient_checkpointing: bool = True
    importance_sampling_level: Literal["token", "sequence"] = "token"
    learning_rate: Annotated[float, Within(0)] = 1e-6
    lora_modules_to_save: list[str] | None = None
    lora_r: Count = 16
    lora_target_modules: list[str] | None = None
    lora_target_parameters: list[str] | None = None
    loss_type: Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"] = "dapo"
    max_steps: int = -1
    model_revision: str = "main"
    multi_objective_aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = "sum_then_normalize"
    num_generations: Annotated[int, Within(2)] = 8
    num_iterations: Count = 1
    optim: Any = "adamw_torch_fused"
    per_device_train_batch_size: Count = 8
    save_steps: Positive = 500
    save_only_model: bool = False
    save_strategy: Any = "steps"
    save_total_limit: int | None = None
    scale_rewards: Literal["group", "batch", "none"] = "group"
    steps_per_generation: Count | None = None
    temperature: Positive = 1.0
    top_p: Share = 1.0
    trust_remote_code: bool = False
    use_peft: bool = False
    vllm_enable_sleep_mode: bool = False
    vllm_gpu_memory_utilization: Share = 0.3
    vllm_importance_sampling_mode: Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = (
        "token_truncate"
    )
    vllm_mode: Literal["colocate", "server"] = "colocate"
    vllm_tensor_parallel_size: Count = 1


@dataclass
class BudgetedTraining(BudgetArguments):
    """Fields of `E1Config` that `GRPOConfig` does not have."""

    GROUP: ClassVar[str] = "budgets of the training"

    thinking_budget: dict[str, Any] | str | int | None = option(
        1024,
        "Tokens of thinking after which the close is forced; null: limited by the context. Or a schedule, "
        "such as {log_uniform: [256, 4096]} or {my_schedules.staircase: [256, 1024]}.",
    )
    solution_budget: dict[str, Any] | str | int | None = option(
        1024,
        "Tokens of solution after which it is truncated; null: limited by the context. Or a schedule, such as "
        "{uniform: [256, 1024]}.",
    )
    total_budget: dict[str, Any] | str | int | None = option(
        None,
        "Tokens of thinking and solution together after which a completion is truncated, even within its "
        "thinking; null: no limit. Or a schedule.",
    )
    max_generated_tokens: Count | None = option(
        None, "Stop after this many generated tokens, at the next logged step. Default: no limit."
    )
    eval_budgets: list[str] = option([], "Budgets, such as 512+1024, at which to validate every `eval_steps` steps.")
    eval_samples: Count = option(1, "Answers sampled per problem at each budget of `eval_budgets`, and averaged.")
    completions_steps: Count = option(10, "Steps between two tables of completions, which `log_completions` turns on.")
    padding_free: bool = option(
        True,
        "Compute log-probabilities without padding: with attn_implementation varlen or flash "
        "attention rows are packed, with others they are trimmed to the longest row of a pass; models that "
        "allow neither are padded as in TRL. False always pads.",
    )
    trained_close: Literal["sampled", "all", "none"] = option(
        "sampled",
        "Closes of the thinking that are trained on: sampled (by the model), all (forced closes as well), or none.",
    )
