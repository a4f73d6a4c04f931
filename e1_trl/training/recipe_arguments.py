"""Fields of a recipe that neither `E1Config` nor TRL has. Imports nothing heavy: `e1 train --help` is quick."""

from dataclasses import dataclass
from typing import Any, ClassVar

from e1_trl.arguments import Positive, option
from e1_trl.problems.arguments import ProblemArguments


@dataclass
class RecipeArguments(ProblemArguments):
    """Fields of `E1ScriptArguments` that TRL's `ScriptArguments` does not have."""

    GROUP: ClassVar[str] = "rewards, validation data and start"

    reward_funcs: list[str | dict[str, Any]] = option(
        ["accuracy"],
        "Rewards, weighted by `reward_weights`: accuracy, format, the rewards of TRL's training script "
        "(accuracy_reward, ...), or the dotted path of your own function (my_rewards.brevity); in a recipe's file "
        "also with arguments, such as {name: get_cosine_scaled_reward, max_len: 1280}.",
    )
    advantage: dict[str, Any] | str | None = option(
        None,
        "Advantages of a group's rollouts: lead, mgpo, gfpo, per_fork, brpo, s_grpo, or the dotted path of your own "
        "function; also with arguments: {name: gfpo, keep: 4}. Default: TRL's, by `scale_rewards`.",
    )
    target: dict[str, Any] | str | int | None = option(
        None,
        "Number of tokens that each training prompt asks for, drawn once per problem: {uniform: [100, 4000]}. "
        "Default: prompts ask for no length.",
    )
    target_prompt: str | None = option(
        None, "Text that asks for `target` tokens, added to the prompt: ' Think for {target} tokens.'"
    )
    eval_benchmark: str | None = option(
        None, "Benchmark to validate on, such as aime2024 or math500. Default: the dataset's test split."
    )
    decontaminate: list[str] = option(
        [],
        "Benchmarks whose problems are dropped from the training problems and counted; validation problems are always "
        "dropped.",
    )
    base: str | None = option(
        None,
        "Recipe, by file or name, whose fields apply unless the recipe's own file sets them; allowed in files only.",
    )
    accelerate_config: str | None = option(
        None,
        "Accelerate configuration that `e1 train` launches the recipe with, by file or by the name of a shipped one. "
        "No effect under `accelerate launch`.",
    )
    gpu_memory: Positive = option(
        79.2,
        "GiB of each GPU that the recipe is made for, which `e1 plan` assumes; a card of 80 GB has 79.2. "
        "No effect on training.",
    )
    skip_memory_check: bool = option(False, "Train even if `e1 plan` finds too little GPU memory or disk space.")
    dry_run: bool = option(False, "Print prompts, budgets and a graded answer, and stop before the model is loaded.")
