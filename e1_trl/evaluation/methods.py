"""Methods of sampling under a thinking budget, which draw from one tree of sampled tokens.

A method is a coroutine that asks a `Tree` for sampled segments and returns a `Completion`. Methods that arrive at the
same prefix share the samples after it. Everything else in which methods differ is a field of their `Method`. Our
`Method`s are in `METHODS`; a user's is named by its dotted path.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from e1_trl.arguments import Natural, find, option
from e1_trl.budget import Budget, ThinkingClose
from e1_trl.errors import UserError
from e1_trl.marker import Marker, PromptState
from e1_trl.rollout import Completion, Rollout, Segment, Stop, ThinkingEnd
from e1_trl.tree import Coroutine, Phase, Tree

logger = logging.getLogger(__name__)

S1_RELEASED_SOLUTION = 20  # tokens; what the published s1 baseline was given to answer


@dataclass(kw_only=True)
class MethodOptions:
    """Options of single methods. A field is an option of `e1 eval`, is handed to the methods, and is recorded."""

    GROUP: ClassVar[str] = "options of single methods"

    s1_text: str = option(
        "\nFinal Answer:", "Text that the method s1 appends after the marker when its budget runs out."
    )
    wait_text: str = option("\nWait", "Text that the method s1 puts in place of an early close of the thinking.")
    s1_waits: Natural = option(1, "Most times that the method s1 replaces an early close by `wait_text`.")


@dataclass(frozen=True)
class Cell:
    """One method, which must be known, at one budget: a row of a report. Its `str` is its name, also in files."""

    method: str
    budget: Budget

    def __post_init__(self) -> None:
        find_method(self.method)
        if self.budget.total is not None:
            raise UserError(f"{self.method} keeps the budget {self.budget}; a method's budget has no total")

    def __str__(self) -> str:
        return f"{self.method} {self.budget}"

    @property
    def record(self) -> "Method":
        return find_method(self.method)

    @property
    def request(self) -> str:
        """Text that the method adds to the problem, to ask for a length; "" for most."""
        return self.record.asks(self.budget)


@dataclass(frozen=True)
class Setting:
    """Setting that all problems of an evaluation share."""

    # Marker that ends the thinking, with the text that the method forces, and the engine's context.
    close: ThinkingClose
    s1_marker: Marker  # marker with the text that s1 forces: the close, and words that ask for the answer
    wait_ids: tuple[int, ...]  # tokens that s1 puts in place of an early close ("Wait")
    options: MethodOptions  # the command's options for single methods, such as `s1_waits`
    decode: Callable[..., str]  # turns token ids into text
    # Tokens of the longest completion where a part of the budget is unlimited; `None`: as many as the context leaves.
    response: int | None = None
    # Whether the engine takes all of the context, however small the budgets: LongRoPE's factors depend on it.
    whole_context: bool = False

    def s1_close(self) -> ThinkingClose:
        """Close that forces the words of s1."""
        return replace(self.close, marker=self.s1_marker)

    def no_close(self) -> ThinkingClose:
        """Close that forces nothing."""
        return replace(self.close, marker=replace(self.close.marker, forced_ids=(), close_tokens=0, empty_ids=()))


@dataclass(frozen=True)
class Question:
    """Task of one completion: the prompt as token ids, the budget and, for `mixed`, another model's thinking."""

    prompt_ids: list[int]
    budget: Budget
    thinking: Segment | None = None


Answer = Callable[[Tree[Cell], Question, Setting], Coroutine[Completion]]


def separate(tree: Tree[Cell], question: Question, setting: Setting) -> Coroutine[Completion]:
    """Keep separate budgets for thinking and solution (arXiv 2505.05315, section 3.1), as training does.

    But an answer without any thinking is a solution here; in training it is a thought that ended in EOS.
    """
    completion = yield from tree.drive(Rollout(question.prompt_ids, question.budget, setting.close))
    if completion.thinking_end is not ThinkingEnd.EOS or not _answers_at_once(completion, question, setting):
        return completion
    tokens = completion.thinking_tokens
    return replace(completion, thinking_end=ThinkingEnd.NONE, thinking_tokens=0, solution_tokens=tokens)


