"""vLLM's answer, with how the thinking ended, and cut where the solution's budget or a stop text ends it."""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import iadd
from typing import Any

from aiohttp import ClientResponse

from e1_trl.engines.openai import read_events
from e1_trl.marker import Marker, PromptState
from e1_trl.serving.model import Limits, Model, Part
from e1_trl.serving.request import ParsedRequest, parse_request

ENDS = {"length": "total", "tool_calls": "closed"}  # of a thinking without close, by the reason of the server
GROWING = {"content", "reasoning", "reasoning_content", "refusal", "text", "arguments"}


class Choice:
    """One of the answers to a request: its tokens by part, and its text."""

    def __init__(self, limits: Limits, marker: Marker, asked: ParsedRequest):
        assert marker.decode is not None
        self.ids: list[int] = []
        self.thinking = 0
        self.forced = 0
        self.close = 0  # forced tokens up to the end of the marker; those behind it are graded with the solution
        # How the thinking ended: "prompt" where the prompt had closed it, "none" where the model opened none.
        self.end = "prompt" if limits.state is PromptState.CLOSED else None
        self.done = False
        self._asked = asked
        self._marker = marker
        self._decode = marker.decode
        self._is_thinking = limits.state is PromptState.OPENED  # it may still begin where it has not ended
        self._is_closing = False  # the last tokens begin the forced text
        self._followed = self._follow(limits)
        self._held = ""  # the end of a text, which may become an opener, a marker, a forced or a stop text
        self._is_parsed = False  # the server has told thinking and solution apart
        self._has_begun = False  # the text of the thinking
        next(self._followed, None)

    @property
    def parts(self) -> tuple[int, int, int]:
        """Return the numbers of tokens of thinking, forced close and solution."""
        return self.thinking, self.forced, len(self.ids) - self.thinking - self.forced

    @property
    def is_full(self) -> bool:
        """Return whether the solution's budget is used up."""
        most = self._asked.budget.solution
        return self.end is not None and most is not None and self.parts[2] >= most

    def add(self, token_ids: Sequence[int]) -> int:
        """Count new tokens, as far as the solution's budget goes, and return their number."""
        for place, token in enumerate(token_ids):
            if self.is_full:
                return place
            self.ids.append(token)
            next(self._followed, None)
        return len(token_ids)

    def _follow(self, limits: Limits) -> Iterator[None]:
        """Follow the tokens, one at each step, up to the opener, unless it is the prompt's, and to the end."""
        marker = self._marker
        blanks = 0  # tokens in front of what may be the opener
        while self.end is None and not self._is_thinking:
            yield
            begun = tuple(self.ids[blanks:])
            if begun == marker.opener_ids[: len(begun)]:
                self._is_thinking = begun == marker.opener_ids
            elif self._decode(self.ids, skip_special_tokens=False).strip():
                self.end = "none"
            else:
                blanks = len(self.ids)
        most = blanks + limits.thinking  # vLLM counts from the opener
        while self.end is None:
            self.thinking = len(self.ids)
            past = tuple(self.ids[most:])
            self._is_closing = bool(past) and past == limits.forced_ids[: len(past)]
            # vLLM may complete a close of several tokens that had begun within the budget.
            is_closed = tuple(self.ids[-len(marker.ids) :]) == marker.ids and not self._is_closing
            if is_closed or past == limits.forced_ids:
                self.end = "forced" if past else "closed"
                self.thinking = min(len(self.ids), most)
                self.forced = len(past)
                behind = 0 if is_closed else len(marker.forced_ids) - marker.close_tokens
                self.close = self.forced - behind
            yield

    def finish(self, reason: str) -> None:
        """Say how a thinking ended in which no close was found; a call of a tool closes it."""
        if self.end is None:
            self.end = ENDS.get(reason, "eos") if self._is_thinking else "none"

    def take(self, choice: Part) -> None:
        """Take what is new, and change it into what the client gets."""
        token_ids = choice.pop("token_ids", None) or []
        has_ended = self.end is not None  # the thinking
        if choice.get("delta", {}).get("tool_calls"):  # which some of vLLM's parsers take from inside a thinking
            self.finish("tool_calls")
        kept = self.add(token_ids)
        if reason := choice.get("finish_reason"):
            self.finish(reason)
        beyond = token_ids[kept:]
        before, solution = self._split(choice, beyond, has_ended)
        if beyond:  # they may also be those of a tool call, which is no text
            solution = solution.removesuffix(self._added(self.ids, beyond))
        if beyond or (self.is_full and not reason):
            reason = "length"
        if self.end is not None:  # a stop text in a thinking does not count
            choice["thinking_end"] = self.end
            solution = self._held + solution
            if found := [(solution.find(each), each) for each in self._asked.stop if each in solution]:
                place, choice["stop_reason"] = min(found)
                solution = solution[:place]
                reason = "stop"
            solution, self._held = hold_back(solution, [] if reason else self._asked.stop)
        if "delta" in choice:
            thought = before if self._has_begun else re.sub(rf"^\s*{re.escape(self._marker.opener)}", "", before)
            self._has_begun |= bool(before)
            if thought and not self._asked.hides_thinking:
                choice["delta"] |= {"reasoning": thought, "reasoning_content": thought}
            if solution or "content" in choice["delta"]:
                choice["delta"]["content"] = solution
        else:
            choice["text"] = before + solution
        # The tokens of a hidden thinking are hidden with it.
        start = max(0, kept - self.parts[2]) if self._asked.hides_thinking else 0
        for name, values in (choice.get("logprobs") or {}).items():
            choice["logprobs"][name] = (values or [])[start:kept]
        if self._asked.body.get("return_token_ids"):
            choice["token_ids"] = token_ids[start:kept]
        choice["finish_reason"] = reason
        self.done = bool(reason)

    def _split(self, choice: Part, beyond: Sequence[int], has_ended: bool) -> tuple[str, str]:
        """Return new text in front of the solution, and of it with tokens `beyond` its budget."""
        delta = choice.get("delta", choice)
        text = delta.get("content", delta.get("text")) or ""
        thought = delta.pop("reasoning", None) or ""
        self._is_parsed |= bool(thought)
        if self._is_parsed and self.end != "none":  # some parsers take an answer without an opener for a thinking
            return thought, text
        text = self._held + thought + text
        self._held = ""
        if has_ended or self.end == "none":
            return "", text
        if self.end is None:
            waits = self._is_closing or not self._is_thinking
            text, self._held = hold_back(text, [text if waits else self._marker.text])
            return text, ""
        start = self.thinking + self.close
        solution = self._added(self.ids[:start], [*self.ids[start:], *beyond])
        if not text.endswith(solution):  # it holds special tokens, too
            solution = text.partition(self._marker.text)[2]
        before = text.removesuffix(solution)
        if delta is not choice and self.end in ("closed", "forced"):
            before = before.rsplit(self._marker.text, 1)[0]
        return before, solution

    def _added(self, ids: Sequence[int], more: Sequence[int]) -> str:
        """Decode what tokens add to others, as vLLM does, which holds back a character that is not whole."""
        known, whole = (self._decode(each, skip_special_tokens=True) for each in (ids, [*ids, *more]))
        return whole.rstrip("\ufffd")[len(known.rstrip("\ufffd")) :]


