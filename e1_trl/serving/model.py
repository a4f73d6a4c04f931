"""A model behind a server: its budgets, its prompts, and its answers, each a rollout of training and evaluation."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import Enum
from inspect import signature
from typing import TYPE_CHECKING, Any

from e1_trl.arguments import json_object
from e1_trl.budget import UNLIMITED, Budget, ThinkingClose
from e1_trl.checkpoints.budget_file import FILE, BudgetInfo
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.engines.engine import end_ids, stop_parameters
from e1_trl.engines.openai import RETURNED, Choice, Client, ServerError, read_choice
from e1_trl.errors import UserError, user_errors
from e1_trl.marker import Marker
from e1_trl.problems.prompts import tokenize
from e1_trl.rollout import Request, Rollout
from e1_trl.seeds import seed_of
from e1_trl.serving.arguments import ModelArguments
from e1_trl.serving.request import ParsedRequest, RefusedError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EFFORTS = {"low": 0.25, "medium": 1.0, "high": 4.0}  # times the default thinking budget


def read_budget(arguments: ModelArguments) -> tuple[BudgetInfo | None, Budget]:
    """Read a model's budget.json, if it has one, and the budget of requests that name none. Needs no server.

    Raises:
        UserError: neither the arguments nor a budget.json name both parts, or there is no such model.
    """
    trained = BudgetInfo.find(arguments.model, arguments.revision)
    parts = [arguments.thinking_budget, arguments.solution_budget]
    if trained is None and None in parts:
        raise UserError(f"{arguments.model} has no {FILE}; name a thinking_budget and a solution_budget")
    if trained is not None:
        tokens = (trained.budget.thinking, trained.budget.solution)
        known = [UNLIMITED if part is None else str(part) for part in tokens]
        parts = [own or other for own, other in zip(parts, known, strict=True)]
    return trained, Budget.parse("+".join(map(str, parts)))


@dataclass(frozen=True)
class Model:
    """A model that answers.

    Attributes:
        client: connections to the server that samples.
        tokenizer: tokenizer of the prompts, with the chat template.
        close: end-of-thinking marker, and the server's context.
        default_budget: budget of requests that name none.
        sampling: the server's parameters for requests that do not set them.
        efforts: budgets of `reasoning_effort`: those of budget.json, or those of `EFFORTS` that fit the context.
    """

    client: Client
    tokenizer: "PreTrainedTokenizerBase"
    close: ThinkingClose
    default_budget: Budget
    sampling: Mapping[str, Any]
    efforts: Mapping[str, Budget]

    @classmethod
    async def connect(cls, arguments: ModelArguments) -> "Model":
        """Find a model's tokenizer, texts, budgets and server.

        Raises:
            UserError: one of them is missing or unusable.
        """
        from transformers import AutoTokenizer

        trained, budget = read_budget(arguments)
        marker_text = arguments.marker
        forced_text = arguments.forced_text
        if trained is not None and marker_text is None:
            marker_text = trained.marker
            forced_text = forced_text or trained.forced_text
        checkpoint = Checkpoint.find(arguments.model, arguments.revision)
        code = arguments.trust_remote_code
        with user_errors(f"the model {arguments.model}", OSError, ValueError):
            tokenizer = AutoTokenizer.from_pretrained(**checkpoint.tokenizer, trust_remote_code=code)
        marker = Marker.from_tokenizer(tokenizer, marker_text, forced_text)
        marker.check(end_ids(checkpoint.model, checkpoint.model_revision, tokenizer, code))
        assert arguments.upstream is not None
        client = Client(arguments.upstream, arguments.name)
        try:
            context = await client.context()
            if context is None:
                raise ServerError(f"{client.base_url} lists {client.name} without max_model_len, its context in tokens")
        except ServerError:
            await client.close()
            raise
        close = ThinkingClose(marker, context)
        efforts = {} if trained is None else dict(trained.efforts)
        if not efforts and budget.thinking is not None and budget.solution is not None:
            room = context - budget.solution - close.forced_after(None)
            tokens = {name: int(share * budget.thinking) for name, share in EFFORTS.items()}
            efforts = {name: replace(budget, thinking=each) for name, each in tokens.items() if each < room}
        # As in evaluation, whatever the model's generation config says.
        sampling = {"repetition_penalty": 1.0, **json_object("sampling", arguments.sampling)}
        return cls(client, tokenizer, close, budget, sampling, efforts)

    def prompt_ids(self, parsed: ParsedRequest) -> list[int]:
        """Tokenize a prompt.

        Raises:
            RefusedError: the chat template refuses it.
        """
        if isinstance(parsed.prompt, list) and isinstance(parsed.prompt[0], int):
            return parsed.prompt
        # Such as a template of the client's, truncation or tools.
        own = signature(self.tokenizer.apply_chat_template).parameters
        if taken := own.keys() & parsed.chat_template_kwargs.keys():
            raise RefusedError(f"chat_template_kwargs has {min(taken)}; expected variables of the model's template")
        try:
            return tokenize(self.tokenizer, parsed.prompt, parsed.chat_template_kwargs)
        except Exception as error:  # a template may raise anything
            raise RefusedError(f"the chat template failed: {error}") from error

    def make_rollout(self, prompt_ids: Sequence[int], budget: Budget) -> Rollout:
        """Make the rollout of an answer.

        Raises:
            RefusedError: prompt and budget do not fit the context.
        """
        try:
            return Rollout(prompt_ids, budget, self.close)
        except ValueError as error:
            raise RefusedError(str(error).partition(": ")[0]) from error


class Part(Enum):
    """Part of an answer."""

    THINKING = "thinking"
    CLOSE = "close"
    SOLUTION = "solution"


@dataclass(frozen=True)
class Piece:
    """New tokens of an answer, and their text, without the marker.

    A piece of the part `CLOSE` comes where the thinking ends and a solution follows, with tokens if it was forced.
    """

    part: Part
    text: str
    token_ids: Sequence[int]


async def generate(model: Model, rollout: Rollout, parsed: ParsedRequest) -> AsyncGenerator[Piece]:
    """Run a rollout to its end; the tokens of all pieces are those of its completion.

    Each request after the first has another seed, or it would draw the same numbers.

    Raises:
        EngineError: the server failed.
    """
    seed = parsed.seed
    seen = len(rollout.prompt_ids)
    while (request := rollout.request) is not None:
        if not request.stop_at_marker:
            for piece in _close_thinking(model, request.prompt_ids[seen:]):
                yield piece
        part = Part.THINKING if request.stop_at_marker else Part.SOLUTION
        token_ids: list[int] = []
        choice: Choice = {}
        body = _make_body(request, parsed, model.close.marker, seed)
        async with aclosing(model.client.sample(body, parsed.stream)) as choices:
            async for choice in choices:
                token_ids += choice["token_ids"]
                yield Piece(part, choice.get("text", ""), choice["token_ids"])
        segment = read_choice({**choice, "token_ids": token_ids}, request, model.close.marker)
        try:
            rollout.receive(segment)
        except ValueError as error:
            raise ServerError(f"malformed response from {model.client.base_url}: {error}") from error
        seen = len(request.prompt_ids) + len(token_ids)
        seed = None if parsed.seed is None else seed_of(parsed.seed, seen)


def _make_body(request: Request, parsed: ParsedRequest, marker: Marker, seed: int | None) -> dict[str, Any]:
    body = {**parsed.sampling, **RETURNED, **stop_parameters(request, marker)}
    if parsed.stop and not request.stop_at_marker:
        body["stop"] = parsed.stop
    if seed is not None:
        body["seed"] = seed
    return {**body, "prompt": request.prompt_ids, "max_tokens": request.max_tokens}


def _close_thinking(model: Model, forced_ids: list[int]) -> Iterator[Piece]:
    """Yield the close of the thinking, with its tokens if it was forced, and forced words after the marker."""
    marker = model.close.marker
    close = forced_ids[: marker.close_tokens]
    words = forced_ids[marker.close_tokens :]
    text = model.tokenizer.decode(close)
    before, found, _ = text.rpartition(marker.text)  # the last token may hold more than the marker's end
    yield Piece(Part.CLOSE, before if found else text, close)
    if words:
        yield Piece(Part.SOLUTION, model.tokenizer.decode(words, skip_special_tokens=True), words)
