"""vLLM's answer, with how the thinking ended, and cut where the solution's budget or a stop text ends it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import aiohttp

from e1_trl.serving.count import TokenCount
from e1_trl.serving.model import Limits, Model, last_index
from e1_trl.serving.request import ParsedRequest, RefusedError
from e1_trl.serving.upstream import read_events

BUDGET = "thinking_token_budget"
GROWING = {"content", "reasoning", "reasoning_content", "refusal", "text", "arguments"}
SHOWN = ("role", "content", "text", "reasoning", "tool_calls", "refusal")
Part = dict[str, Any]


class Choice:
    """One of the answers to a request."""

    def __init__(self, limits: Limits, model: Model, asked: ParsedRequest):
        self.count = TokenCount(limits, model.close.marker)
        self.done = False
        self._asked = asked
        self._model = model
        self._solution = ""  # its text
        self._held = ""  # the end of a text, which may become an opener, a marker or a stop text
        self._is_parsed = False  # the server has told thinking and solution apart

    async def take(self, choice: Part) -> Part | None:
        """Take what is new, and return it as the client gets it; `None` if there is nothing to send."""
        token_ids = choice.pop("token_ids", None) or []
        delta = choice.get("delta", choice)
        name = "content" if "delta" in choice else "text"
        had_ended = self.count.end is not None
        kept = self.count.add(token_ids)
        if choice.get("finish_reason") and not self.count.is_thinking:
            self.count.finish(choice["finish_reason"])
        ends = self.count.end is not None and not had_ended
        cut = kept < len(token_ids)
        reason = "length" if cut else choice.get("finish_reason") or ("length" if self.count.is_full else None)
        if name == "text":
            before, solution = await self._split(delta.get(name) or "", ends, token_ids[kept:])
        else:
            before = ""
            solution = self._tell_apart(delta, ends, reason)
        # With a hidden thinking go its tokens.
        hidden = kept - len(self.count.solution_ids) if self._asked.hides_thinking and not had_ended else 0
        token_ids = token_ids[max(0, hidden) : kept]
        self._cut_logprobs(choice, max(0, hidden), kept)
        if cut:
            solution = await self._cut(solution)
        self._solution += solution
        if self._asked.stop and self.count.end is not None:
            solution, reason = self._stop(choice, solution, reason)
        if name in delta or before or solution:
            delta[name] = before + solution
        if ends or reason:
            choice["thinking_end"] = self.count.end
        if reason:
            self._finish(choice, reason)
        if self._asked.return_token_ids:
            choice["token_ids"] = token_ids
        else:
            choice.pop("prompt_token_ids", None)
        told = "thinking_end" in choice or choice.get("token_ids") or choice.get("logprobs")
        return choice if told or any(delta.get(each) for each in SHOWN) else None

    async def _split(self, text: str, ends: bool, cut_ids: Sequence[int]) -> tuple[str, str]:
        """Split the text of a completion in front of its solution."""
        if ends or self.count.end is None:
            text, self._held = (self._held + text, "") if ends or self.count.is_thinking else ("", self._held + text)
        if self.count.end is None:
            return text, ""
        if not ends or self.count.end == "none":
            return "", text
        token_ids = [*self.count.solution_ids, *cut_ids]
        for most in (len(token_ids), len(token_ids) - 1):  # the last may be an end of sequence, which is not shown
            if text.endswith(solution := await self._decode(token_ids[:most])):
                return text[: len(text) - len(solution)], solution
        return text, ""

    def _tell_apart(self, delta: Part, ends: bool, reason: str | None) -> str:
        """Return the solution's text; name the thinking as such, where the server has no reasoning parser."""
        marker = self._model.close.marker
        self._is_parsed = self._is_parsed or bool(delta.get("reasoning"))
        text = delta.get("content") or ""
        end = self.count.end
        if end == "none":  # some parsers take an answer without an opener for a thinking
            text = (self._held if ends else "") + (delta.pop("reasoning", None) or "") + text
            self._held = "" if ends else self._held
        elif not self._is_parsed and end is None and not self.count.is_thinking:
            self._held += text
            text = ""
        elif not self._is_parsed and (ends or end is None):
            text = self._held + text
            thought, _, text = text.partition(marker.text) if ends else (text, "", "")
            thought, self._held = hold_back(thought, [] if ends or reason else [marker.text])
            if marker.opener and thought.lstrip().startswith(marker.opener):
                thought = thought.lstrip().removeprefix(marker.opener)
            if thought:
                delta["reasoning"] = thought
        if self._asked.hides_thinking:
            delta.pop("reasoning", None)
        elif delta.get("reasoning"):
            delta["reasoning_content"] = delta["reasoning"]
        return text

    async def _decode(self, token_ids: Sequence[int]) -> str:
        if not token_ids:
            return ""
        return (await self._model.upstream.ask("/detokenize", {"tokens": token_ids}))["prompt"]

    async def _cut(self, new: str) -> str:
        """Cut new text of the solution to that of its tokens, where more arrived with them; a tool call is no text."""
        text = await self._decode(self.count.solution_ids)
        shown = (each.removeprefix(self._solution) for each in (text, text.lstrip()) if each.startswith(self._solution))
        # Parsers leave out blanks in front.
        return max((common_start(new, each) for each in shown), key=len, default="")

    def _cut_logprobs(self, choice: Part, start: int, end: int) -> None:
        for name, values in (choice.get("logprobs") or {}).items():
            choice["logprobs"][name] = values[start:end] if isinstance(values, list) else values
        if start == end:
            choice["logprobs"] = None

    def _stop(self, choice: Part, text: str, reason: str | None) -> tuple[str, str | None]:
        """Cut a solution at the first stop text."""
        text = self._held + text
        stop_texts = self._asked.stop
        if found := [(text.find(each), each) for each in stop_texts if each in text]:
            place, choice["stop_reason"] = min(found)
            self._held = ""
            return text[:place], "stop"
        text, self._held = hold_back(text, [] if reason else stop_texts)
        return text, reason

    def _finish(self, choice: Part, reason: str) -> None:
        self.done = True
        self.count.finish(reason)
        marker = self._model.close.marker
        again = any(last_index(self.count.solution_ids, ids) >= 0 for ids in (marker.ids, marker.opener_ids))
        choice |= {"finish_reason": reason, "thinking_end": self.count.end, "thinks_again": again}


