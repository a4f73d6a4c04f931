"""What a client is told: an answer as the OpenAI API has it, with what that has no field for."""

import json
import time
from typing import Any
from uuid import uuid4

from e1_trl.rollout import Rollout, ThinkingEnd
from e1_trl.serving.generate import Part, Piece
from e1_trl.serving.model import Model
from e1_trl.serving.request import ParsedRequest

OPENING = "<think>"  # a template may leave it to the model, and no client shows it


class Opening:
    """Takes the opening from the beginning of a thinking that comes in pieces."""

    def __init__(self) -> None:
        self._held: str | None = ""

    def strip(self, text: str) -> str:
        """What of the next text is shown; what may yet become the opening waits."""
        if self._held is None:
            return text
        held = self._held + text
        begun = held.lstrip()
        if OPENING.startswith(begun) and begun != OPENING:
            self._held = held
            return ""
        self._held = None
        return begun.removeprefix(OPENING) if begun.startswith(OPENING) else held

    def rest(self) -> str:
        """What still waits where the thinking ends."""
        held, self._held = self._held or "", None
        return held


class Answer:
    """An answer that grows by pieces.

    Of a conversation it tells thinking and solution apart; of a prompt, they are one text, with the marker between.
    """

    def __init__(self, rollout: Rollout, model: Model, asked: ParsedRequest):
        self._chat = asked.chat
        kind = "chat.completion" if self._chat else "text_completion"
        self.rollout = rollout
        self._marker = model.close.marker
        self._decode = model.tokenizer.decode
        self._head = {"id": f"e1-{uuid4().hex}", "object": kind, "created": int(time.time()), "model": asked.model}
        self._asked = asked
        self._opening = Opening()
        self._begun = False
        self.thinking: list[str] = []
        self.solution: list[str] = []

    def add(self, piece: Piece) -> bytes:
        """The event of a stream that tells of a piece; none, where there is nothing to tell."""
        text, closes = piece.text, piece.part is Part.CLOSE
        if piece.part is Part.THINKING and self._chat:
            text = self._opening.strip(text)
        elif closes:
            text = self._opening.rest() + text
        (self.solution if piece.part is Part.SOLUTION else self.thinking).append(text)
        if not (text or closes or (self._asked.return_token_ids and piece.token_ids)):
            return b""
        choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        if not self._chat:
            choice["text"] = text + self._shown_marker() if closes else text
        else:
            names = ("content",) if piece.part is Part.SOLUTION else ("reasoning_content", "reasoning")
            choice["delta"] = dict.fromkeys(names, text) if text else {}
            if not self._begun:
                choice["delta"]["role"] = "assistant"
            self._begun = True
        if closes:
            choice["thinking_end"] = self.rollout.thinking_end
        if self._asked.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
        return self._event([choice])

    def end(self) -> bytes:
        """The last events of a stream."""
        nothing: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        usage = self._event([], usage=self._usage()) if self._asked.include_usage else b""
        held = self.add(Piece(Part.THINKING, self._opening.rest(), ()))
        return held + self._event([self._ended() | nothing]) + usage + b"data: [DONE]\n\n"

    def whole(self) -> dict[str, Any]:
        """The answer at once."""
        thinking, solution = "".join(self.thinking) + self._opening.rest(), "".join(self.solution)
        choice = self._ended()
        if self._chat:
            said = {"content": solution, "reasoning_content": thinking, "reasoning": thinking}
            choice["message"] = {"role": "assistant", **said}
        else:
            choice["text"] = thinking + self._shown_marker() + solution
        if self._asked.return_token_ids:
            choice["token_ids"] = self.rollout.completion.token_ids.tolist()
        return {**self._head, "choices": [choice], "usage": self._usage()}

    def _shown_marker(self) -> str:
        """Between the parts of one text; not where the forced text holds none."""
        forced = self.rollout.thinking_end is ThinkingEnd.FORCED and self._marker.close_tokens
        return self._marker.text if forced or self.rollout.thinking_end is ThinkingEnd.CLOSED else ""

    def _ended(self) -> dict[str, Any]:
        completion = self.rollout.completion
        solution = self._decode(completion.solution_ids)
        return {
            "index": 0,
            "finish_reason": "length" if completion.truncated else "stop",
            "logprobs": None,
            "thinking_end": completion.thinking_end,
            "thinks_again": OPENING in solution or self._marker.text in solution,
        }

    def _usage(self) -> dict[str, Any]:
        completion, prompt = self.rollout.completion, len(self.rollout.prompt_ids)
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
        kind = {"object": "chat.completion.chunk"} if self._chat else {}
        return b"data: " + json.dumps({**self._head, **kind, "choices": choices, **more}).encode() + b"\n\n"
