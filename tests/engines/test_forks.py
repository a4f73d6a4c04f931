"""Forks: rollouts that share one thought, cut at budgets of their own."""

from collections.abc import Sequence
from typing import Any

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.engines.engine import Follow, Requests, ignore_steps, run
from e1_trl.marker import Marker
from e1_trl.rollout import Request, Rollout, Segment, Stop, ThinkingEnd
from e1_trl.training.progress import metrics_of

MARKER = Marker("</think>", (9,), (9,), 1)
PROMPT = [1, 2]


class Scripted:
    """An engine that samples the same thought and the same solution for every request, as far as it is asked to."""

    def __init__(self, thought: Sequence[int], solution: Sequence[int] = (7, 8)):
        self.thought, self.solution = thought, solution
        self.asked: list[Request] = []
        self.sampled = 0

    def serve(self, requests: Requests[Any], follow: Follow[Any], stepped: Any = ignore_steps) -> None:
        waiting = [*requests]
        for key, request in waiting:  # which grows
            self.asked.append(request)
            text = self.thought if request.stop_at_marker else self.solution
            ids = [*text[: request.max_tokens]]
            ended = Stop.MARKER if request.stop_at_marker else Stop.EOS
            self.sampled += len(ids)
            stop = ended if len(ids) == len(text) else Stop.LENGTH
            waiting += follow(key, Segment(ids, stop, [-0.5 * each for each in ids]))


def run_forks(engine: Scripted, budgets: Sequence[int], forks: int, marker: Marker = MARKER) -> list[Rollout]:
    rollouts = [Rollout(PROMPT, Budget(budget, 4), ThinkingClose(marker, 100)) for budget in budgets]
    finished: list[int] = []
    run(engine, rollouts, ("x",), lambda row, _: finished.append(row), forks)
    assert sorted(finished) == [*range(len(budgets))]
    return rollouts


def test_a_thought_is_sampled_once_at_its_largest_budget_and_each_fork_takes_what_fits() -> None:
    engine = Scripted([3, 4, 5, 6, 3, 9])  # closes after 6 tokens
    completions = [rollout.completion for rollout in run_forks(engine, [2, 4, 12], 3)]
    assert [each.thinking_end for each in completions] == [
        *(ThinkingEnd.FORCED, ThinkingEnd.FORCED, ThinkingEnd.CLOSED)
    ]
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


def test_reported_tokens_are_those_that_were_sampled() -> None:
    engine = Scripted([3, 4, 5, 6, 3, 9])
    completions = [rollout.completion for rollout in run_forks(engine, [2, 4, 12, 3, 3, 4], 3)]
    metrics = [*metrics_of(completions, 3)]
    reported = sum(value for name, value in metrics if name in ("thinking/sampled_tokens", "solution/mean_tokens"))
    assert reported == engine.sampled == 6 + 4 + 6 * 2
    assert sum(value for name, value in metrics if name == "thinking/mean_tokens") == 2 + 4 + 6 + 3 + 3 + 4


def test_forks_without_a_thought_are_asked_for_their_solution_at_once() -> None:
    engine = Scripted([3, 4, 9])
    completions = [rollout.completion for rollout in run_forks(engine, [0, 2, 0, 0], 2)]
    assert [request.stop_at_marker for request in engine.asked] == [False, True, False, False, False]
    assert [each.parts[0] for each in completions] == [[], [3, 4], [], []]


def test_a_close_at_the_last_token_of_a_budget_is_a_close_and_one_token_less_is_forced() -> None:
    completions = [rollout.completion for rollout in run_forks(Scripted([3, 4, 9]), [2, 3, 3], 3)]
    assert [each.thinking_end for each in completions] == [
        *(ThinkingEnd.FORCED, ThinkingEnd.CLOSED, ThinkingEnd.CLOSED)
    ]


def test_a_marker_of_several_tokens_can_be_cut_within() -> None:
    marker = Marker("<end>", (8, 9), (8, 9), 2)
    completions = [rollout.completion for rollout in run_forks(Scripted([3, 4, 8, 9]), [3, 4], 2, marker)]
    assert [each.parts[:2] for each in completions] == [([3, 4, 8], [8, 9]), ([3, 4, 8, 9], [])]


def test_a_single_fork_is_a_rollout_of_its_own() -> None:
    alone, forked = Scripted([3, 4, 5, 9]), Scripted([3, 4, 5, 9])
    for engine, forks in ((alone, 1), (forked, 1)):
        run_forks(engine, [2, 3, 12], forks)
    assert alone.asked == forked.asked and len(alone.asked) == 6
