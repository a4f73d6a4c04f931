"""A client's request: its budget, and all else for vLLM as it is, so that no list of fields grows old."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from aiohttp import web

from e1_trl.budget import UNLIMITED, Budget
from e1_trl.checkpoints.budget_file import Effort
from e1_trl.checkpoints.efforts import LEVELS, nearest_level
from e1_trl.errors import UserError

# Names of the same value each. A dot stands for a field of an object, and two names for what other fields imply.
THINKING = ["thinking_budget", "thinking_token_budget", "thinking_budget_tokens"]
THINKING += ["reasoning.max_tokens", "thinking.budget_tokens", "model.thinking", "reasoning_effort.none"]
SOLUTION = ("solution_budget", "model.solution")
LIMITS = ("max_tokens", "max_completion_tokens")
OBJECTS = ("reasoning", "thinking")
BUDGETS = {each for each in (*THINKING, *SOLUTION, *LIMITS) if "." not in each}
KNOWN = {*BUDGETS, "thinking", "reasoning", "reasoning_effort", "include_reasoning"}
# With which other tokens would count.
UNSERVED = ("documents", "echo", "prompt_logprobs", "truncate_prompt_tokens", "use_beam_search")
ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True)
class BudgetPresets:
    """Model as clients may ask for it: its name, its budgets, and what is done to every request."""

    name: str
    default: Budget
    efforts: Mapping[str, Effort]
    template: str = ""  # of chats
    sampling: dict[str, Any] = field(default_factory=dict)  # for requests that do not set it
    most: Budget = field(default=Budget(None, None))  # largest of a request
    drop: Sequence[str] = ()  # fields that are taken out of every request

    def read_name(self, sent: Any) -> dict[str, float]:
        """Return the fields that a model's name stands for: those of a budget, if any; refuse other models."""
        if sent == self.name:
            return {}
        model, _, suffix = str(sent).rpartition("@")
        if model != self.name:
            raise web.HTTPNotFound(text=f"the model {sent!r} is not served; {self.name}[@THINKING+SOLUTION] is")
        return dict(zip(("model.thinking", "model.solution"), _sizes(Budget.parse(suffix)), strict=True))

    def check_size(self, budget: Budget) -> None:
        """Refuse a budget that exceeds the largest one."""
        if any(part > most for part, most in zip(_sizes(budget), _sizes(self.most), strict=True)):
            raise UserError(f"the budget is {budget}; at most {self.most} is allowed")


@dataclass(frozen=True)
class ParsedRequest:
    """A request that will be answered."""

    budget: Budget  # whose total is the client's `max_tokens`
    effort: str | None  # that was chosen, if the request named one
    body: dict[str, Any]  # all else that the client asked for, as vLLM takes it
    stop: Sequence[str] = ()  # texts that end the solution
    hides_thinking: bool = False


