"""A box: a process that nothing gets out of, in which programs run one after the other.

What is covered: a program sees the interpreter, the packages it may import and nothing else of the machine: no file of
anybody, no environment, no network, no other process; it cannot write anywhere, nor start a process. Its time, memory
and output are limited. With namespaces (bubblewrap) it also shares no path with the machine; without them (Landlock)
it can tell whether a path exists. What is not covered: faults of the kernel itself, and what programs can learn from
each other by timing. A box knows nothing of what is expected of a program.
"""

import contextlib
import enum
import io
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from e1_trl.grading.sandbox.command import ENVIRONMENT, Isolation, SandboxError, command
from e1_trl.grading.sandbox.inside import protocol

STARTED = 60.0  # seconds until a box must be up
GRACE = 5.0  # seconds until a killed program must be gone
STDERR = 4096  # bytes kept of what a program writes there
CREDENTIALS = struct.Struct("3i")  # process, user, group


@dataclass(frozen=True)
class Limits:
    """What one run of a program may take: CPU and wall time in seconds, memory and output in bytes."""

    cpu: float
    wall: float
    memory: int
    output: int


class End(enum.StrEnum):
    """How a run ended."""

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


class Box:
    """One box. Used by one thread at a time, and in a `with` block, or closed.

    With namespaces, the box dies with the thread that started it.

    Raises:
        SandboxError: it does not start.
    """

    def __init__(self, isolation: Isolation):
        self.isolation = isolation
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the box)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command(isolation, theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    env=ENVIRONMENT,
                    cwd="/",
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except (OSError, SandboxError) as error:
            self._control.close()
            self._errors.close()
            raise SandboxError(f"a box with {isolation} does not start: {error}") from error
        self._control.settimeout(STARTED)
        try:
            ready, ancillary, _, _ = self._control.recvmsg(16, socket.CMSG_SPACE(CREDENTIALS.size))
        except TimeoutError:
            ready, ancillary = b"", []
        if ready != b"ready":
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            self.close()
            raise SandboxError(f"a box with {isolation} does not start: {said[-1] if said else 'no answer'}")
        (pid, _, _), *_ = [CREDENTIALS.unpack(data) for _, _, data in ancillary]
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        except OSError as error:  # as where /proc is mounted with hidepid
            self.close()
            raise SandboxError(f"a box with {isolation} does not start: its size cannot be read ({error})") from error
        self._address_space = pages * os.sysconf("SC_PAGE_SIZE")  # bytes, before any program

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill whatever runs in the box, and the box."""
        self._control.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._errors.close()

    def run(self, program: bytes, stdin: bytes, limits: Limits, call: str | None = None) -> Run:
        """Run a program once, by itself or to call one of its functions on `stdin`, which then is JSON.

        Raises:
            SandboxError: the box broke; it is of no use any more.
        """
        request = {"cpu": limits.cpu, "address_space": self._address_space + limits.memory, "call": call}
        with contextlib.ExitStack() as theirs, _Channels(limits) as channels:
            source = theirs.enter_context(tempfile.TemporaryFile(buffering=0))
            source.write(program)
            source.seek(0)
            sent = [source.fileno(), *(theirs.enter_context(file).fileno() for file in channels.theirs)]
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], sent)
                theirs.close()  # so that the pipes end with the program
                reply = channels.follow(self._control, stdin)
            except OSError as error:
                self.close()
                raise SandboxError(f"a box has died: {error}") from error
            except BaseException:  # its next reply would be taken for that of another program
                self.close()
                raise
            status, cpu = protocol.REPLY.unpack(reply)
            return channels.run(status, cpu / 1e6)


class _Channels:
    """The pipes of one run: stdin, stdout, stderr and the answer."""

    def __init__(self, limits: Limits):
        self.limits = limits
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(4)]
        readers = [io.FileIO(reading, "r") for reading, _ in pipes]
        writers = [io.FileIO(writing, "w") for _, writing in pipes]
        self.theirs = (readers[0], *writers[1:])
        self.stdin, self.outputs = writers[0], tuple(readers[1:])
        self.received = {file: bytearray() for file in self.outputs}
        self.caps = dict(zip(self.outputs, (limits.output, STDERR, limits.output), strict=True))
        self.killed_for: End | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in (self.stdin, *self.outputs):
            file.close()

    def follow(self, control: socket.socket, data: bytes) -> bytes:
        """Feed and read the program until it has ended; kill it at a limit. The reply of the box."""
        rest = memoryview(data)
        deadline = time.monotonic() + self.limits.wall
        with selectors.DefaultSelector() as selector:
            selector.register(control, selectors.EVENT_READ)
            selector.register(self.stdin, selectors.EVENT_WRITE)
            for file in (self.stdin, *self.outputs):
                os.set_blocking(file.fileno(), False)
            for file in self.outputs:
                selector.register(file, selectors.EVENT_READ)
            reply = b""
            while not reply:
                late = time.monotonic() >= deadline
                if late and self.killed_for:
                    raise SandboxError("a box does not answer")
                if late or (self._overflows() and not self.killed_for):
                    self.killed_for = End.TIMED_OUT if late else End.TOO_MUCH_OUTPUT
                    deadline = time.monotonic() + GRACE
                    control.send(b"stop")
                for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                    if key.fileobj is control:
                        reply = control.recv(64)
                        if not reply:
                            raise SandboxError("a box has died")
                    elif key.fileobj is self.stdin:
                        rest = rest[self._write(rest) :]
                        if not rest:
                            selector.unregister(self.stdin)
                            self.stdin.close()
                    elif self._read(key.fileobj) == b"":
                        selector.unregister(key.fileobj)
        for file in self.outputs:  # the program is gone: the pipes hold its last words
            while self._read(file):
                pass
        return reply

    def _write(self, rest: memoryview) -> int:
        try:
            return self.stdin.write(rest[: 1 << 16]) or 0
        except BrokenPipeError:  # it does not read the rest
            return len(rest)

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
        if cpu > self.limits.cpu:
            return End.TIMED_OUT
        if os.WIFSIGNALED(status):
            return End.TIMED_OUT if os.WTERMSIG(status) == signal.SIGXCPU else End.CRASHED
        ends = {0: End.EXITED, protocol.OUT_OF_MEMORY: End.OUT_OF_MEMORY, protocol.NOT_CALLABLE: End.NOT_CALLABLE}
        return ends.get(os.WEXITSTATUS(status), End.CRASHED)
