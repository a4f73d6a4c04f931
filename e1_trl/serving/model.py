"""A model behind a vLLM server: its budgets, and the limits that vLLM keeps in one request for both parts.

vLLM counts a thinking from its opener, also what the prompt holds of it, and forces the close. So a request asks for
the thinking budget and what the prompt holds after the opener, and for at most all tokens of the answer. The answer's
token ids say how the thinking ended, and the solution is cut after its own budget.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from e1_trl.arguments import json_object
from e1_trl.budget import UNLIMITED, Budget, ThinkingClose
from e1_trl.checkpoints.budget_file import FILE, BudgetInfo
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.checkpoints.efforts import make_efforts
from e1_trl.engines.engine import end_ids
from e1_trl.errors import UserError, one_line, user_errors
from e1_trl.marker import MARKER, OPENERS, Marker, PromptState
from e1_trl.serving.arguments import ModelArguments, ServeArguments
from e1_trl.serving.request import BudgetPresets, ParsedRequest, RefusedError
from e1_trl.serving.upstream import Upstream

RENDERED = {"messages", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt"}
RENDERED |= {"continue_final_message", "add_special_tokens"}  # fields that /tokenize takes, too


@dataclass(frozen=True)
class ModelTexts:
    """Texts and budgets of a model, which are known without a server.

    Attributes:
        budget: of requests that name none.
        config: value of vLLM's `--reasoning-config`.
        template: the chat template.
    """

    trained: BudgetInfo | None
    budget: Budget
    marker: Marker
    config: str
    template: str

    @classmethod
    def read(cls, arguments: ModelArguments) -> "ModelTexts":
        """Read the tokenizer and, if there is one, the budget.json of a model.

        Raises:
            UserError: one of them is unusable, or neither the arguments nor a budget.json name both budgets.
        """
        from transformers import AutoTokenizer

        trained = BudgetInfo.find(arguments.model, arguments.revision)
        parts = [arguments.thinking_budget, arguments.solution_budget]
        text = arguments.marker
        forced = arguments.forced_text
        if trained is not None:
            known = (trained.budget.thinking, trained.budget.solution)
            parts = [
                own or str(other or (UNLIMITED if other is None else 0))
                for own, other in zip(parts, known, strict=True)
            ]
            forced = (forced or trained.forced_text) if text is None else forced
            text = text or trained.marker
        if None in parts:
            raise UserError(f"{arguments.model} has no {FILE}; name a thinking_budget and a solution_budget")
        budget = Budget.parse("+".join(map(str, parts)))
        checkpoint = Checkpoint.find(arguments.model, arguments.revision)
        code = arguments.trust_remote_code
        with user_errors(f"the model {arguments.model}", OSError, ValueError):
            tokenizer = AutoTokenizer.from_pretrained(**checkpoint.tokenizer, trust_remote_code=code)
        marker = Marker.from_tokenizer(tokenizer, text, forced)
        if not marker.opener:  # of a marker of one's own; vLLM counts from an opener in any case
            opener_ids = tuple(tokenizer.encode(OPENERS[MARKER], add_special_tokens=False))
            marker = replace(marker, opener=OPENERS[MARKER], opener_ids=opener_ids)
        marker.check(end_ids(checkpoint.model, checkpoint.model_revision, tokenizer, code))
        config = {"reasoning_start_str": marker.opener, "reasoning_end_str": forced or marker.text}
        template = tokenizer.chat_template or ""
        template = "\n".join(template.values()) if isinstance(template, dict) else template
        return cls(trained, budget, marker, json.dumps(config), template)


@dataclass(frozen=True)
class Limits:
    """Limits of an answer: most tokens of its parts (`None`: only `fields` bounds it), and vLLM's fields for them."""

    prompt_ids: Sequence[int]
    state: PromptState
    thinking: int
    forced_ids: tuple[int, ...]
    solution: int | None
    fields: dict[str, int]


