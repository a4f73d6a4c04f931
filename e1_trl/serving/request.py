"""What a client may ask for, and with which budget: what contradicts itself, or cannot be kept, is refused.

A field that is neither known nor harmless is refused, too: nothing that a client says is ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from e1_trl.budget import UNLIMITED, Budget
from e1_trl.errors import UserError

THINKING = ("thinking_budget", "thinking_token_budget", "thinking_budget_tokens")  # all names of one number
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
READ = (*THINKING, *SAMPLING, "solution_budget", "max_tokens", "max_completion_tokens", "reasoning", "reasoning_effort")
ASKED = ("model", "stream", "stream_options", "stop", "seed", "return_token_ids")
MESSAGE = ("role", "content", "name", "reasoning_content", "reasoning", "type")  # what a template may read
WITH_USAGE = (("include_usage", True), ("include_usage", False))
HARMLESS = ("user", "metadata", "store", "safety_identifier", "service_tier")
# What asks for nothing.
EMPTY: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "logit_bias": ({},),
    "suffix": ("",),
    "modalities": (["text"],),
}


class RefusedError(UserError):
    """A request that is not answered; `status` is its HTTP status."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class BudgetPresets:
    """The budgets of a served model: the usual one, those of `reasoning_effort`, and the largest; none is unlimited."""

    usual: Budget
    efforts: Mapping[str, Budget]
    most: Budget = field(default_factory=lambda: Budget(None, None))

    def budget(self, suffix: str | None, body: Mapping[str, Any]) -> Budget:
        """The budget of a request.

        `max_tokens` alone leaves the answer its part: the solution has the smaller of it and the usual budget, and the
        thinking what is left. Forced tokens come on top.

        Args:
            suffix: what follows @ in the model's name.
            body: the request.

        Raises:
            RefusedError: two of its fields contradict each other, or the budget is too large.
        """
        effort, reasoning = body.get("reasoning_effort"), body.get("reasoning", {})
        if not isinstance(reasoning, dict) or reasoning.keys() - {"effort", "max_tokens"}:
            raise RefusedError(f"reasoning is {reasoning!r}; it takes effort and max_tokens")
        effort = _one("reasoning_effort", {"reasoning_effort": effort, "reasoning.effort": reasoning.get("effort")})
        named = {name: body.get(name) for name in THINKING} | {"reasoning.max_tokens": reasoning.get("max_tokens")}
        thinking = _one("thinking_budget", {name: _tokens(name, value, 0) for name, value in named.items()})
        solution = _tokens("solution_budget", body.get("solution_budget"), 1)
        limits = {name: _tokens(name, body.get(name), 1) for name in ("max_tokens", "max_completion_tokens")}
        limit = _one("max_tokens", limits)
        if limit == UNLIMITED:
            raise RefusedError(f"max_tokens is {UNLIMITED!r}; leave it out")
        usual, pairs = self.usual, sum(each is not None for each in (suffix, effort))
        if pairs == 2 or (pairs and (thinking is not None or solution is not None)):
            raise RefusedError(
                "the model's name, reasoning_effort, and thinking_budget or solution_budget: one of them"
            )
        if suffix is not None:
            try:
                usual = Budget.parse(suffix)
            except ValueError as error:
                raise RefusedError(f"the model's name: {error}", status=404) from error
        elif effort is not None:
            if not isinstance(effort, str) or effort not in self.efforts:
                raise RefusedError(f"reasoning_effort is {effort!r}; it is one of {', '.join(self.efforts)}")
            usual = self.efforts[effort]
        asked = Budget(
            usual.thinking if thinking is None else _number(thinking),
            usual.solution if solution is None else _number(solution),
        )
        if limit is not None:
            thinks, solves = thinking is not None or suffix is not None, solution is not None or suffix is not None
            asked = _within(int(limit), asked, thinks, solves)
        for name, tokens, most in (
            ("thinking", asked.thinking, self.most.thinking),
            ("solution", asked.solution, self.most.solution),
        ):
            if most is not None and (tokens is None or tokens > most):
                raise RefusedError(f"the {name} budget is {tokens or UNLIMITED} tokens, of which {most} are the most")
        return asked


def _within(limit: int, asked: Budget, thinks: bool, solves: bool) -> Budget:
    """A budget within so many tokens in all; of its parts, those that were asked for stay as they are."""
    thinking, solution = asked.thinking, asked.solution
    if not solves:
        left = limit - (thinking or 0) if thinks else limit
        solution = left if solution is None else min(solution, left)
    if not thinks:
        left = limit - (solution or 0)
        thinking = left if thinking is None else min(thinking, left)
    if thinking is None or solution is None or solution < 1 or thinking < 0 or thinking + solution > limit:
        raise RefusedError(f"max_tokens is {limit}, and the budget {asked}; lower one, or leave the other out")
    return Budget(thinking, solution)


def _one(name: str, said: Mapping[str, Any]) -> Any:
    """The value of one thing that has several names."""
    values = {key: value for key, value in said.items() if value is not None}
    if len(set(map(str, values.values()))) > 1:
        raise RefusedError(f"{name}: {', '.join(f'{key} is {value!r}' for key, value in values.items())}")
    return next(iter(values.values()), None)


