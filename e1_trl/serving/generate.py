"""One answer, as it comes: the rollout of training and evaluation, driven by requests to a server."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from typing import Any

from e1_trl.budget import Marker
from e1_trl.engines.engine import ending
from e1_trl.engines.openai import RETURNED, read_choice
from e1_trl.rollout import Request, Rollout
from e1_trl.seeds import seed_of
from e1_trl.serving.model import Model
from e1_trl.serving.request import ParsedRequest
from e1_trl.serving.upstream import Choice, UpstreamError


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
        if not request.stop_at_marker:
            for piece in _put_in(model, request, seen):
                yield piece
        part, token_ids = Part.THINKING if request.stop_at_marker else Part.SOLUTION, list[int]()
        choice: Choice = {"token_ids": None}
        body = _body(request, asked, model.close.marker, seed)
        async with aclosing(model.upstream.sample(body, asked.stream)) as choices:
            async for choice in choices:
                if choice.get("token_ids") is None:
                    raise UpstreamError(502, "the server returns no token ids; it must know return_token_ids, as vLLM")
                token_ids += choice["token_ids"]
                yield Piece(part, choice.get("text", ""), choice["token_ids"])
        segment = read_choice({**choice, "token_ids": token_ids}, request, model.close.marker)
        try:
            rollout.receive(segment)
        except ValueError as error:
            raise UpstreamError(502, f"the server's answer is none: {error}") from error
        seen = len(request.prompt_ids) + len(segment.token_ids)
        seed = None if asked.seed is None else seed_of(asked.seed, seen)


def _body(request: Request, asked: ParsedRequest, marker: Marker, seed: int | None) -> dict[str, Any]:
    body = {**asked.sampling, **RETURNED, **ending(request, marker)}
    del body["logprobs"]
    if asked.stop and not request.stop_at_marker:
        body["stop"] = asked.stop
    if seed is not None:
        body["seed"] = seed
    return {**body, "prompt": request.prompt_ids, "max_tokens": request.max_tokens}


def _without(text: str, marker: str) -> str:
    """A text up to the marker, whose last token may hold more."""
    before, found, _ = text.rpartition(marker)
    return before if found else text


def _put_in(model: Model, request: Request, seen: int) -> Iterator[Piece]:
    """The close of the thinking after `seen` tokens, forced or not, and forced words after it."""
    decode, marker, token_ids = model.tokenizer.decode, model.close.marker, request.prompt_ids[seen:]
    close, words = token_ids[: marker.close_tokens], token_ids[marker.close_tokens :]
    yield Piece(Part.CLOSE, _without(decode(close), marker.text), close)
    if words:
        yield Piece(Part.SOLUTION, decode(words, skip_special_tokens=True), words)
