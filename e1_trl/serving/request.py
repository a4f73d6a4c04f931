"""A client's request, and its budget. Contradictory and unknown fields are refused: nothing is ignored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from e1_trl.arguments import WORDS
from e1_trl.budget import UNLIMITED, Budget
from e1_trl.errors import UserError

THINKING = ("thinking_budget", "thinking_token_budget", "thinking_budget_tokens")  # names of the same number
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
BUDGETS = (*THINKING, "solution_budget", "max_tokens", "max_completion_tokens", "reasoning", "reasoning_effort")
TYPES: dict[str, type] = {
    **dict.fromkeys(SAMPLING, float),
    "stream": bool,
    "return_token_ids": bool,
    "seed": int,
    "chat_template_kwargs": dict,
}
MESSAGE = ("role", "content", "name", "reasoning_content", "reasoning", "type")  # fields that a template may read
HARMLESS = ("user", "metadata", "store", "safety_identifier", "service_tier")
# Fields of unsupported features, with the values that do not use them.
UNUSED: dict[str, tuple[Any, ...]] = {
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
KNOWN = {*BUDGETS, *TYPES, *HARMLESS, *UNUSED, "model", "stream_options", "stop"} - {"chat_template_kwargs"}


class RefusedError(UserError):
    """A request that is refused; `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class BudgetPresets:
    """Budgets of a served model: the default, those of `reasoning_effort`, and the largest that a request may have."""

    default: Budget
    efforts: Mapping[str, Budget]
    most: Budget = field(default_factory=lambda: Budget(None, None))

    def choose(self, suffix: str | None, body: Mapping[str, Any]) -> Budget:
        """Choose the budget of a request.

        `max_tokens` alone reserves the solution's part: the solution has the smaller of it and the default, the
        thinking has the rest. Forced tokens come on top.

        Args:
            suffix: text after @ in the model's name.
            body: the request.

        Raises:
            RefusedError: two fields contradict each other, or the budget is too large.
        """
        reasoning = body.get("reasoning", {})
        if not isinstance(reasoning, dict) or reasoning.keys() - {"effort", "max_tokens"}:
            raise RefusedError(f"reasoning is {reasoning!r}; it takes effort and max_tokens")
        effort = _agree({"reasoning_effort": body.get("reasoning_effort"), "reasoning.effort": reasoning.get("effort")})
        named = {name: body.get(name) for name in THINKING}
        thinking = _read_tokens({**named, "reasoning.max_tokens": reasoning.get("max_tokens")}, 0)
        solution = _read_tokens({"solution_budget": body.get("solution_budget")}, 1)
        limit = _read_tokens({name: body.get(name) for name in ("max_tokens", "max_completion_tokens")}, 1)
        if limit == UNLIMITED:
            raise RefusedError(f"max_tokens is {UNLIMITED!r}; leave it out")
        preset = self._find_preset(suffix, effort, thinking is not None or solution is not None)
        budget = Budget(
            preset.thinking if thinking is None else _as_number(thinking),
            preset.solution if solution is None else _as_number(solution),
        )
        if limit is not None:
            keeps_thinking = thinking is not None or suffix is not None
            keeps_solution = solution is not None or suffix is not None
            budget = _fit(int(limit), budget, keeps_thinking, keeps_solution)
        for name in ("thinking", "solution"):
            tokens = getattr(budget, name)
            most = getattr(self.most, name)
            if most is not None and (tokens is None or tokens > most):
                raise RefusedError(f"the {name} budget is {tokens or UNLIMITED} tokens; it must be {most} or less")
        return budget

    def _find_preset(self, suffix: str | None, effort: Any, has_budget: bool) -> Budget:
        if (suffix is not None) + (effort is not None) + has_budget > 1:
            raise RefusedError(
                "a budget comes from the model's name, from reasoning_effort, or from thinking_budget and "
                "solution_budget; send one of them"
            )
        if suffix is not None:
            try:
                return Budget.parse(suffix)
            except ValueError as error:
                raise RefusedError(f"the model's name: {error}", status=404) from error
        if effort is None:
            return self.default
        if not isinstance(effort, str) or effort not in self.efforts:
            raise RefusedError(f"reasoning_effort is {effort!r}; it must be one of {', '.join(self.efforts)}")
        return self.efforts[effort]


def _fit(limit: int, budget: Budget, keeps_thinking: bool, keeps_solution: bool) -> Budget:
    """Lower a budget to `limit` tokens in all, without the parts that must stay as they are."""
    thinking = budget.thinking
    solution = budget.solution
    if not keeps_solution:
        left = limit - (thinking or 0) if keeps_thinking else limit
        solution = left if solution is None else min(solution, left)
    if not keeps_thinking:
        left = limit - (solution or 0)
        thinking = left if thinking is None else min(thinking, left)
    if thinking is None or solution is None or solution < 1 or thinking < 0 or thinking + solution > limit:
        raise RefusedError(f"max_tokens is {limit}, and the budget {budget}; lower one, or leave the other out")
    return Budget(thinking, solution)


def _agree(named: Mapping[str, Any]) -> Any:
    """Return the value of a field that has several names."""
    values = {name: value for name, value in named.items() if value is not None}
    if len(set(map(str, values.values()))) > 1:
        raise RefusedError(f"{', '.join(f'{key} is {value!r}' for key, value in values.items())}; send one of them")
    return next(iter(values.values()), None)


def _read_tokens(named: Mapping[str, Any], least: int) -> int | str | None:
    """Return a number of tokens that has several names, or `UNLIMITED`."""
    for name, value in named.items():
        if value is not None and value != UNLIMITED and (type(value) is not int or value < least):
            raise RefusedError(f"{name} is {value!r}; it must be a number of tokens, {least} or more, or {UNLIMITED!r}")
    return _agree(named)


def _as_number(tokens: int | str) -> int | None:
    return None if isinstance(tokens, str) else tokens


@dataclass(frozen=True)
class ParsedRequest:
    """A request that is answered.

    Attributes:
        budget: thinking and solution budget.
        prompt: a conversation, a text, or token ids.
        sampling: the server's parameters, by name.
        chat: the prompt is a conversation, and the answer a message.
        model: name of the model, as the client sent it.
        stop: texts that end the solution.
        seed: seed of the thinking, from which that of the solution follows.
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


def parse_request(
    body: Any, chat: bool, name: str, presets: BudgetPresets, sampling: Mapping[str, Any]
) -> ParsedRequest:
    """Parse a request.

    Args:
        body: the client's JSON.
        chat: the prompt is a conversation.
        name: name of the served model; NAME@1024+1024 selects that budget.
        presets: the model's budgets.
        sampling: the server's parameters where the request sets none.

    Raises:
        RefusedError: a field is unknown, unsupported, of another type, or contradicts another one.
    """
    if not isinstance(body, dict):
        raise RefusedError("the body must be a JSON object")
    body = {key: value for key, value in body.items() if value is not None}
    _check_fields(body, {"messages", "chat_template_kwargs"} if chat else {"prompt"})
    model = body.get("model", name)
    suffix = None
    if model != name:
        model, _, suffix = str(model).rpartition("@")
    if model != name:
        raise RefusedError(f"the model {body['model']!r} is not served; {name} and {name}@THINKING+SOLUTION are", 404)
    stop = body.get("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(each, str) and each for each in stop):
        raise RefusedError(f"stop is {stop!r}; it must be a text or a list of texts")
    options = body.get("stream_options", {})
    if options not in ({}, {"include_usage": True}, {"include_usage": False}):
        raise RefusedError(f"stream_options is {options!r}; it takes include_usage, true or false")
    return ParsedRequest(
        chat=chat,
        model=body.get("model", name),
        budget=presets.choose(suffix, body),
        prompt=_read_messages(body.get("messages")) if chat else _read_prompt(body.get("prompt")),
        chat_template_kwargs=body.get("chat_template_kwargs", {}),
        sampling={**sampling, **{key: body[key] for key in SAMPLING if key in body}},
        stop=stop,
        seed=body.get("seed"),
        stream=body.get("stream", False),
        include_usage=options.get("include_usage", False),
        return_token_ids=body.get("return_token_ids", False),
    )


def _check_fields(body: Mapping[str, Any], own: set[str]) -> None:
    for key, value in body.items():
        if key not in KNOWN | own:
            raise RefusedError(f"{key} is an unknown field, and no field is ignored; leave it out")
        if key in UNUSED and not any(value == each and type(value) is type(each) for each in UNUSED[key]):
            raise RefusedError(f"{key} is {value!r}, which this server does not support")
        kind = TYPES.get(key)
        if kind is not None and type(value) is not kind and (kind is not float or type(value) is not int):
            raise RefusedError(f"{key} is {value!r}; it must be {WORDS[kind]}")


def _read_messages(messages: Any) -> list[dict[str, str]]:
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
            raise RefusedError(f"{unknown[0]} is an unknown field of a message; leave it out")
        found.append({key: str(message[key]) for key in MESSAGE if message.get(key)} | {"content": content})
    return found


def _read_prompt(prompt: Any) -> str | list[int]:
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        (prompt,) = prompt  # a batch of one
    is_ids = isinstance(prompt, list) and prompt and all(type(token) is int and token >= 0 for token in prompt)
    if not (isinstance(prompt, str) or is_ids):
        raise RefusedError("prompt must be one text, or the token ids of one")
    return prompt
