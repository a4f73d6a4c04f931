"""One answer, as it comes: the rollout of training and evaluation, driven by requests to a server."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from e1_trl.budget import Marker
from e1_trl.engines.engine import ending
from e1_trl.engines.openai import RETURNED, read_choice
from e1_trl.rollout import Request, Rollout, Segment, Stop, ThinkingEnd
from e1_trl.seeds import seed_of
from e1_trl.serving.model import Model
from e1_trl.serving.request import ParsedRequest
from e1_trl.serving.upstream import Choice, UpstreamError

BEFORE = 8  # tokens with which others are decoded, so that spaces and letters of several tokens come out whole


class Part(Enum):
    """What a piece belongs to."""

    THINKING = "thinking"
    CLOSE = "close"
    SOLUTION = "solution"


@dataclass(frozen=True)
class Piece:
    """New tokens of an answer, and their text, without the marker.

    The piece of a close comes where the thinking ends and a solution follows; it has tokens if the close was forced.
    """

    part: Part
    text: str
    token_ids: Sequence[int]


async def generate(model: Model, rollout: Rollout, asked: ParsedRequest) -> AsyncGenerator[Piece]:
    """Run a rollout to its end; the tokens of all pieces are those of its completion.

    Each request after the first has another seed, or it would draw the same numbers.

    Raises:
        UpstreamError, EngineError: the server failed.
    """
    seed, seen = asked.seed, len(rollout.prompt_ids)
    while (request := rollout.request) is not None:
        for piece in _put_in(model, request, seen):
            yield piece
        part, token_ids = Part.THINKING if request.stop_at_marker else Part.SOLUTION, list[int]()
        choice: Choice = {"token_ids": None}
        # Where a grace may end it, only the whole tells what is left of it.
        whole = request.grace is not None
        body = _body(request, asked, model.close.marker, seed)
        async with aclosing(model.upstream.sample(body, asked.stream and not whole)) as choices:
            async for choice in choices:
                if whole:
                    continue
                if choice.get("token_ids") is None:
                    raise UpstreamError(502, "the server returns no token ids; it must know return_token_ids, as vLLM")
                token_ids += choice["token_ids"]
                yield Piece(part, choice.get("text", ""), choice["token_ids"])
        if not whole:
            choice = {**choice, "token_ids": token_ids}
        segment, before = read_choice(choice, request, model.close.marker), rollout.thinking_tokens
        try:
            rollout.receive(segment)
        except ValueError as error:
            raise UpstreamError(502, f"the server's answer is none: {error}") from error
        if whole:  # of which the rollout has kept what comes before a marker that began earlier
            segment = replace(segment, token_ids=segment.token_ids[: rollout.thinking_tokens - before])
            begun_before = rollout.thinking_end is ThinkingEnd.CLOSED and segment.stop is not Stop.MARKER
            text = "" if begun_before else _text(model, request.prompt_ids, segment)
            yield Piece(part, text, segment.token_ids)
        seen = len(request.prompt_ids) + len(segment.token_ids)
        seed = None if asked.seed is None else seed_of(asked.seed, seen)


def _body(request: Request, asked: ParsedRequest, marker: Marker, seed: int | None) -> dict[str, Any]:
    body = {**asked.sampling, **RETURNED, **ending(request, marker)}
    if request.grace is None:
        del body["logprobs"]
    if asked.stop and not request.stop_at_marker:
        body["stop"] = asked.stop
    if seed is not None:
        body["seed"] = seed
    return {**body, "prompt": request.prompt_ids, "max_tokens": request.max_tokens}


def _text(model: Model, before: Sequence[int], segment: Segment) -> str:
    decode, context = model.tokenizer.decode, list(before[-BEFORE:])
    token_ids = segment.token_ids[:-1] if segment.stop is Stop.EOS else segment.token_ids
    # What ends within a character was held back by the server.
    text = decode([*context, *token_ids])[len(decode(context).rstrip("\ufffd")) :]
    return _without(text, model.close.marker.text) if segment.stop is Stop.MARKER else text


def _without(text: str, marker: str) -> str:
    """A text up to the marker, whose last token may hold more."""
    before, found, _ = text.rpartition(marker)
    return before if found else text


def _put_in(model: Model, request: Request, seen: int) -> Iterator[Piece]:
    """What the rollout has put in after so many tokens: a hint, or a forced close and words after it."""
    decode, marker, token_ids = model.tokenizer.decode, model.close.marker, request.prompt_ids[seen:]
    if request.stop_at_marker:
        if token_ids:
            yield Piece(Part.THINKING, decode(token_ids), token_ids)
        return
    close, words = token_ids[: marker.close_tokens], token_ids[marker.close_tokens :]
    yield Piece(Part.CLOSE, _without(decode(close), marker.text), close)
    if words:
        yield Piece(Part.SOLUTION, decode(words, skip_special_tokens=True), words)
