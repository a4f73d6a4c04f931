"""Forks: rollouts that share one thought, cut at budgets of their own."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.engines.engine import Follow, Requests, ignore, run
from e1_trl.marker import Marker
from e1_trl.rollout import Request, Rollout, Segment, Stop
from e1_trl.training.progress import metrics_of

MARKER = Marker("</think>", (9,), (9,), 1)
PAIR = Marker("<end>", (8, 9), (8, 9), 2)  # a budget may cut it in the middle
PROMPT = [1, 2]
BUDGETS = st.builds(Budget, st.integers(0, 9) | st.none(), st.integers(1, 3), st.integers(1, 12) | st.none())
SAMPLED = ("thinking/sampled_tokens", "solution/mean_tokens")


class Scripted:
    """An engine that samples the same thought and the same solution for every request, as far as it is asked to."""

    def __init__(self, thought: Sequence[int], ends: Stop = Stop.MARKER):
        self.thought, self.ends = thought, ends
        self.asked: list[Request] = []
        self.sampled = 0

    def serve(self, requests: Requests[Any], follow: Follow[Any], stepped: Any = ignore) -> None:
        waiting = [*requests]
        for key, request in waiting:  # which grows
            self.asked.append(request)
            text = self.thought if request.stop_at_marker else (7, 8)
            ids = [*text[: request.max_tokens]]
            ended = self.ends if request.stop_at_marker else Stop.EOS
            self.sampled += len(ids)
            stop = ended if len(ids) == len(text) else Stop.LENGTH
            waiting += follow(key, Segment(ids, stop, [-0.5 * each for each in ids]))


def run_forks(engine: Scripted, budgets: Sequence[int | Budget], forks: int, marker: Marker = MARKER) -> list[Rollout]:
    each = [budget if isinstance(budget, Budget) else Budget(budget, 4) for budget in budgets]
    rollouts = [Rollout(PROMPT, budget, ThinkingClose(marker, 40)) for budget in each]
    finished: list[int] = []
    run(engine, rollouts, ("x",), lambda row, _: finished.append(row), forks)
    assert sorted(finished) == [*range(len(budgets))]
    return rollouts


def test_a_thought_is_sampled_once_at_its_largest_budget_and_each_fork_takes_what_fits() -> None:
    engine = Scripted([3, 4, 5, 6, 3, 9])  # closes after 6 tokens
    completions = [rollout.completion for rollout in run_forks(engine, [2, 4, 12], 3)]
    assert [each.thinking_end for each in completions] == ["forced", "forced", "closed"]
    assert [each.parts for each in completions] == [
        ([3, 4], [9], [7, 8]),
        ([3, 4, 5, 6], [9], [7, 8]),
        ([3, 4, 5, 6, 3, 9], [], [7, 8]),
    ]
    assert completions[0].logprobs is not None and completions[0].logprobs[:2] == [-1.5, -2.0]
    thinking = [request for request in engine.asked if request.stop_at_marker]
    assert [(request.max_tokens, request.name) for request in thinking] == [(12, ("x", 2))]
    assert [request.prompt_ids for request in engine.asked[1:]] == [
        [*PROMPT, *each.token_ids[: each.thinking_tokens + each.forced_tokens]] for each in completions
    ]


def test_forks_without_a_thought_are_asked_for_their_solution_at_once() -> None:
    engine = Scripted([3, 4, 9])
    completions = [rollout.completion for rollout in run_forks(engine, [0, 2, 0, 0], 2)]
    assert [request.stop_at_marker for request in engine.asked] == [False, True, False, False, False]
    assert [each.parts[0] for each in completions] == [[], [3, 4], [], []]


def test_a_marker_of_several_tokens_can_be_cut_within() -> None:
    completions = [rollout.completion for rollout in run_forks(Scripted([3, 4, 8, 9]), [3, 4], 2, PAIR)]
    assert [each.parts[:2] for each in completions] == [([3, 4, 8], [8, 9]), ([3, 4, 8, 9], [])]


def test_without_forks_every_rollout_asks_for_its_own_thought_and_solution() -> None:
    engine = Scripted([3, 4, 5, 9])
    run_forks(engine, [2, 3, 12], 1)
    thoughts = [([], budget, True) for budget in (2, 3, 12)]
    solutions = [([3, 4, 9], 4, False), ([3, 4, 5, 9], 4, False), ([3, 4, 5, 9], 4, False)]
    assert engine.asked == [
        Request([*PROMPT, *ids], tokens, stop_at_marker=thinks, name=("x", row % 3))
        for row, (ids, tokens, thinks) in enumerate(thoughts + solutions)
    ]


@given(
    *(st.integers(1, 4), st.lists(BUDGETS, min_size=8, max_size=8), st.integers(0, 11)),
    *(st.sampled_from([Stop.MARKER, Stop.EOS]), st.sampled_from([MARKER, PAIR])),
)
def test_forks_are_what_rollouts_of_the_same_thought_would_be_alone(
    forks: int, drawn: list[Budget], tokens: int, ends: Stop, marker: Marker
) -> None:
    budgets = drawn[: 2 * forks]
    thought = [*[3] * tokens, *marker.ids]
    engine = Scripted(thought, ends)
    completions = [rollout.completion for rollout in run_forks(engine, budgets, forks, marker)]
    alone = [rollout.completion for rollout in run_forks(Scripted(thought, ends), budgets, 1, marker)]
    assert repr(completions) == repr(alone)  # in which NaN equals NaN
    reported = sum(value for name, value in metrics_of(completions, forks) if name in SAMPLED)
    assert reported == pytest.approx(engine.sampled)
    assert len([request for request in engine.asked if request.stop_at_marker]) <= 2
