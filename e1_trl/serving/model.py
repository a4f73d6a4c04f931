"""A model behind a server, with its tokenizer and its budgets: what answers are made with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from e1_trl.arguments import json_object
from e1_trl.budget import UNLIMITED, Budget, Marker, ThinkingClose
from e1_trl.checkpoints.budget_file import FILE, BudgetInfo
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.engines.engine import end_ids
from e1_trl.errors import UserError, user_errors
from e1_trl.problems.prompts import tokenize
from e1_trl.rollout import Rollout
from e1_trl.serving.arguments import ModelArguments
from e1_trl.serving.request import ParsedRequest, RefusedError
from e1_trl.serving.upstream import Upstream, UpstreamError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EFFORTS = {"low": 0.25, "medium": 1.0, "high": 4.0}  # times the usual thinking budget, where nobody says others


def budget_of(arguments: ModelArguments) -> tuple[BudgetInfo | None, Budget]:
    """Read a model's budget.json, if it has one, and the budget of requests that name none. Needs no server.

    Raises:
        UserError: neither the arguments nor a budget.json name both parts, or there is no such model.
    """
    trained = BudgetInfo.find(arguments.model, arguments.revision)
    parts = (arguments.thinking_budget, arguments.solution_budget)
    if trained is None and None in parts:
        raise UserError(f"{arguments.model} has no {FILE}; name a thinking_budget and a solution_budget")
    known = (None, None) if trained is None else (trained.budget.thinking, trained.budget.solution)
    told = (own if said is None else said for said, own in zip(parts, known, strict=True))
    return trained, Budget.parse("+".join(UNLIMITED if part is None else str(part) for part in told))


@dataclass(frozen=True)
class Model:
    """A model that is ready to be asked.

    Attributes:
        upstream: the server that samples, which calls it by the same name as clients do.
        tokenizer: of its prompts, with the chat template.
        close: what ends its thinking, and the server's context.
        usual: the budget of who names none.
        sampling: the server's parameters where a request says nothing.
        efforts: the budgets of `reasoning_effort`: budget.json's, or those of `EFFORTS` that fit the context.
    """

    upstream: Upstream
    tokenizer: "PreTrainedTokenizerBase"
    close: ThinkingClose
    usual: Budget
    sampling: Mapping[str, Any]
    efforts: Mapping[str, Budget]

    @classmethod
    async def connect(cls, arguments: ModelArguments) -> "Model":
        """Find the tokenizer, the texts and budgets of a model, and the server.

        Raises:
            UserError: one line about what is wrong.
        """
        from transformers import AutoTokenizer

        trained, usual = budget_of(arguments)
        marker_text, forced_text = arguments.marker, arguments.forced_text
        if trained is not None and marker_text is None:
            marker_text, forced_text = trained.marker, forced_text or trained.forced_text
        checkpoint = Checkpoint.find(arguments.model, arguments.revision)
        with user_errors(f"the model {arguments.model}", OSError, ValueError):
            tokenizer = AutoTokenizer.from_pretrained(
                **checkpoint.tokenizer, trust_remote_code=arguments.trust_remote_code
            )
        marker = Marker.from_tokenizer(tokenizer, marker_text, forced_text)
        marker.check(end_ids(checkpoint.model, checkpoint.model_revision, tokenizer, arguments.trust_remote_code))
        assert arguments.upstream is not None
        upstream = Upstream(arguments.upstream, arguments.name)
        try:
            close = ThinkingClose(marker, await upstream.context())
        except UpstreamError:
            await upstream.close()
            raise
        efforts = {} if trained is None else dict(trained.efforts)
        if not efforts and usual.thinking is not None and usual.solution is not None:
            room = close.context - usual.solution - close.forced
            tokens = {name: int(share * usual.thinking) for name, share in EFFORTS.items()}
            efforts = {name: replace(usual, thinking=each) for name, each in tokens.items() if each < room}
        # As in evaluation, whatever the model's generation config says.
        sampling = {"repetition_penalty": 1.0, **json_object("sampling", arguments.sampling)}
        return cls(upstream, tokenizer, close, usual, sampling, efforts)

    def prompt_ids(self, asked: ParsedRequest) -> list[int]:
        """The tokens of a prompt.

        Raises:
            RefusedError: the chat template refuses it.
        """
        if isinstance(asked.prompt, list) and isinstance(asked.prompt[0], int):
            return asked.prompt
        own = signature(self.tokenizer.apply_chat_template).parameters  # a template of the client's, a cut, tools
        if taken := own.keys() & asked.chat_template_kwargs.keys():
            raise RefusedError(f"chat_template_kwargs has {min(taken)}; it takes what the model's template knows")
        try:
            return tokenize(self.tokenizer, asked.prompt, asked.chat_template_kwargs)
        except Exception as error:  # a template fails as it likes
            raise RefusedError(f"no prompt comes of this: {error}") from error

    def rollout(self, prompt_ids: Sequence[int], budget: Budget) -> Rollout:
        """The rollout of an answer.

        Raises:
            RefusedError: it does not fit the context.
        """
        try:
            return Rollout(prompt_ids, budget, self.close)
        except ValueError as error:
            raise RefusedError(str(error).partition(": ")[0]) from error
