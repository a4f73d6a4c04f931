"""Tree of all tokens sampled for one sample of one problem, in which budgets and methods share prefixes.

    prompt ── thinking ──┬── thinking ──┬── thinking </think> ── solution      closed: shared by all larger budgets
                         │              └ ‖</think>‖ ── solution               forced at the second budget
                         └ ‖</think>‖ ── solution                              forced at the first

A policy that does not see its budget thinks the same tokens up to any budget, so the thinking is sampled once. A
method is a coroutine: it yields the branch and the length that it needs next, and resumes when the branch is that long
or has ended. `Tree.drive` turns any `Rollout` into such a coroutine. Branches are identified by the tokens that they
continue, so that two coroutines with the same prefix share everything sampled after it. Nothing here knows an engine, a
file, or the purpose of the completions.
"""

import hashlib
from array import array
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from e1_trl.marker import Marker
from e1_trl.rollout import Completion, Name, Request, Rollout, Segment, Stop

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Phase(StrEnum):
    """Phase of a branch, which decides what ends the branch."""

    THINKING = "thinking"  # the marker, or end of sequence
    SOLUTION = "solution"  # end of sequence


# Tokens of one request, at most: a long thought is stored, and can be resumed, in parts.
SEGMENT_TOKENS = 8192


@dataclass(frozen=True)
class StoredSegment:
    """Segment as stored: `token_ids` begin at `start` of a branch, after the tokens with the digest `before`."""

    problem: int
    sample: int
    branch: str
    start: int
    before: str
    token_ids: Sequence[int]
    stop: Stop


class Branch:
    """Tokens sampled after one prefix, extended by one segment at a time.

    Attributes:
        name: identifies the branch in its tree, also in a resumed run.
        prefix_ids: tokens that the branch continues.
        token_ids: tokens sampled so far.
        stop: what ended the branch; `None` while it can be extended.
    """

    def __init__(self, name: str, prefix_ids: Sequence[int], phase: Phase):
        self.name = name
        self.prefix_ids = list(prefix_ids)
        self.phase = phase
        self.token_ids = array("i")
        self.stop: Stop | None = None
        self.in_flight = False

    def reaches(self, length: int) -> bool:
        return self.stop is not None or len(self.token_ids) >= length

    def first(self, length: int) -> Segment:
        stop = self.stop if len(self.token_ids) <= length else None
        return Segment(self.token_ids[:length].tolist(), stop or Stop.LENGTH)

    def request(self, length: int, name: Name) -> Request:
        """Next request to the engine for a branch of `length` tokens."""
        missing = min(length - len(self.token_ids), SEGMENT_TOKENS)
        return Request([*self.prefix_ids, *self.token_ids], missing, self.phase is Phase.THINKING, name)

    def extend(self, token_ids: Sequence[int], stop: Stop, marker: Marker, decode: Callable[[list[int]], str]) -> None:
        start = len(self.token_ids)
        self.token_ids.extend(token_ids)
        self.stop = None if stop is Stop.LENGTH else stop
        # A marker of several tokens may begin in one segment and end in the next, where the engine sees only its end.
        if self.phase is Phase.THINKING and start and len(marker.ids) > 1:
            reach = len(marker.text.encode())  # a token is at least one byte
            lowest = max(0, start - reach)
            for end in range(start + 1, min(len(self.token_ids), start + reach) + 1):
                if marker.text in decode(self.token_ids[lowest:end].tolist()):
                    del self.token_ids[end:]
                    self.stop = Stop.MARKER
                    break


def _digest(token_ids: Sequence[int]) -> str:
    return hashlib.sha256(array("i", token_ids).tobytes()).hexdigest()[:16]


Coroutine = Generator[tuple[Branch, int], None, Result]