def _answers_at_once(completion: Completion, question: Question, setting: Setting) -> bool:
    """Return whether neither the prompt nor the model opened a thinking."""
    marker = setting.close.marker
    is_open = marker.state_of(question.prompt_ids) is not PromptState.NOTHING
    text = setting.decode(completion.token_ids.tolist())
    return bool(marker.opener) and not is_open and marker.opener.strip() not in text


def _solve(tree: Tree[Cell], question: Question, setting: Setting, thinking: Segment) -> Coroutine[Completion]:
    """Answer after a given thinking, and after the forced close if that thinking was stopped by its length."""
    rollout = Rollout(question.prompt_ids, question.budget, setting.close)
    if rollout.request is not None and rollout.request.stop_at_marker:  # a budget of 0 is forced at once
        rollout.receive(thinking)
    return (yield from tree.drive(rollout))


def truncation(tree: Tree[Cell], question: Question, setting: Setting) -> Coroutine[Completion]:
    """Cut after one budget of `t + s` tokens, wherever that is. Unconstrained if the budget is unlimited."""
    total = question.budget.completion_tokens(forced=0)
    limit = setting.close.context - len(question.prompt_ids) if total is None else total
    return (yield from separate(tree, replace(question, budget=Budget(None, None, total=limit)), setting))


def s1(tree: Tree[Cell], question: Question, setting: Setting) -> Coroutine[Completion]:
    """Force budgets as s1: "Wait" in place of an early close; close and "Final Answer:" when the budget runs out.

    Waits count as thinking. A close is accepted once no wait is left, or a wait would not fit.
    """
    prompt_ids = question.prompt_ids
    if setting.close.marker.state_of(prompt_ids) is PromptState.CLOSED:
        return (yield from separate(tree, question, setting))
    limit = question.budget.thinking_limit(len(prompt_ids), setting.close)
    thinking = yield from tree.sample(prompt_ids, Phase.THINKING, limit)
    if thinking.stop is Stop.EOS:
        return (yield from separate(tree, question, setting))
    for _ in range(setting.options.s1_waits):
        if thinking.stop is not Stop.MARKER:
            break
        unclosed = thinking.token_ids[: _marker_start(thinking.token_ids, setting)]
        waited = [*unclosed, *setting.wait_ids]
        if len(waited) >= limit:
            break
        more = yield from tree.sample([*prompt_ids, *waited], Phase.THINKING, limit - len(waited))
        thinking = Segment([*waited, *more.token_ids], more.stop)
    return (yield from _solve(tree, question, setting, thinking))


def _marker_start(token_ids: Sequence[int], setting: Setting) -> int:
    """Return where the marker that ends `token_ids` begins."""
    start = len(token_ids) - 1
    if len(setting.close.marker.ids) > 1:
        while start > 0 and setting.close.marker.text not in setting.decode(list(token_ids[start:])):
            start -= 1
    return start


def length_in_prompt(tree: Tree[Cell], question: Question, setting: Setting) -> Coroutine[Completion]:
    """Answer as L1: the prompt asks for the length (`Method.asks`), and nothing enforces it."""
    unlimited = replace(question, budget=Budget(None, question.budget.solution))
    return (yield from separate(tree, unlimited, setting))


def mixed(tree: Tree[Cell], question: Question, setting: Setting) -> Coroutine[Completion]:
    """Answer after another model's thinking (the paper's Table 2)."""
    prompt_ids = question.prompt_ids
    given = question.thinking
    assert given is not None, "prepared with the goals of mixed"
    if setting.close.marker.state_of(prompt_ids) is PromptState.CLOSED:
        raise UserError("mixed: the prompt has closed the thinking, so another model's cannot be put there")
    limit = question.budget.thinking_limit(len(prompt_ids), setting.close)
    whole = len(given.token_ids) <= limit
    thinking = Segment(given.token_ids[:limit], given.stop if whole else Stop.LENGTH)
    return (yield from _solve(tree, question, setting, thinking))


def _bounded_solution(budget: Budget) -> Budget | None:
    return None if budget.solution is None else budget


def _bounded(budget: Budget) -> Budget | None:
    return None if budget.thinking is None else _bounded_solution(budget)


