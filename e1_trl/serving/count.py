"""Tokens of an answer by part: where the thinking begins, how it ends, and when the budget is used up."""

from collections.abc import Sequence

from e1_trl.marker import Marker, PromptState
from e1_trl.serving.model import Limits


class TokenCount:
    """Tokens of an answer by part."""

    def __init__(self, limits: Limits, marker: Marker):
        self.ids: list[int] = []
        self.thinking = 0
        self.forced = 0
        # How the thinking ended: "prompt" where the prompt had closed it, "none" where the model opened none.
        self.end = "prompt" if limits.state is PromptState.CLOSED else None
        self.is_thinking = limits.state is PromptState.OPENED  # it may still begin where it has not ended
        self._limits = limits
        self._marker = marker
        self._blanks = 0  # tokens in front of what may be the opener
        # A thinking that the model opens holds the opener.
        opens = not self.is_thinking and limits.thinking > 0
        self._most = max(limits.thinking, len(marker.opener_ids) * opens)

    @property
    def solution_ids(self) -> list[int]:
        return [] if self.end is None else self.ids[self.thinking + self.forced :]

    @property
    def is_full(self) -> bool:
        """Return whether the solution's budget is used up."""
        most = self._limits.solution
        return self.end is not None and most is not None and len(self.ids) - self.thinking - self.forced >= most

    def add(self, token_ids: Sequence[int]) -> int:
        """Add new tokens, as far as the solution's budget goes, and return their number."""
        for place, token in enumerate(token_ids):
            if self.is_full:
                return place
            self.ids.append(token)
            if self.end is None and not self.is_thinking:
                self._look_for_opener()
            if self.end is None:
                self._look_for_end()
        return len(token_ids)

    def _look_for_opener(self) -> None:
        opener = self._marker.opener_ids
        begun = tuple(self.ids[self._blanks :])
        if begun == opener[: len(begun)]:
            self.is_thinking = begun == opener
            self._most += self._blanks * self.is_thinking  # vLLM counts from the opener
        elif self._marker.decode is not None and not self._marker.decode(self.ids, skip_special_tokens=False).strip():
            self._blanks = len(self.ids)
        else:
            self.end = "none"

    def _look_for_end(self) -> None:
        close = self._marker.ids
        forced = self._limits.forced_ids
        past = tuple(self.ids[self._most :])
        if past and past == forced[: len(past)]:
            self.end = "forced" if past == forced else None
        elif tuple(self.ids[-len(close) :]) == close:
            # vLLM may complete a close of several tokens that had begun within the budget.
            self.end = "forced" if past else "closed"
        if self.end is not None:
            self.thinking = min(len(self.ids), self._most)
            self.forced = len(self.ids) - self.thinking
            self.is_thinking = False

    def finish(self, reason: str) -> None:
        """Say how a thinking ended that was not closed."""
        if self.end is None:
            self.thinking = len(self.ids) * self.is_thinking
            self.end = "none" if not self.is_thinking else "total" if reason == "length" else "eos"
