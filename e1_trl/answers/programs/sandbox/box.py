"""A box: a process that nothing gets out of, in which programs run one after the other.

What is covered: a program reads the interpreter, the packages it may import, all of /usr, and nothing else of the
machine: no other file, no environment, no network, no memory of other processes; it cannot write anywhere, nor start a
process or signal one. Its time, memory, threads and output are limited. With namespaces (bubblewrap) it also shares no
path with the machine; without them (Landlock) it can tell whether a path exists, its size, times and owner. What is not
covered: faults of the kernel itself, and bits that programs leave each other (docs/programs.md). A box knows nothing of
what is expected of a program.

What a program reads as stdin is a file, as where a judge runs `program < input`: its size is known, one read gets all
of it, and it can be mapped and sought in. It has no name, and cannot be changed.
"""

import contextlib
import enum
import functools
import io
import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from e1_trl.answers.programs.sandbox.command import ENVIRONMENT, Isolation, SandboxError, StartError, command
from e1_trl.answers.programs.sandbox.inside import protocol
from e1_trl.answers.programs.sandbox.sealed import readable

STARTED = 60.0  # seconds until a box must be up
GRACE = 5.0  # seconds until a killed program must be gone
TASKS = 64  # processes and threads that a box may have, or a program beside all others of its user
COUNTED_BY_NAMESPACE = (5, 14)  # the Linux since when a user's in a namespace are counted by themselves
STDERR = 4096  # bytes kept of what a program writes there
NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}


@dataclass(frozen=True)
class Limits:
    """What one run of a program may take: CPU and wall time in seconds, memory and output in bytes."""

    cpu: float
    wall: float
    memory: int
    output: int


class End(enum.StrEnum):
    """How a run ended; but for the first, these are outcomes of a grade as well."""

    EXITED = "exited"  # with status 0
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    TOO_MUCH_OUTPUT = "too_much_output"
    NOT_CALLABLE = "not_callable"  # the function that was to be called is not there


@dataclass(frozen=True)
class Run:
    """What came out of one run: bytes, and CPU seconds. `answer` is what a called function returned, as JSON."""

    end: End
    stdout: bytes
    stderr: bytes
    answer: bytes
    cpu: float

    @property
    def said(self) -> str:
        """The last line on stderr."""
        return _last_line(self.stderr)


def _last_line(written: bytes) -> str:
    return ["", *written.decode(errors="replace").strip().splitlines()][-1]