@dataclass(frozen=True)
class Method:
    """Definition of one method.

    Attributes:
        answer: coroutine that makes one completion; the setting passed to it has the method's close.
        keeps: maps a budget of the command to the one at which the method runs; `None` if it cannot run there.
        asks: maps the method's budget to the text that the method adds to the problem.
        close: maps the evaluation's setting to the close under which the method runs.
        bounded: whether the thinking budget bounds its thinking.
        unboxed: whether an answer after its forced text is also read without a box. In evaluation only.
    """

    answer: Answer
    keeps: Callable[[Budget], Budget | None] = _bounded
    asks: Callable[[Budget], str] = lambda budget: ""
    close: Callable[[Setting], ThinkingClose] = lambda setting: setting.close
    bounded: bool = True
    unboxed: bool = False

    def complete(self, tree: Tree[Cell], question: Question, setting: Setting) -> Coroutine[Completion]:
        """Run `answer` with the method's own close in place of the setting's."""
        completion = yield from self.answer(tree, question, replace(setting, close=self.close(setting)))
        if not isinstance(completion, Completion):
            where = f"{self.answer.__module__}.{self.answer.__qualname__}"
            raise UserError(f"{where} returned {completion!r}; a method must return a Completion")
        return completion

    def context(self, longest_prompt: int, budget: Budget, setting: Setting) -> int:
        """Return the method's longest sequence, in tokens, with a prompt of `longest_prompt` tokens.

        Raises a `UserError` if it does not fit the context.
        """
        close = self.close(setting)
        bound = budget if self.bounded else Budget(None, budget.solution)
        completion = bound.completion_tokens(close.forced_after(bound.thinking)) or setting.response
        context = close.context if completion is None else min(close.context, longest_prompt + completion)
        bound.thinking_limit(longest_prompt, replace(close, context=context))
        return context


MIXED = "mixed"
UNCONSTRAINED = "unconstrained"
METHODS = {
    "separate": Method(separate, keeps=_bounded_solution),
    "truncation": Method(truncation, close=Setting.no_close),
    "s1": Method(s1, close=Setting.s1_close, unboxed=True),
    "s1_no_wait": Method(separate, close=Setting.s1_close, unboxed=True),  # what the forced words do alone
    "s1_as_released": Method(
        s1,
        keeps=lambda budget: _bounded(budget) and Budget(budget.thinking, S1_RELEASED_SOLUTION),
        close=Setting.s1_close,
        unboxed=True,
    ),
    "l1_exact": Method(length_in_prompt, asks=lambda budget: f"Think for {budget.thinking} tokens.", bounded=False),
    "l1_max": Method(
        length_in_prompt, asks=lambda budget: f"Think for maximum {budget.thinking} tokens.", bounded=False
    ),
    "no_thinking": Method(separate, keeps=lambda budget: _bounded_solution(replace(budget, thinking=0))),
    UNCONSTRAINED: Method(truncation, keeps=lambda budget: Budget(None, None), close=Setting.no_close),
    MIXED: Method(mixed, keeps=_bounded_solution),
}


def find_method(name: str) -> Method:
    """Return the method of a name: one of `METHODS`, or a user's at a dotted path; a `UserError` if there is none."""
    return find(name, METHODS, "method", Method)


def make_cells(methods: Sequence[str], budgets: Sequence[Budget]) -> list[Cell]:
    """Make the cells of every method at every budget at which it can run; without duplicates, in the order given.

    Warns of budgets at which no method can run.
    """
    kept = [(method, find_method(method).keeps(budget)) for method in methods for budget in budgets]
    found = [Cell(method, budget) for method, budget in kept if budget is not None]
    if not found:
        raise UserError(f"no method of {', '.join(methods)} applies to any budget of {', '.join(map(str, budgets))}")
    others = [method for method in methods if method != UNCONSTRAINED] or methods  # it takes any budget, and keeps none
    for budget in budgets:
        left_out = all(find_method(method).keeps(budget) is None for method in others)
        if left_out and Cell(UNCONSTRAINED, budget) not in found:
            logger.warning("budget %s is left out: none of %s can run at it", budget, ", ".join(methods))
    return list(dict.fromkeys(found))
