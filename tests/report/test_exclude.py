"""Problems that a model never or always solves are written into a file, and not trained on."""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from conftest import BASE, NANO, options
from fabricated import cell, stored

from e1_trl.answers.grade import Outcome
from e1_trl.errors import UserError
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.prepare import prepare
from e1_trl.problems.prompts import identity
from e1_trl.report import exclude
from e1_trl.train import main as train


def problem(number: int) -> str:
    return f"a={number};a?"


def answered(budget: int, *outcomes: str) -> pd.DataFrame:
    """Answers to problems 0, 1, … under so many tokens of thinking: right, wrong, or ? for ungraded."""
    table = cell([[outcome == "r" for outcome in each] for each in outcomes], budget)
    ungraded = [outcome == "?" for each in outcomes for outcome in each]
    return table.assign(
        problem_id=[identity(problem(number)) for number in table["problem"]],
        prompt=[f"{problem(number)} Think." for number in table["problem"]],
        outcome=table["outcome"].mask(pd.Series(ungraded), Outcome.UNGRADED.value),
    )


def excluded(output: Path, budget: str, *folders: Path, least: int = 2) -> list[tuple[str, float]]:
    """What the command writes, as problems and rates."""
    words = ["--budget", budget, "--output", str(output), "--min_answers", str(least)]
    exclude.main([*map(str, folders), *words])
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert all(line["id"] == identity(line["problem"].removesuffix(" Think.")) for line in lines)
    return [(line["problem"].removesuffix(" Think."), line["rate"]) for line in lines]


def test_what_is_never_or_always_solved_under_the_budget_is_named_wherever_it_was_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = stored(tmp_path / "one", answered(8, "rr?", "ww?", "rr?", "rw?", "???"), answered(16, "rw", "rr", "rw", "rw"))
    assert excluded(tmp_path / "new" / "exclude", "8+8", one) == [(problem(0), 1), (problem(1), 0), (problem(2), 1)]
    first, counts, chance = capsys.readouterr().out.splitlines()
    assert "temperature 0.6" in first and "instruction null" in first
    assert counts.startswith("of 4 problems 1 were never solved and 2 always; wrote ")
    assert chance.endswith("a problem that is solved 10% of the time is never solved with a probability of 81%")
    assert excluded(tmp_path / "exclude", "16+8", one) == [(problem(1), 1)]
    other = stored(tmp_path / "other", answered(8, "rw", "ww"))
    assert excluded(tmp_path / "exclude", "8+8", one, other) == [(problem(1), 0), (problem(2), 1)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            answered(16, "rw", "rr"),
            r"no answers of separate 8\+8, only under 16\+8; run the `e1 eval` .*--budgets 8\+8$",
        ),
        (
            answered(8, "rw").assign(problem_id=None),
            "do not say to which problems they belong; .* and samples nothing$",
        ),
        (answered(8, "rw").assign(problem_id="1971A"), "do not say to which problems"),
        (answered(8, "r?", "?w", "??"), "no problem has 2 graded answers, the most have 1; .* --samples 2, or lower"),
        (
            pd.concat([answered(8, "rr"), answered(8, "ww").assign(model="n")]),
            r"are of several models \(m, n\), and rates must be of one",
        ),
        (answered(8, "rr", "ww"), "of 2 problems 1 were never solved and 1 always, so none is left to train on"),
    ],
)
def test_an_evaluation_that_tells_no_rates_is_refused_in_one_line(
    table: pd.DataFrame, message: str, tmp_path: Path
) -> None:
    folder = stored(tmp_path / "evaluation", table)
    with pytest.raises(UserError, match=f"^.*{message}") as error:
        excluded(tmp_path / "exclude", "8+8", folder)
    assert "\n" not in str(error.value) and not (tmp_path / "exclude").exists()


def test_a_problem_with_fewer_graded_answers_than_asked_for_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in folders of which one has more samples: its problems must not decide for those of the other."""
    many = stored(tmp_path / "many", answered(8, "wwwwwwww", "rwwwwwww"))
    once = answered(8, "w", "r", "w", "w", "r")
    once["problem_id"] = [identity(problem(number + 2)) for number in once["problem"]]
    once["prompt"] = [f"{problem(number + 2)} Think." for number in once["problem"]]
    assert excluded(tmp_path / "exclude", "8+8", many, stored(tmp_path / "once", once), least=8) == [(problem(0), 0)]
    _, counts, chance = capsys.readouterr().out.splitlines()
    assert "1 were never solved and 0 always; 5 with fewer than 8 graded answers stay; wrote " in counts
    assert chance.startswith("with 8 answers (--min_answers)") and chance.endswith("43%")


def dry_run(data: Path, *more: object) -> None:
    recipe = ("--config", NANO, "--model_name_or_path", BASE, "--use_cpu", "true", "--dataset_name", data)
    batch = ("--per_device_train_batch_size", 8, "--gradient_accumulation_steps", 1, "--dry_run", "true")
    train([str(word) for word in (*recipe, *batch, *more)])


def test_an_evaluation_names_problems_as_the_training_does_whatever_is_added_to_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "four.jsonl"
    rows: Sequence[dict[str, str]] = [{"problem": problem(n), "answer": str(n), "problem_id": "1A"} for n in range(4)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepared = prepare(parse(options(data, tmp_path / "none", "--dataset_split", "train", "--budgets", "8+8")))
    assert [each.problem_id for each in prepared.plan.problems] == [identity(problem(n)) for n in range(4)]
    excluded(tmp_path / "exclude", "8+8", stored(tmp_path / "one", answered(8, "rw", "ww", "rw", "rw")))
    dry_run(data, "--exclude", tmp_path / "exclude", "--output_dir", tmp_path / "run")
    assert "training         3 prompts" in capsys.readouterr().out
    assert f"left out 1 of 4 problems: they are named in {tmp_path / 'exclude'}" in caplog.text
