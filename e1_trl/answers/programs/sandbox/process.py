"""A process in a box, as seen from outside: followed through one test after the other, and killed at a limit.

Where a test ends is decided here. The process says so by a byte, and then waits until its next test is called, so that
what came out of it until then is this test's, and can no more be changed. It can lie about the moment, and about
nothing else: its CPU time is read from the kernel, which also says who it is, and what came out is judged outside. A
process that cannot make itself fresh again ends with its test instead, and so does one that any test has failed in.
"""

import contextlib
import enum
import io
import os
import select
import socket
import struct
import time
from dataclasses import dataclass

from e1_trl.answers.programs.sandbox.inside import protocol

GRACE = 5.0  # seconds until a killed program must be gone
STDERR = 4096  # bytes kept of what a program writes there
CHUNK, MOST = 1 << 16, 1 << 20  # bytes that are read at a time, and that a pipe holds
CPU_CLOCK = 2  # with the id of a process, the number of the clock of its CPU time
SENDER = struct.Struct("3i")  # process, user and group, as the kernel tells them


@dataclass(frozen=True)
class Limits:
    """What one test of a program may take: CPU and wall time in seconds, memory and output in bytes."""

    cpu: float
    wall: float
    memory: int
    output: int


class End(enum.StrEnum):
    """How a test ended; but for the first, these are outcomes of a grade as well."""

    EXITED = "exited"  # with status 0
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    TOO_MUCH_OUTPUT = "too_much_output"
    NOT_CALLABLE = "not_callable"  # the function that was to be called is not there


@dataclass(frozen=True)
class Run:
    """What came out of one test: bytes, and CPU and wall time in seconds. `answer` is what a called function returned,
    as JSON."""

    end: End
    stdout: bytes
    stderr: bytes
    answer: bytes
    cpu: float
    wall: float

    @property
    def said(self) -> str:
        """The last line on stderr."""
        return last_line(self.stderr)


def last_line(written: bytes) -> str:
    return ["", *written.decode(errors="replace").strip().splitlines()][-1]


class Process:
    """One process: its pipes for stdout, stderr and the answer, and those by which it and this one take turns.

    Args:
        control: the socket of the zygote that forks it, which receives the kernel's word on who sends.
        user: who it belongs to, and so may open its streams by name (`/dev/stdout`); -1 for who runs this one.
    """

    def __init__(self, control: socket.socket, user: int):
        self.control = control
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(5)]
        for _, stream in pipes[:2]:
            os.fchown(stream, user, user)
        self.theirs = [io.FileIO(writing, "w") for _, writing in pipes[:-1]] + [io.FileIO(pipes[-1][0], "r")]
        self._ours = [io.FileIO(reading, "r") for reading, _ in pipes[:-1]] + [io.FileIO(pipes[-1][1], "w")]
        *self._outputs, self._done, self._next = self._ours
        self.ended = self._waits = False
        self._clock: int | None = None  # the number of that of its CPU time, once it has started
        self._cpu = 0.0  # seconds that it had taken when its last test ended
        self._reading = {file.fileno(): file for file in self._ours[:-1]}
        self._poll = select.poll()
        for descriptor in (control.fileno(), *self._reading):
            self._poll.register(descriptor, select.POLLIN)
        for file in self._ours:  # where the program can open its end by name, it can empty or fill it
            os.set_blocking(file.fileno(), False)

    def close(self) -> None:
        for file in (*self.theirs, *self._ours):
            file.close()

    def stop(self) -> None:
        """Kill it, unless it has ended."""
        if not self.ended:
            self._waits = False
            self.run(Limits(cpu=0.0, wall=0.0, memory=0, output=0))

    def run(self, limits: Limits) -> Run:
        """Follow it through its next test, to the end of that or its own; kill it at a limit."""
        if self._waits:
            with contextlib.suppress(BrokenPipeError):  # it is gone, as its reply will say
                self._next.write(protocol.TURN)
        self._limits, self._killed_for = limits, None
        self._received = {file: bytearray() for file in (*self._outputs, self._done)}
        began = time.monotonic()
        deadline, reply = began + limits.wall, b""
        while not reply and (self._killed_for or not self._received[self._done]):
            left = deadline - time.monotonic()
            if self._killed_for and left <= 0:
                raise ConnectionError("it does not answer")
            if not self._killed_for:
                left = min(left, limits.cpu - self._used())
                if left <= 0 or self._overflows():
                    self._killed_for = End.TIMED_OUT if left <= 0 else End.TOO_MUCH_OUTPUT
                    deadline, left = time.monotonic() + GRACE, GRACE
                    self.control.send(b"stop")
            for descriptor, _ in self._poll.poll(1000 * left + 1):
                if descriptor == self.control.fileno():
                    reply, about, _, _ = self.control.recvmsg(64, socket.CMSG_SPACE(SENDER.size))
                    if not reply:
                        raise ConnectionError("it is gone")
                    if reply == protocol.STARTED:
                        self._clock, reply = ~SENDER.unpack(about[0][2])[0] << 3 | CPU_CLOCK, b""
                elif self._read(self._reading[descriptor]) == b"":
                    self._poll.unregister(descriptor)
        for file in self._outputs:  # the pipes hold its last words; a thread of it could go on for ever
            for _ in range(0, MOST, CHUNK):
                if not self._read(file):
                    break
        self.ended, self._waits = bool(reply), not reply
        status, microseconds = protocol.REPLY.unpack(reply) if reply else (0, 0)
        cpu = microseconds / 1e6 - self._cpu if reply else self._used()
        self._cpu += cpu
        stdout, stderr, answer = (bytes(self._received[file]) for file in self._outputs)
        return Run(self._end(status, cpu), stdout, stderr[:STDERR], answer, cpu, time.monotonic() - began)

    def _used(self) -> float:
        """CPU seconds since the last test ended."""
        if self._clock is None:
            return 0.0
        try:
            return time.clock_gettime(self._clock) - self._cpu
        except OSError:  # it is gone, as its reply will say
            return 0.0

    def _read(self, file: io.FileIO) -> bytes | None:
        """Take what there is, of which what is over the limit is dropped: b"" at the end, None if nothing is there."""
        chunk: bytes | None = file.read(1 if file is self._done else CHUNK)
        if chunk:
            cap = STDERR if file is self._outputs[1] else self._limits.output
            self._received[file] += chunk[: cap + 1 - len(self._received[file])]
        return chunk

    def _overflows(self) -> bool:
        return any(len(self._received[file]) > self._limits.output for file in self._outputs[::2])

    def _end(self, status: int, cpu: float) -> End:
        if self._killed_for:
            return self._killed_for
        if self._overflows():
            return End.TOO_MUCH_OUTPUT
        if cpu >= self._limits.cpu:
            return End.TIMED_OUT
        if os.WIFSIGNALED(status):
            return End.CRASHED
        ends = {0: End.EXITED, protocol.OUT_OF_MEMORY: End.OUT_OF_MEMORY, protocol.NOT_CALLABLE: End.NOT_CALLABLE}
        return ends.get(os.WEXITSTATUS(status), End.CRASHED)
