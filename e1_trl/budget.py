"""Budgets of thinking and solution, and the close of the thinking when its budget runs out.

A `Budget` is two numbers of tokens, and a `ThinkingClose` is a marker with the context that must hold it. Nothing here
knows an engine or a model.
"""

from dataclasses import dataclass
from typing import ClassVar

from e1_trl.arguments import Count, option
from e1_trl.errors import UserError
from e1_trl.marker import Marker

UNLIMITED = "unlimited"
PROMPT = 1024  # default limit of a prompt, in tokens


def _parse_tokens(text: str, budget: str) -> int | None:
    if text == UNLIMITED:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise UserError(f"budget {budget!r}: {text!r} is neither a number of tokens nor {UNLIMITED!r}")
    return int(text)


@dataclass(frozen=True)
class Budget:
    """Budget `(t, s)` of Elastic Reasoning (arXiv 2505.05315, section 3.1), in tokens; `None` is unlimited.

    The thinking is closed by force after `thinking` tokens without a natural close, and the solution is truncated after
    `solution` tokens. `total` bounds both together, as a budget without phases does, and truncates either of them.
    Forced tokens count towards none of the three.

    Raises:
        UserError: `thinking` is negative, or `solution` or `total` is not positive.
    """

    thinking: int | None
    solution: int | None
    total: int | None = None

    def __post_init__(self) -> None:
        if self.thinking is not None and self.thinking < 0:
            raise UserError(f"thinking budget is {self.thinking} tokens; it must be 0 or more, or {UNLIMITED}")
        for name, tokens in (("solution", self.solution), ("total", self.total)):
            if tokens is not None and tokens < 1:
                raise UserError(f"{name} budget is {tokens} tokens; it must be 1 or more, or {UNLIMITED}")

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read `"1024+1024"`, `"unlimited+1024"`, or `"unlimited"` (both parts).

        Raises:
            UserError: the text is none of these forms.
        """
        thinking, plus, solution = text.partition("+")
        if not plus and text != UNLIMITED:
            raise UserError(f"budget {text!r} must read '<thinking>+<solution>' in tokens, or {UNLIMITED!r}")
        return cls(_parse_tokens(thinking, text), _parse_tokens(solution if plus else thinking, text))

    def __str__(self) -> str:
        total = "" if self.total is None else f"/{self.total}"
        if self.thinking is None and self.solution is None:
            return UNLIMITED + total
        return "+".join(UNLIMITED if part is None else str(part) for part in (self.thinking, self.solution)) + total

    @property
    def cuts_thinking(self) -> bool:
        """Return whether thinking reaches `total` first, so that it is truncated and never closed by force."""
        return self.total is not None and (self.thinking is None or self.total <= self.thinking)

    def completion_tokens(self, forced: int) -> int | None:
        """Return the longest completion in tokens, with `forced` forced tokens; `None` if it is unbounded."""
        whole = None if self.thinking is None or self.solution is None else self.thinking + self.solution + forced
        if self.total is None:
            return whole
        most = self.total if self.thinking is None else self.total + forced
        return most if whole is None else min(most, whole)

    def thinking_limit(self, prompt: int, close: "ThinkingClose") -> int:
        """Return the longest thinking after a prompt of `prompt` tokens, in tokens.

        Unlimited thinking leaves room for the forced close and the solution budget (one token if that is unlimited).

        Raises:
            UserError: prompt, budget and forced close do not fit the context.
        """
        most, room = self._most_thinking(close)
        room -= prompt
        if room < (most or 0):
            left = prompt + room - (most or 0)
            remedy = "lower the budget" + f", or set max_prompt_length to {left} or less" * (left > 0)
            forced = close.forced_after(self.thinking)
            raise UserError(
                f"a prompt of {prompt} tokens with budget {self} and {forced} forced tokens does not fit "
                f"the context of {close.context} tokens: {remedy}"
            )
        return room if most is None else most

    def longest_prompt(self, close: "ThinkingClose") -> int:
        """Return the longest prompt that leaves room for budget and forced close, in tokens; 0 or less if none does.

        An unbounded completion gets half of the context.
        """
        most, room = self._most_thinking(close)
        left = room - (most or 0)
        return left if self.completion_tokens(0) is not None else min(left, close.context // 2)

    def _most_thinking(self, close: "ThinkingClose") -> tuple[int | None, int]:
        """Return the limit of the thinking, if it has one, and the room for prompt and thinking, in tokens."""
        most, after = (self.total, 0) if self.cuts_thinking else (self.thinking, self._after(self.thinking or 0) or 1)
        forced = 0 if after == 0 and self.thinking is None else close.forced_after(self.thinking)
        return most, close.context - forced - after

    def _after(self, thinking: int) -> int | None:
        """Return the longest solution after `thinking` tokens; `None` if only the context bounds it."""
        bounds = (self.solution, None if self.total is None else self.total - thinking)
        return min((tokens for tokens in bounds if tokens is not None), default=None)

    def solution_limit(self, thinking: int, used: int, context: int) -> int:
        """Return the longest solution after `thinking` sampled tokens and `used` tokens of `context`."""
        after = self._after(thinking)
        return context - used if after is None else after


@dataclass(frozen=True)
class ThinkingClose:
    """End of the thinking: a marker, forced early enough for the solution to fit the context.

    Attributes:
        marker: the end-of-thinking marker, and the text forced in its place.
        context: longest sequence that the engine takes, in tokens.
    """

    marker: Marker
    context: int

    def forced_after(self, thinking: int | None) -> int:
        """Return the most tokens that a thinking budget may force; at a budget of 0 the opener is forced, too."""
        return len((thinking == 0 and self.marker.empty_ids) or self.marker.forced_ids)


@dataclass
class BudgetArguments:
    """Arguments of both training and evaluation: the close of the thinking, and the longest prompt."""

    GROUP: ClassVar[str] = "close of the thinking, and prompts"

    marker: str | None = option(
        None,
        "Text that ends the thinking, one token or several. Default: the marker that the model's chat template "
        "or tokenizer names; in an evaluation, the marker in the model's budget.json, if there is one.",
    )
    forced_text: str | None = option(
        None,
        "Text that is appended when the thinking budget runs out. Default: the marker; in an evaluation, "
        "the forced text in the model's budget.json, if there is one.",
    )
    max_prompt_length: Count | None = option(
        None,
        "Longest prompt in tokens, chat template included; longer ones are dropped and counted. Default: "
        f"{PROMPT}, or what the budgets leave of the context if that is less.",
    )
