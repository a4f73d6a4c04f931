"""What is trained on: a recipe's problems, and the checks that every dataset passes before a model is loaded.

Knows nothing about models, engines or how answers are graded.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from datasets import Dataset, IterableDataset
from datasets.exceptions import DatasetGenerationError
from torch import nn
from transformers import PreTrainedTokenizerBase, set_seed
from trl import DatasetMixtureConfig, get_dataset
from trl.trainer.utils import get_callable_name

from e1_trl.problems.benchmarks import BENCHMARKS, load_benchmark
from e1_trl.problems.load import file_suffix, load_problems, make_problems, whole
from e1_trl.problems.prompts import drop_long, tokenize
from e1_trl.problems.selection import decontaminate, named_in
from e1_trl.training.config import E1Config, E1ScriptArguments
from e1_trl.training.rewards import Reward

# What rewards receive of every completion, beside the dataset's columns.
ROLLOUT_COLUMNS = frozenset(
    ["solution_text", "thinking_end", "thinking_tokens", "solution_tokens", "solution_truncated"]
)
TRLS_REWARD_ARGUMENTS = frozenset(
    ["prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"]
)

AnyDataset = TypeVar("AnyDataset", Dataset, IterableDataset)


@dataclass(frozen=True)
class Problems:
    """What is trained on, and what is evaluated on meanwhile, if anything is."""

    train: Dataset
    evaluation: Dataset | None


def load(
    script_args: E1ScriptArguments, mixture: DatasetMixtureConfig, args: E1Config, tokenizer: PreTrainedTokenizerBase
) -> Problems:
    """The problems of a recipe, decontaminated and short enough, with the columns of `make_problems` and `drop_long`.

    Raises:
        ValueError: one line about what is wrong with the recipe's dataset, where, and what would be right.
        OSError: a file does not exist.
    """
    # What no reward of ours grades needs no answer.
    graded = "accuracy" in script_args.reward_funcs or bool(args.eval_budgets)
    read = reader(script_args, mixture, args.seed, graded)
    evaluates = args.eval_strategy != "no" or bool(args.eval_budgets)
    if script_args.eval_benchmark is not None and not evaluates:
        raise ValueError(
            f"eval_benchmark is {script_args.eval_benchmark}, but nothing is evaluated; add eval_budgets, or remove it"
        )
    benchmark = BENCHMARKS.get(script_args.eval_benchmark or "")
    if benchmark is not None and script_args.grader != benchmark.grader:
        raise ValueError(
            f"eval_benchmark {script_args.eval_benchmark} asks for {benchmark.grader}, and the grader is that of "
            f"{script_args.grader}; evaluate on dataset_test_split, or remove it"
        )
    if evaluates and script_args.eval_benchmark is None:
        _check_splits(script_args)
    train, evaluation = read(script_args.dataset_train_split), None
    if evaluates:
        name = script_args.eval_benchmark or f"the split {script_args.dataset_test_split!r}"
        evaluation = (
            load_benchmark(script_args.eval_benchmark, script_args)[0]
            if script_args.eval_benchmark is not None
            else read(script_args.dataset_test_split)
        )
        train = decontaminate(train, evaluation, name)
    for other in script_args.decontaminate:
        train = decontaminate(train, load_benchmark(other, script_args)[0], other)
    short = partial(
        drop_long,
        tokenizer=tokenizer,
        max_prompt_length=args.max_prompt_length,
        chat_template_kwargs=args.chat_template_kwargs or {},
    )
    return Problems(short(train), None if evaluation is None else short(evaluation))


def _check_splits(script_args: E1ScriptArguments) -> None:
    """Check that a recipe does not evaluate on what it trains on: a file is any one split.

    Raises:
        ValueError: it would.
    """
    name, splits = script_args.dataset_name or "", (script_args.dataset_train_split, script_args.dataset_test_split)
    if file_suffix(name) and len({*map(whole, splits)}) > 1:
        raise ValueError(
            f"{name} is one file, and the recipe evaluates on a split {splits[1]!r} of it; set eval_benchmark, or "
            f"slices of it (dataset_train_split: {splits[0]}[100:], dataset_test_split: {splits[0]}[:100]), or name a "
            f"folder with {splits[0]}.jsonl and {splits[1]}.jsonl as dataset_name"
        )


def reader(
    script_args: E1ScriptArguments, mixture: DatasetMixtureConfig, seed: int, need_answers: bool
) -> Callable[[str], Dataset]:
    """What reads a split of a recipe's dataset, or of its mixture, with the columns of `make_problems`.

    Raises:
        ValueError: the recipe names no dataset, or contradicts itself; or what `exclude` names cannot be read.
        FileNotFoundError: there is no such file.
    """
    if script_args.exclude:
        named_in(Path(script_args.exclude))  # before gigabytes are loaded
    splits = _mixed(script_args, mixture, seed)

    def read(split: str) -> Dataset:
        if splits is None:
            return load_problems(script_args.dataset_name, split, script_args, script_args.dataset_config, need_answers)
        if split not in splits:
            raise ValueError(f"the datasets mixed have no split {split!r}, only {', '.join(splits)}: test_split_size?")
        return make_problems(splits[split], f"the datasets mixed, split {split}", script_args, need_answers)

    return read


def _mixed(script_args: E1ScriptArguments, mixture: DatasetMixtureConfig, seed: int) -> Mapping[str, Dataset] | None:
    """The splits of TRL's `datasets:`, if the recipe names any."""
    single = {"dataset_name": script_args.dataset_name, "dataset_config": script_args.dataset_config}
    if not mixture.datasets:
        if mixture.test_split_size is not None:
            raise ValueError(
                f"test_split_size is {mixture.test_split_size}, which splits what stands under datasets; name the "
                "dataset there, or remove it"
            )
        if script_args.dataset_name is None:
            raise ValueError("the recipe must name a dataset (dataset_name, or several under datasets)")
        return None
    if both := [name for name, value in single.items() if value is not None]:
        raise ValueError(f"the recipe has both datasets and {both[0]}; remove one of them")
    if mixture.streaming:
        raise ValueError("streaming is true; problems are checked before training, so they must be loaded")
    set_seed(seed)  # TRL draws the test split without one, so that every process, and every resumed run, has another
    try:
        return get_dataset(mixture)
    except (DatasetGenerationError, StopIteration) as error:
        raise ValueError(f"datasets: {error.__cause__ or error}") from error


