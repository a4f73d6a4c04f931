"""What the benchmarks compute from what they measure. The measurements themselves are `make bench`."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from trl.extras.profiling import ProfilingContext

from benchmarks import results
from benchmarks.bench_start import milestones
from benchmarks.phases import REST, Phases
from benchmarks.results import Results
from benchmarks.rows import FirstStep, Scheduled, TrainStep, median_interval
from benchmarks.schedule import clairvoyant_steps
from benchmarks.tables import sections
from e1_trl.report.markdown import around_section
from e1_trl.report.provenance import Provenance


def fewest_steps(lengths: tuple[int, ...], slots: int) -> int:
    """By trying every choice of sequences in every step."""
    states, steps = {lengths}, 0
    while (0,) * len(lengths) not in states:
        states = {
            tuple(tokens - (i in chosen) for i, tokens in enumerate(state))
            for state in states
            for chosen in itertools.combinations(range(len(state)), min(slots, len(state)))
            if all(state[i] for i in chosen)
        } | {tuple(max(0, tokens - 1) for tokens in state) for state in states if sum(map(bool, state)) <= slots}
        steps += 1
    return steps


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_no_schedule_takes_fewer_steps_than_the_clairvoyant_one(slots: int) -> None:
    for count in range(1, 5):
        for lengths in itertools.combinations_with_replacement(range(1, 5), count):
            assert clairvoyant_steps(lengths, slots) == fewest_steps(lengths, slots), lengths


def test_the_clairvoyant_schedule_by_hand() -> None:
    assert clairvoyant_steps([], 2) == 0
    assert clairvoyant_steps([0, 3], 2) == 3
    assert clairvoyant_steps([3, 3, 3], 2) == 5  # nine tokens, two a step; first come, first served takes six
    assert clairvoyant_steps([1, 1, 4], 2) == 4  # the long one never waits; last of all it would end after five


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.integers(1, 8))
def test_the_clairvoyant_schedule_is_bounded_by_the_longest_or_by_the_slots(lengths: list[int], slots: int) -> None:
    assert clairvoyant_steps(lengths, slots) == max(max(lengths), -(-sum(lengths) // slots))


def test_the_interval_of_a_median_lies_between_the_order_statistics_of_the_tables() -> None:
    assert median_interval(range(20, 0, -1)) == (6, 15)
    assert median_interval(range(1, 9)) == (1, 8)
    with pytest.raises(ValueError, match="5 values have no 95% interval"):
        median_interval(range(5))


SCHEDULED = Scheduled(
    distribution="mixed",
    scheduler="streaming",
    sequences=96,
    slots=64,
    block_size=32,
    rounds=8,
    wall_s=2.0,
    wall_s_low=1.8,
    wall_s_high=2.1,
    wall_ratio=1.0,
    wall_ratio_low=1.0,
    wall_ratio_high=1.0,
    engine_steps=496.0,
    clairvoyant_steps=445.0,
    generated_tokens=20259.0,
    phase2_prefill_tokens=1555.0,
    forced_ratio=0.31,
)
MIXED = [
    SCHEDULED,
    replace(SCHEDULED, scheduler="barrier", wall_ratio=1.1, wall_ratio_low=1.05, engine_steps=592.0),
    replace(SCHEDULED, scheduler="single_call", engine_steps=567.0),
]
STEP = TrainStep(
    distribution="train_step",
    scheduler="e1",
    rollouts=512,
    rounds=20,
    step_s=10.1,
    step_s_low=9.0,
    step_s_high=12.0,
    step_ratio=1.01,
    step_ratio_low=0.9,
    step_ratio_high=1.1,
    step_ratio_from=0.99,
    step_ratio_to=1.03,
    phases_s={"generation": 3.2},
    cpu_s=10.0,
    idle_cpu_s=0.05,
    engine_requests=1024,
    engine_steps=110,
    block_size=128,
    prefill_tokens=72000,
    sampled_tokens=49152,
    trained_tokens=49152,
)
PAIR = [STEP, replace(STEP, scheduler="grpo", engine_requests=512)]
START = FirstStep("first_step", "e1", "empty", problems_s=[4.5], evaluated_s=[25.0], first_step_s=[35.0])


@pytest.fixture
def document(tmp_path: Path) -> Path:
    file = tmp_path / "benchmark.md"
    file.write_text("".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in sections(())))
    return file


def test_rows_are_written_as_they_come_and_read_as_long_as_the_sources_are_the_same(
    tmp_path: Path, document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bench.json"
    assert Results.read(file).rows == ()
    first = replace(Results.read(file), provenance=replace(Provenance.here([0]), commit="measured"))
    first.merged(MIXED).publish(file, document)
    Results.read(file).merged([*PAIR, START]).publish(file, document)
    found = Results.read(file)
    assert found.rows == (*MIXED, *PAIR, START)
    assert found.provenance.commit == "measured"  # though the checkout is another since the first rows were written
    assert found.has("train_step") and not found.has("natural")

    again = [replace(row, wall_s=3.0) for row in MIXED]
    assert found.merged(again).rows == (*PAIR, START, *again)

    monkeypatch.setattr(results, "sources", lambda: "others")
    assert Results.read(file).rows == ()


def test_every_source_file_changes_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "ROOT", tmp_path)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "a.py").write_text("1")
    before = results.sources()
    (tmp_path / "benchmarks" / "a.py").write_text("2")
    changed = results.sources()
    (tmp_path / "benchmarks" / "a.py").rename(tmp_path / "benchmarks" / "b.py")
    assert len({before, changed, results.sources()}) == 3


def test_the_targets_say_what_the_numbers_show(document: Path, tmp_path: Path) -> None:
    Results.read(tmp_path / "none").merged([*MIXED, *PAIR]).publish(tmp_path / "bench.json", document)
    text = document.read_text()
    assert "| mixed: engine steps at most 1.10 times those of the clairvoyant schedule | 1.11 | missed |" in text
    assert "| mixed: by the clock the barrier takes longer | 1.10 (1.05 to 1.00) | shown |" in text
    assert "interval 0.990 to 1.030; rounds from 0.90 to 1.10 | not decided: the interval holds 1.02 |" in text
    assert "| requests to vLLM | 1,024 | 512 | +512 |" in text

    def state(low: float, high: float) -> str:
        rows = [replace(STEP, step_ratio_from=low, step_ratio_to=high), PAIR[1]]
        return sections(rows)["targets"].splitlines()[-1].split("|")[-2].strip()

    assert (state(0.9, 1.02), state(1.03, 1.1)) == ("met", "missed")


def test_the_published_document_has_every_section() -> None:
    for name in sections(()):
        around_section(ROOT / "docs" / "benchmark.md", name)


def test_the_phases_of_a_step_add_up_and_hold_what_is_timed_within_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProfilingContext, "__enter__", ProfilingContext.__enter__)
    monkeypatch.setattr(ProfilingContext, "__exit__", ProfilingContext.__exit__)
    clock = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    phases = Phases()

    def timed(name: str) -> ProfilingContext:
        return ProfilingContext(f"E1Trainer.{name}", report_to=[])

    start = next(clock)
    with timed("_prepare_inputs"):
        with timed("vLLM.generate"):
            pass
        with timed("_calculate_rewards"), timed("a_reward"):
            pass
        with timed("_get_per_token_logps_and_entropies"):
            pass
    preparation = next(clock) - start
    with timed("compute_loss"), timed("_get_per_token_logps_and_entropies"):
        pass
    taken = phases.take(100.0)
    assert sum(taken.values()) == pytest.approx(100.0)
    assert taken["rewards"] > taken["generation"] == taken["scoring"] > 0
    assert taken["loss, forward"] == taken["rewards"]  # each with one context inside
    parts = ("generation", "rewards", "scoring", "rest of the preparation")
    assert 0 < taken["rest of the preparation"] < sum(taken[part] for part in parts) < preparation
    assert phases.take(1.0)[REST] == 1.0


def test_the_milestones_of_a_start_are_the_first_lines_of_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines() -> Iterator[str]:
        yield "==> training into runs/nano/e1"
        yield "step 0/60 | budget 32+32"
        yield "step 0/60 | budget 64+32"
        yield "step 1/60 | reward 0.1"
        raise AssertionError("nothing is read after the first step")

    clock = itertools.count(10)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    assert milestones(lines(), 10.0) == {"problems_s": 0, "evaluated_s": 1, "first_step_s": 3}
    assert list(milestones(["==> training"], 0.0)) == ["problems_s"]
