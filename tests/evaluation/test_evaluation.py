"""The evaluation end to end in this process, on the nano base and the real engine."""

import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pandas as pd
import pytest
from conftest import ROOT, SERVED_CONTEXT, free_port, options, results, segments, started
from scipy.stats import binomtest
from vllm import LLM

from e1_trl.answers.grade import Grade, Grader
from e1_trl.answers.mathematics.grader import MathematicsGrader
from e1_trl.atomic import StoreError
from e1_trl.engines.engine import EngineError, Follow, Requests
from e1_trl.engines.local import LocalEngine
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.evaluate import EvaluationError, StartEngine
from e1_trl.evaluation.evaluate import evaluate as run_evaluation
from e1_trl.evaluation.plan import Plan
from e1_trl.evaluation.prepare import Prepared, prepare
from e1_trl.report import document, samples
from e1_trl.rollout import Segment


@pytest.fixture(scope="module")
def one_engine(start_engine: Callable[..., LLM]) -> StartEngine:
    """Evaluations in this process use one engine, instead of each its own."""
    llm = start_engine(max_model_len=1024)

    def start(prepared: Prepared, plan: Plan, stored: int) -> LocalEngine:
        return LocalEngine(llm, prepared.setting.close.marker, prepared.sampling, prepared.arguments.concurrency)

    return start


def no_engine(prepared: Prepared, plan: Plan, stored: int) -> LocalEngine:
    pytest.fail("an engine was started for nothing")


def evaluate(start: StartEngine, data: Path, output: Path, *more: object) -> None:
    """Run to the end, in this process."""
    run_evaluation(prepare(parse(options(data, output, *more))), start)


def rows(output: Path) -> list[dict[str, Any]]:
    return results(output)["rows"]


