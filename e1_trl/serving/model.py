"""A model behind a server, with its tokenizer and its budgets: what answers are made with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from e1_trl.arguments import json_object
from e1_trl.budget import UNLIMITED, Budget, Close, Marker
from e1_trl.checkpoints.budget_file import FILE, Trained
from e1_trl.checkpoints.checkpoint import Checkpoint, end_ids
from e1_trl.closing import GENTLE, Closing, ClosingArguments
from e1_trl.errors import UserError
from e1_trl.problems.prompts import tokenize
from e1_trl.rollout import Rollout
from e1_trl.serving.request import Asked, RefusedError
from e1_trl.serving.upstream import Upstream, UpstreamError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

OF_REQUESTS = {"stop", "stop_token_ids", "seed", "n", "logprobs", "max_tokens", "prompt", "stream", "model"}
EFFORTS = {"low": 0.25, "medium": 1.0, "high": 4.0}  # times the usual thinking budget, where nobody says others


@dataclass(kw_only=True)
class ModelArguments(ClosingArguments):
    """Which model is asked, where, and with which budget."""

    model: str = field(metadata={"help": "Checkpoint folder or Hub id whose tokenizer and budget.json are used."})
    upstream: str = field(
        default="", metadata={"help": "The server that samples, as http://host:8000/v1; vLLM, or like it."}
    )
    revision: str | None = field(default=None, metadata={"help": "Branch, tag or commit of a model on the Hub."})
    served_model_name: str | None = field(default=None, metadata={"help": "The model's name there; unset: `model`."})
    thinking_budget: str | None = field(
        default=None, metadata={"help": "In tokens, or unlimited; unset: that of the training, from budget.json."}
    )
    solution_budget: str | None = field(default=None, metadata={"help": "The same of the solution."})
    marker: str | None = field(
        default=None, metadata={"help": "The text that ends the thinking; unset: budget.json's."}
    )
    forced_text: str | None = field(
        default=None, metadata={"help": "What is appended in its place; unset: the same's."}
    )
    close: str = field(
        default="hard",
        metadata={"help": f"How the thinking is closed: hard, or {', '.join(GENTLE)} (docs/closing.md)."},
    )
    sampling: str = field(
        default="{}", metadata={"help": "Parameters of the server, as JSON, where a request says nothing."}
    )
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with a model."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.close not in ("hard", *GENTLE):
            raise UserError(f"close is {self.close!r}; it is hard, {', '.join(GENTLE)}")
        if of_requests := OF_REQUESTS & json_object("sampling", self.sampling).keys():
            raise UserError(f"sampling holds {min(of_requests)}, which is said with each request")

    @property
    def name(self) -> str:
        """The model's, to the server and to clients."""
        return self.served_model_name or self.model


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
    close: Close
    usual: Budget
    sampling: Mapping[str, Any]
    efforts: Mapping[str, Budget]

    @classmethod
    async def connect(cls, arguments: ModelArguments) -> "Model":
        """Find the tokenizer, the texts and budgets of a model, and the server.

        Raises:
            UserError, OSError, UpstreamError: one line about what is wrong.
        """
        from transformers import AutoTokenizer

        trained = Trained.find(arguments.model, arguments.revision)
        marker_text, forced_text, budget = arguments.marker, arguments.forced_text, Budget(None, None)
        if trained is not None:
            budget = replace(trained.budget, total=None)
            if marker_text is None:
                marker_text, forced_text = trained.marker, forced_text or trained.forced_text
        parts = (arguments.thinking_budget, arguments.solution_budget)
        if trained is None and None in parts:
            raise UserError(f"{arguments.model} has no {FILE}; name a thinking_budget and a solution_budget")
        known = (budget.thinking, budget.solution)
        told = (own if said is None else said for said, own in zip(parts, known, strict=True))
        usual = Budget.parse("+".join(UNLIMITED if part is None else str(part) for part in told))
        checkpoint = Checkpoint.find(arguments.model, arguments.revision)
        tokenizer = AutoTokenizer.from_pretrained(**checkpoint.tokenizer, trust_remote_code=arguments.trust_remote_code)
        marker = Marker.from_tokenizer(tokenizer, marker_text, forced_text)
        marker.check(end_ids(checkpoint.model, checkpoint.model_revision, tokenizer, arguments.trust_remote_code))
        upstream = Upstream(arguments.upstream, arguments.name)
        try:
            close = Close(marker, await upstream.context())
        except UpstreamError:
            await upstream.close()
            raise
        if arguments.close != "hard":
            close = Closing.of(arguments, tokenizer, marker).apply(arguments.close, close)
        efforts = {} if trained is None else dict(trained.efforts)
        if not efforts and usual.thinking is not None and usual.solution is not None:
            room = close.context - usual.solution - close.forced
            tokens = {name: int(share * usual.thinking) for name, share in EFFORTS.items()}
            efforts = {name: replace(usual, thinking=each) for name, each in tokens.items() if each < room}
        # As in evaluation, whatever the model's generation config says.
        sampling = {"repetition_penalty": 1.0, **json_object("sampling", arguments.sampling)}
        return cls(upstream, tokenizer, close, usual, sampling, efforts)

    def prompt_ids(self, asked: Asked) -> list[int]:
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
