"""How long thoughts are on average, whatever is killed: the evaluation's own parts on an engine of imposed lengths."""

import heapq
import math
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

import pytest

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.engines.engine import Follow, Requests, Stepped, seed_of
from e1_trl.evaluation.methods import Cell, MethodOptions, Setting
from e1_trl.evaluation.sample import is_sampled, sample_plan, trees
from e1_trl.evaluation.sampling_plan import Goal, Problem, SamplingPlan
from e1_trl.evaluation.store import Store
from e1_trl.marker import Marker
from e1_trl.rollout import Request, Segment, Stop

PROBLEMS, SAMPLES, SLOTS = 30, 16, 256
PROMPT, MARKER = [1, 2, 3], 0
LENGTHS = NormalDist(math.log(100), 0.86)  # logarithms of the tokens of a thought: a fortieth of those of real ones
MEAN = math.exp(LENGTHS.mean + LENGTHS.variance / 2) + 0.5  # as they are rounded up
SOLUTION = 5  # tokens
STEPS = 10  # of the engine, between two of its calls


class KilledError(Exception):
    """Stands for kill -9: nothing is done any more."""


class Imposed:
    """An engine that samples a token of every request in a step, and ends a thought as `LENGTHS` has it.

    How long a thought still is depends on how long it is already, as with a model. It is killed after so many steps.
    One that is `opaque` does not tell what is in flight, like a server, and has no seeds of requests.
    """

    def __init__(self, seed: int, killed_after: float, opaque: bool):
        self.rng = random.Random(seed)
        self.killed_after = killed_after
        self.opaque = opaque

    def sampled(self, request: Request) -> Segment:
        if not request.stop_at_marker:
            return Segment([7] * SOLUTION, Stop.EOS)
        thought = len(request.prompt_ids) - len(PROMPT)
        ended = LENGTHS.cdf(math.log(thought)) if thought else 0.0
        length = math.ceil(math.exp(LENGTHS.inv_cdf(ended + (1 - ended) * self.rng.uniform(1e-9, 1 - 1e-9)))) - thought
        length = max(1, length)
        if length > request.max_tokens:
            return Segment([7] * request.max_tokens, Stop.LENGTH)
        return Segment([7] * (length - 1) + [MARKER], Stop.MARKER)

    def serve(self, requests: Requests[Any], follow: Follow[Any], stepped: Stepped[Any]) -> None:
        waiting, step, count = iter(requests), 0, 0
        in_flight: list[tuple[int, int, int, Any, Segment]] = []  # when it ends, and which it is, and when it began

        def submit(key: Any, request: Request) -> None:
            nonlocal count
            segment = self.sampled(request)
            count += 1
            heapq.heappush(in_flight, (step + len(segment.token_ids), count, step, key, segment))

        def told() -> Iterator[tuple[Any, Segment]]:
            for _, _, began, key, segment in () if self.opaque else in_flight:
                if step > began:
                    yield key, Segment(segment.token_ids[: step - began], Stop.LENGTH)

        while True:
            while len(in_flight) < SLOTS and (wanted := next(waiting, None)):
                submit(*wanted)
            if not in_flight:
                return
            step += STEPS
            if step > self.killed_after:
                raise KilledError
            while in_flight and in_flight[0][0] <= step:
                _, _, _, key, segment = heapq.heappop(in_flight)
                for wanted in follow(key, segment):
                    submit(*wanted)
            stepped(told)


def plan(*budgets: Budget) -> SamplingPlan:
    marker = Marker("\0", (MARKER,), (MARKER,), close_tokens=1)
    setting = Setting(
        close=ThinkingClose(marker, 10**6),
        s1_marker=marker,
        wait_ids=(),
        options=MethodOptions(s1_waits=0),
        decode=lambda ids, **_: "".join(map(chr, ids)),
    )
    problems = [Problem(i, None, [], ["0"], lambda request: PROMPT) for i in range(PROBLEMS)]
    cells = [Cell("separate", budget) for budget in budgets] + [Cell("unconstrained", Budget(None, None))]
    goals = [Goal(cell, PROBLEMS, SAMPLES) for cell in cells]
    return SamplingPlan(problems, goals, setting, independent=False, thinking={})


def mean_thinking(asked: SamplingPlan, folder: Path, seed: int, kills: int, opaque: bool = False) -> float:
    """The mean length of all thoughts without a budget, after so many kills, 30 calls of the engine each."""
    for left in range(kills, -1, -1):
        with Store.open(folder, {}) as store:
            after = STEPS * 30.5 if left else math.inf
            engine = Imposed(seed_of(seed, store.tokens()), after, opaque)
            try:
                sample_plan(asked, store, engine, saving=math.inf)
            except KilledError:
                assert left
    with Store.open(folder, {}) as store:
        assert is_sampled(asked, store)
        free = Cell("unconstrained", Budget(None, None))
        return fmean(tree.completions[free].thinking_tokens for _, tree in trees(asked, store))


def means(tmp_path: Path, asked: SamplingPlan, runs: int, **how: Any) -> tuple[float, float]:
    """The mean over evaluations, and its standard error."""
    found = [mean_thinking(asked, tmp_path / f"{how} {seed}", seed, **how) for seed in range(runs)]
    return fmean(found), stdev(found) / math.sqrt(runs)


@pytest.mark.parametrize(
    "budgets",
    [
        pytest.param((), id="alone", marks=pytest.mark.slow),
        pytest.param((Budget(25, SOLUTION), Budget(100, SOLUTION)), id="shared"),
    ],
)
def test_four_kills_make_no_thought_shorter(tmp_path: Path, budgets: tuple[Budget, ...]) -> None:
    mean, error = means(tmp_path, plan(*budgets), runs=6, kills=4)
    assert error < 0.035 * MEAN and mean == pytest.approx(MEAN, abs=3 * error)


def test_a_server_without_seeds_draws_what_is_lost_again_and_shorter(tmp_path: Path) -> None:
    """Of which the documentation warns; here it shows that the test above can fail."""
    mean, _ = means(tmp_path, plan(), runs=2, kills=4, opaque=True)
    assert mean < 0.8 * MEAN
