"""Problems of a training, and datasets that are refused before a model loads."""

import json
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import test_config
from conftest import BASE
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from trl import DatasetMixtureConfig, GRPOConfig
from trl.rewards import accuracy_reward

from e1_trl.answers.mathematics.grader import MathematicsGrader
from e1_trl.errors import UserError
from e1_trl.problems.prompts import MEASURED, identity
from e1_trl.training.beforehand import check_datasets
from e1_trl.training.budgets import key_of
from e1_trl.training.config import E1Config
from e1_trl.training.data import load, with_targets
from e1_trl.training.named_rewards import format_reward, make_rewards
from e1_trl.training.recipe_as_run import E1ScriptArguments
from e1_trl.training.rewards import Accuracy, Reward
from e1_trl.training.trainer import E1Trainer

ACCURACY = Accuracy(MathematicsGrader(time_limit=60, workers=1))


config = partial(test_config.config, max_prompt_length=32)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(BASE)


def loaded(
    tokenizer: PreTrainedTokenizerBase,
    args: E1Config | None = None,
    mixture: DatasetMixtureConfig | None = None,
    rewards: Sequence[Reward] = (),
    **fields: Any,
) -> tuple[Dataset, Dataset | None]:
    """The problems of a recipe with these fields."""
    recipe = E1ScriptArguments(**{"instruction": "", **fields})
    return load(recipe, mixture or DatasetMixtureConfig(), args or config(), tokenizer, rewards)


def sums(*problems: str) -> Dataset:
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": problem}], "answers": ["3"]} for problem in problems]
    )


