"""One sequence on its way through thinking and solution: Elastic Reasoning's separate budgeting, without an engine.

    prompt | thinking ... </think> | solution ...      closed: the policy sampled the marker within its budget
    prompt | thinking ... ‖</think>‖ solution ...      forced: the budget ran out, and the close was appended
    prompt | thinking ... <eos>                        eos:    the policy stopped before it answered
    prompt | thinking ...                              total:  a total budget ran out before it answered
    prompt </think> | solution ...                     prompt: the prompt had already closed the thinking

At a thinking budget of 0, the opener (`<think>`) is forced in front of the close, unless the prompt has opened the
thinking. `Rollout.request` is the next request to the engine; `Rollout.receive` takes the engine's answer, until the
rollout holds a `Completion`. A rollout searches only its prompt for the marker; in sampled tokens the engine finds the
marker and stops there. A marker or a `<think>` inside the solution is just tokens.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.marker import PromptState

Name = tuple[int | str, ...]


class ThinkingEnd(StrEnum):
    """End of the thinking of a completion."""

    CLOSED = "closed"
    FORCED = "forced"
    EOS = "eos"
    TOTAL = "total"  # naive truncation or a total budget: the thinking was cut and not closed
    PROMPT = "prompt"  # there was none: the prompt had already closed it
    NONE = "none"  # there was none: the model answered at once (only in evaluation)


MANY_EOS = 0.2  # share of completions; models that know how to end their thinking stay below


def warn_of_eos(share: float, where: str) -> str | None:
    """Explain a large share of thoughts that ended in an end-of-sequence token; `None` for a small share."""
    if share <= MANY_EOS:
        return None
    return (
        f"{where}: {share:.0%} of the thoughts ended in an end-of-sequence token, without an answer (eos); likely the "
        "model does not think in this prompt (look at chat_template_kwargs), ends its thinking with another marker, or "
        "the marker holds an end-of-sequence token"
    )


class Stop(Enum):
    """Reason why the engine stopped sampling a segment."""

    MARKER = "the end-of-thinking marker was sampled"
    EOS = "an end-of-sequence token was sampled"
    LENGTH = "all requested tokens were sampled"


# Ends that the policy chose; thinking that stopped at its length was closed by force, or cut.
ENDS_BY_POLICY = {Stop.MARKER: ThinkingEnd.CLOSED, Stop.EOS: ThinkingEnd.EOS}


@dataclass(frozen=True)
class Request:
    """Request to the engine: at most `max_tokens` tokens after `prompt_ids`, up to the marker if `stop_at_marker`.

    `name` identifies the sequence in a run; requests for the same sequence differ in the length of their prompts.
    """

    prompt_ids: list[int]
    max_tokens: int
    stop_at_marker: bool
    name: Name = ()


@dataclass(frozen=True)
class Segment:
    """Sampled tokens, the reason why sampling stopped, and one log-probability per token if they are kept."""

    token_ids: Sequence[int]
    stop: Stop
    logprobs: Sequence[float] | None = None


@dataclass(frozen=True)
class Completion:
    """A finished completion of `n` tokens: thinking, then forced tokens (if any), then solution (if any).

    Attributes:
        token_ids: the `n` tokens.
        thinking_end: how the thinking ended.
        thinking_tokens: tokens of thinking, natural close, EOS, and s1's "Wait" included.
        forced_tokens: tokens appended to end the thinking.
        close_tokens: forced tokens up to and including the end of the marker.
        solution_tokens: sampled tokens of the solution, EOS included.
        truncated: the solution (or with `ThinkingEnd.TOTAL` the thinking) ran out of its budget before EOS.
        logprobs: `n` log-probabilities under the policy that sampled, NaN on forced tokens; `None` if not kept.
    """

    token_ids: "array[int]"
    thinking_end: ThinkingEnd
    thinking_tokens: int
    forced_tokens: int
    close_tokens: int
    solution_tokens: int
    truncated: bool
    logprobs: list[float] | None = None

    def __post_init__(self) -> None:
        length = self.thinking_tokens + self.forced_tokens + self.solution_tokens
        logprobs = len(self.token_ids) if self.logprobs is None else len(self.logprobs)
        if not length == len(self.token_ids) == logprobs or self.close_tokens > self.forced_tokens:
            raise ValueError(
                f"a completion of {self.thinking_tokens} + {self.forced_tokens} ({self.close_tokens} to close) + "
                f"{self.solution_tokens} tokens has {len(self.token_ids)} token ids and {logprobs} log-probabilities"
            )

    @property
    def loss_mask(self) -> list[int]:
        """Mask of `n` values: 0 exactly on forced tokens, which the policy did not choose."""
        return [1] * self.thinking_tokens + [0] * self.forced_tokens + [1] * self.solution_tokens

    def trained_mask(self, closes: str, marker_tokens: int) -> list[int]:
        """Return the loss mask if `closes` are trained on: `"sampled"`, `"all"` (also forced ones) or `"none"`.

        A sampled close is the last `marker_tokens` of a thinking that ended in the marker.
        """
        if closes == "all":
            return [1] * len(self.token_ids)
        mask = self.loss_mask
        end = self.thinking_tokens
        if closes == "none" and self.thinking_end is ThinkingEnd.CLOSED:
            mask[max(0, end - marker_tokens) : end] = [0] * min(marker_tokens, end)
        return mask

    @property
    def parts(self) -> tuple[list[int], list[int], list[int]]:
        """Thinking, forced tokens and solution."""
        ids = self.token_ids.tolist()
        end = self.thinking_tokens + self.forced_tokens
        return ids[: self.thinking_tokens], ids[self.thinking_tokens : end], ids[end:]

    @property
    def solution_ids(self) -> list[int]:
        """Tokens that the policy sampled after the thinking."""
        return self.parts[2]

    @property
    def graded_ids(self) -> list[int]:
        """Tokens that training and evaluation grade: everything after the thinking.

        This is the solution and, in front of it, the forced tokens after the marker, which may open the box that the
        solution fills. If the forced tokens hold no marker, all of them are graded.
        """
        return self.token_ids[self.thinking_tokens + self.close_tokens :].tolist()


class Rollout:
    """The state machine of one sequence.

    Args:
        prompt_ids: the prompt, which may have opened the thinking, have closed it, or neither.
        budget: thinking and solution budget, in tokens.
        close: the marker, and the engine's context.

    Attributes:
        request: next request to the engine; `None` once the completion is finished.
        thinking_end: how the thinking ended; `None` until then.

    Raises:
        ValueError: prompt and budget do not fit the context.
    """

    def __init__(self, prompt_ids: Sequence[int], budget: Budget, close: ThinkingClose):
        self.prompt_ids = list(prompt_ids)
        self._budget = budget
        self._context = close.context
        self._thinking: list[int] = []
        self._logprobs: Sequence[float] | None = []
        self.thinking_end: ThinkingEnd | None = None
        self._solution: Segment | None = None

        marker = close.marker
        state = marker.state_of(self.prompt_ids)
        if state is PromptState.CLOSED:  # nothing to think, and nothing to force
            self.thinking_end = ThinkingEnd.PROMPT
            close = replace(close, marker=replace(marker, forced_ids=(), empty_ids=()))
            replace(budget, thinking=0).thinking_limit(len(self.prompt_ids), close)
            self._request_solution()
            return
        opens = budget.thinking == 0 and state is PromptState.NOTHING
        self._forced = (opens and marker.empty_ids) or marker.forced_ids
        self._after_close = len(marker.forced_ids) - marker.close_tokens  # forced tokens that belong to the solution
        limit = budget.thinking_limit(len(self.prompt_ids), close)
        self.request: Request | None = Request(self.prompt_ids, limit, stop_at_marker=True)
        if limit == 0:
            self.receive(Segment([], Stop.LENGTH, []))

    def receive(self, segment: Segment) -> None:
        """Take the engine's answer to `request`, and set the next request.

        Raises:
            ValueError: nothing was requested, or the segment is not an answer to the request.
        """
        self._check(segment)
        if self.thinking_end is None:
            self._thinking = list(segment.token_ids)
            self._logprobs = segment.logprobs
            self._end_thinking(segment.stop)
        else:
            self._solution = segment
            self.request = None

    def _check(self, segment: Segment) -> None:
        if self.request is None:
            raise ValueError("a segment came for a rollout that is finished")
        if segment.logprobs is not None and len(segment.token_ids) != len(segment.logprobs):
            raise ValueError(f"{len(segment.token_ids)} tokens came with {len(segment.logprobs)} log-probabilities")
        if len(segment.token_ids) > self.request.max_tokens:
            raise ValueError(f"{len(segment.token_ids)} tokens came for a request of {self.request.max_tokens}")
        if segment.stop is Stop.LENGTH and len(segment.token_ids) < self.request.max_tokens:
            raise ValueError(
                f"the engine stopped after {len(segment.token_ids)} of {self.request.max_tokens} tokens: its context "
                "or a limit of its own is smaller than the budget needs"
            )

    def _end_thinking(self, stop: Stop) -> None:
        out_of_budget = ThinkingEnd.TOTAL if self._budget.cuts_thinking else ThinkingEnd.FORCED
        self.thinking_end = ENDS_BY_POLICY.get(stop, out_of_budget)
        if self.thinking_end is ThinkingEnd.EOS:
            self.request = None
        else:
            self._request_solution()

    def _request_solution(self) -> None:
        prompt_ids = [*self.prompt_ids, *self._thinking, *self._forced_ids]
        max_tokens = self._budget.solution_limit(len(self._thinking), len(prompt_ids), self._context)
        self.request = Request(prompt_ids, max_tokens, stop_at_marker=False)
        if max_tokens == 0:  # a total budget is used up
            self.receive(Segment([], Stop.LENGTH, []))

    @property
    def _forced_ids(self) -> tuple[int, ...]:
        return self._forced if self.thinking_end is ThinkingEnd.FORCED else ()

    @property
    def completion(self) -> Completion:
        """Finished completion, with log-probabilities if all its segments have them.

        Raises:
            ValueError: the rollout is not finished.
        """
        if self.request is not None or self.thinking_end is None:
            raise ValueError("the rollout is not finished")
        thinking = self._thinking
        forced = self._forced_ids
        solution = self._solution or Segment([], Stop.EOS, [])
        logprobs = None
        if self._logprobs is not None and solution.logprobs is not None:
            logprobs = [*self._logprobs, *[math.nan] * len(forced), *solution.logprobs]
        return Completion(
            token_ids=array("i", [*thinking, *forced, *solution.token_ids]),
            thinking_end=self.thinking_end,
            thinking_tokens=len(thinking),
            forced_tokens=len(forced),
            close_tokens=len(forced) - self._after_close if forced else 0,
            solution_tokens=len(solution.token_ids),
            truncated=solution.stop is Stop.LENGTH,
            logprobs=logprobs,
        )
