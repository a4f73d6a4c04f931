"""Our own fields of a recipe, beside TRL's. Imports nothing heavy, so that `e1 train --help` stays quick."""

from dataclasses import dataclass, field
from typing import Any

from e1_trl.budget import BudgetArguments
from e1_trl.problems.arguments import ProblemArguments


@dataclass
class BudgetedTraining(BudgetArguments):
    """What `E1Config` has beside the fields of `GRPOConfig`, which it documents."""

    thinking_budget: dict[str, Any] | str | int | None = field(
        default=1024,
        metadata={
            "help": "Tokens of thinking after which the close is forced; null: the context. This and the next two may "
            "also be schedules, as {log_uniform: [256, 4096]} or {stages: {0: 4000, 200: 3000}}."
        },
    )
    solution_budget: dict[str, Any] | str | int | None = field(
        default=1024, metadata={"help": "Tokens of solution after which it is cut; null: the context."}
    )
    total_budget: dict[str, Any] | str | int | None = field(
        default=None,
        metadata={"help": "Tokens of both after which a completion is cut, its thinking too; null: only the others."},
    )
    max_generated_tokens: int | None = field(
        default=None,
        metadata={"help": "End with the first logged step by which so many tokens were sampled."},
    )
    eval_budgets: list[str] = field(
        default_factory=list, metadata={"help": "Budgets to evaluate at every `eval_steps` steps, as `512+1024`."}
    )
    eval_samples: int = field(
        default=1, metadata={"help": "Answers to each problem at each of `eval_budgets`, averaged."}
    )
    completions_steps: int = field(
        default=10, metadata={"help": "With `log_completions`: steps between two tables of completions."}
    )
    padding_free: bool = field(
        default=True,
        metadata={
            "help": "Compute log-probabilities of real tokens only: rows packed into one with flash attention, trimmed "
            "by length without; models that can do neither are padded as in TRL. False: always padded."
        },
    )
    trained_close: str = field(
        default="sampled",
        metadata={
            "help": "Closes of the thinking that are trained on: `sampled` ones, `all` (forced ones too), `none`."
        },
    )


@dataclass
class RecipeArguments(ProblemArguments):
    """What `E1ScriptArguments` has beside the fields of TRL's `ScriptArguments`."""

    reward_funcs: list[str] = field(
        default_factory=lambda: ["accuracy"],
        metadata={
            "help": "Rewards, weighed by `reward_weights`: ours (accuracy, format), those of TRL's training script "
            "(accuracy_reward, ...), or a dotted path to a function of one's own (my_rewards.brevity); in a file also "
            "with arguments, {name: get_cosine_scaled_reward, max_len: 1280}."
        },
    )
    target: dict[str, Any] | str | int | None = field(
        default=None,
        metadata={"help": "Tokens that each training prompt asks for, as {uniform: [100, 4000]}: once per problem."},
    )
    target_prompt: str | None = field(
        default=None, metadata={"help": "In which words, added to the prompt: ' Think for {target} tokens.'"}
    )
    eval_benchmark: str | None = field(
        default=None,
        metadata={"help": "Benchmark to evaluate on instead of the dataset's test split: aime2024, math500, …"},
    )
    decontaminate: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Benchmarks whose problems are dropped from the training problems, with a count; problems of the "
            "training's own validation always are."
        },
    )
    solve_rates: list[str] = field(
        default_factory=list, metadata={"help": "Refused: `e1 exclude` writes a file for `exclude`."}
    )
    base: str | None = field(
        default=None,
        metadata={"help": "In a file only: a recipe whose fields hold where this one says nothing; a file, or a name."},
    )
    accelerate_config: str | None = field(
        default=None,
        metadata={
            "help": "What `e1 train` launches this recipe with: the name of a shipped Accelerate configuration, or a "
            "file. Under `accelerate launch` itself it has no effect."
        },
    )
    skip_memory_check: bool = field(
        default=False,
        metadata={"help": "Train even if by `e1 plan` weights, optimizer and engine cannot share a GPU."},
    )
    dry_run: bool = field(
        default=False,
        metadata={"help": "Print what would be trained on, and stop before the model is loaded."},
    )