class Box:
    """One box. Used by one thread at a time, and in a `with` block, or closed.

    With namespaces, the box dies with the thread that started it. Root's belongs to the user `nobody` where that one
    can have it: then the kernel limits threads, and keeps programs from files that only root may read.

    Args:
        isolation: its kind.
        as_nobody: whether it belongs to that user; None for wherever it can.

    Raises:
        StartError: it does not start.
    """

    def __init__(self, isolation: Isolation, as_nobody: bool | None = None):
        if as_nobody is None:
            as_nobody = os.geteuid() == 0 and refused_to_nobody(isolation) is None
        self.isolation = isolation
        self._counts_alone = isolation is Isolation.NAMESPACES and _kernel() >= COUNTED_BY_NAMESPACE
        self._controls: list[socket.socket] = []
        descriptors = list[int]()
        with contextlib.ExitStack() as theirs:
            try:
                for _ in range(2):
                    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                    self._controls.append(ours)
                    theirs.enter_context(other)
                    descriptors.append(other.fileno())
                self._process = subprocess.Popen(
                    command(isolation, descriptors),
                    stdin=subprocess.DEVNULL,
                    # Pipes, as programs have: Python asks at its start, and once, whether it can seek in them.
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=ENVIRONMENT,
                    cwd="/",
                    pass_fds=descriptors,
                    start_new_session=True,
                    **(NOBODY if as_nobody else {}),
                )
            except (OSError, SandboxError) as error:
                for control in self._controls:
                    control.close()
                raise StartError(f"a box with {isolation} does not start: {error}") from error
        if not all(map(_ready, self._controls)):
            said = self._said()
            self.close()
            raise StartError(f"a box with {isolation} does not start: {said or 'no answer'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill whatever runs in the box, and the box."""
        for control in self._controls:
            control.close()
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended, and SIGCHLD is ignored
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _said(self) -> str:
        """The last line that the box itself has written to stderr."""
        pipe = self._process.stderr
        if pipe is None or pipe.closed:
            return ""
        os.set_blocking(pipe.fileno(), False)
        return _last_line(pipe.read() or b"")

    def run(self, program: bytes, stdin: bytes, limits: Limits, call: str | None = None) -> Run:
        """Run a program once, by itself or to call one of its functions on `stdin`, which then is JSON.

        Raises:
            SandboxError: the box broke; it is of no use any more.
        """
        control = self._controls[protocol.NUMERIC in program]
        request = {
            "size": len(program),
            "cpu": limits.cpu,
            "memory": limits.memory,
            "tasks": TASKS + (0 if self._counts_alone else _tasks()),
            "call": call,
        }
        try:
            with _Pipes(limits) as pipes:
                with readable(program) as source, readable(stdin) as given:
                    sent = [source.fileno(), given.fileno(), *(file.fileno() for file in pipes.theirs)]
                    socket.send_fds(control, [json.dumps(request).encode()], sent)
                status, cpu = protocol.REPLY.unpack(pipes.follow(control))
                return pipes.run(status, cpu / 1e6)
        except OSError as error:
            said = self._said()
            self.close()
            raise SandboxError(f"a box has died: {said or error}") from error
        except BaseException:  # its next reply would be taken for that of another program
            self.close()
            raise


@functools.cache
def refused_to_nobody(isolation: Isolation) -> str | None:
    """Why such a box of root's cannot belong to the user `nobody`, in one line; None where it can."""
    try:
        with Box(isolation, as_nobody=True) as box:
            run = box.run(b"import numpy", b"", Limits(cpu=10.0, wall=STARTED, memory=2**28, output=0))
    except SandboxError as error:
        return str(error)
    return None if run.end is End.EXITED else "it cannot read numpy"


def _tasks() -> int:
    """How many processes and threads this machine has: at least those of a user, whom the kernel counts."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def _kernel() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])


def _ready(control: socket.socket) -> bool:
    """Whether a zygote says so."""
    control.settimeout(STARTED)
    try:
        return control.recv(len(protocol.READY)) == protocol.READY
    except TimeoutError:
        return False


class _Pipes:
    """The pipes of one run: stdout, stderr and the answer."""

    def __init__(self, limits: Limits):
        self.limits = limits
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        self.theirs = [io.FileIO(writing, "w") for _, writing in pipes]
        self.outputs = [io.FileIO(reading, "r") for reading, _ in pipes]
        self.received = {file: bytearray() for file in self.outputs}
        self.caps = dict(zip(self.outputs, (limits.output, STDERR, limits.output), strict=True))
        self.killed_for: End | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (*self.theirs, *self.outputs):
            file.close()

    def follow(self, control: socket.socket) -> bytes:
        """Read from the program until it has ended; kill it at a limit. The reply of the box."""
        for file in self.theirs:  # so that the pipes end with the program
            file.close()
        deadline = time.monotonic() + self.limits.wall
        poll = select.poll()
        poll.register(control, select.POLLIN)
        reading = {file.fileno(): file for file in self.outputs}
        for descriptor in reading:
            os.set_blocking(descriptor, False)
            poll.register(descriptor, select.POLLIN)
        reply = b""
        while not reply:
            late = time.monotonic() >= deadline
            if late and self.killed_for:
                raise ConnectionError("it does not answer")
            if late or (self._overflows() and not self.killed_for):
                self.killed_for = End.TIMED_OUT if late else End.TOO_MUCH_OUTPUT
                deadline = time.monotonic() + GRACE
                control.send(b"stop")
            for descriptor, _ in poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
                if descriptor not in reading:
                    reply = control.recv(64)
                    if not reply:
                        raise ConnectionError("it is gone")
                elif self._read(reading[descriptor]) == b"":
                    poll.unregister(descriptor)
        for file in self.outputs:  # the program is gone: the pipes hold its last words
            while self._read(file):
                pass
        return reply

    def _read(self, file: Any) -> bytes | None:
        """Take what there is, of which what is over the limit is dropped: b"" at the end, None if nothing is there."""
        chunk: bytes | None = file.read(1 << 16)
        if chunk:
            self.received[file] += chunk[: self.caps[file] + 1 - len(self.received[file])]
        return chunk

    def _overflows(self) -> bool:
        return any(len(self.received[file]) > self.limits.output for file in (self.outputs[0], self.outputs[2]))

    def run(self, status: int, cpu: float) -> Run:
        """What is to be said of a run with this wait status and CPU time (seconds)."""
        stdout, stderr, answer = (bytes(self.received[file]) for file in self.outputs)
        return Run(self._end(status, cpu), stdout, stderr[:STDERR], answer, cpu)

    def _end(self, status: int, cpu: float) -> End:
        if self.killed_for:
            return self.killed_for
        if self._overflows():
            return End.TOO_MUCH_OUTPUT
        if cpu >= self.limits.cpu:
            return End.TIMED_OUT
        if os.WIFSIGNALED(status):
            return End.TIMED_OUT if os.WTERMSIG(status) == signal.SIGXCPU else End.CRASHED
        ends = {0: End.EXITED, protocol.OUT_OF_MEMORY: End.OUT_OF_MEMORY, protocol.NOT_CALLABLE: End.NOT_CALLABLE}
        return ends.get(os.WEXITSTATUS(status), End.CRASHED)
