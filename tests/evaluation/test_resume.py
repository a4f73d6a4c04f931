"""Evaluations on a stand-in for an engine: folders of earlier versions, and methods and benchmarks of one's own."""

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import BASE, ROOT, options, segments

from e1_trl.answers.mathematics.grader import MathematicsGrader
from e1_trl.atomic import StoreError
from e1_trl.budget import ThinkingClose
from e1_trl.engines.engine import Follow, Requests, Stepped, ignore
from e1_trl.errors import UserError
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.evaluate import evaluate, write_table
from e1_trl.evaluation.prepare import prepare
from e1_trl.evaluation.sample import reach
from e1_trl.evaluation.store import Store, read_facts
from e1_trl.report import samples
from e1_trl.report.conditions import Conditions
from e1_trl.rollout import Request, Segment, Stop

pytestmark = pytest.mark.usefixtures("datasets_cache")

SMALL = ["--budgets", "8+8", "--max_problems", 4, "--samples", 2, "--grading_time_limit", 300, "--page_problems", 0]
Run = Callable[..., int]


class StandIn:
    """An engine whose segment follows from the prompt alone."""

    def __init__(self, marker: int):
        self.marker = marker
        self.requests = 0

    def segment(self, request: Request) -> Segment:
        drawn = hashlib.sha256(repr(request.prompt_ids).encode()).digest()
        ids = [3 + byte % 8 for byte in drawn[: 2 + drawn[0] % 20]]
        if len(ids) >= request.max_tokens:
            return Segment(ids[: request.max_tokens], Stop.LENGTH)
        if request.stop_at_marker and drawn[1] % 4:
            return Segment([*ids, self.marker], Stop.MARKER)
        return Segment([*ids, 1], Stop.EOS)

    def serve(self, requests: Requests[Any], follow: Follow[Any], stepped: Stepped[Any] = ignore) -> None:
        waiting = list(requests)
        while waiting:
            key, request = waiting.pop()
            self.requests += 1
            waiting += follow(key, self.segment(request))


@pytest.fixture
def run(nano_data: Path) -> Run:
    """Evaluate into a folder, up to the table of answers or to the report; returns how many requests that took."""

    def run(output: Path, *more: object, reports: bool = False) -> int:
        engines = list[StandIn]()

        def start(close: ThinkingClose, stored: int) -> StandIn:
            engines.append(StandIn(close.marker.ids[0]))
            return engines[0]

        work = prepare(parse(options(nano_data, output, *SMALL, *more)))
        if reports:
            evaluate(work, start)
        else:
            with Store.open(output, work.facts) as store:
                plan, is_new = reach(work.plan, store, start)
                write_table(work, plan, store, is_new)
        return sum(engine.requests for engine in engines)

    return run


def tokens(output: Path) -> dict[tuple[str, int, int], list[int]]:
    table = pd.read_parquet(output / "samples.parquet")
    return {(row.method, row.problem, row.sample): list(row.token_ids) for row in table.itertuples()}


def test_a_folder_from_before_an_option_that_is_unset_is_resumed_as_it_is(run: Run, tmp_path: Path) -> None:
    assert run(tmp_path, "--methods", "separate", "s1") > 0
    before = (tokens(tmp_path), segments(tmp_path))
    facts = read_facts(tmp_path)
    assert set(facts) == {
        *("format", "model", "dataset", "vocabulary", "chat_template", "chat_template_kwargs", "instruction"),
        *("max_prompt_length", "marker", "forced_text", "s1", "s1_waits", "context", "sampling", "seed", "independent"),
        *("engine", "versions", "thinking_from", "response", "logit_bias", "prompts", "date"),
        "request_seeds",
    }
    older = {name: value for name, value in facts.items() if name != "request_seeds"}
    (tmp_path / "run.json").write_text(json.dumps({**older, "gentle": None}))
    recorded = Conditions.from_text(samples.read(tmp_path)["conditions"].iloc[0]).options
    assert recorded == {"s1_text": r"\boxed{", "wait_text": "Wait ", "s1_waits": 1}

    assert run(tmp_path, "--methods", "separate", "s1") == 0
    assert (tokens(tmp_path), segments(tmp_path)) == before
    assert run(tmp_path, "--methods", "truncation", reports=True) > 0
    assert before[0].items() < tokens(tmp_path).items()
    assert read_facts(tmp_path) == {**older, "gentle": None}