@dataclass(frozen=True)
class Model:
    """A model that answers.

    Attributes:
        upstream: connections to the server that samples.
        close: end-of-thinking marker, and the server's context.
        presets: budgets of requests.
    """

    upstream: Upstream
    close: ThinkingClose
    presets: BudgetPresets

    @classmethod
    async def connect(cls, arguments: ModelArguments) -> "Model":
        """Find a model's tokenizer, texts, budgets and server.

        Raises:
            UserError: one of them is missing or unusable, or the server keeps no thinking budget.
        """
        texts = ModelTexts.read(arguments)
        assert arguments.upstream is not None
        upstream = Upstream(arguments.upstream, arguments.name)
        try:
            context = await upstream.context()
            if context is None:
                raise UserError(f"{upstream.base_url} lists {upstream.name} without max_model_len, as vLLM names it")
            await check_server(upstream, texts)
        except UserError:
            await upstream.close()
            raise
        close = ThinkingClose(texts.marker, context)
        named = {} if texts.trained is None else texts.trained.efforts
        clients: dict[str, Any] = {}
        if isinstance(arguments, ServeArguments):
            named = arguments.read_efforts() or named
            clients = {"most": Budget.parse(arguments.max_budget), "drop": tuple(arguments.drop)}
        rest = context * 3 // 4 - (texts.budget.solution or 1) - close.forced_after(None)
        most = max(texts.budget.thinking or 0, rest)
        if clients and (allowed := clients["most"].thinking) is not None:
            most = min(most, allowed)
        efforts = make_efforts(named, texts.budget, texts.template, most)
        # As in evaluation, whatever the model's generation config says.
        sampling = {"repetition_penalty": 1.0, **json_object("sampling", arguments.sampling)}
        return cls(
            upstream, close, BudgetPresets(arguments.name, texts.budget, efforts, texts.template, sampling, **clients)
        )

    async def limit(self, asked: ParsedRequest) -> list[Limits]:
        """Let the server tokenize the prompt of a request, or its prompts, and find the limits of the answers.

        Raises:
            RefusedError: there is no prompt, the server refuses it, or the budget does not fit the context with it.
        """
        body = asked.body
        if "messages" in body:
            told = {key: body[key] for key in RENDERED & body.keys()}
            return [self.limit_one((await self.upstream.ask("/tokenize", told))["tokens"], asked.budget)]
        prompt = body.get("prompt")
        prompts = prompt if isinstance(prompt, list) and not all(type(each) is int for each in prompt) else [prompt]
        limits = []
        for each in prompts:
            if isinstance(each, str):
                told = {"prompt": each, "add_special_tokens": body.get("add_special_tokens", True)}
                each = (await self.upstream.ask("/tokenize", told))["tokens"]
            if not isinstance(each, list) or not each or not all(type(token) is int and token >= 0 for token in each):
                raise RefusedError("prompt must be a text, the token ids of one, or a list of these")
            limits.append(self.limit_one(each, asked.budget))
        return limits

    def limit_one(self, prompt_ids: Sequence[int], budget: Budget) -> Limits:
        """Find the limits of the answer to a prompt; raise as `limit` does."""
        marker = self.close.marker
        state = marker.state_of(prompt_ids)
        thinking = 0
        forced: tuple[int, ...] = ()
        fields = {}
        if state is not PromptState.CLOSED:
            try:
                thinking = budget.thinking_limit(len(prompt_ids), self.close)
            except ValueError as error:
                raise RefusedError(str(error).partition(": ")[0]) from error
            forced = marker.forced_ids
            opened = last_index(prompt_ids, marker.opener_ids)
            if opened > last_index(prompt_ids, marker.ids):
                fields["thinking_token_budget"] = thinking + len(prompt_ids) - opened - len(marker.opener_ids)
            else:  # the model opens it, which are tokens of its thinking
                fields["thinking_token_budget"] = max(0, thinking - len(marker.opener_ids))
                forced = forced if thinking else marker.empty_ids or forced
        most = None if budget.solution is None else thinking + len(forced) + budget.solution
        bounds = (self.close.context - len(prompt_ids), budget.total, most)
        fields["max_tokens"] = min(each for each in bounds if each is not None)
        if fields["max_tokens"] < 1:
            raise RefusedError(f"a prompt of {len(prompt_ids)} tokens fills the context of {self.close.context} tokens")
        return Limits(prompt_ids, state, thinking, forced, budget.solution, fields)


def last_index(ids: Sequence[int], part: Sequence[int]) -> int:
    """Return where a part last begins; -1 if nowhere."""
    size = len(part)
    places = range(len(ids) - size, -1, -1)
    return next((place for place in places if tuple(ids[place : place + size]) == tuple(part)), -1)


async def check_server(upstream: Upstream, texts: ModelTexts) -> None:
    """Check that a server closes a thinking as this model's is closed, by asking for the close of an empty one.

    Raises:
        UserError: it keeps no thinking budget, or closes the thinking with another text.
    """
    marker = texts.marker
    forced = marker.forced_ids
    asked = {"temperature": 0, "thinking_token_budget": 0, "max_tokens": len(forced), "return_token_ids": True}
    restart = f"start vLLM with --reasoning-config {shlex.quote(texts.config)}"
    many = 8 * marker.ids  # a prompt of one token or two ends vLLM's CPU engine in bfloat16
    closes = []
    try:
        for prompt in ((*many, *marker.opener_ids), (*marker.opener_ids, *many)):
            (choice,) = (await upstream.ask("/v1/completions", {**asked, "prompt": prompt}))["choices"]
            closes.append(tuple(choice.get("token_ids") or ()) == forced)
    except RefusedError as error:
        raise UserError(f"{upstream.base_url} keeps no thinking budget ({one_line(error)}); {restart}") from error
    if not closes[0]:
        raise UserError(f"{upstream.base_url} does not close a thinking as this model's is closed; {restart}")
    if closes[1] and forced != marker.ids:
        v2 = "start vLLM with VLLM_USE_V2_MODEL_RUNNER=1, on a GPU, or take the marker as forced text"
        raise UserError(f"{upstream.base_url} takes only the forced text for a close of the thinking; {v2}")
