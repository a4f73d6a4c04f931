"""A model behind a vLLM server: its budgets, and the limits that vLLM keeps in one request for both parts.

vLLM counts a thinking from its opener, also what the prompt holds of it, and forces the close. So a request asks for
the thinking budget and what the prompt holds after the opener, and for at most all tokens of the answer, whose token
ids say how the thinking ended. The solution is cut after its own budget.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import Any, ClassVar

from e1_trl.arguments import Url, option
from e1_trl.budget import Budget, ThinkingClose
from e1_trl.checkpoints.budget_file import FILE, BudgetInfo, Effort
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.checkpoints.efforts import make_efforts
from e1_trl.command_line import json_object
from e1_trl.engines.engine import end_ids
from e1_trl.engines.openai import CONNECTING, RETURNED, Client, ServerError
from e1_trl.errors import UserError, one_line
from e1_trl.marker import MARKER, OPENERS, Marker, PromptState
from e1_trl.serving.request import BudgetPresets, ParsedRequest

Part = dict[str, Any]  # of a request or an answer
MOST_PROMPTS = 256  # of a request: while token ids are read, no other client is answered
PROBED = 8  # tokens of a thinking that a server is tried with


@dataclass(kw_only=True)
class ModelArguments:
    """Arguments of `e1 serve` and `e1 chat`: the model, its server and its budget."""

    GROUP: ClassVar[str] = "model"

    model: str = option(MISSING, "Folder or Hub id of the model, with tokenizer and budget.json.", metavar="MODEL")
    budget: str | None = option(None, "Budget in tokens, as 256+256. Default: that of budget.json.", metavar="BUDGET")
    marker: str | None = option(None, "Text that ends the thinking. Default: that in budget.json, else the model's.")
    forced_text: str | None = option(
        None, "Text that vLLM appends when the thinking budget runs out. Default: that in budget.json, else the marker."
    )
    upstream: Url | None = option(
        None, "Address of a vLLM server of the model. Default: one is started.", metavar="URL"
    )
    served_model_name: str | None = option(None, "Name of the model, at the server and for clients. Default: `model`.")
    sampling: str = option("{}", 'Sampling parameters for requests that set none, as {"top_k": 20}.', metavar="JSON")
    revision: str | None = option(None, "Branch, tag or commit of a model on the Hub. Default: main.")
    trust_remote_code: bool = option(False, "Run the code that comes with a model.")


def read_model(arguments: ModelArguments) -> tuple[BudgetPresets, Marker, str]:
    """Read a model's budgets, its marker, and vLLM's `--reasoning-config`; raise a `UserError` if it lacks one."""
    trained = BudgetInfo.find(arguments.model, arguments.revision)
    text = arguments.marker
    forced = arguments.forced_text
    if trained is not None and text is None:
        text = trained.marker
        forced = forced or trained.forced_text
    if arguments.budget is not None:
        budget = Budget.parse(arguments.budget)
    elif trained is not None:
        budget = replace(trained.budget, total=None)
    else:
        raise UserError(f"{arguments.model} has no {FILE}; name a budget, as --budget 1024+1024")
    checkpoint = Checkpoint.find(arguments.model, arguments.revision)
    tokenizer = checkpoint.load_tokenizer(arguments.trust_remote_code)
    marker = Marker.from_tokenizer(tokenizer, text, forced)
    if not marker.opener:  # of a marker of one's own; vLLM counts from an opener in any case
        opener_ids = tuple(tokenizer.encode(OPENERS[MARKER], add_special_tokens=False))
        marker = replace(marker, opener=OPENERS[MARKER], opener_ids=opener_ids)
    marker.check(end_ids(checkpoint.model, checkpoint.model_revision, tokenizer, arguments.trust_remote_code))
    presets = BudgetPresets(
        name=arguments.served_model_name or arguments.model,
        default=budget,
        efforts={} if trained is None else trained.efforts,
        template=str(tokenizer.chat_template or ""),
        # As in evaluation, whatever the model's generation config says.
        sampling={"repetition_penalty": 1.0, **json_object("sampling", arguments.sampling)},
    )
    config = json.dumps({"reasoning_start_str": marker.opener, "reasoning_end_str": forced or marker.text})
    return presets, marker, config


@dataclass(frozen=True)
class Limits:
    """Limits of the answers to a request, in tokens."""

    state: PromptState  # in which the prompts leave the thinking
    thinking: int
    forced_ids: tuple[int, ...]
    fields: Mapping[str, Any]  # for vLLM
    prompts: tuple[int, ...] = ()  # lengths


@dataclass(frozen=True)
class Model:
    """A model that answers: connections to its server, marker and context, and budgets of requests."""

    upstream: Client
    close: ThinkingClose
    presets: BudgetPresets
    excess: int = 0  # tokens that the server lets a thinking have beyond its budget where the prompt opens it

    @classmethod
    async def connect(cls, arguments: ModelArguments, efforts: Mapping[str, Effort] = {}, **more: Any) -> "Model":
        """Find a model and its server, or raise a `UserError`; `efforts` and `more` replace presets of the model."""
        known, marker, config = read_model(arguments)
        presets = replace(known, **more)
        default = presets.default
        presets.check_size(default)
        upstream = Client(str(arguments.upstream), known.name, "E1_UPSTREAM_API_KEY", direct=True)
        try:
            context = await upstream.context(f" --reasoning-config {shlex.quote(config)}")
            excess = await check_server(upstream, marker, config)
            close = ThinkingClose(marker, context or 0)
            if default.longest_prompt(close) < 1:
                raise UserError(f"the budget {default} does not fit the server's context, max_model_len {context}")
        except UserError:
            await upstream.close()
            raise
        left = close.context * 3 // 4 - (default.solution or 1) - close.forced_after(None)
        bounds = (max(default.thinking or 0, left), presets.most.thinking)
        most = min(each for each in bounds if each is not None)
        made = make_efforts(efforts or presets.efforts, default, presets.template, most)
        return cls(upstream, close, replace(presets, efforts=made), excess)

    async def limit(self, asked: ParsedRequest) -> Limits:
        """Let the server tokenize the prompts of a request, and find the limits of its answers, or refuse it.

        Prompts that open no thinking and may have none are closed, as vLLM forces no opener: chats by their template.
        Texts in which a solution has begun, and chats of a client who says `enable_thinking` itself, stay as they are.
        """
        marker = self.close.marker
        prompts = await self._read_prompts(asked.body)
        fields: Part = {}
        if asked.budget.thinking == 0 and {*map(marker.state_of, prompts)} == {PromptState.NOTHING}:
            may_close = len(marker.forced_ids) == marker.close_tokens
            if "messages" in asked.body:
                told = asked.body.get("chat_template_kwargs", {})
                fields = {"chat_template_kwargs": {"enable_thinking": False, **told}}
            elif may_close and all(last_index(each, marker.ids) < 0 for each in prompts):
                fields = {"prompt": [[*each, *marker.empty_ids] for each in prompts]}
            prompts = await self._read_prompts({**asked.body, **fields})
        (state, begun), *others = {*map(self._read_thinking, prompts)}
        if others:
            raise UserError("the prompts hold different parts of a thinking; send them one by one")
        sizes = tuple(map(len, prompts))
        thinking = 0
        forced: tuple[int, ...] = ()
        if state is not PromptState.CLOSED:
            thinking = asked.budget.thinking_limit(max(sizes), self.close)
            forced = marker.forced_ids
            uncounted = self.excess if state is PromptState.OPENED else len(marker.opener_ids)
            kept = max(0, thinking - uncounted)
            fields["thinking_token_budget"] = kept + begun
            if state is PromptState.OPENED:
                thinking *= kept > 0  # a budget as small cannot be kept, so there is no thinking
            elif thinking:
                thinking = max(thinking, uncounted)  # the opener is sampled whole
            else:
                forced = marker.empty_ids or forced
        most = None if asked.budget.solution is None else thinking + len(forced) + asked.budget.solution
        bounds = (self.close.context - max(sizes), asked.budget.total, most)
        fields["max_tokens"] = min(each for each in bounds if each is not None)
        return Limits(state, thinking, forced, fields, sizes)

    async def _read_prompts(self, body: Part) -> list[list[int]]:
        """Return the token ids of all prompts, each of which leaves some of the context, or refuse them."""
        prompt: Any = body.get("prompt")
        many = prompt if isinstance(prompt, list) and not all(type(each) is int for each in prompt) else [prompt]
        if len(many) > MOST_PROMPTS:
            raise UserError(f"the request has {len(many)} prompts; at most {MOST_PROMPTS} may be sent together")
        prompts = []
        for each in many:
            if "messages" in body or isinstance(each, str):
                each = (await self.upstream.ask("../tokenize", {**body, "prompt": each}, CONNECTING))["tokens"]
            if not isinstance(each, list) or {*map(type, each)} != {int} or not 0 <= min(each) <= max(each) < 2**31:
                raise UserError("prompt must be a string, its token ids, or a list of these")
            if len(each) >= self.close.context:  # in front of work that grows with it
                raise UserError(f"the prompt has {len(each)} tokens, and the context of the model {self.close.context}")
            prompts.append(each)
        return prompts

    def _read_thinking(self, prompt_ids: Sequence[int]) -> tuple[PromptState, int]:
        """Return in which state a prompt leaves the thinking, and how many tokens of it it holds."""
        marker = self.close.marker
        state = marker.state_of(prompt_ids)
        if state is not PromptState.OPENED:
            return state, 0
        opened = last_index(prompt_ids, marker.opener_ids)
        if opened < 0 or last_index(prompt_ids[opened:], marker.ids) >= 0:
            raise UserError(f"the prompt merges {marker.opener!r} with what is beside it: vLLM misses it")
        return state, len(prompt_ids) - opened - len(marker.opener_ids)


def last_index(ids: Sequence[int], part: Sequence[int]) -> int:
    """Return where a part last begins; -1 if nowhere."""
    places = (place for place in range(len(ids) - len(part), -1, -1) if ids[place] == part[0])
    return next((place for place in places if tuple(ids[place : place + len(part)]) == tuple(part)), -1)


async def check_server(upstream: Client, marker: Marker, config: str) -> int:
    """Check that a server ends a thinking as this model's is ended, by itself and by force; return `Model.excess`."""
    forced = marker.forced_ids
    many = 8 * marker.ids  # a prompt of one token or two ends vLLM's CPU engine in bfloat16
    asked: Part = {"prompt": [(*many, *marker.opener_ids), (*marker.opener_ids, *many)], "temperature": 0, **RETURNED}
    asked |= {"ignore_eos": True, "logit_bias": {str(marker.ids[0]): -100}}  # the model ends nothing by itself
    asked |= {"thinking_token_budget": PROBED, "max_tokens": PROBED + len(marker.opener_ids) + len(forced)}
    restart = f"start vLLM with --reasoning-config {shlex.quote(config)}"
    try:
        answer = await upstream.ask("completions", asked)
    except ServerError as error:
        raise UserError(f"{upstream.base_url} keeps no thinking budget ({one_line(error)}); {restart}") from error
    places = [last_index(choice.get("token_ids") or (), forced) for choice in answer["choices"]]
    if places[0] < 0:
        raise UserError(f"{upstream.base_url} does not close a thinking as this model's is closed; {restart}")
    if places[-1] >= 0 and forced != marker.ids:
        v2 = "start it with VLLM_USE_V2_MODEL_RUNNER=1, on a GPU, and with --reasoning-parser NAME, or force the marker"
        raise UserError(f"{upstream.base_url} takes only the forced text for a close of the thinking; {v2}")
    # From the second step on, vLLM 0.31 counts from the last token of an opener of several, as if all came then.
    return max(0, places[0] - PROBED)
