"""How a thinking budget can be kept: the methods, each a small policy over the same tree of samples.

A method is a coroutine over a `Tree`: it samples parts (`yield from tree.sample_part(...)`) and returns an `Answer`.
Where methods do the same, they arrive at the same prefixes, and share the samples.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from e1_trl.budget import Budget, Marker
from e1_trl.evaluation.tree import Kind, Method, Part, Tree
from e1_trl.rollout import Stop, ThinkingEnd

S1_RELEASED_SOLUTION = 20  # tokens; what the published s1 baseline was given to answer


@dataclass(frozen=True)
class Cell:
    """One method at one budget: a row of the table. `str` names it, in files too."""

    method: str
    budget: Budget

    def __str__(self) -> str:
        return f"{self.method} {self.budget}"


@dataclass(frozen=True)
class Setting:
    """What all problems of an evaluation share.

    Attributes:
        marker: what ends the thinking, and what separate budgeting appends in its place.
        s1_ids: what s1 appends when its budget runs out ("Final Answer:").
        wait_ids: what s1 puts in place of an early close ("Wait").
        s1_waits: how often it does so at most.
        opening_ids: what opens the thinking ("<think>").
        context: the longest sequence that the engine takes, in tokens.
        decode: token ids to text.
    """

    marker: Marker
    s1_ids: tuple[int, ...]
    wait_ids: tuple[int, ...]
    s1_waits: int
    opening_ids: tuple[int, ...]
    context: int
    decode: Callable[[list[int]], str]


@dataclass(frozen=True)
class Answer:
    """A finished answer: thinking, then forced tokens (if any), then solution (if any); all lengths in tokens.

    Attributes:
        token_ids: all tokens after the prompt.
        thinking_end: how the thinking ended; `None`: cut off, nothing was made of it.
        thinking_tokens: sampled tokens of thinking, with the natural close, and with what was put in ("Wait").
        forced_tokens: tokens appended to end the thinking.
        solution_tokens: sampled tokens of the solution.
        truncated: the solution was cut off.
    """

    token_ids: "array[int]"
    thinking_end: ThinkingEnd | None
    thinking_tokens: int
    forced_tokens: int
    solution_tokens: int
    truncated: bool

    @property
    def after_thinking(self) -> list[int]:
        """What is graded: all tokens after the thinking, the forced ones too, since they may open the box."""
        return self.token_ids[self.thinking_tokens :].tolist()


def _solve(
    tree: Tree, prompt: list[int], thinking: Part, forced: Sequence[int], limit: int | None, context: int
) -> Method[Answer]:
    """Answer after the thinking, which gets `forced` appended if it was stopped by its length."""
    if thinking.stop is Stop.EOS:
        return Answer(array("i", thinking.token_ids), ThinkingEnd.EOS, len(thinking.token_ids), 0, 0, False)
    end = ThinkingEnd.CLOSED if thinking.stop is Stop.MARKER else ThinkingEnd.FORCED
    appended = list(forced) if end is ThinkingEnd.FORCED else []
    before = [*thinking.token_ids, *appended]
    prefix = [*prompt, *before]
    solution = yield from tree.sample_part(
        prefix, Kind.SOLUTION, Budget(None, limit).solution_limit(len(prefix), context)
    )
    return Answer(
        token_ids=array("i", [*before, *solution.token_ids]),
        thinking_end=end,
        thinking_tokens=len(thinking.token_ids),
        forced_tokens=len(appended),
        solution_tokens=len(solution.token_ids),
        truncated=solution.stop is Stop.LENGTH,
    )


def separate(tree: Tree, prompt: list[int], budget: Budget, setting: Setting) -> Method[Answer]:
    """Separate budgets for thinking and solution (arXiv 2505.05315, section 3.1), as in training."""
    forced = setting.marker.forced_ids
    limit = budget.thinking_limit(len(prompt), len(forced), setting.context)
    thinking = yield from tree.sample_part(prompt, Kind.THINKING, limit)
    return (yield from _solve(tree, prompt, thinking, forced, budget.solution, setting.context))


def truncation(tree: Tree, prompt: list[int], budget: Budget, setting: Setting) -> Method[Answer]:
    """Naive truncation: one budget of `t + s` tokens, cut wherever that is. Unconstrained if it is unlimited."""
    room = setting.context - len(prompt)
    limit = room if (total := budget.completion_tokens(forced=0)) is None else total
    thinking = yield from tree.sample_part(prompt, Kind.THINKING, limit)
    used = len(thinking.token_ids)
    if thinking.stop is Stop.LENGTH or (thinking.stop is Stop.MARKER and used == limit):
        end = ThinkingEnd.CLOSED if thinking.stop is Stop.MARKER else None
        return Answer(array("i", thinking.token_ids), end, used, 0, 0, True)
    return (yield from _solve(tree, prompt, thinking, (), limit - used, setting.context))


def s1(tree: Tree, prompt: list[int], budget: Budget, setting: Setting) -> Method[Answer]:
    """Budget forcing of s1: "Wait" in place of an early close, "Final Answer:" when the budget runs out.

    The close itself is not forced. Waits count as thinking; the last close that there is no room or no wait left for
    is accepted.
    """
    limit = budget.thinking_limit(len(prompt), len(setting.s1_ids), setting.context)
    thinking = yield from tree.sample_part(prompt, Kind.THINKING, limit)
    for _ in range(setting.s1_waits):
        if thinking.stop is not Stop.MARKER:
            break
        unclosed = thinking.token_ids[: _marker_start(thinking.token_ids, setting)]
        waited = [*unclosed, *setting.wait_ids]
        if len(waited) >= limit:
            break
        more = yield from tree.sample_part([*prompt, *waited], Kind.THINKING, limit - len(waited))
        thinking = Part([*waited, *more.token_ids], more.stop)
    return (yield from _solve(tree, prompt, thinking, setting.s1_ids, budget.solution, setting.context))


def _marker_start(token_ids: list[int], setting: Setting) -> int:
    """Where the marker that ends `token_ids` begins."""
    if len(setting.marker.ids) == 1:
        return len(token_ids) - 1
    start = len(token_ids) - 1
    while start > 0 and setting.marker.text not in setting.decode(token_ids[start:]):
        start -= 1
    return start


def asked(tree: Tree, prompt: list[int], budget: Budget, setting: Setting) -> Method[Answer]:
    """L1: the length is asked for in the prompt (`request_for_length`) and never enforced."""
    return (yield from separate(tree, prompt, Budget(None, budget.solution), setting))


def engine_native(tree: Tree, prompt: list[int], budget: Budget, setting: Setting) -> Method[Answer]:
    """vLLM's own `thinking_token_budget`, which forces the bare marker; the solution is cut to its budget here.

    vLLM counts all tokens after the opening, those of the prompt too, and lets a marker of several tokens come late.
    """
    marker, opening = setting.marker.ids, setting.opening_ids
    assert budget.thinking is not None and budget.solution is not None
    openings = (i for i in range(len(prompt), 0, -1) if tuple(prompt[max(0, i - len(opening)) : i]) == opening)
    opened = len(prompt) - next(openings, len(prompt))
    length = budget.thinking + 2 * len(marker) + budget.solution
    whole = yield from tree.sample_part(prompt, Kind.NATIVE, length, native_budget=budget.thinking + opened)
    tokens = whole.token_ids
    starts = (i for i in range(len(tokens) - len(marker) + 1) if tuple(tokens[i : i + len(marker)]) == marker)
    close = next(starts, None)
    if close is None:
        end = None if whole.stop is Stop.LENGTH else ThinkingEnd.EOS
        return Answer(array("i", tokens), end, len(tokens), 0, 0, truncated=end is None)
    forced = len(marker) if close >= budget.thinking else 0
    thinking = close if forced else close + len(marker)
    solution = len(tokens) - thinking - forced
    kept = min(solution, budget.solution)
    return Answer(
        token_ids=array("i", tokens[: thinking + forced + kept]),
        thinking_end=ThinkingEnd.FORCED if forced else ThinkingEnd.CLOSED,
        thinking_tokens=thinking,
        forced_tokens=forced,
        solution_tokens=kept,
        truncated=kept < solution or whole.stop is Stop.LENGTH,
    )


def mixed(thinking: Part) -> Callable[[Tree, list[int], Budget, Setting], Method[Answer]]:
    """Thinking by another model, solution by this one (the paper's Table 2)."""

    def solve(tree: Tree, prompt: list[int], budget: Budget, setting: Setting) -> Method[Answer]:
        forced = setting.marker.forced_ids
        limit = budget.thinking_limit(len(prompt), len(forced), setting.context)
        whole = len(thinking.token_ids) <= limit
        first = Part(thinking.token_ids[:limit], thinking.stop if whole else Stop.LENGTH)
        return (yield from _solve(tree, prompt, first, forced, budget.solution, setting.context))

    return solve


METHODS = {
    "separate": separate,
    "truncation": truncation,
    "s1": s1,
    "s1_as_released": s1,
    "l1_exact": asked,
    "l1_max": asked,
    "no_thinking": separate,
    "unconstrained": truncation,
    "engine_native": engine_native,
}
MIXED = "mixed"


def request_for_length(cell: Cell) -> str:
    """What L1 adds to the problem to ask for a length; "" for every other method."""
    return {
        "l1_exact": f"Think for {cell.budget.thinking} tokens.",
        "l1_max": f"Think for maximum {cell.budget.thinking} tokens.",
    }.get(cell.method, "")


def cells(methods: Sequence[str], budgets: Sequence[Budget]) -> list[Cell]:
    """Every method at every budget that it can keep; without duplicates, in the order given.

    Raises:
        ValueError: a method is unknown.
    """
    for method in methods:
        if method not in (known := [*METHODS, MIXED]):
            raise ValueError(f"unknown method {method!r}; known are {', '.join(known)}")
    found = [Cell(method, at) for method in methods for budget in budgets if (at := _as_kept(method, budget))]
    return list(dict.fromkeys(found))


def _as_kept(method: str, budget: Budget) -> Budget | None:
    """The budget that a method keeps where `budget` is asked for; `None` if it cannot keep any."""
    if method == "unconstrained":
        return Budget(None, None)
    if budget.solution is None:
        return None
    if method == "no_thinking":
        return Budget(0, budget.solution)
    if method in ("separate", MIXED):
        return budget
    if budget.thinking is None:
        return None
    return Budget(budget.thinking, S1_RELEASED_SOLUTION) if method == "s1_as_released" else budget