def hold_back(text: str, words: Sequence[str]) -> tuple[str, str]:
    """Split a text in front of an end that may become one of the words."""
    place = next((at for at in range(len(text)) if any(each.startswith(text[at:]) for each in words)), len(text))
    return text[:place], text[place:]


@dataclass(frozen=True)
class Answer:
    """All answers to a request, as a stream of events or as one body."""

    asked: ParsedRequest
    choices: Sequence[Choice]
    prompts: int  # tokens of all prompts
    response: ClientResponse

    async def read(self) -> AsyncIterator[Part]:
        """Yield events for the client."""
        body = self.asked.body
        told = {"budget": str(self.asked.budget), "reasoning_effort": self.asked.effort}
        async for event in read_events(self.response):
            event.pop("usage", None)
            event |= {"model": body["model"], **told}
            told = {}  # in the first event alone
            event["choices"] = [each for each in event["choices"] if not self.choices[each["index"]].done]
            for each in event["choices"]:
                self.choices[each["index"]].take(each)
            if not body.get("return_token_ids"):
                for part in (event, *event["choices"]):
                    part.pop("prompt_token_ids", None)
            if event["choices"]:
                yield event
            if all(choice.done for choice in self.choices):
                break
        if not body.get("stream") or body.get("stream_options", {}).get("include_usage"):
            event.pop("prompt_token_ids", None)
            tokens = sum(self.parts)
            usage = {"prompt_tokens": self.prompts, "completion_tokens": tokens, "total_tokens": self.prompts + tokens}
            details = dict(zip(("reasoning_tokens", "forced_tokens", "solution_tokens"), self.parts, strict=True))
            yield {**event, "choices": [], "usage": {**usage, "completion_tokens_details": details}}

    @property
    def parts(self) -> list[int]:
        """Return the numbers of tokens of thinking, forced close and solution in all answers."""
        return [sum(part) for part in zip(*(choice.parts for choice in self.choices), strict=True)]

    async def whole(self) -> Part:
        """Return the body of an answer that is not streamed."""
        whole: Part = {}
        async for event in self.read():
            whole = join(whole, event)
        for choice in (each for each in whole["choices"] if "delta" in each):
            choice["message"] = {"content": "", **choice.pop("delta")}
        return {**whole, "object": str(whole.get("object", "")).removesuffix(".chunk")}


@asynccontextmanager
async def ask(model: Model, content: Any, path: str, request_id: str = "") -> AsyncIterator[Answer]:
    """Send the JSON of a request to the server, unless it is refused; at the end of the context the server frees it."""
    asked = parse_request(content, model.presets, model.close.forced_after(None))
    limits = await model.limit(asked)
    body: Part = {**asked.body, **limits.fields, "return_token_ids": True, "stream": True}
    async with await model.upstream.post(path, body, request_id) as response:
        answers = len(limits.prompts) * int(asked.body.get("n") or 1)
        choices = [Choice(limits, model.close.marker, asked) for _ in range(answers)]
        yield Answer(asked, choices, sum(limits.prompts), response)


def join(known: Any, new: Any, name: str = "") -> Any:
    """Add what is new of an answer to what is known of it, and return it; choices and tool calls have an index."""
    if new is None:
        return known
    if name in ("choices", "tool_calls"):  # two parts of one tool call may come in one event, the first one
        parts = {each["index"]: each for each in known or ()}
        for each in new:
            parts[each["index"]] = join(parts.get(each["index"]), each)
        return [parts[index] for index in sorted(parts)]
    if isinstance(known, dict):
        return known | {key: join(known.get(key), value, key) for key, value in new.items()}
    return iadd(known, new) if isinstance(known, list) or (known and name in GROWING) else new
