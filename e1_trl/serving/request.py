"""A client's request: its budget, and what is left of it for vLLM. Contradictions are refused.

Fields that are no budget pass to vLLM as they are, so that no list of them grows old.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from e1_trl.budget import UNLIMITED, Budget
from e1_trl.checkpoints.budget_file import Effort
from e1_trl.errors import UserError

THINKING = ("thinking_budget", "thinking_token_budget", "thinking_budget_tokens")  # names of the same number
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
BUDGETS = {*THINKING, *LIMITS, "solution_budget"}
KNOWN = {*BUDGETS, "thinking", "reasoning", "reasoning_effort", "include_reasoning"}
OWN_REASONING = {"effort", "max_tokens", "enabled", "exclude"}
ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
SHARES = {"low": 0.25, "medium": 1.0, "high": 4.0}  # of the default thinking budget


class RefusedError(UserError):
    """A request that is refused; `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.status = status


def nearest_level(word: str, available: "tuple[str, ...] | list[str]") -> str:
    """Return the available level of effort that is nearest to a level, the lower of two."""
    place = LEVELS.index(word)
    return min(available, key=lambda each: (abs(LEVELS.index(each) - place), LEVELS.index(each)))


def template_arguments(template: str, word: str) -> dict[str, Any]:
    """Return what a chat template must be told about a level of effort, by the variables that it contains.

    gpt-oss and Qwen3.8 read `reasoning_effort`, of whose levels a template may name those that it takes; Nemotron has a
    flag for each level; `enable_thinking` of Qwen3 and others switches the thinking off.
    """
    told: dict[str, Any] = {}
    if "reasoning_effort" in template:
        levels = [each for each in LEVELS if re.search(rf"""['"]{each}['"]""", template)] or list(SHARES)
        if word in levels or word != "none":
            told["reasoning_effort"] = nearest_level(word, [each for each in levels if each != "none" or word == each])
    for level in ("low", "medium"):
        if f"{level}_effort" in template:
            told[f"{level}_effort"] = nearest_level(word, list(SHARES)) == level
    if "enable_thinking" in template:
        told["enable_thinking"] = word != "none"
    return told


def make_efforts(named: Mapping[str, Effort], default: Budget, template: str, most: int) -> dict[str, Effort]:
    """Make the table of efforts: those that are named, else shares of the default budget; `none` does not think.

    Args:
        named: of the command line or budget.json. What they tell the template themselves comes first.
        default: budget of requests that name none.
        template: the chat template.
        most: longest thinking that fits the context.
    """
    efforts = dict(named)
    if not efforts and default.thinking is not None:
        tokens = {word: min(int(share * default.thinking), most) for word, share in SHARES.items()}
        efforts = {word: Effort(replace(default, thinking=each)) for word, each in tokens.items()}
    efforts.setdefault("none", Effort(replace(default, thinking=0)))
    told = {word: template_arguments(template, word) if word in LEVELS else {} for word in efforts}
    return {word: Effort(each.budget, {**told[word], **each.chat_template_kwargs}) for word, each in efforts.items()}


@dataclass(frozen=True)
class Presets:
    """Budgets of a served model: the default, those of efforts, and the largest that a request may have."""

    name: str
    default: Budget
    efforts: Mapping[str, Effort]
    template: str = ""
    most: Budget = field(default_factory=lambda: Budget(None, None))
    drop: tuple[str, ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def find_effort(self, word: Any) -> str | None:
        """Return the effort that serves for a word: its own, or the nearest of the scale; `None` for none.

        Raises:
            RefusedError: the word is unknown.
        """
        scale = [each for each in self.efforts if each in LEVELS and each != "none"]
        if word is None or (isinstance(word, str) and word in self.efforts):
            return word
        if word in LEVELS and scale:
            return nearest_level(word, scale)
        known = ", ".join(dict.fromkeys([*self.efforts, *LEVELS]))
        raise RefusedError(f"reasoning_effort is {word!r}; it must be one of {known}")

    def choose(self, suffix: str | None, told: "Told", effort: str | None, forced: int) -> Budget:
        """Choose the budget of a request, whose total is the request's `max_tokens`.

        A total reserves a quarter of the solution budget, or all of one that the request names; the thinking has the
        rest, and what it leaves flows to the solution.

        Raises:
            RefusedError: fields contradict each other, or the budget is too large.
        """
        preset = self.default if effort is None else self.efforts[effort].budget
        if suffix is not None:
            if told.thinking is not None or told.solution is not None:
                raise RefusedError(
                    "the model's name holds a budget, and there are other fields of it; send one of them"
                )
            try:
                preset = Budget.parse(suffix)
            except ValueError as error:
                raise RefusedError(f"the model's name: {error}", 404) from error
        thinking = preset.thinking if told.thinking is None else _as_number(told.thinking)
        solution = preset.solution if told.solution is None else _as_number(told.solution)
        limit = _as_number(told.limit)
        if limit is not None:
            # An unlimited part takes what there is.
            keeps_thinking = thinking is not None and (told.thinking is not None or suffix is not None)
            keeps_solution = solution is not None and (told.solution is not None or suffix is not None)
            least = (thinking or 0) * keeps_thinking + ((solution or 1) if keeps_solution else 1)
            if least > limit:
                part = Budget(thinking, solution)
                raise RefusedError(f"max_tokens is {limit}, and the budget {part}; raise one, or lower the other")
            if not keeps_thinking:
                kept = solution if keeps_solution else (solution or limit) // 4
                room = max(0, limit - forced - max(1, kept or 1))
                thinking = room if thinking is None else min(thinking, room)
        for name, tokens in (("thinking", thinking), ("solution", solution)):
            most = getattr(self.most, name)
            if most is not None and (tokens is None or tokens > most):
                raise RefusedError(f"the {name} budget is {tokens or UNLIMITED} tokens; it must be {most} or less")
        return Budget(thinking, solution, limit)


@dataclass(frozen=True)
class Told:
    """Budget fields of a request, each under one name; `None` where the request says nothing."""

    thinking: int | str | None
    solution: int | str | None
    limit: int | str | None
    effort: Any
    hides_thinking: bool

    @classmethod
    def take(cls, body: dict[str, Any]) -> "Told":
        """Take the budget fields of all routes out of a body.

        Raises:
            RefusedError: one is no number of tokens, two differ, or a name is misspelt.
        """
        for name in body:
            if re.search("budget|thinking|reasoning", name) and name not in KNOWN:
                raise RefusedError(f"{name} is an unknown field; did you mean one of {', '.join(sorted(KNOWN))}?")
        reasoning = _mapping(body, "reasoning")
        thinking = _mapping(body, "thinking")
        output = body["output_config"] if isinstance(body.get("output_config"), dict) else {}
        off = thinking.get("type") == "disabled" or reasoning.get("enabled") is False
        named = {name: body.pop(name, None) for name in THINKING}
        named |= {"reasoning.max_tokens": reasoning.get("max_tokens")}
        named |= {"thinking.budget_tokens": thinking.get("budget_tokens")}
        words = {"reasoning_effort": body.pop("reasoning_effort", None), "reasoning.effort": reasoning.get("effort")}
        words |= {"output_config.effort": output.pop("effort", None)}
        return cls(
            thinking=_read_tokens(named, 0),
            solution=_read_tokens({"solution_budget": body.pop("solution_budget", None)}, 1),
            limit=_read_tokens({name: body.pop(name, None) for name in LIMITS}, 1),
            effort="none" if off else _agree(words),
            hides_thinking=body.pop("include_reasoning", True) is False or reasoning.get("exclude") is True,
        )


def _mapping(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.pop(name, {})
    if not isinstance(value, dict):
        raise RefusedError(f"{name} is {value!r}; it must be a JSON object")
    return value


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


def _as_number(tokens: int | str | None) -> int | None:
    return None if isinstance(tokens, str) else tokens


@dataclass(frozen=True)
class Asked:
    """A request that will be answered.

    Attributes:
        budget: of the answer; its total is the client's `max_tokens`.
        effort: level of effort that was chosen, if the request named one.
        body: what vLLM gets, without budgets and stop texts.
        model: name of the model, as the client sent it.
        stop: texts that end the solution.
    """

    budget: Budget
    effort: str | None
    body: dict[str, Any]
    model: str
    stop: list[str] = field(default_factory=list)
    stream: bool = True
    stream_options: Mapping[str, Any] = field(default_factory=dict)
    return_token_ids: bool = False
    hides_thinking: bool = False


def read_request(content: Any, presets: Presets, forced: int) -> Asked:
    """Read the JSON of a request; `forced` is the number of tokens of a forced close.

    Raises:
        RefusedError: a budget, the model, a role or the stop texts are wrong.
    """
    if not isinstance(content, dict):
        raise RefusedError("the body must be a JSON object")
    # vLLM refuses some empty values, which ask for nothing.
    empty = (None, [], {}, "")
    kept = {"messages", "prompt", "input"}
    body = {
        key: value for key, value in content.items() if key in kept or (key not in presets.drop and value not in empty)
    }
    if "tools" not in body:
        body.pop("tool_choice", None)
    told = Told.take(body)
    model, suffix = _read_model(body, presets.name)
    effort = presets.find_effort(told.effort)
    arguments = body.get("chat_template_kwargs", {})
    if not isinstance(arguments, dict) or BUDGETS & arguments.keys():
        wrong = min(BUDGETS & arguments.keys()) if isinstance(arguments, dict) else repr(arguments)
        raise RefusedError(f"chat_template_kwargs holds {wrong}; expected variables of the chat template, and budgets "
                           "as fields of the request")  # fmt: skip
    if effort is not None and (known := presets.efforts[effort].chat_template_kwargs):
        body["chat_template_kwargs"] = {**known, **arguments}
    if isinstance(body.get("messages"), list):
        body["messages"] = [_read_message(each, presets.template) for each in body["messages"]]
    stop = body.pop("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(each, str) and each for each in stop):
        raise RefusedError(f"stop is {stop!r}; it must be a text or a list of texts")
    options = body.pop("stream_options", {})
    stream = body.pop("stream", False)
    return_token_ids = body.pop("return_token_ids", False)
    return Asked(
        budget=presets.choose(suffix, told, effort, forced),
        effort=effort,
        body={**presets.sampling, **body},
        model=model,
        stop=stop,
        stream=stream is True,
        stream_options=options if isinstance(options, dict) else {},
        return_token_ids=return_token_ids is True,
        hides_thinking=told.hides_thinking,
    )


def _read_model(body: dict[str, Any], name: str) -> tuple[str, str | None]:
    """Take the model out of a body; return its name as sent, and the text after @."""
    sent = body.pop("model", name)
    if sent == name:
        return name, None
    model, _, suffix = str(sent).rpartition("@")
    if model != name:
        raise RefusedError(f"the model {sent!r} is not served; {name} and {name}@THINKING+SOLUTION are", 404)
    return str(sent), suffix


def _read_message(message: Any, template: str) -> Any:
    """Check the role of a message, which a chat template that does not know it leaves out without a word."""
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ROLES and not (isinstance(role, str) and role in template):
        raise RefusedError(f"a message has the role {role!r}; expected one of {', '.join(sorted(ROLES))}")
    return {**message, "role": "system"} if role == "developer" and role not in template else message
