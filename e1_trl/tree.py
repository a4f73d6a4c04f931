"""All that is sampled for one sample of one problem: a tree, in which budgets and methods share what they can.

    prompt ── thinking ──┬── thinking ──┬── thinking </think> ── solution      closed: shared by all larger budgets
                         │              └ ‖</think>‖ ── solution               forced at the second budget
                         └ ‖</think>‖ ── solution                              forced at the first

A policy that does not see its budget thinks the same tokens up to any budget, so the thinking is sampled once. What
needs samples is a coroutine: it yields the branch and the length that it needs next, and resumes once the branch has
grown as far, or has ended. `Tree.drive` makes one of any `Rollout`. Branches are found by the tokens that they
continue: two coroutines that arrive at the same prefix share what follows. Knows nothing about engines, files, or what
the completions are for.
"""

import hashlib
from array import array
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from e1_trl.budget import Marker
from e1_trl.rollout import Completion, Request, Rollout, Segment, Stop

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Phase(StrEnum):
    """What a branch holds, which decides what ends it."""

    THINKING = "thinking"  # the marker, or end of sequence
    SOLUTION = "solution"  # end of sequence


# The most tokens that one request asks for: a long thought is stored, and can be resumed, in parts.
LEG_TOKENS = 8192


@dataclass(frozen=True)
class StoredSegment:
    """A segment as it is stored: where in which branch of which tree it belongs, and after which tokens of it."""

    problem: int
    sample: int
    branch: str
    start: int
    before: str
    token_ids: Sequence[int]
    stop: Stop


class Branch:
    """Tokens sampled after one prefix. They only ever grow, a leg at a time.

    Attributes:
        name: identifies the branch in its tree, in this run and in the next.
        prefix_ids: what the branch continues.
        token_ids: what has been sampled so far.
        stop: what ended the branch; `None` while it can grow.
    """

    def __init__(self, name: str, prefix_ids: Sequence[int], kind: Phase):
        self.name = name
        self.prefix_ids = list(prefix_ids)
        self.kind = kind
        self.token_ids = array("i")
        self.stop: Stop | None = None
        self.in_flight = False

    def reaches(self, length: int) -> bool:
        return self.stop is not None or len(self.token_ids) >= length

    def first(self, length: int) -> Segment:
        whole = self.stop is not None and len(self.token_ids) <= length
        return Segment(self.token_ids[:length].tolist(), self.stop if whole and self.stop else Stop.LENGTH)

    def request(self, length: int) -> Request:
        """What to ask of the engine next for the branch to reach `length` tokens."""
        missing = min(length - len(self.token_ids), LEG_TOKENS)
        prompt_ids, thinks = [*self.prefix_ids, *self.token_ids], self.kind is Phase.THINKING
        return Request(prompt_ids, missing, stop_at_marker=thinks)

    def grow(self, token_ids: Sequence[int], stop: Stop, marker: Marker, decode: Callable[[list[int]], str]) -> None:
        start = len(self.token_ids)
        self.token_ids.extend(token_ids)
        self.stop = None if stop is Stop.LENGTH else stop
        # A marker of several tokens may begin in one leg and end in the next, where the engine does not see all of it.
        if self.kind is Phase.THINKING and start and len(marker.ids) > 1:
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
    """The branches of one sample of one problem, and the coroutines that wait for them to grow.

    Args:
        problem: index of the problem.
        sample: index of the sample.
        marker: what ends the thinking.
        decode: turns token ids into text; used only to find a marker of several tokens that two legs share.
        saved: legs of this tree from an earlier run, in order of their start.
        independent: share nothing between coroutines; every one samples its own branches.

    Attributes:
        completions: what the finished coroutines returned, by the key under which they were started.
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
        for leg in saved:
            self._saved.setdefault(leg.branch, []).append(leg)
        self._branches: dict[str, Branch] = {}
        self._waiting: list[tuple[Key, Coroutine[Completion], Branch, int]] = []
        self._scope = ""

    def start(self, key: Key, coroutine: Coroutine[Completion]) -> None:
        """Run a coroutine as far as the branches reach."""
        self._scope = f"{key}/" if self._independent else ""
        try:
            branch, length = next(coroutine)
        except StopIteration as end:
            self.completions[key] = end.value
        else:
            self._waiting.append((key, coroutine, branch, length))

    def sample(self, prefix_ids: Sequence[int], kind: Phase, length: int) -> Coroutine[Segment]:
        """What coroutines yield from: the first `length` tokens after a prefix, or fewer if something ends them."""
        branch = self._branch(prefix_ids, kind)
        if not branch.reaches(length):
            yield branch, length
        return branch.first(length)

    def drive(self, rollout: Rollout) -> Coroutine[Completion]:
        """Separate budgeting by the state machine that training runs; what it requests is sampled here."""
        while (request := rollout.request) is not None:
            kind = Phase.THINKING if request.stop_at_marker else Phase.SOLUTION
            rollout.receive((yield from self.sample(request.prompt_ids, kind, request.max_tokens)))
        return rollout.completion

    def requests(self) -> list[tuple["tuple[Tree[Key], Branch]", Request]]:
        """A request for every branch that is waited for and not in flight, as far as the next one who waits.

        The branches count as in flight from now on, even if the requests are submitted later.
        """
        needed: dict[str, int] = {}
        for _, _, branch, length in self._waiting:
            if not branch.in_flight:
                needed[branch.name] = min(length, needed.get(branch.name, length))
        requests = []
        for name, length in needed.items():
            branch = self._branches[name]
            branch.in_flight = True
            request = replace(branch.request(length), name=(self.problem, self.sample_index, name))
            requests.append(((self, branch), request))
        return requests

    def leg(self, branch: Branch, segment: Segment) -> StoredSegment:
        """What to store of a segment that continues `branch`, whether it is whole or still in flight."""
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
        """Take the engine's answer to a request for `branch`; returns what to store."""
        leg = self.leg(branch, segment)
        branch.in_flight = False
        branch.grow(leg.token_ids, leg.stop, self._marker, self._decode)
        waiting, self._waiting = self._waiting, []
        for key, coroutine, awaited, length in waiting:
            if awaited.reaches(length):
                self.start(key, coroutine)
            else:
                self._waiting.append((key, coroutine, awaited, length))
        return leg

    @property
    def finished(self) -> bool:
        return not self._waiting

    def _branch(self, prefix_ids: Sequence[int], kind: Phase) -> Branch:
        name = f"{self._scope}{kind}/{len(prefix_ids)}/{_digest(prefix_ids)}"
        if name not in self._branches:
            branch = self._branches[name] = Branch(name, prefix_ids, kind)
            for leg in self._saved.get(name, ()):
                # One that does not follow is left over from before a leg was lost: that was sampled again since, or
                # will be, and came out differently.
                follows = leg.start == len(branch.token_ids) and leg.before == _digest(branch.token_ids)
                if follows and branch.stop is None:
                    branch.grow(leg.token_ids, leg.stop, self._marker, self._decode)
        return self._branches[name]
