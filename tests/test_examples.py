"""The programs in `examples/` and the library example of docs/training.md, run as they stand in an empty folder."""

import json
import os
import re
import string
import sys
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from conftest import BASE, ROOT, outside_a_group, python
from transformers import AutoConfig
from warm import Program

from e1_trl.answers.arguments import GradingArguments
from e1_trl.answers.grade import Outcome
from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import BudgetInfo
from e1_trl.train import main
from examples.saturn.clauses import KIND, Clauses
from experiments.pretraining import make_tokenizer

LIBRARY_EXAMPLE = re.compile(r"<!-- library example -->\n+```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what the examples read of a clone, in which nothing has run yet."""
    for name in ("examples", "experiments"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


# Of a user who has activated this environment.
SEARCHED = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def run(clone: Path, *words: str) -> str:
    """Run `python …` there, and return what it prints."""
    done = python(*words, cwd=clone, PATH=SEARCHED)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def run_forked(clone: Path, program: str, without: str | None = None) -> str:
    """Run a program of the library as `run` does, but in a process that has imported the libraries."""
    log = clone / "log"
    own = {**outside_a_group(), "PYTHONPATH": str(ROOT), "PATH": SEARCHED}
    variables = {name: value for name, value in own.items() if name != without}
    assert Program("warm_script", [program], clone, log, variables).wait() == 0, log.read_text()[-5000:]
    return log.read_text()


@pytest.mark.engine
@pytest.mark.slow
def test_a_sample_shows_thinking_forced_close_and_answer(clone: Path) -> None:
    text = run_forked(clone, "examples/sample.py", without="VLLM_CPU_KVCACHE_SPACE")
    thinking, close, answer = re.findall(r"^(?:thinking|forced close|answer): (.*)$", text, re.MULTILINE)
    assert thinking and answer and (close == "</think>") != thinking.endswith("</think>")


@pytest.mark.engine
def test_the_library_example_trains(clone: Path) -> None:
    (program,) = LIBRARY_EXAMPLE.findall((ROOT / "docs" / "training.md").read_text())
    (clone / "program.py").write_text(program)
    steps = re.findall(r"^step \d+/\d+ \| reward .*$", run_forked(clone, "program.py"), re.MULTILINE)
    assert steps and "accuracy" in steps[0]
    assert BudgetInfo.read(clone / "runs" / "example" / "budget.json").budget == Budget(64, 32)


@pytest.mark.engine
@pytest.mark.slow
def test_a_reward_of_ones_own_is_trained_on(clone: Path) -> None:
    text = run(clone, "examples/reward.py")
    shares = re.findall(r"^step [12]: (\d+)% of the solutions are a box alone$", text, re.MULTILINE)
    assert len(shares) == 2 and all(0 < int(share) < 100 for share in shares), text


@pytest.mark.engine
@pytest.mark.slow
def test_a_file_of_ones_own_problems_is_evaluated(clone: Path) -> None:
    text = run_forked(clone, "examples/evaluate.py")
    accuracies = re.findall(r"^(?:32|64|128) +(\S+) +(\S+)$", text, re.MULTILINE)
    separate = [float(each) for each, _ in accuracies]
    assert len(separate) == 3 and sorted(separate) == separate and separate[0] < separate[2], text
    assert re.search(r"^forced +</think>$", text, re.MULTILINE)
    assert (clone / "runs" / "examples" / "evaluate" / "report.html").exists()


@pytest.mark.engine
@pytest.mark.slow
def test_a_schedule_of_ones_own_shortens_the_thinking(clone: Path) -> None:
    text = run(clone, "examples/schedule.py")
    tokens = re.findall(r"^step [1-4]: (\d+) tokens of thinking on average$", text, re.MULTILINE)
    assert len(tokens) == 4 and int(tokens[0]) > int(tokens[3]), text


@pytest.mark.engine
@pytest.mark.slow
def test_a_method_of_ones_own_shares_the_thinking_and_drops_unfinished_steps(clone: Path) -> None:
    run_forked(clone, "examples/method.py")
    answers = pd.read_parquet(clone / "runs" / "examples" / "method" / "samples.parquet")
    answers = answers.set_index(["thinking_budget", "problem", "sample"])
    separate = answers[answers["method"] == "separate"]
    own = answers[answers["method"] != "separate"]
    assert {*own["method"]} == {"examples.method.whole_steps"} and {*own.index} == {*separate.index}
    for at, row in own.iterrows():
        assert separate.loc[at, "thinking"].startswith(row["thinking"])
        assert row["thinking_end"] != "forced" or row["thinking"][-1:] in ("", ";")


@pytest.mark.engine
@pytest.mark.slow
def test_a_benchmark_of_ones_own_is_sampled_as_it_says(clone: Path) -> None:
    run_forked(clone, "examples/benchmark.py")
    rows = json.loads((clone / "runs" / "examples" / "benchmark" / "results.json").read_text())["rows"]
    assert {(row["problems"], row["samples"]) for row in rows} == {(64, 2)} and len(rows) == 2


@pytest.mark.engine
@pytest.mark.slow
def test_a_server_is_queried_at_three_budgets(clone: Path, proxy: str) -> None:
    text = run(clone, "examples/query.py", proxy)
    ends = re.findall(r"^(\d+)\+32: thinking (\w+), answer .*boxed", text, re.MULTILINE)
    assert ends == [("0", "forced"), ("20", "forced"), ("150", "closed")], text
    # It is sampled, and may end in the middle of a solution that goes on thinking.
    assert text.splitlines()[-1].startswith("a=7;"), "the streamed answer begins with its thinking"


def test_a_puzzle_is_graded_as_brute_force_says(clone: Path) -> None:
    run(clone, "-m", "examples.saturn.generate", "3", "5", "6")
    folder = clone / "runs" / "saturn" / "3-5-6"
    rows = [json.loads(line) for name in ("train", "test") for line in (folder / f"{name}.jsonl").open()]
    assert len({row["problem"] for row in rows}) == len(rows) == 300
    for row in rows:
        for digits in map("".join, product("01", repeat=5)):
            values = dict(zip("ABCDE", (digit == "1" for digit in digits), strict=True))
            clauses = [re.findall(r"!?[A-E]", clause) for clause in row["problem"].split(" & ")]
            right = all(any(values[name[-1]] is (name[0] != "!") for name in clause) for clause in clauses)
            (grade,) = Clauses().grade([rf"So \boxed{{{digits}}}."], [KIND.read(row, "problem", GradingArguments())])
            assert grade.correct is right and (right or digits != row["assignment"])


@pytest.mark.parametrize(
    ("solution", "outcome"),
    [
        (r"\boxed{01}, no: \boxed{10}", Outcome.CORRECT),
        (r"\boxed{00}", Outcome.CORRECT),
        (r"\boxed{01}", Outcome.WRONG),
        (r"\boxed{}", Outcome.UNPARSEABLE),
        (r"\boxed{1}", Outcome.UNPARSEABLE),
        (r"\boxed{100}", Outcome.UNPARSEABLE),
        ("10", Outcome.UNBOXED),
    ],
)
def test_an_assignment_has_a_digit_for_each_variable(solution: str, outcome: Outcome) -> None:
    (grade,) = Clauses().grade([solution], [["2: A!B"]])
    assert grade.outcome is outcome


@pytest.mark.parametrize("clauses", ["", "A !B", "A & ", "A!C", "A|B"])
def test_malformed_clauses_are_refused(clauses: str) -> None:
    with pytest.raises(ValueError, match="clause"):
        KIND.read({"variables": 2, "problem": clauses}, "problem", GradingArguments())


@pytest.mark.parametrize(("recipe", "clauses"), [("easy", 5), ("hard", 6)])
def test_a_recipe_of_puzzles_passes_its_dry_run(
    recipe: str, clauses: int, clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(clone, "-m", "examples.saturn.generate", "3", "5", str(clauses))
    model = clone / "model"  # stands in for the real one, of which a dry run reads configuration and tokenizer
    make_tokenizer([*string.printable], []).save_pretrained(model)
    AutoConfig.from_pretrained(BASE, max_position_embeddings=8192).save_pretrained(model)
    monkeypatch.chdir(clone)
    words = f"--config examples/saturn/{recipe}.yaml --model_name_or_path model --dry_run true --use_cpu true"
    main([*words.split(), "--bf16", "false"])
    printed = capsys.readouterr().out
    assert "graded           the generator's assignment is correct; an empty box is unparseable" in printed
    assert "training         250 prompts, 125 steps" in printed
    assert "a generation     2 prompts x 8 rollouts, for 1 steps" in printed
