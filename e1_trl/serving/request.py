"""A client's request: its budget, and what is left of it for vLLM. Contradictions are refused.

Fields that are no budget pass to vLLM as they are, so that no list of them grows old.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from e1_trl.budget import UNLIMITED, Budget
from e1_trl.checkpoints.budget_file import Effort
from e1_trl.checkpoints.efforts import LEVELS, nearest_level
from e1_trl.errors import UserError

THINKING = ("thinking_budget", "thinking_token_budget", "thinking_budget_tokens")  # names of the same number
LIMITS = ("max_tokens", "max_completion_tokens")
BUDGETS = {*THINKING, *LIMITS, "solution_budget"}
KNOWN = {*BUDGETS, "thinking", "reasoning", "reasoning_effort", "include_reasoning"}
PROMPTS = ("messages", "prompt")
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class RefusedError(UserError):
    """A request that is refused; `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.status = status

    def as_json(self) -> dict[str, Any]:
        """Return the error as the API has it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": None, "code": self.status}}


@dataclass(frozen=True)
class BudgetFields:
    """Budget fields of a request, each under one name; `None` where it says nothing, "unlimited" as there."""

    thinking: Any
    solution: Any
    limit: Any
    effort: Any
    hides_thinking: bool

    @classmethod
    def take(cls, body: dict[str, Any]) -> "BudgetFields":
        """Take the budget fields out of a body.

        Raises:
            RefusedError: one is no number of tokens, two differ, or a name is unknown.
        """
        if unknown := [each for each in body if re.search("budget|thinking|reasoning", each) and each not in KNOWN]:
            raise RefusedError(f"{unknown[0]} is an unknown field; did you mean one of {', '.join(sorted(KNOWN))}?")
        groups = {name: body.pop(name, {}) for name in ("reasoning", "thinking")}
        if wrong := [name for name, group in groups.items() if not isinstance(group, dict)]:
            raise RefusedError(f"{wrong[0]} is {groups[wrong[0]]!r}; it must be a JSON object")
        reasoning, thinking = groups.values()
        is_off = thinking.get("type") == "disabled" or reasoning.get("enabled") is False
        tokens = {name: body.pop(name, None) for name in sorted(BUDGETS)}
        efforts = {"reasoning_effort": body.pop("reasoning_effort", None), "reasoning.effort": reasoning.get("effort")}
        hidden = (body.pop("include_reasoning", True) is False, reasoning.get("exclude") is True)
        named = {name: tokens[name] for name in THINKING}
        named |= {"reasoning.max_tokens": reasoning.get("max_tokens")}
        named |= {"thinking.budget_tokens": thinking.get("budget_tokens")}
        return cls(
            thinking=_read_tokens(named, 0),
            solution=_read_tokens({"solution_budget": tokens["solution_budget"]}, 1),
            limit=_read_tokens({name: tokens[name] for name in LIMITS}, 1),
            effort="none" if is_off else _agree(efforts),
            hides_thinking=any(hidden),
        )


def _agree(named: Mapping[str, Any]) -> Any:
    """Return the value of a field that has several names."""
    values = {name: value for name, value in named.items() if value is not None}
    if len(set(map(str, values.values()))) > 1:
        raise RefusedError(f"{', '.join(f'{key} is {value!r}' for key, value in values.items())}; send one of them")
    return next(iter(values.values()), None)


def _read_tokens(named: Mapping[str, Any], least: int) -> int | str | None:
    """Return a number of tokens that has several names, or `UNLIMITED`, which is also -1."""
    for name, value in named.items():
        if value not in (None, UNLIMITED, -1) and (type(value) is not int or value < least):
            raise RefusedError(f"{name} is {value!r}; it must be a number of tokens, {least} or more, or {UNLIMITED!r}")
    return _agree({name: UNLIMITED if value == -1 else value for name, value in named.items()})


@dataclass(frozen=True)
class BudgetPresets:
    """Model as clients may ask for it: its name, its budgets, and what is done to every request.

    Attributes:
        template: the chat template.
        sampling: vLLM's parameters for requests that do not set them.
        most: largest budget of a request.
        drop: fields that are taken out of every request.
    """

    name: str
    default: Budget
    efforts: Mapping[str, Effort]
    template: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    most: Budget = field(default_factory=lambda: Budget(None, None))
    drop: tuple[str, ...] = ()

    def find_effort(self, word: Any) -> str | None:
        """Return the effort that serves for a word: its own, else the nearest of the scale; refuse unknown ones."""
        if word is None or (isinstance(word, str) and word in self.efforts):
            return word
        if word in LEVELS and any(each in LEVELS and each != "none" for each in self.efforts):
            return nearest_level(word, self.efforts)
        raise RefusedError(f"reasoning_effort is {word!r}; it must be one of {', '.join(self.efforts)}")

    def choose(self, suffix: str | None, told: BudgetFields, effort: str | None, forced: int) -> Budget:
        """Choose the budget of a request; its total is the request's `max_tokens`.

        A total keeps a quarter of itself or of the solution budget for the solution, or all of one that the request
        names. The thinking and its forced close may have the rest, and the solution has what is left of it.

        Raises:
            RefusedError: fields contradict each other, or the budget is too large.
        """
        preset = self.default if effort is None else self.efforts[effort].budget
        if suffix is not None:
            if told.thinking is not None or told.solution is not None:
                raise RefusedError("the model's name holds a budget, and other fields hold one; send one of them")
            try:
                preset = Budget.parse(suffix)
            except ValueError as error:
                raise RefusedError(f"the model's name: {error}", 404) from error
        thinking = preset.thinking if told.thinking is None else _as_number(told.thinking)
        if effort == "none" and (suffix is not None or told.thinking is not None) and thinking != 0:
            raise RefusedError(
                f"reasoning_effort is 'none', and the thinking budget {thinking or UNLIMITED}; send one of them"
            )
        limit = _as_number(told.limit)
        solution = preset.solution if told.solution is None else _as_number(told.solution)
        if limit is not None:
            keeps = [suffix is not None or part is not None for part in (told.thinking, told.solution)]
            kept = solution if keeps[1] and solution is not None else max(1, min(solution or limit, limit) // 4)
            if keeps[0] and thinking is not None:
                if thinking + forced + (kept if keeps[1] else 1) > limit:
                    part = f"{Budget(thinking, solution)} with a forced close of {forced}"
                    raise RefusedError(f"max_tokens is {limit}, and the budget {part}; raise one, or lower the other")
            elif keeps[1] and kept + forced > limit:
                part = f"{kept} with a forced close of {forced}"
                raise RefusedError(f"max_tokens is {limit}, and the solution budget {part}; send one of them")
            else:
                room = max(0, limit - forced - kept)
                thinking = room if thinking is None else min(thinking, room)
        for name, tokens in (("thinking", thinking), ("solution", solution)):
            most = getattr(self.most, name)
            if most is not None and (tokens is None or tokens > most):
                raise RefusedError(f"the {name} budget is {tokens or UNLIMITED} tokens; it must be {most} or less")
        return Budget(thinking, solution, limit)


def _as_number(tokens: int | str | None) -> int | None:
    return None if isinstance(tokens, str) else tokens


@dataclass(frozen=True)
class ParsedRequest:
    """A request that will be answered.

    Attributes:
        budget: of the answer; its total is the client's `max_tokens`.
        effort: level of effort that was chosen, if the request named one.
        model: name of the model, as the client sent it.
        body: what vLLM gets, without budgets and stop texts.
        stop: texts that end the solution.
    """

    budget: Budget
    effort: str | None
    model: str
    body: dict[str, Any]
    stop: list[str] = field(default_factory=list)
    stream: bool = True
    include_usage: bool = False
    return_token_ids: bool = False
    hides_thinking: bool = False


def parse_request(content: Any, presets: BudgetPresets, forced: int) -> ParsedRequest:
    """Read the JSON of a request; `forced` is the number of tokens of a forced close.

    Raises:
        RefusedError: a budget, the model, a role or the stop texts are wrong.
    """
    if not isinstance(content, dict):
        raise RefusedError("the body must be a JSON object")
    # vLLM refuses some empty values, which ask for nothing.
    asks = {key for key, value in content.items() if value not in (None, [], {}, "") and key not in presets.drop}
    body = {key: value for key, value in content.items() if key in asks or key in PROMPTS}
    if "tools" not in body:
        body.pop("tool_choice", None)
    told = BudgetFields.take(body)
    effort = presets.find_effort(told.effort)
    arguments = body.get("chat_template_kwargs", {})
    if not isinstance(arguments, dict) or BUDGETS & arguments.keys():
        raise RefusedError(f"chat_template_kwargs is {arguments!r}; it takes variables of the template, and no budget")
    if effort is not None and (known := presets.efforts[effort].chat_template_kwargs):
        body["chat_template_kwargs"] = {**known, **arguments}
        level = body["chat_template_kwargs"].get("reasoning_effort")
        if "messages" in body and level in LEVELS and level != "none":
            body["reasoning_effort"] = level  # vLLM reads gpt-oss's here alone
    if isinstance(body.get("messages"), list):
        body["messages"] = [_read_message(each, presets.template) for each in body["messages"]]
    stop = body.pop("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(each, str) and each for each in stop):
        raise RefusedError(f"stop is {stop!r}; it must be a text or a list of texts")
    if type(answers := body.get("n", 1)) is not int:
        raise RefusedError(f"n is {answers!r}; it must be a number of answers")
    if told.hides_thinking and "prompt" in body:
        raise RefusedError("include_reasoning is false, and the text of a completion holds the thinking; send messages")
    sent = body.pop("model", presets.name)
    model, _, suffix = (sent, "", None) if sent == presets.name else str(sent).rpartition("@")
    if model != presets.name:
        name = presets.name
        raise RefusedError(f"the model {sent!r} is not served; {name} and {name}@THINKING+SOLUTION are", 404)
    options = body.pop("stream_options", {})
    return ParsedRequest(
        budget=presets.choose(suffix, told, effort, forced),
        effort=effort,
        model=str(sent),
        stop=stop,
        stream=body.pop("stream", False) is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        return_token_ids=body.pop("return_token_ids", False) is True,
        hides_thinking=told.hides_thinking,
        body={**presets.sampling, **body},
    )


def _read_message(message: Any, template: str) -> Any:
    """Check the role of a message, which a chat template that does not know it leaves out without a word."""
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ROLES and not (isinstance(role, str) and role in template):
        raise RefusedError(f"a message has the role {role!r}; it must be one of {', '.join(ROLES)}")
    return {**message, "role": "system"} if role == "developer" and role not in template else message
