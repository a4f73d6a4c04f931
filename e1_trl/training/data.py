"""Problems of a recipe, to train on and to evaluate on: loaded, decontaminated, checked and measured.

Knows nothing about models, engines or how answers are graded.
"""

from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase, set_seed
from trl import DatasetMixtureConfig, get_dataset

from e1_trl.errors import UserError
from e1_trl.problems.benchmarks import find_benchmark
from e1_trl.problems.load import load_benchmark, load_problems, make_problems
from e1_trl.problems.selection import decontaminate
from e1_trl.problems.source import UNREADABLE, file_suffix, whole
from e1_trl.training.beforehand import check_datasets
from e1_trl.training.budgets import RolloutKey, Schedule, key_of
from e1_trl.training.config import E1Config
from e1_trl.training.lengths import LengthReward
from e1_trl.training.recipe_as_run import E1ScriptArguments
from e1_trl.training.rewards import Reward


def load(
    script_args: E1ScriptArguments,
    mixture: DatasetMixtureConfig,
    args: E1Config,
    tokenizer: PreTrainedTokenizerBase,
    rewards: Sequence[Reward],
) -> tuple[Dataset, Dataset | None]:
    """Load a recipe's problems to train on and, if any, to evaluate on, with the columns of `make_problems`."""
    need_answers = "accuracy" in script_args.reward_funcs or bool(args.eval_budgets)
    evaluates = args.eval_strategy != "no" or bool(args.eval_budgets)
    benchmark = script_args.eval_benchmark
    _check_evaluation(script_args, evaluates)
    train = read_split(script_args, mixture, args.seed, need_answers, script_args.dataset_train_split)
    evaluation = None
    if benchmark is not None:
        evaluation, _ = load_benchmark(benchmark, script_args)
    elif evaluates:
        evaluation = read_split(script_args, mixture, args.seed, need_answers, script_args.dataset_test_split)
    if evaluation is not None:
        train = decontaminate(train, evaluation, benchmark or f"the split {script_args.dataset_test_split!r}")
    for other in script_args.decontaminate:
        train = decontaminate(train, load_benchmark(other, script_args)[0], other)
    train = with_targets(train, script_args.target, script_args.target_prompt, args.seed)
    if evaluation is not None and not args.eval_budgets:  # which set lengths already
        evaluation = with_targets(evaluation, script_args.target, script_args.target_prompt, args.seed)
    needing = [each.__name__ for each in rewards if isinstance(each, LengthReward) and each.needs_target]
    if needing and "target" not in train.column_names:
        raise UserError(f"the reward {needing[0]} needs prompts that ask for a length; set target and target_prompt")
    return check_datasets(train, evaluation, rewards, args, tokenizer)


def _check_evaluation(script_args: E1ScriptArguments, evaluates: bool) -> None:
    """Refuse a benchmark that is not evaluated on or has another grader, and evaluation on the training problems."""
    benchmark = script_args.eval_benchmark
    if benchmark is not None:
        if not evaluates:
            raise UserError(f"eval_benchmark is {benchmark}, but nothing is evaluated; add eval_budgets, or remove it")
        needed = find_benchmark(benchmark).grader
        if script_args.grader != needed:
            raise UserError(
                f"eval_benchmark {benchmark} needs the grader {needed}, and grader is {script_args.grader}; evaluate "
                "on dataset_test_split, or remove it"
            )
        return
    name = script_args.dataset_name or ""
    train = script_args.dataset_train_split
    test = script_args.dataset_test_split
    if evaluates and file_suffix(name) and whole(train) != whole(test):
        raise UserError(
            f"{name} is one file, and the recipe evaluates on a split {test!r} of it; set eval_benchmark, or "
            f"slices of it (dataset_train_split: {train}[100:], dataset_test_split: {train}[:100]), or name a "
            f"folder with {train}.jsonl and {test}.jsonl as dataset_name"
        )


def read_split(
    script_args: E1ScriptArguments, mixture: DatasetMixtureConfig, seed: int, need_answers: bool, split: str
) -> Dataset:
    """Read a split of a recipe's dataset, or of TRL's `datasets:`, with the columns of `make_problems`."""
    name = script_args.dataset_name
    config = script_args.dataset_config
    if mixture.streaming or script_args.dataset_streaming:
        raise UserError("problems are counted and checked before training, so they cannot be streamed; unset streaming")
    if not mixture.datasets:
        if mixture.test_split_size is not None:
            raise UserError("test_split_size splits the datasets of the field datasets; name yours there, or remove it")
        if name is None:
            raise UserError("the recipe must name a dataset (dataset_name, or several under datasets)")
        return load_problems(name, split, script_args, config, need_answers)
    if name is not None or config is not None:
        both = "dataset_config" if name is None else "dataset_name"
        raise UserError(f"the recipe has both datasets and {both}; remove one of them")
    set_seed(seed)  # TRL draws the test split without one, so every process and every resumed run would differ
    try:
        splits = get_dataset(mixture)
    except (*UNREADABLE, TypeError, AttributeError) as error:  # the last two: an entry that is no mapping
        raise UserError(f"datasets: {str(error.__cause__ or error) or 'one holds no row'}") from error
    if split not in splits:
        raise UserError(f"the mixed datasets have no split {split!r}, only {', '.join(splits)}; set test_split_size")
    return make_problems(splits[split], f"the mixed datasets, split {split}", script_args, need_answers)


class ProblemKey(RolloutKey):
    """Key of all rollouts of a problem, in all steps."""

    @property
    def step(self) -> int:
        raise UserError("it depends on the step")


def with_targets(dataset: Dataset, target: Any, words: str | None, seed: int) -> Dataset:
    """Have each prompt ask for a length, which the column `target` holds; without target and words, change nothing."""
    if target is None and words is None:
        return dataset
    if target is None or "{target}" not in (words or ""):
        raise UserError(
            f"target is {target!r} and target_prompt {words!r}; set both, the second with {{target}} in it, or neither"
        )
    if "target" in dataset.column_names:
        raise UserError("the dataset has a column 'target'; rename it, or remove the recipe's target")
    schedule = Schedule.parse("target", target)
    wanted = f"target is {target!r}; it must be a number of tokens, or one drawn for each problem"
    try:
        schedule.at(ProblemKey(seed, (True, 0, 0), "", row=0))
    except UserError as error:
        raise UserError(f"{wanted} ({error})") from error
    if schedule.options.get("per") == "row" or min(tokens or 0 for tokens in schedule.values) < 1:
        raise UserError(wanted)

    def ask(row: dict[str, Any]) -> dict[str, Any]:
        prompt = row["prompt"]
        tokens = schedule.at(ProblemKey(seed, (True, 0, 0), key_of(row), row=0))
        text = str(words).replace("{target}", str(tokens))
        if isinstance(prompt, str):
            return {"prompt": prompt + text, "target": tokens}
        last = max(at for at, message in enumerate(prompt) if message["role"] == "user")
        asking = {**prompt[last], "content": prompt[last]["content"] + text}
        return {"prompt": [*prompt[:last], asking, *prompt[last + 1 :]], "target": tokens}

    # `ask` may call a user's function, which a cache of datasets would not see change.
    return dataset.map(ask, load_from_cache_file=False, desc="asking for lengths")