def common_start(one: str, other: str) -> str:
    """Return what two texts begin with."""
    return one[
        : next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(other))
    ]


def hold_back(text: str, words: Sequence[str]) -> tuple[str, str]:
    """Split a text in front of an end that may become one of the words."""
    sizes = (size for size in range(len(text), 0, -1) if any(each.startswith(text[-size:]) for each in words))
    place = len(text) - next(sizes, 0)
    return text[:place], text[place:]


class Answer:
    """All answers to a request, as a stream of events or as one body."""

    def __init__(self, model: Model, asked: ParsedRequest, limits: Sequence[Limits], response: aiohttp.ClientResponse):
        self.choices = [Choice(each, model, asked) for each in limits for _ in range(asked.body.get("n") or 1)]
        self.head: Part = {}
        self._asked = asked
        self._response = response
        self._prompt_tokens = sum(len(each.prompt_ids) for each in limits)
        self._whole: dict[int, Part] = {}

    @classmethod
    async def begin(cls, model: Model, asked: ParsedRequest, path: str, request_id: str) -> "Answer":
        """Send a request to the server.

        Raises:
            RefusedError: budget and prompts do not fit, or the server refuses the request.
        """
        limits = await model.limit(asked)
        least = {name: min(each.fields.get(name, 0) for each in limits) for name in limits[0].fields}
        more = [each.fields.get(BUDGET, 0) - least.get(BUDGET, 0) for each in limits]
        if len({each.state for each in limits}) > 1 or (any(more) and asked.budget.thinking is not None):
            raise RefusedError("the prompts hold different parts of a thinking; send them one by one")
        limits = [replace(each, thinking=each.thinking - tokens) for each, tokens in zip(limits, more, strict=True)]
        body: Part = {**asked.body, **least, "return_token_ids": True, "stream": True}
        return cls(model, asked, limits, await model.upstream.post(path, body, request_id))

    async def read(self) -> AsyncGenerator[list[Part]]:
        """Yield events for the client; closing frees the request at the server."""
        try:
            async with aclosing(read_events(self._response)) as stream:
                async for events in stream:
                    yield [shown for each in events if (shown := await self._take(each))]
                    if all(choice.done for choice in self.choices):
                        return
        finally:
            self._response.close()

    async def _take(self, event: Part) -> Part | None:
        event.pop("usage", None)
        if not self._asked.return_token_ids:
            event.pop("prompt_token_ids", None)
        going_on = [each for each in event["choices"] if not self.choices[each["index"]].done]
        event["choices"] = [shown for each in going_on if (shown := await self.choices[each["index"]].take(each))]
        if not event["choices"]:
            return None
        event["model"] = self._asked.model
        if not self.head:
            event["budget"] = str(self._asked.budget)
            event |= {"reasoning_effort": self._asked.effort} if self._asked.effort else {}
            self.head = {key: value for key, value in event.items() if key != "choices"}
        return event

    def usage(self) -> Part:
        """Return the numbers of tokens of all answers."""
        counts = [choice.count for choice in self.choices]
        tokens = sum(len(each.ids) for each in counts)
        thinking = sum(each.thinking for each in counts)
        forced = sum(each.forced for each in counts)
        solution = tokens - thinking - forced
        details = {"reasoning_tokens": thinking, "forced_tokens": forced, "solution_tokens": solution}
        whole: Part = {"prompt_tokens": self._prompt_tokens, "completion_tokens": tokens}
        return {**whole, "total_tokens": self._prompt_tokens + tokens, "completion_tokens_details": details}

    def merge(self, events: Sequence[Part]) -> None:
        """Add events to the body of an answer that is not streamed."""
        for choice in (each for event in events for each in event["choices"]):
            if "delta" in choice:
                choice["message"] = choice.pop("delta")
            grow(self._whole.setdefault(choice["index"], {}), choice)

    def whole(self) -> Part:
        """Return the body of an answer that is not streamed."""
        choices = [{"logprobs": None, **self._whole[index]} for index in sorted(self._whole)]
        for message in (each["message"] for each in choices if "message" in each):
            for call in message.get("tool_calls", ()):
                del call["index"]
            message["content"] = message.get("content") or (None if message.get("tool_calls") else "")
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
