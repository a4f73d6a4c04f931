"""Our own fields of a recipe, next to TRL's. Imports nothing heavy, so that `e1 train --help` stays quick."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from e1_trl.arguments import Count, Positive, Share, Within
from e1_trl.budget import BudgetArguments
from e1_trl.problems.arguments import ProblemArguments

ROUNDS_AWAY = (
    "weights of 16 bits without DeepSpeed have no fp32 masters, and small steps round away in them; set dtype to "
    "float32 (with bf16: true it still computes in bfloat16), or launch with DeepSpeed (accelerate_config: zero2)"
)
VARLEN = "varlen"  # an `attn_implementation`: attention of packed rows, by PyTorch's own kernel


@dataclass
class TrlFields:
    """Fields of TRL's and their defaults, with the limits that they must keep.

    TRL itself divides by some of them before it looks at them. `e1 plan` reads these without TRL.
    """

    attn_implementation: str | None = None
    beta: Annotated[float, Within(0)] = 0.0
    dtype: Any = "float32"
    generation_batch_size: Count | None = None
    gradient_accumulation_steps: Count = 1
    gradient_checkpointing: bool = True
    learning_rate: Annotated[float, Within(0)] = 1e-6
    lora_r: Count = 16
    lora_target_modules: list[str] | None = None
    max_steps: int = -1
    model_revision: str = "main"
    num_generations: Annotated[int, Within(2)] = 8
    num_iterations: Count = 1
    optim: Any = "adamw_torch_fused"
    per_device_train_batch_size: Count = 8
    save_steps: Positive = 500
    save_strategy: Any = "steps"
    save_total_limit: int | None = None
    steps_per_generation: Count | None = None
    temperature: Positive = 1.0
    top_p: Share = 1.0
    trust_remote_code: bool = False
    use_peft: bool = False
    vllm_enable_sleep_mode: bool = False
    vllm_gpu_memory_utilization: Share = 0.3
    vllm_mode: str = "colocate"
    vllm_tensor_parallel_size: Count = 1


@dataclass
class BudgetedTraining(BudgetArguments):
    """Fields of `E1Config` that `GRPOConfig` does not have."""

    GROUP: ClassVar[str] = "budgets of the training"

    thinking_budget: dict[str, Any] | str | int | None = field(
        default=1024,
        metadata={
            "help": "Tokens of thinking after which the close is forced; null: as the context allows. Or a schedule, "
            "as {log_uniform: [256, 4096]} or {stages: {0: 4000, 200: 3000}}."
        },
    )
    solution_budget: dict[str, Any] | str | int | None = field(
        default=1024,
        metadata={
            "help": "Tokens of solution after which it is truncated; null: as the context allows. Or a schedule, as "
            "{uniform: [256, 1024]}."
        },
    )
    total_budget: dict[str, Any] | str | int | None = field(
        default=None,
        metadata={
            "help": "Tokens of thinking and solution together after which a completion is truncated, also within its "
            "thinking; null: no such limit. Or a schedule."
        },
    )
    max_generated_tokens: Count | None = field(
        default=None,
        metadata={"help": "Stop after this many generated tokens, at the next logged step. Default: no such limit."},
    )
    eval_budgets: list[str] = field(
        default_factory=list, metadata={"help": "Budgets to validate at, every `eval_steps` steps, as 512+1024."}
    )
    eval_samples: Count = field(
        default=1, metadata={"help": "Answers sampled per problem at each budget of `eval_budgets`, and averaged."}
    )
    completions_steps: Count = field(
        default=10, metadata={"help": "Steps between two tables of completions, which `log_completions` turns on."}
    )
    padding_free: bool = field(
        default=True,
        metadata={
            "help": "Compute log-probabilities of real tokens only: with attn_implementation varlen or flash attention "
            "rows are packed, without they are trimmed to the longest of a pass; models that allow neither are padded "
            "as in TRL. False always pads."
        },
    )
    trained_close: str = field(
        default="sampled",
        metadata={
            "help": "Closes of the thinking that are trained on: sampled (those that the model sampled), all (forced "
            "closes as well), or none."
        },
    )


@dataclass
class RecipeArguments(ProblemArguments):
    """Fields of `E1ScriptArguments` that TRL's `ScriptArguments` does not have."""

    GROUP: ClassVar[str] = "rewards, validation data and start"

    reward_funcs: Annotated[list[str], list[str | dict[str, Any]]] = field(
        default_factory=lambda: ["accuracy"],
        metadata={
            "help": "Rewards, weighted by `reward_weights`: accuracy, format, the rewards of TRL's training script "
            "(accuracy_reward, ...), or the dotted path of your own function (my_rewards.brevity); in a recipe's file "
            "also with arguments, as {name: get_cosine_scaled_reward, max_len: 1280}."
        },
    )
    target: dict[str, Any] | str | int | None = field(
        default=None,
        metadata={
            "help": "Number of tokens that each training prompt asks for, drawn once per problem, as {uniform: [100, "
            "4000]}. Default: none is asked for."
        },
    )
    target_prompt: str | None = field(
        default=None,
        metadata={"help": "Text that asks for `target` tokens, added to the prompt, as ' Think for {target} tokens.'"},
    )
    eval_benchmark: str | None = field(
        default=None,
        metadata={"help": "Benchmark to validate on, as aime2024 or math500. Default: the dataset's test split."},
    )
    decontaminate: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Benchmarks whose problems are dropped from the training problems and counted; validation problems "
            "are always dropped."
        },
    )
    solve_rates: list[str] = field(
        default_factory=list,
        metadata={"help": "No longer accepted: name the file that `e1 exclude` writes as `exclude`."},
    )
    base: str | None = field(
        default=None,
        metadata={
            "help": "Recipe, by file or name, whose fields apply where a recipe's file does not set them; allowed in "
            "files only."
        },
    )
    accelerate_config: str | None = field(
        default=None,
        metadata={
            "help": "Accelerate configuration that `e1 train` launches the recipe with, by file or by the name of a "
            "shipped one. Has no effect under `accelerate launch` itself."
        },
    )
    gpu_memory: Positive = field(
        default=79.2,
        metadata={
            "help": "GiB of each GPU that the recipe is made for, which `e1 plan` assumes; a card of 80 GB has 79.2. "
            "Has no effect on training."
        },
    )
    skip_memory_check: bool = field(
        default=False,
        metadata={"help": "Train even if by `e1 plan` GPUs or the disk cannot hold what the training needs."},
    )
    dry_run: bool = field(
        default=False,
        metadata={"help": "Print prompts, budgets and a graded answer, and stop before the model is loaded."},
    )