def check_columns(dataset: Dataset | IterableDataset, rewards: Iterable[Reward], args: E1Config) -> None:
    """Check that rewards will find what they take, and nothing else under its name.

    Raises:
        ValueError: a column has the name of one of the rollout's, needs more than text, or is missing for a reward.
    """
    columns = set(dataset.column_names or ())
    if clash := sorted(columns & ROLLOUT_COLUMNS):
        raise ValueError(f"the dataset's column {clash[0]!r} is also one of the rollout's; rename it")
    if pictures := sorted(columns & {"image", "images"}):
        raise ValueError(f"the dataset has a column {pictures[0]!r}; budgeted rollouts take text only, remove it")
    if dataset.column_names is None:
        return
    given = ({"prompt"} if args.remove_unused_columns else columns) | ROLLOUT_COLUMNS | TRLS_REWARD_ARGUMENTS
    for reward in rewards:
        if isinstance(reward, str | nn.Module):  # a reward model, which takes text
            continue
        takes = [
            name
            for name, parameter in inspect.signature(reward).parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        ]
        if missing := [name for name in takes if name not in given]:
            raise ValueError(
                f"the reward {get_callable_name(reward)} takes {missing[0]!r}, which is no column of the dataset "
                f"({', '.join(sorted(columns))}); add it, or choose another reward"
            )


def check_size(dataset: Dataset | IterableDataset, args: E1Config) -> None:
    """Check that there are prompts for one generation, without which TRL ends before the first step.

    Raises:
        ValueError: there are fewer.
    """
    needed = args.generation_batch_size // args.num_generations
    if isinstance(dataset, Dataset) and len(dataset) < needed:
        raise ValueError(
            f"{len(dataset)} prompts are too few to train on: one generation takes {needed} (generation_batch_size = "
            f"{args.generation_batch_size} rollouts, {args.num_generations} of each)"
        )


def keep_short(dataset: AnyDataset, tokenizer: PreTrainedTokenizerBase, args: E1Config) -> AnyDataset:
    """The rows whose `prompt` is short enough, by `drop_long`, whose errors these are; of a stream none is counted.

    A dataset that `load` has measured is left as it is.
    """
    if "prompt_tokens" in (dataset.column_names or ()):
        return dataset
    template = args.chat_template_kwargs or {}
    if isinstance(dataset, Dataset):
        return drop_long(dataset, tokenizer, args.max_prompt_length, template)
    return dataset.filter(lambda row: len(tokenize(tokenizer, row["prompt"], template)) <= args.max_prompt_length)
