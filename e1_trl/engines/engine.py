"""Interface of an engine: it takes requests and answers each with a segment. Imports no engine in particular.

The moment a segment is sampled, `follow` receives it, and the requests that it returns enter the running engine at
once. The solution of a rollout is thus requested when its own thinking ends: no sequence waits for the slowest thinker,
and the prefix cache holds all of it but the last, unfinished block.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from e1_trl.errors import UserError
from e1_trl.marker import Marker
from e1_trl.rollout import Completion, Name, Request, Rollout, Segment, Stop

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Key = TypeVar("Key")
Requests = Iterable[tuple[Key, Request]]
Follow = Callable[[Key, Segment], Requests[Key]]  # returns what to request next, if anything
InFlight = Callable[[], Iterable[tuple[Key, Segment]]]  # returns the tokens sampled so far of each request in flight
Stepped = Callable[[InFlight[Key]], None]
OnCompletion = Callable[[int, Completion], None]  # receives each completion, with its index, as soon as it is sampled

# Bytes of an engine's KV cache on a CPU, where vLLM would take nine tenths of the memory; vLLM's variable
# VLLM_CPU_KVCACHE_SPACE, in GiB, takes precedence.
CPU_CACHE = 2**30
NUMPY = 2**32  # numpy's global generator takes seeds below this


def seed_of(*what: int | str) -> int:
    """Hash the purpose of a seed to a seed below 2^63, as servers take it; it is the same in every process and run."""
    return int.from_bytes(hashlib.sha256(json.dumps(what).encode()).digest()[:8], "big") >> 1


class EngineError(RuntimeError):
    """The engine failed, or gave an invalid answer."""


class UnusableEngineError(UserError, EngineError):
    """A failure that the user can fix: no server at an address, another model there, wrong context or arguments."""


@dataclass(frozen=True)
class SamplingSettings:
    """Sampling settings, with vLLM's names and meanings; `extra` holds any others of its sampling parameters."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 is off
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | None = None  # added to the logits of these token ids; `None` is off
    extra: Mapping[str, Any] = field(default_factory=dict)

    def parameters(self) -> dict[str, Any]:
        """Return all parameters, since a server takes missing ones from the model's generation config."""
        penalties = {"presence_penalty": 0.0, "frequency_penalty": 0.0}
        named = {name: value for name, value in asdict(self).items() if name != "extra" and value is not None}
        # vLLM takes 0 for off, too; SGLang knows -1 only.
        return {**named, "top_k": self.top_k or -1, **penalties, **self.extra}


def ignore(*_: Any) -> None:
    """Do nothing: the default callback after an engine's step, and for a completion."""


class Engine(Protocol):
    """An engine with its marker and its sampling settings."""

    def serve(self, requests: Requests[Key], follow: Follow[Key], stepped: Stepped[Key] = ignore) -> None:
        """Serve requests, and those that follow from their segments, until none is left.

        Args:
            requests: taken lazily: a new one only while the engine has room.
            follow: receives each finished segment with its request's key, and returns the requests that follow.
            stepped: called whenever all finished segments have been followed, with a function that returns what has
                been sampled of each request in flight. A server's requests in flight are unknown.

        Raises:
            EngineError: a request was refused or failed; segments that were followed before stay valid.
        """


def run(
    engine: Engine,
    rollouts: Sequence[Rollout],
    name: Name = (),
    on_completion: OnCompletion = ignore,
    forks: int = 1,
) -> None:
    """Run all rollouts to their end; `name` distinguishes them from the other rollouts of a training.

    With more sequences than slots, vLLM's first-come-first-served queue starts all thinking before the first solution,
    so that slots never idle while there is a sequence to think, and the short solutions come last.

    Every `forks` consecutive rollouts have the same prompt and share one thought: it is sampled once, up to the largest
    of their budgets, and each rollout takes as much of it as its own budget allows.
    """

    def is_thinking(row: int) -> bool:
        return rollouts[row].thinking_end is None

    def next_request(row: int) -> list[tuple[int, Request]]:
        request = rollouts[row].request
        return [] if request is None else [(row, replace(request, name=(*name, row)))]

    def begin(thought: range) -> Iterator[tuple[int, Request]]:
        by_limit = sorted(filter(is_thinking, thought), key=lambda row: _limit(rollouts[row]))
        return (request for row in thought if row not in by_limit[:-1] for request in next_request(row))

    def receive(row: int, segment: Segment) -> list[tuple[int, Request]]:
        thought = range(row - row % forks, row - row % forks + forks)
        found = [each for each in thought if is_thinking(each)] if is_thinking(row) else [row]
        for each in found:
            rollouts[each].receive(_cut(segment, _limit(rollouts[each])))
            if rollouts[each].request is None:
                on_completion(each, rollouts[each].completion)
        return [request for each in found for request in next_request(each)]

    thoughts = (range(first, first + forks) for first in range(0, len(rollouts), forks))
    engine.serve((request for thought in thoughts for request in begin(thought)), receive)


def _limit(rollout: Rollout) -> int:
    return rollout.request.max_tokens if rollout.request else 0


def _cut(segment: Segment, tokens: int) -> Segment:
    if len(segment.token_ids) <= tokens:
        return segment
    return Segment(segment.token_ids[:tokens], Stop.LENGTH, segment.logprobs and segment.logprobs[:tokens])


def request_parameters(request: Request, marker: Marker, sampling: SamplingSettings) -> dict[str, Any]:
    """Return vLLM's parameters of a request, in process and over HTTP alike.

    A marker of one token is found by its id. A marker of several tokens can be sampled in more than one tokenization
    (its last character merged with a newline, say), so vLLM's incremental detokenizer finds it in the text, and the
    thinking ends with the token that completes it.
    """
    parameters = {**sampling.parameters(), "logprobs": 0}
    if request.stop_at_marker and len(marker.ids) == 1:
        parameters["stop_token_ids"] = [marker.ids[0]]
    elif request.stop_at_marker:
        # A part of the marker may be a special token, which the detokenizer would otherwise skip; with a tokenizer in
        # Python it would also set added tokens apart by spaces.
        parameters |= {"skip_special_tokens": False, "spaces_between_special_tokens": False, "stop": [marker.text]}
    return parameters


def read_stop(finish_reason: str | None, stop_reason: int | str | None, request: Request, marker: Marker) -> Stop:
    if finish_reason == "length":
        return Stop.LENGTH
    if finish_reason != "stop":
        raise EngineError(f"vLLM ended a request with finish_reason={finish_reason!r}; expected 'stop' or 'length'")
    at_marker = stop_reason == (marker.ids[0] if len(marker.ids) == 1 else marker.text)
    # Every other stop token is one of the end-of-sequence tokens that the model's generation config declares.
    return Stop.MARKER if request.stop_at_marker and at_marker else Stop.EOS


def end_ids(model: str, revision: str | None, tokenizer: "PreTrainedTokenizerBase", code: bool = False) -> set[int]:
    """Return the end-of-sequence tokens of the generation config, or else of the config, and of the tokenizer."""
    from transformers import AutoConfig, GenerationConfig

    try:
        found = GenerationConfig.from_pretrained(model, revision=revision).eos_token_id
    except OSError:  # it has none
        config = AutoConfig.from_pretrained(model, revision=revision, trust_remote_code=code)
        found = config.get_text_config().eos_token_id
    named = found if isinstance(found, list) else [found]
    return {token for token in (*named, tokenizer.eos_token_id) if token is not None}
