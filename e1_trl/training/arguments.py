"""Our own fields of a recipe, beside TRL's. Imports nothing heavy, so that `e1 train --help` stays quick."""

from dataclasses import dataclass, field

from e1_trl.budget import BudgetArguments
from e1_trl.problems.arguments import ProblemArguments


@dataclass
class BudgetedTraining(BudgetArguments):
    """What `E1Config` has beside the fields of `GRPOConfig`, which it documents."""

    thinking_budget: int | None = field(
        default=1024, metadata={"help": "Tokens of thinking after which the close is forced; null: the context."}
    )
    solution_budget: int | None = field(
        default=1024, metadata={"help": "Tokens of solution after which it is cut; null: the context."}
    )
    budget_policy: str | None = field(
        default=None,
        metadata={
            "help": "Which budget each rollout has, if not all the same: a dotted path to a subclass of "
            "`e1_trl.training.budgets.Budgets`, or {name: PATH, ARGUMENT: VALUE}. `thinking_budget` and "
            "`solution_budget` are the largest."
        },
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
    train_on_forced_close: bool = field(
        default=False, metadata={"help": "For comparison only: train on forced tokens as if they were sampled."}
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