class Tree(Generic[Key]):
    """Branches of one sample of one problem, and the coroutines that wait for them.

    Args:
        problem, sample: their indices.
        marker: the end-of-thinking marker.
        decode: turns token ids into text, to find a marker of several tokens that is split over two segments.
        saved: segments of this tree from an earlier run, in order of their start.
        independent: whether every coroutine samples branches of its own, and shares none.

    Attributes:
        completions: results of finished coroutines, by the key with which they were started.
    """

    def __init__(
        self,
        problem: int,
        sample: int,
        marker: Marker,
        decode: Callable[[list[int]], str],
        saved: Iterable[StoredSegment] = (),
        independent: bool = False,
    ):
        self.problem = problem
        self.sample_index = sample
        self.completions: dict[Key, Completion] = {}
        self._marker = marker
        self._decode = decode
        self._independent = independent
        self._saved: dict[str, list[StoredSegment]] = {}
        for each in saved:
            self._saved.setdefault(each.branch, []).append(each)
        self._branches: dict[str, Branch] = {}
        self._waiting: list[tuple[Key, Coroutine[Completion], Branch, int]] = []
        self._scope = ""

    def start(self, key: Key, coroutine: Coroutine[Completion]) -> None:
        """Run a coroutine as far as its branches reach."""
        self._scope = f"{key}/" if self._independent else ""
        try:
            branch, length = next(coroutine)
        except StopIteration as end:
            self.completions[key] = end.value
        else:
            self._waiting.append((key, coroutine, branch, length))

    def sample(self, prefix_ids: Sequence[int], phase: Phase, length: int) -> Coroutine[Segment]:
        """Sample the first `length` tokens after a prefix, or fewer if they end; methods `yield from` this."""
        branch = self._branch(prefix_ids, phase)
        if not branch.reaches(length):
            yield branch, length
        return branch.first(length)

    def drive(self, rollout: Rollout) -> Coroutine[Completion]:
        """Run a rollout, as training does, on the branches of this tree."""
        while (request := rollout.request) is not None:
            phase = Phase.THINKING if request.stop_at_marker else Phase.SOLUTION
            rollout.receive((yield from self.sample(request.prompt_ids, phase, request.max_tokens)))
        return rollout.completion

    def requests(self) -> list[tuple["tuple[Tree[Key], Branch]", Request]]:
        """Request every branch that a coroutine waits for and that is not in flight, and mark it as in flight.

        A request asks for the fewest tokens with which a waiting coroutine can go on.
        """
        needed: dict[Branch, int] = {}
        for _, _, branch, length in self._waiting:
            if not branch.in_flight:
                needed[branch] = min(length, needed.get(branch, length))
        requests = []
        for branch, length in needed.items():
            branch.in_flight = True
            request = branch.request(length, name=(self.problem, self.sample_index, branch.name))
            requests.append(((self, branch), request))
        return requests

    def stored(self, branch: Branch, segment: Segment) -> StoredSegment:
        return StoredSegment(
            problem=self.problem,
            sample=self.sample_index,
            branch=branch.name,
            start=len(branch.token_ids),
            before=_digest(branch.token_ids),
            token_ids=list(segment.token_ids),
            stop=segment.stop,
        )

    def receive(self, branch: Branch, segment: Segment) -> StoredSegment:
        """Take the engine's answer to a request for `branch`, and return the record to store."""
        record = self.stored(branch, segment)
        branch.in_flight = False
        branch.extend(record.token_ids, record.stop, self._marker, self._decode)
        waiting = self._waiting
        self._waiting = []
        for key, coroutine, awaited, length in waiting:
            if awaited.reaches(length):
                self.start(key, coroutine)
            else:
                self._waiting.append((key, coroutine, awaited, length))
        return record

    @property
    def finished(self) -> bool:
        return not self._waiting

    def _branch(self, prefix_ids: Sequence[int], phase: Phase) -> Branch:
        name = f"{self._scope}{phase}/{len(prefix_ids)}/{_digest(prefix_ids)}"
        if name not in self._branches:
            branch = self._branches[name] = Branch(name, prefix_ids, phase)
            for record in self._saved.get(name, ()):
                # Segments after a lost one do not fit: the lost one is sampled again, and comes out differently.
                follows = record.start == len(branch.token_ids) and record.before == _digest(branch.token_ids)
                if follows and branch.stop is None:
                    branch.extend(record.token_ids, record.stop, self._marker, self._decode)
        return self._branches[name]