def write(file: Path, *rows: dict[str, Any]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.mark.parametrize(
    ("columns", "rewards", "fields", "message"),
    [
        (["solution_text"], [], {}, "the dataset's column 'solution_text' is also one of the rollout's; rename it"),
        (["completions"], [accuracy_reward], {}, "column 'completions' is also one of the rollout's"),
        (["images"], [], {}, "column 'images'; budgeted rollouts take text only"),
        ([], [accuracy_reward], {}, "accuracy_reward takes 'solution', which is neither a col.*answers.* nor .*_text"),
        ([], [lambda solution_tokens: [0.0]], {}, r"<lambda> must end with \*\*others, .*, or be named with its"),
        ([], [partial(accuracy_reward)], {}, r"accuracy_reward takes 'solution', .* set it: \{name: …, solution: …\}"),
        ([], [ACCURACY], {"remove_unused_columns": True}, r"\(prompt, as remove_unused_columns is true\) nor"),
    ],
)
def test_columns_that_rewards_cannot_work_with_are_refused(
    columns: list[str], rewards: list[Any], fields: dict[str, Any], message: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    dataset = sums("a=3;a?")
    for column in columns:
        dataset = dataset.add_column(column, ["x"])
    with pytest.raises(ValueError, match=message):
        check_datasets(dataset, None, rewards, config(**fields), tokenizer)


def test_a_trainer_refuses_a_dataset_before_its_model_loads() -> None:
    args = config(thinking_budget=8, solution_budget=8, per_device_train_batch_size=32, num_generations=8)
    for dataset, message in (
        (sums("a=3;a?"), "1 prompts are too few to train on: one generation takes 4"),
        (sums("a=3;a?").to_iterable_dataset(), "give a loaded Dataset, not IterableDataset"),
        (sums("a=3;a?").rename_column("prompt", "problem"), "no column 'prompt', only answers, problem; rename one"),
    ):
        with pytest.raises(ValueError, match=message):
            E1Trainer(str(BASE), format_reward, args, dataset, tools=None)
    with pytest.raises(UserError, match=r"^args is of GRPOConfig; expected E1Config"):
        E1Trainer(str(BASE), format_reward, GRPOConfig("unused", use_cpu=True, bf16=False), sums("a=3;a?"))
    with pytest.raises(UserError, match=r"it does not take \['tools'\]"):
        E1Trainer(str(BASE), format_reward, args, sums("a=3;a?"), tools=[print])


def test_long_prompts_are_dropped_and_what_is_measured_stays(tokenizer: PreTrainedTokenizerBase) -> None:
    messages = sums("a=3;a?", "a=3;b=a+4;c=b-5;c?")
    kept, _ = check_datasets(messages, None, [ACCURACY, format_reward], config(max_prompt_length=12), tokenizer)
    assert kept["prompt"][:] == messages["prompt"][:1]
    assert check_datasets(kept, kept, [], config(max_prompt_length=1), tokenizer) == (kept, kept)


def test_a_recipes_problems_have_the_columns_of_a_training(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    file = write(tmp_path / "train.jsonl", {"problem": "a=3;a?", "answer": "3"})
    problems, _ = loaded(tokenizer, dataset_name=file, instruction="Think.")
    (row,) = problems.select_columns(["prompt", "answers", "key", MEASURED])
    assert key_of(row) == row["key"] == identity("a=3;a?")  # of the problem without what was added to it
    assert check_datasets(problems, None, [], config(), tokenizer)[0] is problems


def test_a_users_columns_of_our_names_and_several_evaluations_are_taken(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = sums("a=3;a?", "a=3;b=a+4;c=b-5;c?").add_column("prompt_tokens", [1, 1]).add_column("key", ["a", "a"])
    kept, evaluations = check_datasets(rows, {"one": rows}, [], config(max_prompt_length=12), tokenizer)
    assert kept.remove_columns(MEASURED).to_list() == rows.to_list()[:1]
    assert isinstance(evaluations, dict) and evaluations["one"].to_list() == kept.to_list()
    assert key_of(kept[0]) == identity("a=3;a?")


def test_lengths_follow_a_users_function_after_it_was_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problems = sums("a=3;a?", "b=3;b?")
    for place, wanted in ((0, 10), (1, 200)):
        Path("lengths_of_mine.py").write_text(f"def pick(key, values, **_):\n    return values[{place}]\n")
        sys.modules.pop("lengths_of_mine", None)
        shutil.rmtree("__pycache__", ignore_errors=True)  # which compares times in seconds
        told = with_targets(problems, {"lengths_of_mine.pick": [10, 200]}, "<={target}", seed=42)
        assert told["target"][:] == [wanted, wanted]


def test_what_is_evaluated_on_while_training_is_not_trained_on(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").mkdir()
    rows = [{"problem": f"a={n};a?", "answer": str(n)} for n in range(4)]
    write(tmp_path / "data" / "train.jsonl", *rows)
    write(tmp_path / "data" / "test.jsonl", rows[0])
    write(tmp_path / "aime2024.jsonl", rows[1])
    recipe = {"dataset_name": str(tmp_path / "data"), "decontaminate": ["aime2024"], "local_benchmarks": tmp_path}
    train, evaluation = loaded(tokenizer, **recipe)
    assert (train["problem"], evaluation) == (["a=0;a?", "a=2;a?", "a=3;a?"], None)
    train, evaluation = loaded(tokenizer, config(eval_budgets=["8+8"]), **recipe)
    assert train["problem"] == ["a=2;a?", "a=3;a?"]
    assert evaluation is not None and evaluation["problem"] == ["a=0;a?"]
    assert "left out 1 of 3 problems: they occur in aime2024" in caplog.text


def test_trls_mixtures_with_a_gold_solution_are_read(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    def turn(text: str) -> list[dict[str, str]]:
        return [{"role": "system", "content": "a="}, {"role": "user", "content": text}]

    first = write(tmp_path / "one.jsonl", *[{"prompt": turn(f"a={n};a?"), "solution": str(n)} for n in range(3)])
    second = write(tmp_path / "two.jsonl", *[{"prompt": turn(f"b={n};b?"), "solution": str(n)} for n in range(3)])
    mixture = DatasetMixtureConfig(
        datasets=[{"path": "json", "data_files": first}, {"path": "json", "data_files": second}], test_split_size=0.5
    )
    args = config(eval_strategy="steps", eval_steps=1)
    train, evaluation = loaded(tokenizer, args, mixture)
    for _ in range(3):  # as every process of a run does
        assert loaded(tokenizer, args, mixture)[0]["problem"] == train["problem"]
    assert evaluation is not None
    asked = {*train["problem"], *evaluation["problem"]}
    assert (len(train), len(evaluation), len(asked)) == (3, 3, 6)
    row = train[0]
    assert row["answers"] == [row["solution"]]
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]


@pytest.mark.parametrize(
    ("fields", "mixed", "message"),
    [
        ({}, {}, "must name a dataset"),
        ({"dataset_name": "missing.jsonl"}, {}, "no file missing.jsonl"),
        ({"dataset_name": "a"}, {"datasets": [{"path": "json"}]}, "both datasets and dataset_name; remove one"),
        ({"dataset_config": "a"}, {"datasets": [{"path": "json"}]}, "both datasets and dataset_config; remove one"),
        ({"dataset_name": "a"}, {"test_split_size": 0.1}, "test_split_size splits the datasets of the field datasets"),
        ({"dataset_name": "a", "dataset_streaming": True}, {}, "so they cannot be streamed; unset streaming"),
        ({}, {"datasets": [{"path": "json"}], "streaming": True}, "so they cannot be streamed; unset streaming"),
        ({}, {"datasets": [{"path": "json", "data_files": "missing.jsonl"}]}, "datasets: .*missing.jsonl"),
        ({}, {"datasets": [{"path": "json", "data_files": "/dev/null"}]}, "datasets: [^ ]"),
        ({}, {"datasets": ["missing"]}, "datasets: 'str' object has no attribute 'path'"),
        ({"dataset_name": "a", "eval_benchmark": "aime2024"}, {}, "eval_benchmark is aime2024, but nothing is eval"),
    ],
)
def test_what_a_recipe_says_wrongly_about_its_data_is_named(
    fields: dict[str, Any], mixed: dict[str, Any], message: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    with pytest.raises((ValueError, OSError), match=message) as error:
        loaded(tokenizer, mixture=DatasetMixtureConfig(**mixed), **fields)
    assert "\n" not in str(error.value)


def test_a_file_is_trained_and_evaluated_on_in_slices_only(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    rows = [{"problem": f"a={n};a?", "answer": str(n)} for n in range(4)]
    file, args = write(tmp_path / "rows.jsonl", *rows), config(eval_budgets=["8+8"])
    with pytest.raises(ValueError, match=r"rows.jsonl is one file, .*set eval_benchmark, or slices of it") as error:
        loaded(tokenizer, args, dataset_name=file)
    assert "\n" not in str(error.value)
    slices = {"dataset_train_split": "train[1:]", "dataset_test_split": "train[:1]"}
    train, evaluation = loaded(tokenizer, args, dataset_name=file, **slices)
    assert evaluation is not None
    assert (len(train), len(evaluation)) == (3, 1)


def test_a_reward_that_needs_no_answer_takes_any_problem(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    name = write(tmp_path / "prompts.jsonl", {"prompt": "a=3;a?"})
    assert len(loaded(tokenizer, dataset_name=name, reward_funcs=["think_format_reward"])[0]) == 1


@pytest.mark.parametrize(
    ("row", "fields", "message"),
    [
        ({"prompt": "a=3;a?"}, {}, "answer_column"),
        ({"problem": "a"}, {"grader": "programs", "eval_benchmark": "math500"}, "math500 needs the grader mathematics"),
    ],
)
def test_rows_that_do_not_go_with_the_recipe_are_refused(
    row: dict[str, Any], fields: dict[str, Any], message: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    name = write(tmp_path / "rows.jsonl", row)
    with pytest.raises(ValueError, match=message):
        loaded(tokenizer, config(eval_budgets=["8+8"] * ("eval_benchmark" in fields)), dataset_name=name, **fields)


def test_each_prompt_asks_for_a_length_of_its_own_in_the_recipes_words(tokenizer: PreTrainedTokenizerBase) -> None:
    problems = sums("a=3;a?", "a=4;a?").add_column("key", ["0" * 16, "1" * 16])
    words, uniform = " Think for {target} tokens.", {"uniform": [100, 4000]}
    told = with_targets(problems, uniform, words, seed=42)
    assert told["target"][:] == with_targets(problems, uniform, words, seed=42)["target"][:]
    assert told["target"][:] != with_targets(problems, uniform, words, seed=43)["target"][:]
    for before, row in zip(problems, told, strict=True):
        assert 100 <= row["target"] <= 4000
        assert row["prompt"][-1]["content"] == before["prompt"][-1]["content"] + f" Think for {row['target']} tokens."
    text = Dataset.from_dict({"prompt": ["a=3;a?"]})
    assert with_targets(text, 5, "<={target}", seed=42)[0] == {"prompt": "a=3;a?<=5", "target": 5}
    assert with_targets(problems, None, None, seed=42) is problems


NO_TARGETS = [{"stages": {0: 100}}, {"choice": [100, None]}, {"uniform": [100, 200], "per": "row"}, -5]


@pytest.mark.parametrize(
    ("target", "words", "message"),
    [
        (100, None, "target is 100 and target_prompt None; set both"),
        (None, "{target}", "target is None and target_prompt"),
        (100, "briefly", "the second with {target} in it"),
        *((wrong, "{target}", "it must be a number of tokens, or one drawn for each") for wrong in NO_TARGETS),
        ("many", "{target}", "target is 'many'; it must be a number of tokens, null, or a schedule"),
    ],
)
def test_a_target_that_cannot_be_told_is_refused(target: Any, words: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_targets(sums("a=3;a?"), target, words, seed=42)


def test_a_column_that_a_target_would_replace_is_refused() -> None:
    with pytest.raises(UserError, match="the dataset has a column 'target'; rename it"):
        with_targets(sums("a=3;a?").add_column("target", ["3"]), 100, "{target}", seed=42)


def test_a_length_reward_is_refused_without_what_it_needs(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    exact, laser = make_rewards(["l1_exact", {"name": "laser", "target": 8}], None, ACCURACY.grader)
    with pytest.raises(ValueError, match="the reward laser must know which answers are right; add acc"):
        check_datasets(sums("a=3;a?"), None, [laser], config(), tokenizer)
    kept, _ = check_datasets(sums("a=3;a?"), None, [laser, ACCURACY], config(), tokenizer)
    assert len(kept) == 1
    name = write(tmp_path / "train.jsonl", *({"problem": f"a={n};a?", "answer": str(n)} for n in range(9)))
    recipe = {"rewards": [exact], "dataset_name": name}
    with pytest.raises(ValueError, match="the reward l1_exact needs prompts that ask for a length; set target"):
        loaded(tokenizer, **recipe)
    told, _ = loaded(tokenizer, **recipe, target="{uniform: [5, 9]}", target_prompt="<={target}")
    assert all(row["prompt"][0]["content"].endswith(f"<={row['target']}") and row["target"] <= 9 for row in told)
