"""What is trained on, and what is refused of a dataset before a model loads."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import BASE
from datasets import Dataset, IterableDataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from trl import DatasetMixtureConfig
from trl.rewards import accuracy_reward
from trl.scripts.utils import DatasetConfig

from e1_trl.answers.mathematics.grader import MathematicsGrader
from e1_trl.training.config import E1Config, E1ScriptArguments
from e1_trl.training.data import check_columns, keep_short, load
from e1_trl.training.rewards import Accuracy, format_reward
from e1_trl.training.trainer import E1Trainer


def config(**fields: Any) -> E1Config:
    fixed = {"output_dir": "unused", "report_to": "none", "use_cpu": True, "bf16": False, "max_prompt_length": 32}
    return E1Config(**{**fixed, **fields})


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(BASE)


def sums(*problems: str) -> Dataset:
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": problem}], "answers": ["3"]} for problem in problems]
    )


def write(file: Path, *rows: dict[str, Any]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.mark.parametrize("column", ["solution_text", "thinking_end", "solution_tokens"])
def test_a_column_with_the_name_of_a_rollouts_is_refused_before_the_model_loads(column: str) -> None:
    dataset = sums("a=3;a?").add_column(column, ["x"])
    with pytest.raises(ValueError, match=f"the dataset's column '{column}' is also one of the rollout's; rename it"):
        E1Trainer(str(BASE), [format_reward], config(thinking_budget=8, solution_budget=8), dataset)


def test_a_reward_without_its_column_is_refused_before_the_model_loads() -> None:
    dataset = sums("a=3;a?")
    with pytest.raises(ValueError, match=r"the reward accuracy_reward takes 'solution', which is no column .*answers"):
        E1Trainer(str(BASE), [accuracy_reward], config(thinking_budget=8, solution_budget=8), dataset)
    accuracy = Accuracy(MathematicsGrader(time_limit=1.0, workers=1))
    check_columns(dataset, [accuracy, format_reward], config())
    with pytest.raises(ValueError, match="the reward accuracy_reward takes 'solution'"):
        check_columns(dataset, [partial(accuracy_reward)], config())
    with pytest.raises(ValueError, match="the reward accuracy takes 'answers'"):
        check_columns(dataset, [accuracy], config(remove_unused_columns=True))


def test_fewer_prompts_than_a_generation_takes_are_refused_and_a_reward_model_sees_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    args = config(thinking_budget=8, solution_budget=8, per_device_train_batch_size=32, num_generations=8)
    with pytest.raises(ValueError, match="1 prompts are too few to train on: one generation takes 4"):
        E1Trainer(str(BASE), torch.nn.Linear(1, 1), args, sums("a=3;a?"))
    assert "the rewards Linear see the whole completion" in caplog.text


def test_pictures_are_refused() -> None:
    with pytest.raises(ValueError, match="column 'images'; budgeted rollouts take text only"):
        check_columns(sums("a=3;a?").add_column("images", [["x"]]), [], config())


def test_long_prompts_are_dropped_of_a_stream_too_and_what_is_measured_stays(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    args = config(max_prompt_length=12)
    messages = sums("a=3;a?", "a=3;b=a+4;c=b-5;c?")
    stream = keep_short(messages.to_iterable_dataset(), tokenizer, args)
    assert isinstance(stream, IterableDataset) and len(list(stream)) == 1
    kept = keep_short(messages, tokenizer, args)
    assert kept["prompt"][:] == messages["prompt"][:1] and keep_short(kept, tokenizer, args) is kept


def test_what_is_evaluated_on_while_training_is_not_trained_on(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").mkdir()
    rows = [{"problem": f"a={n};a?", "answer": str(n)} for n in range(4)]
    write(tmp_path / "data" / "train.jsonl", *rows)
    write(tmp_path / "data" / "test.jsonl", rows[0])
    write(tmp_path / "aime2024.jsonl", rows[1])
    recipe = E1ScriptArguments(
        dataset_name=str(tmp_path / "data"), instruction="", decontaminate=["aime2024"], local_benchmarks=tmp_path
    )
    trained = load(recipe, DatasetMixtureConfig(), config(), tokenizer)
    assert (trained.train["problem"], trained.evaluation) == (["a=0;a?", "a=2;a?", "a=3;a?"], None)
    trained = load(recipe, DatasetMixtureConfig(), config(eval_budgets=["8+8"]), tokenizer)
    assert trained.train["problem"] == ["a=2;a?", "a=3;a?"]
    assert trained.evaluation is not None and trained.evaluation["problem"] == ["a=0;a?"]
    assert "left out 1 of 3 problems: they occur in aime2024" in caplog.text


def test_trls_mixtures_and_its_datasets_with_a_gold_solution_are_read(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    def turn(text: str) -> list[dict[str, str]]:
        return [{"role": "system", "content": "a="}, {"role": "user", "content": text}]

    first = write(tmp_path / "one.jsonl", *[{"prompt": turn(f"a={n};a?"), "solution": str(n)} for n in range(3)])
    second = write(tmp_path / "two.jsonl", *[{"prompt": turn(f"b={n};b?"), "solution": str(n)} for n in range(3)])
    mixture = DatasetMixtureConfig(
        datasets=[{"path": "json", "data_files": first}, {"path": "json", "data_files": second}], test_split_size=0.5
    )
    args = config(eval_strategy="steps", eval_steps=1)
    problems = load(E1ScriptArguments(), mixture, args, tokenizer)
    for _ in range(3):  # as every process of a run does
        assert load(E1ScriptArguments(), mixture, args, tokenizer).train["problem"] == problems.train["problem"]
    assert problems.evaluation is not None
    assert (len(problems.train), len(problems.evaluation)) == (3, 3)
    row = problems.train[0]
    assert row["answers"] == [row["solution"]]
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]


@pytest.mark.parametrize(
    ("fields", "mixed", "message"),
    [
        ({}, {}, "must name a dataset"),
        ({"dataset_name": "missing.jsonl"}, {}, "no file missing.jsonl"),
        ({"dataset_name": "a"}, {"datasets": [{"path": "json"}]}, "both datasets and dataset_name; remove one"),
        ({"dataset_config": "a"}, {"datasets": [{"path": "json"}]}, "both datasets and dataset_config; remove one"),
        ({}, {"datasets": [{"path": "json"}], "streaming": True}, "streaming is true"),
        ({"dataset_name": "a"}, {"test_split_size": 0.1}, "test_split_size is 0.1, which splits what stands under"),
        ({"dataset_name": "a", "eval_benchmark": "aime2024"}, {}, "eval_benchmark is aime2024, but nothing is eval"),
    ],
)
def test_what_a_recipe_says_wrongly_about_its_data_is_named(
    fields: dict[str, Any], mixed: dict[str, Any], message: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    with pytest.raises((ValueError, OSError), match=message) as error:
        load(E1ScriptArguments(**fields), DatasetMixtureConfig(**mixed), config(), tokenizer)
    assert "\n" not in str(error.value)


def test_a_file_is_trained_on_and_evaluated_on_in_slices_or_not_at_all(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows = [{"problem": f"a={n};a?", "answer": str(n)} for n in range(4)]
    file, mixture, args = write(tmp_path / "rows.jsonl", *rows), DatasetMixtureConfig(), config(eval_budgets=["8+8"])
    with pytest.raises(ValueError, match=r"rows.jsonl is one file, .*set eval_benchmark, or slices of it") as error:
        load(E1ScriptArguments(dataset_name=file, instruction=""), mixture, args, tokenizer)
    assert "\n" not in str(error.value)
    slices = {"dataset_train_split": "train[1:]", "dataset_test_split": "train[:1]"}
    problems = load(E1ScriptArguments(dataset_name=file, instruction="", **slices), mixture, args, tokenizer)
    assert problems.evaluation is not None
    assert (len(problems.train), len(problems.evaluation)) == (3, 1)


def test_a_reward_that_needs_no_answer_is_trained_on_problems_without(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    name = write(tmp_path / "prompts.jsonl", {"prompt": "a=3;a?"})
    recipe = E1ScriptArguments(dataset_name=name, reward_funcs=["think_format_reward"], instruction="")
    assert len(load(recipe, DatasetMixtureConfig(), config(), tokenizer).train) == 1
    with pytest.raises(ValueError, match="answer_column"):
        load(E1ScriptArguments(dataset_name=name), DatasetMixtureConfig(), config(), tokenizer)


def test_a_programs_recipe_with_what_only_mathematics_has_is_refused(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="the reward format looks for a box"):
        E1ScriptArguments(grader="programs", reward_funcs=["accuracy", "format"])
    named = {"grader": "programs", "dataset_name": write(tmp_path / "rows.jsonl", {"problem": "a", "tests": "[]"})}
    arguments = E1ScriptArguments(**named, eval_benchmark="math500")
    args = config(thinking_budget=8, solution_budget=8, eval_budgets=["8+8"], eval_steps=1)
    with pytest.raises(ValueError, match="eval_benchmark math500 asks for mathematics"):
        load(arguments, DatasetMixtureConfig(), args, tokenizer)


def test_what_exclude_names_is_read_before_any_data(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    missing = str(tmp_path / "none.jsonl")
    for named in ({"dataset_name": "nobody/nothing"}, {}):
        mixture = DatasetMixtureConfig(datasets=[] if named else [DatasetConfig(path="nobody/nothing")])
        with pytest.raises(FileNotFoundError, match="exclude: no file"):
            load(E1ScriptArguments(**named, exclude=missing), mixture, config(), tokenizer)
