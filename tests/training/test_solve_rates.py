"""Problems that a stored evaluation never or always solved are not trained on."""

import json
import logging
import shutil
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import BASE, NANO, ROOT, evaluated, options
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from trl import DatasetMixtureConfig

from e1_trl.answers.grade import Outcome
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.prepare import prepare
from e1_trl.evaluation.sample import tabulate
from e1_trl.evaluation.store import Store
from e1_trl.report import samples
from e1_trl.rollout import Completion, ThinkingEnd
from e1_trl.train import main
from e1_trl.training.config import E1Config, E1ScriptArguments
from e1_trl.training.data import load

Said = Mapping[str, Sequence[str]]  # by budget, for each problem the digits that its samples answer; "?": not graded
SAID: Said = {"8+8": ["9999", "2222", "3999", "9994"], "16+8": ["1999", "2999", "3333", "9999"]}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(BASE)


def write(file: Path, rows: Sequence[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def posed(*numbers: int) -> list[dict[str, str]]:
    return [{"problem": f"a={n};a?", "answer": str(n)} for n in numbers]


def completion(tokenizer: PreTrainedTokenizerBase, said: str) -> Completion:
    thinking = tokenizer.encode("a=3;</think>", add_special_tokens=False)
    solution = tokenizer.encode(rf"\boxed{{{said}}}<|end|>", add_special_tokens=False)
    ids = array("i", [*thinking, *solution])
    return Completion(ids, ThinkingEnd.CLOSED, len(thinking), 0, 0, len(solution), truncated=False)


def stored(folder: Path, data: Path, said: Said, *more: object) -> Path:
    """A finished evaluation of the nano base as `e1 eval` stores it, but for the engine: it says what stands here."""
    fixed = ["--dataset_split", "train", "--methods", "separate", "--temperature", 1, "--top_p", 1]
    fixed += ["--samples", len(next(iter(said.values()))[0]), "--budgets", *said]
    prepared = prepare(parse(options(data, folder, *fixed, *more)))
    plan = prepared.plan([replace(asked, commit="abc") for asked in prepared.asked])
    results = [
        (
            problem,
            sample,
            {
                asked.cell: completion(prepared.tokenizer, said[str(asked.cell.budget)][problem.index][sample])
                for asked in plan.asked
            },
        )
        for problem, sample in plan.trees()
    ]
    with Store.open(folder, prepared.manifest, exclusive=True) as store, prepared.grader as grader:
        store.bind()
        store.write_cells(plan.asked)
        (part,) = tabulate(prepared, plan, results)
        table = samples.grade(part, grader)
    # No grader fails at will.
    asked_for_none = table["solution"].str.contains("?", regex=False)
    samples.write(table.assign(outcome=table["outcome"].mask(asked_for_none, Outcome.UNGRADED.value)), folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("four") / "four.jsonl", posed(1, 2, 3, 4))


@pytest.fixture(scope="module")
def evaluation(data: Path) -> Path:
    return stored(data.parent / "evaluation", data, SAID)


def trained(data: Path, tokenizer: PreTrainedTokenizerBase, *folders: object, **fields: Any) -> list[str]:
    """The problems that a recipe would train on, at the budget 8+8 unless `fields` name another."""
    budget = {"thinking_budget": 8, "solution_budget": 8}
    budget |= {name: fields.pop(name) for name in budget if name in fields}
    args = E1Config("unused", report_to="none", use_cpu=True, bf16=False, max_prompt_length=64, **budget)
    recipe = {"dataset_name": str(data), "instruction": "", "solve_rates": list(map(str, folders)), **fields}
    return list(load(E1ScriptArguments(**recipe), DatasetMixtureConfig(), args, tokenizer).train["problem"])


def test_what_is_never_or_always_solved_under_the_training_budget_is_dropped_with_a_count(
    data: Path, evaluation: Path, tokenizer: PreTrainedTokenizerBase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert trained(data, tokenizer, evaluation) == ["a=3;a?", "a=4;a?"]
    assert "solve rate: 4 problems, 1 never solved and 1 always solved dropped, 2 left" in caplog.messages
    assert trained(data, tokenizer, evaluation / "samples.parquet", thinking_budget=16) == ["a=1;a?", "a=2;a?"]
    assert trained(data, tokenizer) == trained(data, tokenizer, "") == [row["problem"] for row in posed(1, 2, 3, 4)]


def test_a_problem_has_the_rate_of_what_is_asked_and_accepted_wherever_it_stands(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    two = write(tmp_path / "two.jsonl", posed(1, 2, 1))
    three = write(tmp_path / "three.jsonl", posed(1, 3, 4, 5))
    folders = [
        stored(tmp_path / "one", two, {"8+8": ["1111", "2?2?", "1111"]}),  # 2: always, of those that were graded
        stored(tmp_path / "other", three, {"8+8": ["9999", "????", "99?9", "5995"]}),  # 1: 8 of 12, with the above
    ]
    corrected = {"problem": "a=4;a?", "answer": "7"}
    rows = [*posed(6, 5, 4), corrected, *posed(3, 2, 1, 1)]
    found = trained(write(tmp_path / "train.jsonl", rows), tokenizer, *folders)
    assert found == ["a=6;a?", "a=5;a?", "a=4;a?", "a=3;a?", "a=1;a?", "a=1;a?"]
    counted = "8 problems, 1 never solved and 1 always solved dropped, 6 left, of which 3 were not evaluated"
    assert f"solve rate: {counted}" in caplog.messages


@pytest.mark.usefixtures("sandbox")
def test_programs_are_told_apart_by_all_of_their_tests(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def tests(first: str) -> str:
        return json.dumps({"inputs": [first, "2\n"], "outputs": ["1", "2"]})

    long = "1\n" * 2000
    rows = [{"problem": name, "tests": tests(first)} for name, first in (("a", long), ("b", "1"))]
    data = write(tmp_path / "programs.jsonl", rows)
    programs: dict[str, Any] = {"grader": "programs"}
    more = [word for name, value in programs.items() for word in (f"--{name}", value)]
    folder = stored(tmp_path / "evaluation", data, {"8+8": ["11", "11"]}, *more)
    assert set(samples.read(folder)["outcome"]) == {"no_program"}
    with pytest.raises(ValueError, match=r"of 2 problems 2 were never solved in .* and 0 always, so none is left"):
        trained(data, tokenizer, folder, **programs)
    write(data, [{**rows[0], "tests": tests(long + "1\n")}, rows[1]])
    assert trained(data, tokenizer, folder, **programs) == ["a"]
    with pytest.raises(ValueError, match="was graded as programs, and the grader of the training is mathematics"):
        trained(data, tokenizer, folder, answer_column="tests")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"solve_rates": "nowhere"}, "there is no folder nowhere; `e1 eval` with the training's dataset"),
        ({"solve_rates": [str(ROOT)]}, r"there is no .*samples\.parquet"),
        (
            {"dataset_name": "nobody/nothing", "thinking_budget": 32},
            r"no answers of separate 32\+8, the training budget",
        ),
        ({"thinking_budget": None}, r"no answers of separate unlimited\+8.*only of separate 8\+8, separate 16\+8; the"),
        ({"solution_budget": None}, "solution_budget is null"),
        ({"instruction": "a="}, r"none of the 4 training problems .*'a=1;a\? a=' with .*'a=1;a\?' with .*instruction"),
    ],
)
def test_an_evaluation_that_tells_no_rate_is_refused_in_one_line(
    fields: dict[str, Any], message: str, data: Path, evaluation: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    with pytest.raises(ValueError, match=f"^solve_rates: .*{message}") as error:
        trained(data, tokenizer, *([] if "solve_rates" in fields else [evaluation]), **fields)
    assert "\n" not in str(error.value)


def test_answers_that_leave_nothing_or_tell_no_rate_are_refused(
    data: Path, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    refused = {
        "all": (["11", "99", "33", "??"], "of 3 problems 1 were never solved in .* and 2 always, so none is left to"),
        "graded": (["1?", "?9", "??", "?4"], r"no problem has two graded answers under 8\+8 in .*--samples 8, adds to"),
        "once": (["1", "9", "3", "4", "9"], r"no problem has two graded answers under 8\+8"),
    }
    three = write(tmp_path / "three.jsonl", posed(1, 2, 3))
    twice = write(tmp_path / "twice.jsonl", posed(1, 2, 3, 4, 1))
    for name, (said, message) in refused.items():
        folder = stored(tmp_path / name, twice if len(said) == 5 else data, {"8+8": said})
        with pytest.raises(ValueError, match=message):
            trained(three, tokenizer, folder)
    other = write(tmp_path / "other.jsonl", [{**row, "answer": "8"} for row in posed(1, 2, 3, 4)])
    with pytest.raises(ValueError, match=r"'a=1;a\?' with the answers \['8'\], .* 'a=1;a\?' with the answers \['1'\]"):
        trained(other, tokenizer, tmp_path / "all")


def dry_run(data: Path, folder: Path, *more: object) -> None:
    nano = (
        "--config",
        NANO,
        "--model_name_or_path",
        BASE,
        "--use_cpu",
        "true",
    )
    budget = ("--thinking_budget", 8, "--solution_budget", 8, "--output_dir", folder / "unused")
    batch = ("--per_device_train_batch_size", 16, "--gradient_accumulation_steps", 1)
    words = [*nano, *budget, *batch, "--dataset_name", data, "--solve_rates", folder, "--dry_run", "true", *more]
    main([str(word) for word in words])


def test_a_dry_run_counts_and_names_what_was_sampled_otherwise(
    data: Path,
    evaluation: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    dry_run(data, evaluation)
    assert "training         2 prompts" in capsys.readouterr().out
    assert caplog.messages == ["solve rate: 4 problems, 1 never solved and 1 always solved dropped, 2 left"]

    model = tmp_path / "model"
    shutil.copytree(BASE, model)
    (model / "generation_config.json").write_text("{}")
    dry_run(data, evaluation, "--model_name_or_path", model, "--temperature", 0.5, "--forced_text", "</think>a")
    (warning,) = [message for message in caplog.messages if message.startswith("solve_rates: ")]
    assert [part.split()[0] for part in warning.partition("will: ")[2].split("; ")] == [
        "forced_text",
        "temperature",
        "model",
    ]
    assert "forced_text [5] there, [5, 16] here; temperature 1.0 there, 0.5 here; model " in warning

    for options_, message in (
        (("--per_device_train_batch_size", 32), "2 prompts are too few to train on: one generation takes 4"),
        (("--chat_template_kwargs", '{"enable_thinking": true}'), "was asked with chat_template_kwargs = {}, the"),
        (("--solve_rates", tmp_path), r"run\.json, which says how the answers were sampled, cannot be read"),
    ):
        with pytest.raises(SystemExit, match=message) as error:
            dry_run(data, evaluation, *options_)
        assert "\n" not in str(error.value)


@pytest.mark.engine
@pytest.mark.distributed
def test_the_base_is_evaluated_on_the_training_problems_and_trained_on_what_it_solves_sometimes(
    nano_data: Path,
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    lines = (nano_data / "train.jsonl").read_text().splitlines()[:32]
    data = write(tmp_path / "train.jsonl", [json.loads(line) for line in lines])
    asked = ["--dataset_split", "train", "--methods", "separate", "--samples", 4, "--temperature", 1, "--top_p", 1]
    evaluated(data, tmp_path / "rates", *asked, "--budgets", "128+32")
    table = samples.read(tmp_path / "rates")
    assert len(table) == 32 * 4
    right = (table["outcome"] == "correct").groupby(table["prompt"]).sum()
    sometimes = [problem for line in lines if 0 < right[problem := json.loads(line)["problem"]] < 4]
    assert 0 < len(sometimes) < 32
    dry_run(data, tmp_path / "rates", "--thinking_budget", 128, "--solution_budget", 32, "--max_prompt_length", 64)
    assert f"training         {len(sometimes)} prompts" in capsys.readouterr().out
    (said,) = [message for message in caplog.messages if "solve" in message]  # and of nothing sampled otherwise
    assert said.startswith("solve rate: 32 problems, ") and said.endswith(f" dropped, {len(sometimes)} left")
    budget = {"thinking_budget": 128, "solution_budget": 32}
    assert trained(data, tokenizer, tmp_path / "rates", **budget) == sometimes
