"""What every engine is: something that is handed requests and answers each with a segment.

The moment a segment is sampled, `follow` is given it, and what it asks for next enters the running engine at once. The
solution of a rollout is thus requested when its own thinking ends: no sequence waits for the slowest thinker, and the
prefix cache holds all of it but the last, unfinished block. Knows no engine in particular, and imports none.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from e1_trl.arguments import json_object
from e1_trl.budget import Marker
from e1_trl.errors import UserError
from e1_trl.rollout import Completion, Name, Request, Rollout, Segment, Stop

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Key = TypeVar("Key")
Requests = Iterable[tuple[Key, Request]]
Follow = Callable[[Key, Segment], Requests[Key]]  # what to request next, if anything
InFlight = Callable[[], Iterable[tuple[Key, Segment]]]  # what has been sampled so far of each request in flight
Stepped = Callable[[InFlight[Key]], None]
OnCompletion = Callable[[int, Completion], None]  # is given each completion the moment it is there, with its place


MAX_BIAS = 100  # a server of vLLM takes a larger one for this
# Bytes of keys and values of an engine on a CPU, of whose memory vLLM would take nine tenths; its variable
# VLLM_CPU_KVCACHE_SPACE, in GiB, is stronger.
CPU_CACHE = 2**30


class EngineError(RuntimeError):
    """The engine failed, or answered in a way that is no answer; one line that says why."""


class UnusableEngineError(UserError, EngineError):
    """The user can fix it: no server where one is named, another model there, too short a context, wrong arguments."""


@dataclass(frozen=True)
class SamplingSettings:
    """How tokens are drawn; vLLM's names and meanings. `extra` holds any others of its sampling parameters."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 is off
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | None = None  # added to the logits of these token ids; `None` is off
    extra: Mapping[str, Any] = field(default_factory=dict)

    def parameters(self) -> dict[str, Any]:
        """All of them, since a server takes from the model's generation config what a request does not say."""
        penalties = {"presence_penalty": 0.0, "frequency_penalty": 0.0}
        named = {name: value for name, value in asdict(self).items() if name != "extra" and value is not None}
        # vLLM takes 0 for off, too; SGLang knows -1 only.
        return {**named, "top_k": self.top_k or -1, **penalties, **self.extra}


def ignore_steps(in_flight: InFlight[Any]) -> None:
    """Do nothing between two steps of an engine."""


def token_biases(text: str) -> dict[int, float] | None:
    """Read `logit_bias`, in the order of the token ids; `None` where it names no token.

    Raises:
        UserError: an entry is not a token id with a number that every engine takes as it is.
    """
    biases = {}
    for token, bias in json_object("logit_bias", text).items():
        is_number = isinstance(bias, (int, float)) and not isinstance(bias, bool)
        if not token.isdecimal() or not is_number or not -MAX_BIAS <= bias <= MAX_BIAS:
            raise UserError(
                f"logit_bias has {json.dumps({token: bias})}; expected a token id and a number from -{MAX_BIAS} to "
                f'{MAX_BIAS}, as {{"17": -100}}'
            )
        biases[int(token)] = float(bias)
    return dict(sorted(biases.items())) or None


class Engine(Protocol):
    """An engine with its marker and its sampling settings."""

    def serve(self, requests: Requests[Key], follow: Follow[Key], stepped: Stepped[Key] = ignore_steps) -> None:
        """Serve requests, and those that follow from their segments, until none is left.

        Args:
            requests: taken lazily: a new one only while the engine has room.
            follow: is given each finished segment with its request's key, and returns the requests that follow.
            stepped: is called whenever all that has finished has been followed, with a function that tells what has
                been sampled of each request in flight. Of a server nothing is known of these.

        Raises:
            EngineError: a request was refused or ended in a way that is no answer; what had been followed stands.
        """


def ignore_completion(row: int, completion: Completion) -> None:
    """An `OnCompletion` of those to whom it does not matter when."""


def run(
    engine: Engine, rollouts: Sequence[Rollout], name: Name = (), finished: OnCompletion = ignore_completion
) -> None:
    """Run all rollouts to their end; `name` tells them from the others of a training.

    With more sequences than slots, vLLM's first-come-first-served queue starts all thinking before the first solution,
    so that slots never idle while there is a sequence to think, and the short solutions come last.
    """

    def wanted(row: int) -> list[tuple[int, Request]]:
        request = rollouts[row].request
        return [] if request is None else [(row, replace(request, name=(*name, row)))]

    def receive(row: int, segment: Segment) -> list[tuple[int, Request]]:
        rollouts[row].receive(segment)
        if rollouts[row].request is None:
            finished(row, rollouts[row].completion)
        return wanted(row)

    engine.serve((first for row in range(len(rollouts)) for first in wanted(row)), receive)


def request_parameters(request: Request, marker: Marker, sampling: SamplingSettings) -> dict[str, Any]:
    """What vLLM is asked for, in process and over HTTP alike.

    A marker of one token is stopped at by its id. One of several tokens can be sampled in more than one tokenization
    (its last character merged with a newline, say), so there vLLM's own incremental detokenizer looks for it, and the
    thinking ends with the token that completes it.
    """
    return sampling.parameters() | ending(request, marker)


def ending(request: Request, marker: Marker) -> dict[str, Any]:
    """The parameters that say where a request ends, and what has to be known of its tokens for that."""
    parameters: dict[str, Any] = {"logprobs": 0}
    if request.stop_at_marker and len(marker.ids) == 1:
        parameters["stop_token_ids"] = [marker.ids[0]]
    elif request.stop_at_marker:
        # A part of the marker may be a special token, which would otherwise not be looked at.
        parameters["skip_special_tokens"] = False
        parameters["stop"] = [marker.text]
    return parameters


def read_stop(finish_reason: str | None, stop_reason: int | str | None, request: Request, marker: Marker) -> Stop:
    """Translate vLLM's reasons for ending a request.

    Raises:
        EngineError: the request was aborted or failed.
    """
    if finish_reason == "length":
        return Stop.LENGTH
    if finish_reason != "stop":
        raise EngineError(f"vLLM ended a request with finish_reason={finish_reason!r}; expected 'stop' or 'length'")
    at_marker = stop_reason == (marker.ids[0] if len(marker.ids) == 1 else marker.text)
    # Every other stop token is one of the end-of-sequence tokens that the model's generation config declares.
    return Stop.MARKER if request.stop_at_marker and at_marker else Stop.EOS


def end_ids(model: str, revision: str | None, tokenizer: "PreTrainedTokenizerBase", code: bool = False) -> set[int]:
    """The tokens that end a sequence for an engine: the generation config's, or else the config's, and the tokenizer's.

    `code` is whether the code that comes with the model may run.
    """
    from transformers import AutoConfig, GenerationConfig

    try:
        found = GenerationConfig.from_pretrained(model, revision=revision).eos_token_id
    except OSError:  # it has none
        config = AutoConfig.from_pretrained(model, revision=revision, trust_remote_code=code)
        found = config.get_text_config().eos_token_id
    named = found if isinstance(found, list) else [found]
    return {token for token in (*named, tokenizer.eos_token_id) if token is not None}
