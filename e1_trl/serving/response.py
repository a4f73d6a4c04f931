"""vLLM's answer, with how the thinking ended, and cut where the solution's budget or a stop text ends it."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import aiohttp

from e1_trl.serving.model import Limits, Model
from e1_trl.serving.request import Asked
from e1_trl.serving.shim import Marker, PromptState, last_index
from e1_trl.serving.upstream import read_events

GROWING = {"content", "reasoning", "reasoning_content", "refusal", "text", "arguments"}
Part = dict[str, Any]


class Count:
    """Tokens of an answer by part.

    Attributes:
        end: how the thinking ended: `None` until then, "prompt" where the prompt had closed it, and "none" where the
            model opened none.
        is_thinking: whether a thinking is open.
    """

    def __init__(self, limits: Limits, marker: Marker):
        self.ids: list[int] = []
        self.thinking = 0
        self.forced = 0
        self.end = "prompt" if limits.state is PromptState.CLOSED else None
        self.is_thinking = limits.state is PromptState.OPENED
        self._limits = limits
        self._marker = marker
        # A thinking that the model opens holds the opener.
        opener = 0 if self.is_thinking or limits.thinking == 0 else len(marker.opener_ids)
        self._most = max(limits.thinking, opener)

    @property
    def solution(self) -> int:
        return 0 if self.end is None else len(self.ids) - self.thinking - self.forced

    @property
    def solution_ids(self) -> list[int]:
        return self.ids[self.thinking + self.forced :]

    @property
    def is_full(self) -> bool:
        return self.end is not None and self.solution == self._limits.solution

    def add(self, token_ids: Sequence[int]) -> int:
        """Add new tokens, as far as the solution's budget goes, and return their number."""
        for place, token in enumerate(token_ids):
            if self.is_full:
                return place
            self.ids.append(token)
            if self.end is None:
                self._look_for_end()
        return len(token_ids)

    def _look_for_end(self) -> None:
        close = self._marker.ids
        forced = self._limits.forced_ids
        self.is_thinking = self.is_thinking or tuple(self.ids) == self._marker.opener_ids
        if forced and tuple(self.ids[self._most :]) == forced:
            self.thinking = self._most
            self.forced = len(forced)
            self.end = "forced"
        elif tuple(self.ids[-len(close) :]) == close and not len(self.ids) - len(close) == self._most < len(close):
            # A close of several tokens may begin in the thinking, and be forced to its end.
            self.thinking = min(len(self.ids), self._most)
            self.forced = len(self.ids) - self.thinking
            self.end = "forced" if self.forced else "closed"
        self.is_thinking = self.is_thinking and self.end is None

    def finish(self, reason: str) -> None:
        """Say how a thinking ended that was not closed."""
        if self.end is None and self.is_thinking:
            self.thinking = len(self.ids)
        if self.end is None:
            self.end = "none" if not self.is_thinking else "total" if reason == "length" else "eos"


class Choice:
    """One of the answers to a request."""

    def __init__(self, limits: Limits, model: Model, asked: Asked):
        self.count = Count(limits, model.close.marker)
        self.done = False
        self._asked = asked
        self._model = model
        self._solution = ""  # its text
        self._held = ""  # its end, which may become a stop text
        self._is_parsed = False  # the server has told thinking and solution apart

    async def take(self, choice: Part) -> Part | None:
        """Take what is new, and return it as the client gets it; `None` if there is nothing to send."""
        token_ids = choice.pop("token_ids", None) or []
        delta = choice.get("delta", choice)
        name = "content" if "delta" in choice else "text"
        before = self.count.end
        kept = self.count.add(token_ids)
        ends = before is None and self.count.end is not None
        if name == "content":
            self._tell_apart(delta, ends)
        text = delta.get(name) or ""
        thought = text if self.count.end is None else ""
        if ends and name == "text":
            thought, found, text = text.rpartition(self._model.close.marker.text)
            thought += found
        elif thought:
            text = ""
        if kept < len(token_ids):
            text = await self._cut(choice, kept)
        self._solution += text
        reason = choice.get("finish_reason") or ("length" if self.count.is_full else None)
        if self._asked.stop and (text or self._held):
            text, reason = self._stop(choice, text, reason)
        if name in delta or text:
            delta[name] = thought + text
        if reason:
            self._finish(choice, reason)
        return self._show(choice, delta, name, ends, token_ids[:kept])

    def _tell_apart(self, delta: Part, ends: bool) -> None:
        """Name the thinking as such, where the server has no reasoning parser."""
        self._is_parsed = self._is_parsed or bool(delta.get("reasoning"))
        content = delta.get("content")
        marker = self._model.close.marker
        if content and not self._is_parsed and (ends or self.count.is_thinking):
            thought, _, solution = content.partition(marker.text) if ends else (content, "", "")
            delta |= {"reasoning": thought.replace(marker.opener, ""), "content": solution}
        if delta.get("reasoning") is not None:
            delta["reasoning_content"] = delta["reasoning"]
        if self._asked.hides_thinking:
            delta.pop("reasoning", None)
            delta.pop("reasoning_content", None)

    async def _cut(self, choice: Part, kept: int) -> str:
        """Return the text of the solution's last tokens, where more arrived with them."""
        for values in (choice.get("logprobs") or {}).values():
            if isinstance(values, list):
                del values[kept:]
        whole = await self._model.upstream.ask("/detokenize", {"tokens": self.count.solution_ids})
        text = whole["prompt"].lstrip()
        sent = self._solution.lstrip()
        return text.removeprefix(sent) if text.startswith(sent) else ""

    def _stop(self, choice: Part, text: str, reason: str | None) -> tuple[str, str | None]:
        """Cut a solution at the first stop text, and hold back what may become one."""
        text = self._held + text
        self._held = ""
        found = [(text.find(each), each) for each in self._asked.stop if each in text]
        if found:
            place, stop = min(found)
            choice["stop_reason"] = stop
            place += len(stop) * (self._asked.body.get("include_stop_str_in_output") is True)
            return text[:place], "stop"
        ends = (
            size for size in range(len(text), 0, -1) if any(each.startswith(text[-size:]) for each in self._asked.stop)
        )
        size = 0 if reason else next(ends, 0)
        self._held = text[len(text) - size :]
        return text[: len(text) - size], reason

    def _finish(self, choice: Part, reason: str) -> None:
        self.done = True
        self.count.finish(reason)
        marker = self._model.close.marker
        again = any(last_index(self.count.solution_ids, ids) >= 0 for ids in (marker.ids, marker.opener_ids))
        choice |= {"finish_reason": reason, "thinking_end": self.count.end, "thinks_again": again}

    def _show(self, choice: Part, delta: Part, name: str, ends: bool, token_ids: list[int]) -> Part | None:
        if ends:
            choice["thinking_end"] = self.count.end
        if self._asked.return_token_ids:
            choice["token_ids"] = token_ids
        else:
            choice.pop("prompt_token_ids", None)
        fields = ("role", name, "reasoning", "tool_calls", "refusal")
        shown = (
            any(delta.get(each) for each in fields)
            or choice.get("logprobs")
            or (token_ids and self._asked.return_token_ids)
        )
        return choice if shown or "thinking_end" in choice else None