def _tokens(name: str, value: Any, least: int) -> int | str | None:
    if value is None or value == UNLIMITED:
        return value
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise RefusedError(f"{name} is {value!r}; it must be a number of tokens, {least} or more, or {UNLIMITED!r}")
    return value


def _number(tokens: int | str) -> int | None:
    return None if isinstance(tokens, str) else tokens


@dataclass(frozen=True)
class ParsedRequest:
    """A request that is answered.

    Attributes:
        chat: the prompt is a conversation, and the answer a message.
        model: as the client calls it.
        budget: what it may take.
        prompt: a conversation, a text, or token ids.
        chat_template_kwargs: of the conversation.
        sampling: the server's parameters, by name.
        stop: texts that end the solution.
        seed: of the sampling.
        stream, include_usage, return_token_ids: as in the API.
    """

    budget: Budget
    prompt: str | list[int] | list[dict[str, str]]
    sampling: Mapping[str, Any]
    chat: bool = True
    model: str = ""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    stop: list[str] = field(default_factory=list)
    seed: int | None = None
    stream: bool = True
    include_usage: bool = False
    return_token_ids: bool = False


def read(body: Any, chat: bool, name: str, ladder: BudgetPresets, sampling: Mapping[str, Any]) -> ParsedRequest:
    """A request's body.

    Args:
        body: what the client sent.
        chat: it is a conversation.
        name: of the served model; NAME@1024+1024 asks for that budget.
        ladder: the model's budgets.
        sampling: what is not said.

    Raises:
        RefusedError: see there.
    """
    if not isinstance(body, dict):
        raise RefusedError("the body must be a JSON object")
    body = {key: value for key, value in body.items() if value is not None}
    own = ("messages", "chat_template_kwargs") if chat else ("prompt",)
    for key, value in body.items():
        if key in EMPTY and not any(value == each and type(value) is type(each) for each in EMPTY[key]):
            raise RefusedError(f"{key} is {value!r}, which this server cannot do")
        if key not in (*READ, *ASKED, *HARMLESS, *EMPTY, *own):
            raise RefusedError(f"{key} is not known here, and nothing is ignored; leave it out")
    model, suffix = body.get("model", name), None
    if model != name:
        model, _, suffix = str(model).rpartition("@")
    if model != name:
        raise RefusedError(f"the model {body['model']!r} is not served; {name} and {name}@THINKING+SOLUTION are", 404)
    stop, options = body.get("stop", []), body.get("stream_options", {})
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(each, str) and each for each in stop):
        raise RefusedError(f"stop is {stop!r}; it must be a text or several")
    for key, kind in (("stream", bool), ("return_token_ids", bool), ("seed", int), ("chat_template_kwargs", dict)):
        if key in body and type(body[key]) is not kind:
            raise RefusedError(f"{key} is {body[key]!r}; it must be of type {kind.__name__}")
    for key in SAMPLING:
        if type(body.get(key, 0)) not in (int, float):
            raise RefusedError(f"{key} is {body[key]!r}; it must be a number")
    if not isinstance(options, dict) or any(each not in WITH_USAGE for each in options.items()):
        raise RefusedError(f"stream_options is {options!r}; it takes include_usage, true or false")
    return ParsedRequest(
        chat=chat,
        model=body.get("model", name),
        budget=ladder.budget(suffix, body),
        prompt=_messages(body.get("messages")) if chat else _prompt(body.get("prompt")),
        chat_template_kwargs=body.get("chat_template_kwargs", {}),
        sampling={**sampling, **{key: body[key] for key in SAMPLING if key in body}},
        stop=stop,
        seed=body.get("seed"),
        stream=body.get("stream", False),
        include_usage=options.get("include_usage") is True,
        return_token_ids=body.get("return_token_ids", False),
    )


def _messages(messages: Any) -> list[dict[str, str]]:
    if not isinstance(messages, list) or not messages:
        raise RefusedError("messages is missing; it must be a list of messages")
    found = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            parts = [each.get("text") for each in content if isinstance(each, dict) and each.get("type") == "text"]
            are_texts = len(parts) == len(content) and all(isinstance(part, str) for part in parts)
            content = "".join(map(str, parts)) if are_texts else None
        if not isinstance(content, str) or not isinstance(message.get("role"), str):
            raise RefusedError(f"a message is {str(message)[:80]}; it must have a role, and a text as content")
        if unknown := [key for key, value in message.items() if value and key not in MESSAGE]:
            raise RefusedError(f"a message has {unknown[0]}, which is not known here; leave it out")
        found.append({key: str(message[key]) for key in MESSAGE if message.get(key)} | {"content": content})
    return found


def _prompt(prompt: Any) -> str | list[int]:
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        (prompt,) = prompt  # a batch of one
    is_ids = isinstance(prompt, list) and prompt and all(type(token) is int and token >= 0 for token in prompt)
    if not (isinstance(prompt, str) or is_ids):
        raise RefusedError("prompt must be a text or token ids, and one of them")
    return prompt