@pytest.mark.engine
def test_more_budgets_and_a_damaged_segment_cost_only_what_is_missing(
    one_engine: StartEngine, nano_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, fresh = tmp_path / "grown", tmp_path / "fresh"
    small = ["--methods", "separate", "--max_problems", 32, "--temperature", 0]
    evaluate(one_engine, nano_data, folder, *small, "--budgets", "32+16")
    first = segments(folder)
    evaluate(one_engine, nano_data, folder, *small, "--budgets", "32+16", "64+16")
    second = segments(folder)
    assert first.items() < second.items()
    evaluate(one_engine, nano_data, fresh, *small, "--budgets", "32+16", "64+16")
    assert (folder / "samples.parquet").read_bytes() == (fresh / "samples.parquet").read_bytes()

    with contextlib.closing(sqlite3.connect(folder / "segments.sqlite")) as database, database:
        one = "rowid = (SELECT min(rowid) FROM legs WHERE branch LIKE 'solution%')"
        database.execute(f"UPDATE legs SET token_ids = zeroblob(length(token_ids)) WHERE {one}")
    evaluate(one_engine, nano_data, folder, *small, "--budgets", "32+16", "64+16")
    assert "is damaged, and sampled again" in caplog.text
    assert len(second.items() - segments(folder).items()) == 1
    assert (folder / "samples.parquet").read_bytes() == (fresh / "samples.parquet").read_bytes()

    # Nothing is missing, so no engine is started, though the table is lost.
    (folder / "samples.parquet").unlink()
    evaluate(no_engine, nano_data, folder, *small, "--budgets", "32+16", "64+16")
    assert (folder / "samples.parquet").read_bytes() == (fresh / "samples.parquet").read_bytes()
    # What is asked for anew comes after what is there, and fewer problems are among those that are there.
    evaluate(one_engine, nano_data, folder, *small, "--budgets", "16+16")
    evaluate(no_engine, nano_data, folder, *small, "--budgets", "64+16", "32+16", "--max_problems", 20)
    assert [(row["thinking_budget"], row["problems"]) for row in rows(folder)] == [(32, 32), (64, 32), (16, 32)]
    before = results(folder)
    samples.write(samples.read(folder).assign(outcome="wrong"), folder)
    regrade = [sys.executable, "-m", "e1_trl.report", str(folder), "--regrade"]
    subprocess.run(regrade, cwd=ROOT, check=True, capture_output=True)
    assert results(folder) == before


@pytest.mark.engine
def test_shared_and_independent_samples_agree(one_engine: StartEngine, nano_data: Path, tmp_path: Path) -> None:
    sampled = ["--budgets", "32+16", "64+16", "128+16", "--max_problems", 400, "--temperature", 1.0]
    evaluate(one_engine, nano_data, tmp_path / "shared", *sampled, "--methods", "separate")
    evaluate(
        one_engine,
        nano_data,
        tmp_path / "apart",
        *sampled,
        "--methods",
        "separate",
        "--independent",
        "true",
        "--seed",
        1,
    )
    shared = {(row["method"], row["thinking_budget"]): row for row in rows(tmp_path / "shared")}
    apart = {(row["method"], row["thinking_budget"]): row for row in rows(tmp_path / "apart")}
    for budget in (32, 64, 128):
        ours, other = shared["separate", budget], apart["separate", budget]
        pooled = (ours["accuracy"] + other["accuracy"]) / 2
        # Two samples of one rate: a difference of more than four standard errors has odds of one to 15,000.
        assert abs(ours["accuracy"] - other["accuracy"]) <= 4 * (2 * pooled * (1 - pooled) / 400) ** 0.5 + 1e-9
        assert other["mean_thinking_tokens"] == pytest.approx(ours["mean_thinking_tokens"], rel=0.05)
        forced = (ours["forced_ratio"] + other["forced_ratio"]) / 2
        spread = (2 * forced * (1 - forced) / 400) ** 0.5
        assert abs(ours["forced_ratio"] - other["forced_ratio"]) <= 4 * spread + 1e-9
    answers = samples.read(tmp_path / "shared")
    separate = answers[answers["method"] == "separate"]
    prefixes = separate.pivot(index="problem", columns="thinking_budget", values="token_ids")
    assert all(list(small[:32]) == list(large[:32]) for small, large in zip(prefixes[32], prefixes[128], strict=True))
    for row in shared.values():
        total = sum(row[share] for share in ("accuracy", "wrong", "unevaluated", "unparseable", "censored"))
        assert total == pytest.approx(1)
        assert row["ci_low"] <= row["accuracy"] <= row["ci_high"]
        successes = round(row["accuracy"] * row["problems"])
        wilson = binomtest(successes, row["problems"]).proportion_ci(method="wilson")
        assert (row["ci_low"], row["ci_high"]) == pytest.approx((wilson.low, wilson.high))


@pytest.mark.engine
def test_every_method_has_its_rows_and_the_report_its_pictures(
    one_engine: StartEngine, nano_data: Path, tmp_path: Path
) -> None:
    methods = ["separate", "truncation", "s1", "s1_no_wait", "s1_as_released", "l1_exact", "l1_max", "no_thinking"]
    methods += ["unconstrained"]
    budgets = ["16+16", "32+16", "64+16", "unlimited"]
    evaluate(
        one_engine,
        nano_data,
        tmp_path,
        "--budgets",
        *budgets,
        "--methods",
        *methods,
        "--max_problems",
        12,
        "--samples",
        2,
    )
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


@pytest.mark.engine
def test_one_model_thinks_and_another_answers(one_engine: StartEngine, nano_data: Path, tmp_path: Path) -> None:
    sampled = ["--budgets", "16+16", "48+16", "--max_problems", 16, "--temperature", 0]
    thinker, mixed = tmp_path / "thinker", tmp_path / "mixed"
    evaluate(one_engine, nano_data, thinker, *sampled, "--methods", "separate", "--name", "a")
    evaluate(one_engine, nano_data, mixed, *sampled, "--methods", "mixed", "--thinking_from", thinker, "--name", "b")
    # The two are the same model here, so at temperature 0 nothing may change.
    ours, theirs = (pd.read_parquet(folder / "samples.parquet") for folder in (mixed, thinker))
    assert set(ours["model"]) == {"a → b"} and set(ours["method"]) == {"mixed"}
    assert [list(ids) for ids in ours["token_ids"]] == [list(ids) for ids in theirs["token_ids"]]
    evaluate(no_engine, nano_data, mixed, *sampled, "--methods", "mixed", "--thinking_from", thinker, "--name", "b")
    with pytest.raises(StoreError, match="was cut at 48 tokens"):
        evaluate(
            *(one_engine, nano_data, tmp_path / "more", "--methods", "mixed", "--thinking_from", thinker),
            *("--budgets", "64+16", "--max_problems", 16),
        )


@pytest.mark.engine
def test_an_evaluation_with_other_settings_needs_another_folder(
    one_engine: StartEngine, nano_data: Path, tmp_path: Path
) -> None:
    small = ["--budgets", "16+16", "--methods", "separate", "--max_problems", 4]
    evaluate(one_engine, nano_data, tmp_path, *small)
    with pytest.raises(StoreError, match=r"separate 16\+16 is there for 4 problems with 1 samples, and asked for 2"):
        evaluate(no_engine, nano_data, tmp_path, *small, "--max_problems", 2, "--samples", 2)
    with pytest.raises(StoreError, match=r"holds an evaluation with sampling = .*0\.6.*this one has .*0\.9"):
        evaluate(no_engine, nano_data, tmp_path, *small, "--temperature", 0.9)


@pytest.mark.engine
def test_nobody_else_is_let_in_until_the_report_is_written(
    one_engine: StartEngine, nano_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--budgets", "16+16", "--methods", "separate", "--max_problems", 4]
    write, tried = document.write, []

    def second(report: document.Report, folder: Path) -> list[Path]:
        with pytest.raises(StoreError, match="another process evaluates into"):
            evaluate(no_engine, nano_data, folder, *small)
        tried.append(folder)
        return write(report, folder)

    monkeypatch.setattr(document, "write", second)
    evaluate(one_engine, nano_data, tmp_path, *small)
    assert tried == [tmp_path]


class Watched:
    """A grader that counts what it is given."""

    def __init__(self, grader: Grader):
        self.grader = grader
        self.version, self.faults = grader.version, grader.faults
        self.solutions: list[str] = []

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *error: object) -> None:
        self.grader.close()

    def close(self) -> None:
        self.grader.close()

    def grade(self, solutions: Sequence[str], *more: Any) -> list[Grade]:
        self.solutions += solutions
        return self.grader.grade(solutions, *more)


@pytest.mark.engine
def test_what_is_not_new_is_neither_decoded_nor_graded_again(
    one_engine: StartEngine, nano_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--methods", "separate", "--max_problems", 32]

    def graded(start: StartEngine, budgets: Sequence[str], decodes: bool = True) -> list[str]:
        prepared = prepare(parse(options(nano_data, tmp_path, *small, "--budgets", *budgets)))
        if not decodes:
            monkeypatch.setattr(prepared.tokenizer, "decode", lambda *_, **__: pytest.fail("something was decoded"))
        watched = Watched(prepared.grader)
        run_evaluation(replace(prepared, grader=watched), start)
        return watched.solutions

    first = graded(one_engine, ["16+16"])
    assert first
    before = (tmp_path / "samples.parquet").stat()
    assert graded(no_engine, ["16+16"], decodes=False) == []
    assert (tmp_path / "samples.parquet").stat() == before
    added = graded(one_engine, ["16+16", "64+16"])
    table = samples.read(tmp_path)
    assert set(added) <= set(table[table["thinking_budget"] == 64]["solution"])
    assert 0 < len(added) <= 32
    (tmp_path / "samples.parquet").unlink()
    assert graded(no_engine, ["64+16"]) == []
    pd.testing.assert_frame_equal(samples.read(tmp_path), table)
    failed = table.assign(outcome=["ungraded", *table["outcome"][1:]])
    samples.write(failed, tmp_path, samples.made_of(tmp_path))
    graded(no_engine, ["64+16"])
    pd.testing.assert_frame_equal(samples.read(tmp_path), table)


class Ends:
    """The real engine, which something ends after some segments."""

    def __init__(self, engine: LocalEngine, error: BaseException):
        self.engine = engine
        self.error = error

    def serve(self, requests: Requests[Any], follow: Follow[Any]) -> None:
        left = iter(range(20))

        def followed(key: Any, segment: Segment) -> Requests[Any]:
            further = follow(key, segment)
            if next(left, None) is None:
                raise self.error
            return further

        self.engine.serve(requests, followed)


@pytest.mark.engine
@pytest.mark.parametrize(
    "error",
    [EngineError("gone"), ValueError("an engine\nthat cuts"), OSError(12, "no memory"), KeyboardInterrupt()],
    ids=lambda error: type(error).__name__,
)
def test_whatever_ends_the_sampling_is_one_line_and_loses_nothing(
    one_engine: StartEngine, nano_data: Path, tmp_path: Path, error: BaseException
) -> None:
    small = ["--budgets", "16+16", "32+16", "--methods", "separate", "--max_problems", 32, "--temperature", 0]
    with pytest.raises(EvaluationError) as said:
        evaluate(lambda *work: Ends(one_engine(*work), error), nano_data, tmp_path, *small)
    why = " ".join(str(error).split()) or "interrupted"
    assert str(said.value) == f"{why}; segments stored in {tmp_path}: 21; the same command goes on"
    before = segments(tmp_path)
    assert len(before) == 21
    evaluate(one_engine, nano_data, tmp_path, *small)
    assert before.items() < segments(tmp_path).items()


@pytest.mark.engine
def test_workers_that_do_not_start_are_one_line_and_what_was_sampled_is_graded_by_the_next_ones(
    one_engine: StartEngine, nano_data: Path, tmp_path: Path
) -> None:
    small = ["--budgets", "64+16", "--methods", "separate", "--max_problems", 8]
    prepared = prepare(parse(options(nano_data, tmp_path, *small)))
    grader = prepared.grader
    assert isinstance(grader, MathematicsGrader)
    grader.processes.initializer = os.abort
    with pytest.raises(
        EvaluationError, match=rf"^[^\n]+; segments stored in {tmp_path}: \d+; the same command goes on$"
    ):
        run_evaluation(prepared, one_engine)
    evaluate(no_engine, nano_data, tmp_path, *small)
    assert rows(tmp_path)


class Line:
    """A port that leads to a server, until it is cut."""

    def __init__(self, server: str) -> None:
        address = urlsplit(server)
        self.target = (address.hostname, address.port)
        self.port = free_port()
        self.ends: list[socket.socket] = []

    def lay(self) -> None:
        """Lead there, as on the first day."""
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def cut(self) -> None:
        """End what goes through, and take nothing new."""
        for end in (self.listener, *self.ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.ends.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                ends = (listener.accept()[0], socket.create_connection(self.target))
                self.ends += ends
                for source, sink in (ends, ends[::-1]):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.mark.engine
@pytest.mark.distributed
def test_an_evaluation_outlives_the_line_to_its_server_and_equals_one_in_process(
    server: openai.OpenAI, one_engine: StartEngine, nano_data: Path, tmp_path: Path
) -> None:
    sampled = ["--max_problems", 48, "--temperature", 0, "--budgets", "16+16", "32+16", "64+16"]
    sampled += ["--methods", "separate", "truncation", "s1", "--max_model_length", SERVED_CONTEXT, "--concurrency", 4]
    remote, local, log = tmp_path / "remote", tmp_path / "local", tmp_path / "log"
    line = Line(str(server.base_url))
    line.lay()
    served = ["--base_url", f"http://127.0.0.1:{line.port}/v1", "--served_model_name", "nano"]
    client = started(nano_data, remote, log, *sampled, *served)
    try:
        while not segments(remote):
            assert client.poll() is None, log.read_text()[-3000:]
            time.sleep(0.05)
        line.cut()
        time.sleep(5)  # every request in flight has failed, and been repeated in vain
        assert client.poll() is None, log.read_text()[-3000:]
        line.lay()
        assert client.wait(timeout=300) == 0, log.read_text()[-3000:]
    finally:
        client.kill()
        line.cut()
    evaluate(one_engine, nano_data, local, *sampled)
    ours, theirs = (pd.read_parquet(folder / "samples.parquet") for folder in (remote, local))
    assert [list(ids) for ids in ours["token_ids"]] == [list(ids) for ids in theirs["token_ids"]]
    assert (ours["outcome"] == theirs["outcome"]).all() and (ours["outcome"] == "correct").any()