class Answer:
    """All answers to a request, as a stream of events or as one body."""

    def __init__(self, model: Model, asked: Asked, limits: Sequence[Limits]):
        self.choices = [Choice(each, model, asked) for each in limits for _ in range(asked.body.get("n") or 1)]
        self.head: Part = {}
        self.start = time.monotonic()
        self._asked = asked
        self._prompt_tokens = sum(len(each.prompt_ids) for each in limits)
        self._whole: dict[int, Part] = {}
        self._more: Part = {"budget": str(asked.budget)} | ({"reasoning_effort": asked.effort} if asked.effort else {})

    @classmethod
    async def begin(
        cls, model: Model, asked: Asked, path: str, request_id: str
    ) -> "tuple[Answer, aiohttp.ClientResponse]":
        """Ask the server; raise as it refuses."""
        limits = [model.limit(each, asked.budget) for each in await model.read_prompts(asked.body)]
        return cls(model, asked, limits), await model.upstream.post(path, model.fields(asked, limits), request_id)

    async def read(self, response: aiohttp.ClientResponse) -> AsyncGenerator[list[Part]]:
        """Yield the events for the client; closing frees the request at the server."""
        try:
            async with aclosing(read_events(response)) as stream:
                async for events in stream:
                    yield [shown for each in events if (shown := await self._take(each))]
                    if all(choice.done for choice in self.choices):
                        return
        finally:
            response.close()

    async def _take(self, event: Part) -> Part | None:
        usage = event.pop("usage", None)
        event["model"] = self._asked.model
        if not self._asked.return_token_ids:
            event.pop("prompt_token_ids", None)
        open_choices = [each for each in event["choices"] if not self.choices[each["index"]].done]
        event["choices"] = [shown for each in open_choices if (shown := await self.choices[each["index"]].take(each))]
        if not event["choices"]:
            return None
        if not self.head:
            event |= self._more
            self.head = {key: value for key, value in event.items() if key != "choices"}
        if usage is not None:
            event["usage"] = self.usage()
        return event

    def usage(self) -> Part:
        counts = [choice.count for choice in self.choices]
        parts = {
            "reasoning_tokens": [each.thinking for each in counts],
            "forced_tokens": [each.forced for each in counts],
        }
        details = {name: sum(each) for name, each in parts.items()}
        tokens = sum(len(each.ids) for each in counts)
        details["solution_tokens"] = tokens - sum(details.values())
        whole = {"prompt_tokens": self._prompt_tokens, "completion_tokens": tokens}
        return {**whole, "total_tokens": self._prompt_tokens + tokens, "completion_tokens_details": details}

    def merge(self, events: Sequence[Part]) -> None:
        """Add events to the body of an answer that is not streamed."""
        for choice in (each for event in events for each in event["choices"]):
            if "delta" in choice:
                choice["message"] = choice.pop("delta")
            grow(self._whole.setdefault(choice["index"], {}), choice)

    def whole(self) -> Part:
        """Return the body of an answer that is not streamed."""
        choices = [self._whole[index] for index in sorted(self._whole)]
        for choice in choices:
            message = choice.get("message", {})
            calls = message.get("tool_calls", [])
            if calls:
                message["tool_calls"] = [
                    {key: value for key, value in each.items() if key != "index"} for each in calls
                ]
            elif "message" in choice:
                message |= {"content": message.get("content") or ""}
            choice.setdefault("logprobs", None)
        kind = str(self.head.get("object", "")).removesuffix(".chunk")
        return {**self.head, "object": kind, "choices": choices, "usage": self.usage()}


def grow(whole: Part, new: Part) -> None:
    """Add what is new of an answer to what was known."""
    for key, value in new.items():
        known = whole.get(key)
        if key == "tool_calls" and value:
            calls = whole.setdefault(key, [])
            for call in value:
                calls += [{} for _ in range(call["index"] + 1 - len(calls))]
                grow(calls[call["index"]], call)
        elif isinstance(known, dict) and isinstance(value, dict):
            grow(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            known += value
        elif key in GROWING and known is not None and value is not None:
            whole[key] = known + value
        elif value is not None or key not in whole:
            whole[key] = value
