"""The evaluation end to end in this process, on the nano base and the real engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import options, results, segments
from vllm import LLM

from e1_trl.answers.mathematics.grader import MathematicsGrader
from e1_trl.atomic import StoreError
from e1_trl.budget import ThinkingClose
from e1_trl.engines.engine import EngineError, Follow, Requests, Stepped, UnusableEngineError
from e1_trl.engines.local import LocalEngine
from e1_trl.errors import UserError, one_line
from e1_trl.evaluation import evaluate as evaluation
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.prepare import prepare
from e1_trl.report import samples
from e1_trl.rollout import Segment

pytestmark = pytest.mark.engine

Evaluate = Callable[..., None]


@pytest.fixture(scope="module")
def llm(start_engine: Callable[..., LLM]) -> LLM:
    return start_engine(max_model_len=1024)


@pytest.fixture
def evaluate(llm: LLM, nano_data: Path) -> Evaluate:
    """Evaluations to their end in this process: on one engine for all, `sampling` as it is or ended by something."""

    def run(output: Path, *more: object, sampling: bool = True, error: BaseException | None = None) -> None:
        work = prepare(parse(options(nano_data, output, *more)))

        def start(close: ThinkingClose, stored: int) -> LocalEngine:
            assert sampling, "an engine was started for nothing"
            engine = LocalEngine(llm, close.marker, work.model.sampling, work.arguments.concurrency)
            return engine if error is None else Ends(engine, error)  # type: ignore[return-value]

        evaluation.evaluate(work, start)

    return run


class Ends:
    """The real engine, which something ends after some segments."""

    def __init__(self, engine: LocalEngine, error: BaseException):
        self.engine = engine
        self.error = error

    def serve(self, requests: Requests[Any], follow: Follow[Any], stepped: Stepped[Any]) -> None:
        left = iter(range(20))

        def followed(key: Any, segment: Segment) -> Requests[Any]:
            further = follow(key, segment)
            if next(left, None) is None:
                raise self.error
            return further

        self.engine.serve(requests, followed, stepped)


def rows(output: Path) -> list[dict[str, Any]]:
    return results(output)["rows"]


def test_more_budgets_cost_only_what_is_missing_and_no_answer_is_graded_twice(
    evaluate: Evaluate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, fresh = tmp_path / "grown", tmp_path / "fresh"
    # A time limit would be graded again: seconds that no load of the machine takes.
    small = ["--methods", "separate", "--max_problems", 32, "--temperature", 0, "--grading_time_limit", 300]
    evaluate(folder, *small, "--budgets", "32+16")
    first = segments(folder)
    evaluate(folder, *small, "--budgets", "32+16", "64+16")
    assert first.items() < segments(folder).items()
    evaluate(fresh, *small, "--budgets", "32+16", "64+16")
    assert (folder / "samples.parquet").read_bytes() == (fresh / "samples.parquet").read_bytes()

    # Nothing is missing, so no engine is started and nothing graded, though the table is lost.
    (folder / "samples.parquet").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(MathematicsGrader, "grade", lambda *_: pytest.fail("an answer was graded again"))
        evaluate(folder, *small, "--budgets", "32+16", "64+16", sampling=False)
        assert (folder / "samples.parquet").read_bytes() == (fresh / "samples.parquet").read_bytes()
        # And a table that is there is left alone, but for another name of the model.
        written = (folder / "samples.parquet").stat()
        evaluate(folder, *small, "--budgets", "64+16", sampling=False)
        assert (folder / "samples.parquet").stat() == written
        evaluate(folder, *small, "--budgets", "64+16", "--name", "other", sampling=False)
        assert {row["model"] for row in rows(folder)} == {"other"}
    # What is asked for anew comes after what is there, and fewer problems are among those that are there.
    evaluate(folder, *small, "--budgets", "16+16")
    evaluate(folder, *small, "--budgets", "64+16", "32+16", "--max_problems", 20, sampling=False)
    assert [(row["thinking_budget"], row["problems"]) for row in rows(folder)] == [(32, 32), (64, 32), (16, 32)]


def test_every_method_has_its_rows_and_the_report_its_pictures(evaluate: Evaluate, tmp_path: Path) -> None:
    methods = ["separate", "truncation", "s1", "s1_no_wait", "s1_as_released", "l1_exact", "l1_max", "no_thinking"]
    methods += ["unconstrained"]
    budgets = ["16+16", "32+16", "64+16", "unlimited"]
    evaluate(tmp_path, "--budgets", *budgets, "--methods", *methods, "--max_problems", 12, "--samples", 2)
    found = rows(tmp_path)
    strict = {row["method"] for row in found if row["method"].endswith(", boxes only")}
    assert strict and strict <= {f"{method}, boxes only" for method in methods if method.startswith("s1")}
    assert {row["method"] for row in found} == {*methods, *strict}
    assert [row["thinking_budget"] for row in found if row["method"] == "separate"] == [16, 32, 64]
    assert {row["solution_budget"] for row in found if row["method"] == "s1_as_released"} == {20}
    assert all(row["samples"] == 2 and row["problems"] == 12 for row in found)
    assert all(row["pass_at_k"]["2"] >= row["pass_at_k"]["1"] == pytest.approx(row["accuracy"]) for row in found)
    by_method = {row["method"]: row for row in found}
    assert by_method["no_thinking"]["mean_thinking_tokens"] == 0
    assert by_method["unconstrained"]["forced_ratio"] == by_method["truncation"]["forced_ratio"] == 0
    answers = samples.read(tmp_path)
    asked = answers[(answers["method"] == "l1_max") & (answers["thinking_budget"] == 32)]
    assert asked["prompt"].str.endswith("Think for maximum 32 tokens.").all()
    words = answers[answers["method"].str.startswith("s1") & (answers["thinking_end"] == "forced")]
    assert len(words) and (words["solution"] == r"\boxed{" + words["free_text"]).all()
    assert answers.drop(words.index)["free_text"].isna().all()
    cut = answers[answers["method"] == "truncation"]
    assert (cut["token_ids"].map(len) <= cut["thinking_budget"] + cut["solution_budget"]).all()
    report = results(tmp_path)
    assert {line["method"] for line in report["lines"]} >= {"separate", "truncation", "s1"}
    assert any(d["minus_method"] == "separate" and d["method"] == "truncation" for d in report["differences"])
    assert {file.stem for file in tmp_path.glob("*.png")} == {"budget", "tokens", "allocation"}
    assert "pass@2" in (tmp_path / "report.md").read_text()


def test_one_model_thinks_and_another_answers(evaluate: Evaluate, tmp_path: Path) -> None:
    sampled = ["--budgets", "16+16", "48+16", "--max_problems", 16, "--temperature", 0]
    thinker, mixed = tmp_path / "thinker", tmp_path / "mixed"
    given = ["--methods", "mixed", "--thinking_from", thinker, "--name", "b"]
    evaluate(thinker, *sampled, "--methods", "separate", "--name", "a")
    evaluate(mixed, *sampled, *given)
    # The two are the same model here, so at temperature 0 nothing may change.
    ours, theirs = (pd.read_parquet(folder / "samples.parquet") for folder in (mixed, thinker))
    assert set(ours["model"]) == {"a → b"} and set(ours["method"]) == {"mixed"}
    assert [list(ids) for ids in ours["token_ids"]] == [list(ids) for ids in theirs["token_ids"]]
    evaluate(mixed, *sampled, *given, sampling=False)
    for more, expected in (
        (("--budgets", "64+16"), "was cut at 48 tokens"),
        (("--max_problems", 17), "lacks the thinking of problem 16, sample 0"),
    ):
        with pytest.raises(StoreError, match=expected):
            evaluate(tmp_path / "more", *sampled, *given, *more)
    with pytest.raises(ValueError, match="has marker = "):
        evaluate(tmp_path / "more", *sampled, *given, "--marker", ";")
    apart = tmp_path / "apart"
    evaluate(apart, *sampled, "--methods", "separate", "--independent", "true")
    with pytest.raises(ValueError, match="apart was evaluated with --independent"):
        evaluate(tmp_path / "more", *sampled, "--methods", "mixed", "--thinking_from", apart)


@pytest.mark.parametrize(
    "error",
    [UnusableEngineError("gone\nto lunch"), KeyboardInterrupt(), EngineError("aborted")],
    ids=lambda error: type(error).__name__,
)
def test_whatever_ends_the_sampling_says_what_is_stored_and_no_thought_begins_again(
    evaluate: Evaluate, tmp_path: Path, error: BaseException
) -> None:
    small = ["--budgets", "16+16", "64+16", "--methods", "separate", "--max_problems", 32, "--temperature", 0]
    with pytest.raises((UserError, type(error))) as said:
        evaluate(tmp_path, *small, error=error)
    kept = f"segments stored in {tmp_path}: {len(segments(tmp_path))}; the same command resumes"
    if isinstance(error, UserError | KeyboardInterrupt):
        assert str(said.value) == f"{one_line(error) if str(error) else 'interrupted'}; {kept}"
    else:
        assert said.value is error and error.__notes__ == [kept]
    before = segments(tmp_path)
    evaluate(tmp_path, *small)
    after = segments(tmp_path)
    assert before.items() < after.items()
    begun = {place[:3] for place in after}
    assert any(start not in (0, 16) for *_, start, _ in after), "none of those in flight was stored"
    assert len(begun) == len({place[:3] for place in after if place[3] == 0}), "a thought began twice"
    evaluate(fresh := tmp_path / "fresh", *small)
    ours, theirs = (samples.read(folder)["token_ids"] for folder in (tmp_path, fresh))
    assert [list(ids) for ids in ours] == [list(ids) for ids in theirs]
