"""The problems of a recipe, as they are trained on and evaluated on: loaded, decontaminated, checked and measured.

Knows nothing about models, engines or how answers are graded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from datasets.exceptions import DatasetGenerationError
from transformers import PreTrainedTokenizerBase, set_seed
from trl import DatasetMixtureConfig, get_dataset

from e1_trl.arguments import from_yaml
from e1_trl.errors import UserError
from e1_trl.problems.benchmarks import find_benchmark
from e1_trl.problems.load import load_benchmark, load_problems, make_problems
from e1_trl.problems.prompts import MEASURED
from e1_trl.problems.selection import decontaminate, named_in
from e1_trl.problems.source import file_suffix, whole
from e1_trl.training.beforehand import check_size, checked
from e1_trl.training.budgets import DRAWN, RolloutKey, Schedule, key_of
from e1_trl.training.config import E1Config
from e1_trl.training.lengths import LengthReward
from e1_trl.training.recipe_as_run import E1ScriptArguments
from e1_trl.training.rewards import Reward


@dataclass(frozen=True)
class Problems:
    """What is trained on, and what is evaluated on meanwhile, if anything is."""

    train: Dataset
    evaluation: Dataset | None


def load(
    script_args: E1ScriptArguments,
    mixture: DatasetMixtureConfig,
    args: E1Config,
    tokenizer: PreTrainedTokenizerBase,
    rewards: Sequence[Reward],
) -> Problems:
    """The problems of a recipe, decontaminated, checked and measured, with the columns of `make_problems`.

    Raises:
        UserError: one line about what is wrong with the recipe's dataset, where, and what would be right.
    """
    # What no reward of ours grades needs no answer.
    graded = "accuracy" in script_args.reward_funcs or bool(args.eval_budgets)
    read = partial(read_split, script_args, mixture, args.seed, graded)
    evaluates = args.eval_strategy != "no" or bool(args.eval_budgets)
    if script_args.eval_benchmark is not None:
        _check_benchmark(script_args.eval_benchmark, script_args.grader, evaluates)
    elif evaluates:
        _check_splits(script_args)
    train = read(script_args.dataset_train_split)
    evaluation = None
    others = dict[str, Dataset]()
    if evaluates:
        name, split = script_args.eval_benchmark, script_args.dataset_test_split
        evaluation = read(split) if name is None else load_benchmark(name, script_args)[0]
        others[name or f"the split {split!r}"] = evaluation
    others |= {other: load_benchmark(other, script_args)[0] for other in script_args.decontaminate}
    for other, problems in others.items():
        train = decontaminate(train, problems, other)
    if MEASURED in {*train.column_names, *(evaluation.column_names if evaluation is not None else ())}:
        raise UserError(f"the dataset's column {MEASURED!r} has the name of one of ours; rename it")
    told = partial(with_targets, target=script_args.target, words=script_args.target_prompt, seed=args.seed)
    train = told(train)
    if evaluation is not None and not args.eval_budgets:  # which are lengths already
        evaluation = told(evaluation)
    needing = [each.__name__ for each in rewards if isinstance(each, LengthReward) and each.needs_target]
    if needing and "target" not in train.column_names:
        raise UserError(f"the reward {needing[0]} needs a length that prompts ask for; set target and target_prompt")
    usable = partial(checked, rewards=rewards, args=args, tokenizer=tokenizer)
    return Problems(check_size(usable(train), args), None if evaluation is None else usable(evaluation))


def with_targets(dataset: Dataset, target: Any, words: str | None, seed: int) -> Dataset:
    """The problems with a length that each prompt asks for, in the column `target`; as they are without one.

    Raises:
        UserError: target or words are missing, or are not what they must be.
    """
    target = from_yaml("target", target)
    if target is None and words is None:
        return dataset
    if target is None or "{target}" not in (words or ""):
        raise UserError(
            f"target is {target!r} and target_prompt {words!r}; set both, the second with {{target}} in it, or neither"
        )
    if "target" in dataset.column_names:
        raise UserError("the dataset has a column 'target'; rename it, or remove the recipe's target")
    schedule = Schedule.parse("target", target)
    least = min(0 if tokens is None else tokens for tokens in schedule.values)
    if schedule.kind not in {"number", *DRAWN} or schedule.per == "row" or least < 1:
        raise UserError(
            f"target is {target!r}; it is asked for once per problem, so it must be a number of tokens, or one drawn"
        )

    def told(row: dict[str, Any]) -> dict[str, Any]:
        tokens, prompt = schedule.at(RolloutKey(seed, (True, 0, 0), key_of(row), row=0)), row["prompt"]
        text = str(words).replace("{target}", str(tokens))
        if isinstance(prompt, str):
            return {"prompt": prompt + text, "target": tokens}
        last = max(at for at, message in enumerate(prompt) if message["role"] == "user")
        asking = {**prompt[last], "content": prompt[last]["content"] + text}
        return {"prompt": [*prompt[:last], asking, *prompt[last + 1 :]], "target": tokens}

    return dataset.map(told, desc="asking for lengths")


def _check_benchmark(name: str, grader: str, evaluates: bool) -> None:
    """Check that a recipe evaluates, and that the benchmark it names has answers of the type that it trains on.

    Raises:
        UserError: it does not, or the benchmark has other answers, or is unknown.
    """
    if not evaluates:
        raise UserError(f"eval_benchmark is {name}, but nothing is evaluated; add eval_budgets, or remove it")
    other = find_benchmark(name).grader
    if grader != other:
        raise UserError(
            f"eval_benchmark {name} asks for {other}, and the grader is that of {grader}; evaluate on "
            "dataset_test_split, or remove it"
        )


def _check_splits(script_args: E1ScriptArguments) -> None:
    """Check that a recipe does not evaluate on what it trains on: a file is any one split.

    Raises:
        UserError: it would.
    """
    name, splits = script_args.dataset_name or "", (script_args.dataset_train_split, script_args.dataset_test_split)
    if file_suffix(name) and len({*map(whole, splits)}) > 1:
        raise UserError(
            f"{name} is one file, and the recipe evaluates on a split {splits[1]!r} of it; set eval_benchmark, or "
            f"slices of it (dataset_train_split: {splits[0]}[100:], dataset_test_split: {splits[0]}[:100]), or name a "
            f"folder with {splits[0]}.jsonl and {splits[1]}.jsonl as dataset_name"
        )


def read_split(
    script_args: E1ScriptArguments, mixture: DatasetMixtureConfig, seed: int, need_answers: bool, split: str
) -> Dataset:
    """A split of a recipe's dataset, or of TRL's `datasets:`, with the columns of `make_problems`.

    Raises:
        UserError: the recipe names no dataset, or contradicts itself; or what it names is not there, or cannot be read.
    """
    if script_args.exclude:
        named_in(Path(script_args.exclude))  # before gigabytes are loaded
    name, config = script_args.dataset_name, script_args.dataset_config
    if not mixture.datasets:
        if mixture.test_split_size is not None:
            raise UserError(
                f"test_split_size is {mixture.test_split_size}, which splits what stands under datasets; name the "
                "dataset there, or remove it"
            )
        if name is None:
            raise UserError("the recipe must name a dataset (dataset_name, or several under datasets)")
        return load_problems(name, split, script_args, config, need_answers)
    if name is not None or config is not None:
        both = "dataset_config" if name is None else "dataset_name"
        raise UserError(f"the recipe has both datasets and {both}; remove one of them")
    if mixture.streaming:
        raise UserError("streaming is true; problems are checked before training, so they must be loaded")
    set_seed(seed)  # TRL draws the test split without one, so that every process, and every resumed run, has another
    try:
        splits = get_dataset(mixture)
    except (DatasetGenerationError, StopIteration) as error:
        raise UserError(f"datasets: {error.__cause__ or error}") from error
    if split not in splits:
        raise UserError(f"the datasets mixed have no split {split!r}, only {', '.join(splits)}: test_split_size?")
    return make_problems(splits[split], f"the datasets mixed, split {split}", script_args, need_answers)