def parse_request(content: Any, presets: BudgetPresets, forced: int) -> ParsedRequest:
    """Read the JSON of a request, or refuse it; `forced` is the number of tokens of a forced close.

    A client's `max_tokens` keeps a quarter of itself or of the solution budget for the solution, or all of one that the
    request names. The thinking and its forced close may have the rest, and the solution has what is left of it.
    """
    if not isinstance(content, dict) or content.get("stream") not in (None, False, True):
        raise UserError("the body must be a JSON object, in which stream is true or false")
    body = _flatten(content, presets)
    body |= presets.read_name(body.setdefault("model", presets.name))
    effort = _take_effort(body, presets.efforts)
    told = (_take(body, THINKING, 0), _take(body, SOLUTION, 1))
    known = _sizes(presets.default if effort is None else presets.efforts[effort].budget)
    thinking, solution = (part if own is None else own for own, part in zip(told, known, strict=True))
    limit = _take(body, LIMITS, 1) or inf
    if limit < inf:
        asked = [0 if each in (None, inf) else each for each in told]
        if any(asked) and asked[0] + forced + max(1, asked[1]) > limit:
            needed = f"{asked[0]} + {forced} + {asked[1] or 1} tokens of thinking, forced close and solution"
            raise UserError(f"max_tokens is {limit}, and {needed} do not fit; send one of them")
        kept = asked[1] or max(1, min(solution, limit) // 4)
        thinking = asked[0] or min(thinking, max(0, limit - forced - kept))
    budget = Budget(*(None if tokens == inf else int(tokens) for tokens in (thinking, solution, limit)))
    presets.check_size(budget)
    _tell_template(body, presets, effort, budget)
    hides = body.pop("include_reasoning", True) is False or body.get("reasoning.exclude") is True
    if hides and "prompt" in body:
        raise UserError("include_reasoning is false, and the text of a completion holds the thinking; send messages")
    stop = [found] if isinstance(found := body.pop("stop", []), str) else found
    if not isinstance(stop, list) or not all(isinstance(each, str) and each for each in stop):
        raise UserError(f"stop is {stop!r}; it must be a string or a list of strings")
    body = {key: value for key, value in body.items() if key.partition(".")[0] not in OBJECTS}
    return ParsedRequest(budget, effort, body, stop, hides)


def _flatten(content: dict[str, Any], presets: BudgetPresets) -> dict[str, Any]:
    """Return the fields that ask for something (empty ones do not), with those of `OBJECTS` under names with a dot."""
    asks = {key: value for key, value in content.items() if value not in (None, [], {}, "") and key not in presets.drop}
    body = presets.sampling | {key: content[key] for key in ("messages", "prompt") if key in content} | asks
    if "tools" not in body:
        body.pop("tool_choice", None)
    if unknown := [each for each in body if re.search("budget|thinking|reasoning", each) and each not in KNOWN]:
        raise UserError(f"{unknown[0]} is an unknown field; did you mean one of {', '.join(sorted(KNOWN))}?")
    if refused := [each for each in UNSERVED if body.get(each)]:
        raise UserError(f"{refused[0]} is not served with budgets; ask vLLM itself")
    for name in OBJECTS:
        group = body.pop(name, {})
        if not isinstance(group, dict):
            raise UserError(f"{name} is {group!r}; it must be a JSON object")
        body |= {f"{name}.{key}": value for key, value in group.items() if value is not None}
    return body


def _sizes(budget: Budget) -> tuple[float, ...]:
    """Return the tokens of both parts, where infinity is unlimited."""
    return tuple(inf if part is None else part for part in (budget.thinking, budget.solution))


def _take(body: dict[str, Any], names: Sequence[str], least: int | None = None) -> Any:
    """Take the value of a field that has several names out of a body; `least` is that of a number of tokens."""
    sent = {name: body.pop(name) for name in names if name in body}
    for name, value in sent.items():
        sent[name] = inf if value in (-1, UNLIMITED) else value
        if least is not None and sent[name] != inf and (type(value) is not int or value < least):
            raise UserError(f"{name} is {value!r}; it must be a number of tokens, {least} or more, or {UNLIMITED!r}")
    if len(set(map(str, sent.values()))) > 1:
        raise UserError(f"{', '.join(f'{key} is {value!r}' for key, value in sent.items())}; send one of them")
    return next(iter(sent.values()), None)


def _take_effort(body: dict[str, Any], efforts: Mapping[str, Effort]) -> str | None:
    """Take the effort out of a body: the one that it names, else the nearest of the scale; refuse unknown ones."""
    is_off = body.get("thinking.type") == "disabled" or body.get("reasoning.enabled") is False
    word = _take(body, ("reasoning_effort", "reasoning.effort"))
    word = "none" if is_off else word
    if word not in (None, *efforts):
        if word not in LEVELS or not any(each in LEVELS and each != "none" for each in efforts):
            raise UserError(f"reasoning_effort is {word!r}; it must be one of {', '.join(efforts)}")
        word = nearest_level(word, efforts)
    if word == "none":
        body["reasoning_effort.none"] = 0  # a thinking budget
    return word


def _tell_template(body: dict[str, Any], presets: BudgetPresets, effort: str | None, budget: Budget) -> None:
    """Tell the chat template the effort, and check the roles: it leaves out messages of those that it does not know."""
    arguments = body.get("chat_template_kwargs", {})
    if not isinstance(arguments, dict) or BUDGETS & arguments.keys():
        raise UserError(f"chat_template_kwargs is {arguments!r}; it takes variables of the template, and no budget")
    if effort is not None and (known := presets.efforts[effort].chat_template_kwargs):
        if budget.thinking == 0 and "enable_thinking" in known:
            known = {**known, "enable_thinking": False}
        body["chat_template_kwargs"] = {**known, **arguments}
        level = body["chat_template_kwargs"].get("reasoning_effort")
        if "messages" in body and level in LEVELS and level != "none":
            body["reasoning_effort"] = level  # vLLM reads gpt-oss's here alone
    for message in body["messages"] if isinstance(body.get("messages"), list) else ():
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES and not (isinstance(role, str) and role in presets.template):
            raise UserError(f"a message has the role {role!r}; it must be one of {', '.join(ROLES)}")
        if role == "developer" and role not in presets.template:
            message["role"] = "system"
        if "reasoning_content" in message:  # an older name, which vLLM does not know where it counts a prompt's tokens
            message.setdefault("reasoning", message.pop("reasoning_content"))
