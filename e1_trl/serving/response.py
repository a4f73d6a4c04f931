"""An answer in the OpenAI API's format, with additional fields for how the thinking ended."""

import json
import time
from typing import Any
from uuid import uuid4

from e1_trl.rollout import Rollout, ThinkingEnd
from e1_trl.serving.model import Model, Part, Piece
from e1_trl.serving.request import ParsedRequest

OPENING = "<think>"  # some templates leave it to the model; clients do not show it


class OpeningFilter:
    """Removes the opening from the beginning of a thinking that arrives in pieces."""

    def __init__(self) -> None:
        self._held: str | None = ""

    def strip(self, text: str) -> str:
        """Return the text to show; hold back what may yet become the opening."""
        if self._held is None:
            return text
        held = self._held + text
        begun = held.lstrip()
        if OPENING.startswith(begun) and begun != OPENING:
            self._held = held
            return ""
        self._held = None
        return begun.removeprefix(OPENING) if begun.startswith(OPENING) else held

    def flush(self) -> str:
        """Return what is still held back where the thinking ends."""
        held = self._held or ""
        self._held = None
        return held


class Answer:
    """An answer that grows by pieces.

    In a conversation, thinking and solution are separate; after a prompt, they are one text, with the marker between.
    """

    def __init__(self, rollout: Rollout, model: Model, parsed: ParsedRequest):
        self.rollout = rollout
        self.thinking: list[str] = []
        self.solution: list[str] = []
        self._model = model
        self._parsed = parsed
        self._opening = OpeningFilter()
        self._begun = False
        kind = "chat.completion" if parsed.chat else "text_completion"
        self._head = {"id": f"e1-{uuid4().hex}", "object": kind, "created": int(time.time()), "model": parsed.model}

    def add(self, piece: Piece) -> bytes:
        """Add a piece, and return its event in a stream; empty if there is nothing to send."""
        text = piece.text
        closes = piece.part is Part.CLOSE
        if piece.part is Part.THINKING and self._parsed.chat:
            text = self._opening.strip(text)
        elif closes:
            text = self._opening.flush() + text
        (self.solution if piece.part is Part.SOLUTION else self.thinking).append(text)
        if not (text or closes or (self._parsed.return_token_ids and piece.token_ids)):
            return b""
        choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        if not self._parsed.chat:
            choice["text"] = text + self._shown_marker() if closes else text
        else:
            names = ("content",) if piece.part is Part.SOLUTION else ("reasoning_content", "reasoning")
            choice["delta"] = dict.fromkeys(names, text) if text else {}
            if not self._begun:
                choice["delta"]["role"] = "assistant"
            self._begun = True
        if closes:
            choice["thinking_end"] = self.rollout.thinking_end
        if self._parsed.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
        return self._event([choice])

    def end(self) -> bytes:
        """Return the last events of a stream."""
        nothing: dict[str, Any] = {"delta": {}} if self._parsed.chat else {"text": ""}
        usage = self._event([], usage=self._usage()) if self._parsed.include_usage else b""
        held = self.add(Piece(Part.THINKING, self._opening.flush(), ()))
        return held + self._event([self._final_choice() | nothing]) + usage + b"data: [DONE]\n\n"

    def whole(self) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        thinking = "".join(self.thinking) + self._opening.flush()
        solution = "".join(self.solution)
        choice = self._final_choice()
        if self._parsed.chat:
            texts = {"content": solution, "reasoning_content": thinking, "reasoning": thinking}
            choice["message"] = {"role": "assistant", **texts}
        else:
            choice["text"] = thinking + self._shown_marker() + solution
        if self._parsed.return_token_ids:
            choice["token_ids"] = self.rollout.completion.token_ids.tolist()
        return {**self._head, "choices": [choice], "usage": self._usage()}

    def _shown_marker(self) -> str:
        """Return the marker between the parts of one text; none where the forced text holds none."""
        marker = self._model.close.marker
        forced = self.rollout.thinking_end is ThinkingEnd.FORCED and marker.close_tokens
        return marker.text if forced or self.rollout.thinking_end is ThinkingEnd.CLOSED else ""

    def _final_choice(self) -> dict[str, Any]:
        completion = self.rollout.completion
        solution = self._model.tokenizer.decode(completion.solution_ids)
        return {
            "index": 0,
            "finish_reason": "length" if completion.truncated else "stop",
            "logprobs": None,
            "thinking_end": completion.thinking_end,
            "thinks_again": OPENING in solution or self._model.close.marker.text in solution,
        }

    def _usage(self) -> dict[str, Any]:
        completion = self.rollout.completion
        prompt = len(self.rollout.prompt_ids)
        tokens = len(completion.token_ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "total_tokens": prompt + tokens,
            "completion_tokens_details": {
                "reasoning_tokens": completion.thinking_tokens,
                "forced_tokens": completion.forced_tokens,
                "solution_tokens": completion.solution_tokens,
            },
        }

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        kind = {"object": "chat.completion.chunk"} if self._parsed.chat else {}
        return b"data: " + json.dumps({**self._head, **kind, "choices": choices, **more}).encode() + b"\n\n"
