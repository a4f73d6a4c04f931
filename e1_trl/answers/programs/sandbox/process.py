"""A process in a box, seen from outside: run through one test after the other, and killed at a limit.

The end of a test is decided here. The process signals it by a byte, then waits until its next test is called, so that
its output up to then belongs to this test and cannot change any more. It can lie only about that moment: its CPU time
and its id come from the kernel, and its output is judged outside. A process that cannot reset itself, or in which a
test failed, ends with its test.
"""

import contextlib
import enum
import fcntl
import io
import os
import select
import signal
import socket
import struct
import time
from dataclasses import dataclass

from e1_trl.answers.programs.sandbox.inside import protocol
from e1_trl.answers.programs.sandbox.inside.restrictions import demand, libc

GRACE = 5.0  # seconds until a killed program must be gone
STDERR = 4096  # bytes kept of a program's stderr
CHUNK = 1 << 16  # bytes per read
MOST = 1 << 20  # bytes that a pipe holds
CPU_CLOCK = 2  # together with a process id, the number of the clock of its CPU time
SENDER = struct.Struct("3i")  # process, user and group, from the kernel
MFD_CLOEXEC = 1
MFD_ALLOW_SEALING = 2
F_ADD_SEALS = 1033
UNCHANGEABLE = 0b10111  # seals against further seals, resizing and future writes; sealing all writes waits for a tick


@dataclass(frozen=True)
class Limits:
    """Limits for one test of a program: CPU and wall time in seconds, memory and output in bytes."""

    cpu: float
    wall: float
    memory: int
    output: int


class End(enum.StrEnum):
    """The end of a test; all but `EXITED` and `KILLED` are also outcomes of a grade."""

    EXITED = "exited"  # with status 0
    CRASHED = "crashed"
    KILLED = "killed"  # by signal 9, which we did not send: the kernel for want of memory, or the program itself
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    TOO_MUCH_OUTPUT = "too_much_output"
    NOT_CALLABLE = "not_callable"  # the function to call is not defined


@dataclass(frozen=True)
class Run:
    """The result of one test; `answer` is a called function's return value as JSON, times are in seconds."""

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


def readable(data: bytes) -> io.FileIO:
    """Return an unnamed file with this content that is open for reading only and that nobody can change any more."""
    # Through the C library: the modules os and fcntl support this only where Python was built with a recent one.
    written = libc.memfd_create(b"", MFD_CLOEXEC | MFD_ALLOW_SEALING)
    demand(written)
    with open(written, "wb") as file:
        file.write(data)
        file.flush()
        fcntl.fcntl(written, F_ADD_SEALS, UNCHANGEABLE)  # since under Landlock a program can reopen it by number
        return io.FileIO(f"/proc/self/fd/{written}", "r")


class Process:
    """One process with its pipes: for stdout, stderr and the answer, and two for taking turns.

    Args:
        control: the socket of the zygote that forks it; the kernel attests who sends.
        user: the process's owner, who may open its streams by name (`/dev/stdout`); -1 for the caller's user.
    """

    def __init__(self, control: socket.socket, user: int):
        self.control = control
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(5)]
        for _, stream in pipes[:2]:
            os.fchown(stream, user, user)
        self.theirs = [io.FileIO(writing, "w") for _, writing in pipes[:-1]] + [io.FileIO(pipes[-1][0], "r")]
        self._ours = [io.FileIO(reading, "r") for reading, _ in pipes[:-1]] + [io.FileIO(pipes[-1][1], "w")]
        *self._outputs, self._done, self._next = self._ours
        self.ended = False
        self._waits = False  # for its next turn
        self._clock: int | None = None  # the number of its CPU clock, once it has started
        self._cpu = 0.0  # CPU seconds at the end of its last test
        self._reading = {file.fileno(): file for file in self._ours[:-1]}
        self._poll = select.poll()
        for descriptor in (control.fileno(), *self._reading):
            self._poll.register(descriptor, select.POLLIN)
        for file in self._ours:  # a program that can open its end by name can drain or fill it
            os.set_blocking(file.fileno(), False)

    def close(self) -> None:
        for file in (*self.theirs, *self._ours):
            file.close()

    def stop(self) -> None:
        """Kill the process unless it has ended."""
        if not self.ended:
            self._waits = False
            self.run(Limits(cpu=0.0, wall=0.0, memory=0, output=0))

    def run(self, limits: Limits) -> Run:
        """Run the next test until it or the process ends, or a limit is exceeded, which kills the process."""
        if self._waits:
            with contextlib.suppress(BrokenPipeError):  # it is gone, and the reply will say so
                self._next.write(protocol.TURN)
        self._limits = limits
        self._killed_for: End | None = None
        self._received = {file: bytearray() for file in (*self._outputs, self._done)}
        began = time.monotonic()
        reply = self._follow(began + limits.wall)
        for file in self._outputs:  # the rest of its output; bounded, since a thread of it could write forever
            for _ in range(0, MOST, CHUNK):
                if not self._read(file):
                    break
        self.ended = bool(reply)
        self._waits = not reply
        status, microseconds = protocol.REPLY.unpack(reply) if reply else (0, 0)
        cpu = microseconds / 1e6 - self._cpu if reply else self._used()
        self._cpu += cpu
        stdout, stderr, answer = (bytes(self._received[file]) for file in self._outputs)
        return Run(self._end(status, cpu), stdout, stderr[:STDERR], answer, cpu, time.monotonic() - began)

    def _follow(self, deadline: float) -> bytes:
        """Wait until the test or the process ends, killing it at a limit; returns the zygote's reply, if any."""
        reply = b""
        while not reply and (self._killed_for or not self._received[self._done]):
            left = deadline - time.monotonic()
            if self._killed_for and left <= 0:
                raise ConnectionError("it does not answer")
            if not self._killed_for:
                left = min(left, self._limits.cpu - self._used())
                if left <= 0 or self._overflows():
                    self._killed_for = End.TIMED_OUT if left <= 0 else End.TOO_MUCH_OUTPUT
                    left = GRACE
                    deadline = time.monotonic() + GRACE
                    self.control.send(b"stop")
            for descriptor, _ in self._poll.poll(1000 * left + 1):
                if descriptor == self.control.fileno():
                    reply = self._hear()
                elif self._read(self._reading[descriptor]) == b"":
                    self._poll.unregister(descriptor)
        return reply

    def _hear(self) -> bytes:
        """Return the zygote's reply, or b"" for the message that the process has started."""
        reply, about, _, _ = self.control.recvmsg(64, socket.CMSG_SPACE(SENDER.size))
        if not reply:
            raise ConnectionError("it is gone")
        if reply != protocol.STARTED:
            return reply
        self._clock = ~SENDER.unpack(about[0][2])[0] << 3 | CPU_CLOCK
        return b""

    def _used(self) -> float:
        """Return the CPU seconds since the last test ended."""
        if self._clock is None:
            return 0.0
        try:
            return time.clock_gettime(self._clock) - self._cpu
        except OSError:  # it is gone, and the reply will say so
            return 0.0

    def _read(self, file: io.FileIO) -> bytes | None:
        """Read a chunk, of which the part over the limit is dropped; b"" at the end, None if nothing is available."""
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
            return End.KILLED if os.WTERMSIG(status) == signal.SIGKILL else End.CRASHED
        ends = {0: End.EXITED, protocol.OUT_OF_MEMORY: End.OUT_OF_MEMORY, protocol.NOT_CALLABLE: End.NOT_CALLABLE}
        return ends.get(os.WEXITSTATUS(status), End.CRASHED)