def test_a_folder_grows_in_one_direction(run: Run, tmp_path: Path) -> None:
    run(tmp_path, "--methods", "separate")
    with pytest.raises(StoreError, match=r"separate 8\+8 is stored for 4 problems with 2 samples, and asked for 2"):
        run(tmp_path, "--methods", "separate", "--max_problems", 2, "--samples", 3)


def test_answers_of_two_commits_name_both(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for commit, asked in (("aaa", 1), ("bbb", 2), ("bbb", 3)):
        monkeypatch.setattr("e1_trl.evaluation.sample.commit", lambda commit=commit: commit)
        assert run(tmp_path, "--methods", "separate", "--samples", asked, reports=True) > 0
    assert set(samples.read(tmp_path)["commit"]) == {"aaa, bbb"}


def test_answers_are_graded_again_where_a_machine_was_busy_and_by_another_grader(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, "--methods", "separate")
    graded = samples.read(tmp_path)
    samples.write(graded.assign(outcome="timed_out"), tmp_path)
    assert run(tmp_path, "--methods", "separate") == 0
    assert samples.read(tmp_path)["outcome"].tolist() == graded["outcome"].tolist()
    monkeypatch.setattr(MathematicsGrader, "version", "newer")
    assert run(tmp_path, "--methods", "separate") == 0
    assert set(samples.read(tmp_path)["graded_by"]) == {"newer"}


def test_a_table_is_written_again_where_it_lacks_answers_or_more_problems_were_asked(run: Run, tmp_path: Path) -> None:
    data, output = tmp_path / "problems.jsonl", tmp_path / "evaluation"
    data.write_text("".join(json.dumps({"problem": "a=1;" * n + "a?", "answer": "1"}) + "\n" for n in (1, 300)))
    words = ["--dataset_name", data, "--dataset_split", "train", "--methods", "separate", "--max_prompt_length", 100]
    for problems in (1, 2):  # the second is too long
        run(output, *words, "--max_problems", problems)
        table = samples.read(output)
        assert table["asked_problems"].tolist() == [problems] * 2
    samples.write(table[:1], output)
    assert run(output, *words, "--max_problems", 2) == 0
    pd.testing.assert_frame_equal(samples.read(output), table)


def test_a_marker_in_a_solution_closes_the_thinking_again(run: Run, tmp_path: Path) -> None:
    run(tmp_path, "--methods", "separate", "--max_problems", 32)
    table = samples.read(tmp_path)
    behind = table["thinking_tokens"] + table["forced_tokens"]
    expected = [5 in ids[start:] for ids, start in zip(table["token_ids"], behind, strict=True)]  # </think>
    assert table["closes_again"].tolist() == expected and 0 < sum(expected) < len(expected)


DATED = "{{ '<|user|>' + messages[-1]['content'] + strftime_now('%d') }}<|assistant|><think>"


@pytest.fixture
def dated(tmp_path: Path) -> Path:
    """The miniature's base, with a chat template that names the day."""
    model = shutil.copytree(BASE, tmp_path / "model")
    (model / "chat_template.jinja").write_text(DATED)
    return model


def test_prompts_that_name_the_day_keep_it_when_the_evaluation_resumes(
    run: Run, dated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Past(date):
        @classmethod
        def today(cls) -> date:
            return date(2001, 2, 3)

    model = ["--model", dated, "--methods", "separate"]
    with monkeypatch.context() as patch:
        patch.setattr("e1_trl.evaluation.prepare.date", Past)
        assert run(tmp_path / "then", *model) > 0
    assert run(tmp_path / "then", *model) == 0
    assert run(tmp_path / "now", *model) > 0
    then, now = (read_facts(tmp_path / name) for name in ("then", "now"))
    assert (then["date"], now["date"]) == ("2001-02-03", str(date.today()))
    assert then["prompts"] != now["prompts"]


def test_prompts_that_closed_the_thinking_are_answered_by_each_method(
    run: Run, dated: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Lengths follow from the prompt here, which must be the same on every day.
    template = DATED.replace("strftime_now('%d')", "'28'").replace("<think>", "<think></think>")
    (dated / "chat_template.jinja").write_text(template)
    output = tmp_path / "evaluation"
    methods = ["separate", "truncation", "s1", "l1_exact", "no_thinking", "unconstrained"]
    assert run(output, "--model", dated, "--methods", *methods, "--max_model_length", "128") > 0
    assert any(text.startswith("256 of 256 prompts have closed the thinking") for text in caplog.messages)
    table = pd.read_parquet(output / "samples.parquet")
    assert set(table["method"]) >= set(methods) and set(table["thinking_end"]) == {"prompt"}
    assert (table["thinking_tokens"] == 0).all() and (table["forced_tokens"] == 0).all()
    longest = table.groupby("method")["solution_tokens"].max()
    assert longest["separate"] == longest["s1"] == longest["no_thinking"] == 8
    assert longest["truncation"] == 16 and longest["unconstrained"] > 16


def test_no_other_models_thinking_is_put_after_a_prompt_that_closed_it(run: Run, dated: Path, tmp_path: Path) -> None:
    words = ["--model", dated, "--max_model_length", "128"]
    assert run(tmp_path / "thinker", *words, "--methods", "separate") > 0
    (dated / "chat_template.jinja").write_text(DATED.replace("<think>", "<think></think>"))
    mixed = [*words, "--methods", "mixed", "--thinking_from", tmp_path / "thinker"]
    with pytest.raises(UserError, match=r"thinker has prompts = .*; they must match"):
        run(tmp_path / "mixed", *mixed)
    assert run(tmp_path / "closed", *words, "--methods", "separate") > 0
    with pytest.raises(StoreError, match="closed: the thinking of problem 0, sample 0 was cut at 0 tokens"):
        run(tmp_path / "mixed", *mixed[:-1], tmp_path / "closed")


@pytest.fixture
def my_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module in docs/extend.md, in the working directory."""
    text = (ROOT / "docs" / "extend.md").read_text()
    (module,) = re.findall(r"<!-- my_methods.py -->\n```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "my_methods.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)
    return tmp_path / "my_methods.py"


def test_a_method_of_ones_own_is_one_file_and_is_resumed_as_ours_are(run: Run, my_methods: Path) -> None:
    output = my_methods.parent / "out"
    asked = ["--methods", "separate", "my_methods.early"]
    run(output, "--methods", "separate")
    alone = tokens(output)
    assert run(output, *asked) > 0
    both = tokens(output)
    assert alone.items() < both.items() and {method for method, *_ in both} == {"separate", "my_methods.early"}
    table = samples.read(output)
    early = table[(table["method"] == "my_methods.early") & (table["thinking_end"] == "forced")]
    assert len(early) and set(early["thinking_tokens"]) == {4} and early["solution_tokens"].max() > 8
    for _, row in early.iterrows():
        assert list(row["token_ids"])[:4] == alone["separate", row["problem"], row["sample"]][:4], "shared"
    kept = segments(output)
    assert run(output, *asked, reports=True) == run(output, "--methods", "separate") == 0
    assert tokens(output) == both and segments(output) == kept
    assert "my_methods.early" in (output / "report.md").read_text()

    my_methods.unlink()
    sys.modules.pop("my_methods")
    with pytest.raises(UserError, match=r"the method 'my_methods.early' cannot be imported"):
        run(output, "--methods", "separate")


def test_a_benchmark_of_ones_own_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sums.jsonl").write_text('{"question": "a=1;a?", "answer": "So #### 1"}\n')
    (tmp_path / "my_benchmarks.py").write_text(
        "from e1_trl.problems.benchmarks import Benchmark\n\n"
        'sums = Benchmark("sums.jsonl", problem_column="question", answer_after="####", samples=3, temperature=0.9)\n'
        "fast = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["--model", str(BASE), "--budgets", "8+8", "--benchmark"]
    work = prepare(parse([*words, "my_benchmarks.sums"]))
    assert work.alike["benchmark"] == "my_benchmarks.sums" and str(work.arguments.folder).endswith("my_benchmarks.sums")
    assert (work.plan.goals[0].samples, work.model.sampling.temperature) == (3, 0.9)
    assert json.loads(work.alike["conditions"])["local"]  # so that a card does not publish its problems
    assert [problem.answers for problem in work.plan.problems] == [["1"]]
    with pytest.raises(ValueError, match=r"benchmark .my_benchmarks.fast. is of type int; expected"):
        parse([*words, "my_benchmarks.fast"])
