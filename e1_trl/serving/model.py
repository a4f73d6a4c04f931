"""A model behind a vLLM server: its budgets, and the limits that vLLM keeps in one request for both parts.

vLLM counts a thinking from its opener, tokens of the prompt included, and forces the close itself. So a request asks
for the thinking budget plus what the prompt holds after the opener, and for at most all tokens of the answer; the
answer's token ids say how the thinking ended, and the solution is cut after its own budget.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from e1_trl.arguments import json_object
from e1_trl.budget import UNLIMITED, Budget, ThinkingClose
from e1_trl.checkpoints.budget_file import FILE, BudgetInfo
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.engines.engine import end_ids
from e1_trl.errors import UserError, one_line, user_errors
from e1_trl.serving.arguments import ModelArguments, ServeArguments
from e1_trl.serving.request import Asked, Presets, RefusedError, make_efforts
from e1_trl.serving.shim import Marker, PromptState, last_index
from e1_trl.serving.upstream import Upstream

ANTHROPIC = 1024  # least budget of a thinking on /v1/messages
CONVERSATION = ("messages", "tools", "chat_template_kwargs", "chat_template", "add_generation_prompt",
                "continue_final_message", "add_special_tokens")  # fmt: skip


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
class Limits:
    """Limits of one answer.

    Attributes:
        prompt_ids: its prompt.
        state: state of the thinking at the prompt's end.
        thinking: most tokens of thinking.
        forced_ids: tokens that vLLM forces after them.
        solution: most tokens of the solution; `None` if only `fields` bounds it.
        fields: vLLM's own.
    """

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
    presets: Presets

    @classmethod
    async def connect(cls, arguments: ModelArguments) -> "Model":
        """Find a model's tokenizer, texts, budgets and server.

        Raises:
            UserError: one of them is missing or unusable, or the server keeps no budget.
        """
        trained, budget = read_budget(arguments)
        marker, template, config = read_marker(arguments, trained)
        assert arguments.upstream is not None
        upstream = Upstream(arguments.upstream, arguments.name)
        try:
            context = await upstream.context()
            if context is None:
                raise UserError(f"{upstream.base_url} lists {upstream.name} without max_model_len; is it vLLM?")
            await check_server(upstream, marker, config)
        except UserError:
            await upstream.close()
            raise
        close = ThinkingClose(marker, context)
        named = dict(trained.efforts) if trained is not None else {}
        clients: dict[str, Any] = {}
        if isinstance(arguments, ServeArguments):
            named = arguments.named_efforts or named
            clients = {"most": Budget.parse(arguments.max_budget), "drop": tuple(arguments.drop)}
        # As in evaluation, whatever the model's generation config says.
        sampling = {"repetition_penalty": 1.0, **json_object("sampling", arguments.sampling)}
        most = max(0, context - (budget.solution or 1) - close.forced - 1)
        efforts = make_efforts(named, budget, template, most)
        presets = Presets(arguments.name, budget, efforts, template, sampling=sampling, **clients)
        return cls(upstream, close, presets)

    async def read_prompts(self, body: dict[str, Any]) -> list[list[int]]:
        """Let the server tokenize the prompt of a request, or the prompts.

        Raises:
            RefusedError: there is none, or the server refuses it.
        """
        if "messages" in body:
            told = {key: body[key] for key in CONVERSATION if key in body}
            return [(await self.upstream.ask("/tokenize", told))["tokens"]]
        prompt = body.get("prompt")
        prompts = prompt if isinstance(prompt, list) and not all(type(each) is int for each in prompt) else [prompt]
        special = body.get("add_special_tokens", True)
        found = []
        for each in prompts:
            if isinstance(each, str):
                asked = {"prompt": each, "add_special_tokens": special}
                each = (await self.upstream.ask("/tokenize", asked))["tokens"]
            if not isinstance(each, list) or not each or not all(type(token) is int and token >= 0 for token in each):
                raise RefusedError("prompt must be a text, the token ids of one, or a list of these")
            found.append(each)
        return found

    def limit(self, prompt_ids: Sequence[int], budget: Budget) -> Limits:
        """Translate a budget into limits of an answer to this prompt.

        Raises:
            RefusedError: prompt and budget do not fit the context.
        """
        marker = self.close.marker
        state = marker.state_of(prompt_ids)
        thinking = 0
        forced: tuple[int, ...] = ()
        fields = {}
        room = self.close.context - len(prompt_ids)
        if state is not PromptState.CLOSED:
            try:
                thinking = budget.thinking_limit(len(prompt_ids), self.close)
            except ValueError as error:
                raise RefusedError(str(error).partition(": ")[0]) from error
            forced = marker.forced_ids
            opened = last_index(prompt_ids, marker.opener_ids)
            if opened > last_index(prompt_ids, marker.ids):
                fields["thinking_token_budget"] = thinking + len(prompt_ids) - opened - len(marker.opener_ids)
            else:  # the model opens it, and these tokens count
                fields["thinking_token_budget"] = max(0, thinking - len(marker.opener_ids))
                forced = marker.empty_ids if thinking == 0 else forced
        bounds = (room, budget.total, None if budget.solution is None else thinking + len(forced) + budget.solution)
        fields["max_tokens"] = min(each for each in bounds if each is not None)
        if fields["max_tokens"] < 1:
            raise RefusedError(f"a prompt of {len(prompt_ids)} tokens fills the context of {self.close.context} tokens")
        return Limits(prompt_ids, state, thinking, forced, budget.solution, fields)

    def fields(self, asked: Asked, limits: Sequence[Limits]) -> dict[str, Any]:
        """Return what vLLM is asked for.

        Raises:
            RefusedError: several prompts need different limits.
        """
        own = limits[0].fields
        if any(each.fields.get("thinking_token_budget") != own.get("thinking_token_budget") for each in limits):
            raise RefusedError("some of the prompts opened a thinking and others did not; send them one by one")
        most = min(each.fields["max_tokens"] for each in limits)
        options = {**asked.stream_options, "include_usage": True}
        streamed = {"stream": True, "stream_options": options, "return_token_ids": True}
        return {**asked.body, "model": self.upstream.name, **own, "max_tokens": most, **streamed}

    def other_fields(self, asked: Asked, path: str) -> dict[str, Any]:
        """Return what vLLM is asked for on a route of another API, as far as it has fields for budgets there.

        Raises:
            RefusedError: it has none for this budget.
        """
        thinking = asked.budget.thinking
        tokens = asked.budget.completion_tokens(self.close.forced)
        body = {**asked.body, "model": self.upstream.name, "stream": asked.stream}
        if path.endswith("/responses"):
            told = {"reasoning": {"effort": asked.effort}} if asked.effort else {}
            return {**body, **told} if tokens is None else {**body, **told, "max_output_tokens": tokens}
        if path.endswith("/messages") and thinking is not None:
            if 0 < thinking < ANTHROPIC:
                raise RefusedError(
                    f"the budget is {asked.budget}, and /v1/messages takes a thinking of 0, or {ANTHROPIC} up"
                )
            body["thinking"] = {"type": "enabled", "budget_tokens": thinking} if thinking else {"type": "disabled"}
        return body | ({} if tokens is None else {"max_tokens": tokens})


def read_marker(arguments: ModelArguments, trained: BudgetInfo | None) -> tuple[Marker, str, str]:
    """Read the marker of a model, its chat template, and the value of vLLM's `--reasoning-config`.

    Raises:
        UserError: the model has no tokenizer, or an end-of-sequence token in its marker.
    """
    from transformers import AutoTokenizer

    text = arguments.marker
    forced_text = arguments.forced_text
    if trained is not None and text is None:
        text = trained.marker
        forced_text = forced_text or trained.forced_text
    checkpoint = Checkpoint.find(arguments.model, arguments.revision)
    code = arguments.trust_remote_code
    with user_errors(f"the model {arguments.model}", OSError, ValueError):
        tokenizer = AutoTokenizer.from_pretrained(**checkpoint.tokenizer, trust_remote_code=code)
    marker = Marker.from_tokenizer(tokenizer, text, forced_text)
    marker.check(end_ids(checkpoint.model, checkpoint.model_revision, tokenizer, code))
    config = {"reasoning_start_str": marker.opener, "reasoning_end_str": forced_text or marker.text}
    template = tokenizer.chat_template
    template = "\n".join(template.values()) if isinstance(template, dict) else template or ""
    return marker, template, json.dumps(config)


async def check_server(upstream: Upstream, marker: Marker, config: str) -> None:
    """Check that a server closes a thinking as this model's is closed, by asking for the close of an empty one.

    Raises:
        UserError: it keeps no thinking budget, or closes the thinking with another text.
    """
    asked = {
        "temperature": 0,
        "thinking_token_budget": 0,
        "max_tokens": len(marker.forced_ids),
        "return_token_ids": True,
    }
    restart = f"start vLLM with --reasoning-config {shlex.quote(config)}"
    try:
        answer = await upstream.ask("/v1/completions", {**asked, "prompt": list(marker.opener_ids)})
        closed = await upstream.ask("/v1/completions", {**asked, "prompt": [*marker.opener_ids, *marker.ids]})
        forced, again = (tuple(each["choices"][0].get("token_ids") or ()) for each in (answer, closed))
    except RefusedError as error:
        raise UserError(f"{upstream.base_url} keeps no thinking budget ({one_line(error)}); {restart}") from error
    if forced != marker.forced_ids:
        raise UserError(f"{upstream.base_url} does not close a thinking by {config}, as this model's is; {restart}")
    if again == forced and marker.forced_ids != marker.ids:
        raise UserError(
            f"{upstream.base_url} knows no close of a thinking but the forced text; start vLLM with "
            "VLLM_USE_V2_MODEL_RUNNER=1 on a GPU, or use the marker as forced text"
        )
