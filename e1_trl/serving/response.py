"""vLLM's answer, with how the thinking ended, and cut where the solution's budget or a stop text ends it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from os.path import commonprefix
from typing import Any

import aiohttp

from e1_trl.marker import Marker
from e1_trl.serving.count import TokenCount
from e1_trl.serving.model import Limits, Model
from e1_trl.serving.request import ParsedRequest
from e1_trl.serving.upstream import read_events

GROWING = {"content", "reasoning", "reasoning_content", "refusal", "text", "arguments"}
Part = dict[str, Any]


class Choice:
    """One of the answers to a request."""

    def __init__(self, limits: Limits, marker: Marker, asked: ParsedRequest):
        self.count = TokenCount(limits, marker)
        self.done = False
        self._asked = asked
        self._marker = marker
        self._held = ""  # the end of a text, which may become an opener, a marker or a stop text
        self._is_parsed = False  # the server has told thinking and solution apart

    def take(self, choice: Part) -> None:
        """Take what is new, and change it into what the client gets."""
        token_ids = choice.pop("token_ids", None) or []
        had_ended = self.count.end is not None
        had = len(self.count.solution_ids)
        kept = self.count.add(token_ids)
        reason = choice.get("finish_reason")
        if reason:
            self.count.finish(reason)
        before, solution = self._split(choice, had_ended)
        if kept < len(token_ids):
            solution = self._cut(solution, had)
        if kept < len(token_ids) or (self.count.is_full and not reason):
            reason = "length"
        if self.count.end is not None:
            solution, reason = self._stop(choice, solution, reason)
        self._write(choice, before, solution)
        start = 0
        if self._asked.hides_thinking and not had_ended:  # its tokens are hidden with it
            start = max(0, kept - len(self.count.solution_ids))
        for name, values in (choice.get("logprobs") or {}).items():
            choice["logprobs"][name] = (values or [])[start:kept]
        if self._asked.return_token_ids:
            choice["token_ids"] = token_ids[start:kept]
        if reason or (self.count.end is not None and not had_ended):
            choice["thinking_end"] = self.count.end
        if reason:
            self.done = True
            choice["finish_reason"] = reason

    def _split(self, choice: Part, had_ended: bool) -> tuple[str, str]:
        """Return new text in front of the solution, and of the solution."""
        delta = choice.get("delta", choice)
        text = delta.get("content", delta.get("text")) or ""
        thought = delta.pop("reasoning", None) or ""
        self._is_parsed = self._is_parsed or bool(thought)
        if self._is_parsed and self.count.end != "none":  # some parsers take an answer without an opener for a thinking
            return thought, text
        if had_ended:
            return "", thought + text
        text = self._held + thought + text
        self._held = ""
        if self.count.end == "none":
            return "", text
        if self.count.end is None:
            text, self._held = hold_back(text, [self._marker.text]) if self.count.is_thinking else ("", text)
        before, close, solution = text.partition(self._marker.text)
        return before + close, solution

    def _cut(self, new: str, had: int) -> str:
        """Cut new text of the solution to that of its tokens after the first `had`; a tool call is no text."""
        decode = self._marker.decode
        assert decode is not None
        ids = self.count.solution_ids
        text = decode(ids, skip_special_tokens=True)[len(decode(ids[:had], skip_special_tokens=True)) :]
        # Blanks in front are left out by parsers, and by some tokenizers.
        known = (text, f" {text}", text.lstrip())
        return max((commonprefix([new, each]) for each in known), key=len)  # noqa: RUF071

    def _stop(self, choice: Part, text: str, reason: str | None) -> tuple[str, str | None]:
        """Cut a solution at the first stop text."""
        text = self._held + text
        if found := [(text.find(each), each) for each in self._asked.stop if each in text]:
            place, choice["stop_reason"] = min(found)
            return text[:place], "stop"
        text, self._held = hold_back(text, [] if reason else self._asked.stop)
        return text, reason

    def _write(self, choice: Part, before: str, solution: str) -> None:
        if "delta" not in choice:
            choice["text"] = before + solution
            return
        thought = before.partition(self._marker.text)[0]
        if self._marker.opener and thought.lstrip().startswith(self._marker.opener):
            thought = thought.lstrip().removeprefix(self._marker.opener)
        if thought and not self._asked.hides_thinking:
            choice["delta"] |= {"reasoning": thought, "reasoning_content": thought}
        if solution or "content" in choice["delta"]:
            choice["delta"]["content"] = solution


def hold_back(text: str, words: Sequence[str]) -> tuple[str, str]:
    """Split a text in front of an end that may become one of the words."""
    sizes = (size for size in range(len(text), 0, -1) if any(each.startswith(text[-size:]) for each in words))
    place = len(text) - next(sizes, 0)
    return text[:place], text[place:]


class Answer:
    """All answers to a request, as a stream of events or as one body."""

    def __init__(self, model: Model, asked: ParsedRequest, limits: Limits, response: aiohttp.ClientResponse):
        answers = len(limits.prompts) * int(asked.body.get("n") or 1)
        self.choices = [Choice(limits, model.close.marker, asked) for _ in range(answers)]
        self._head: Part = {}
        self._asked = asked
        self._response = response
        self._prompt_tokens = sum(limits.prompts)

    @classmethod
    async def begin(cls, model: Model, asked: ParsedRequest, path: str, request_id: str) -> "Answer":
        """Send a request to the server, unless it is refused."""
        limits = await model.limit(asked)
        body: Part = {**asked.body, **limits.fields, "return_token_ids": True, "stream": True}
        return cls(model, asked, limits, await model.upstream.post(path, body, request_id))

    async def read(self) -> AsyncGenerator[Part]:
        """Yield events for the client; closing frees the request at the server."""
        try:
            async with aclosing(read_events(self._response)) as events:
                async for event in events:
                    self._take(event)
                    if event["choices"]:
                        yield event
                    if all(choice.done for choice in self.choices):
                        break
            if self._asked.include_usage or not self._asked.stream:
                yield {**self._head, "choices": [], "usage": self.usage()}
        finally:
            self._response.close()

    def _take(self, event: Part) -> None:
        event.pop("usage", None)
        event["choices"] = [each for each in event["choices"] if not self.choices[each["index"]].done]
        for each in event["choices"]:
            self.choices[each["index"]].take(each)
        if not self._asked.return_token_ids:
            for part in (event, *event["choices"]):
                part.pop("prompt_token_ids", None)
        event["model"] = self._asked.model
        if not self._head:
            event["budget"] = str(self._asked.budget)
            event |= {"reasoning_effort": self._asked.effort} if self._asked.effort else {}
            self._head = {key: value for key, value in event.items() if key != "choices"}

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

    def summary(self) -> str:
        """Say how the answers ended, with the tokens of thinking, forced close and solution."""
        ends = ", ".join(choice.count.end or "given up" for choice in self.choices)
        return f"{ends}, {' + '.join(map(str, self.usage()['completion_tokens_details'].values()))} tokens"

    async def whole(self) -> Part:
        """Return the body of an answer that is not streamed."""
        whole: Part = {}
        async with aclosing(self.read()) as events:
            async for event in events:
                grow(whole, event)
        whole["choices"].sort(key=lambda choice: choice["index"])
        for choice in (each for each in whole["choices"] if "delta" in each):
            message = choice["message"] = choice.pop("delta")
            for call in message.get("tool_calls", ()):
                del call["index"]
            message["content"] = message.get("content") or (None if message.get("tool_calls") else "")
        kind = str(whole.get("object", "")).removesuffix(".chunk")
        return {**whole, "object": kind}


def grow(whole: Part, new: Part) -> None:
    """Add what is new of an answer to what was known; choices and tool calls have an index."""
    for key, value in new.items():
        known = whole.get(key)
        if key in ("choices", "tool_calls") and value:
            parts = whole.setdefault(key, [])
            for part in value:
                found = next((each for each in parts if each["index"] == part["index"]), None)
                if found is None:
                    parts.append(found := {})
                grow(found, part)
        elif isinstance(known, dict) and isinstance(value, dict):
            grow(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            known += value
        elif key in GROWING and known is not None and value is not None:
            whole[key] = known + value
        elif value is not None or key not in whole:
            whole[key] = value
