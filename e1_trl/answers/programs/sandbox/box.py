"""A box: a process that nothing gets out of, in which programs run one after the other.

docs/programs.md says what a program can reach. A box does not know what it should print. Its stdin is a file, as if a
judge ran `program < input`: its size is known, one read returns all of it, and it can be mapped and sought in. The file
has no name and cannot be changed.
"""

import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from e1_trl.answers.programs.sandbox.command import ENVIRONMENT, Isolation, SandboxError, command
from e1_trl.answers.programs.sandbox.inside import protocol
from e1_trl.answers.programs.sandbox.process import End, Limits, Process, Run, last_line, readable

STARTED = 60.0  # seconds until a box must be up
TASKS = 64  # processes and threads of a box, or of a program in addition to all others of its user
COUNTED_BY_NAMESPACE = (5, 14)  # first Linux that counts a user's tasks per namespace
TOGETHER = 16  # tests per process: their inputs take a sixth of its descriptors
NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}


class Box:
    """One box. Used by one thread at a time, in a `with` block, or closed.

    With namespaces, the box dies with the thread that started it. Under root it belongs to the user `nobody` where
    possible (`as_nobody` decides it): then the kernel limits its threads and protects files that only root may read.
    """

    def __init__(self, isolation: Isolation, as_nobody: bool | None = None):
        if as_nobody is None:
            as_nobody = os.geteuid() == 0 and refused_to_nobody(isolation) is None
        self._user = NOBODY["user"] if as_nobody else -1
        self.isolation = isolation
        self._counts_alone = isolation is Isolation.NAMESPACES and _kernel() >= COUNTED_BY_NAMESPACE
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._control.settimeout(STARTED)
        try:
            self._process = subprocess.Popen(
                command(isolation, theirs.fileno()),
                stdin=subprocess.DEVNULL,
                # Pipes, as programs have: Python asks once, at its start, whether it can seek in its streams.
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                **(NOBODY if as_nobody else {}),
            )
        except (OSError, SandboxError) as error:
            raise SandboxError(f"a box with {isolation} does not start: {error}") from error
        finally:
            theirs.close()
        greeting = b""
        with contextlib.suppress(TimeoutError):
            greeting = self._control.recv(len(protocol.READY))
        if greeting != protocol.READY:
            said = self._said()
            self.close()
            raise SandboxError(f"a box with {isolation} does not start: {said or 'no answer'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the box and everything that runs in it."""
        self._control.close()
        with self._process:  # closes its pipes and waits for it
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):  # it has just ended, and SIGCHLD is ignored
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _said(self) -> str:
        """Return the last line that the box itself wrote to stderr."""
        pipe = self._process.stderr
        if pipe is None or pipe.closed:
            return ""
        os.set_blocking(pipe.fileno(), False)
        return last_line(pipe.read() or b"")

    def run(self, program: bytes, stdin: bytes, limits: Limits, call: str | None = None) -> Run:
        """Run a program once, as it is or to call one of its functions on `stdin`, which then is JSON."""
        with self.start(program, [stdin], limits, call) as process:
            return process.run(limits)

    @contextlib.contextmanager
    def start(
        self, program: bytes, inputs: Sequence[bytes], limits: Limits, call: str | None = None
    ) -> Iterator[Process]:
        """Start a process that runs a program on up to `TOGETHER` inputs in turn; killed at the end of the block.

        The process receives all inputs at once; those of later tests wait unread in descriptors of their own.
        `limits.memory` holds for the whole process.

        Raises:
            SandboxError: the box broke and is useless from now on.
        """
        request = {
            "size": len(program),
            "cpu": limits.cpu * len(inputs),
            "memory": limits.memory,
            "tasks": TASKS + (0 if self._counts_alone else _tasks()),
            "call": call,
        }
        try:
            with contextlib.closing(Process(self._control, self._user)) as process:
                with contextlib.ExitStack() as given:
                    source, first, *later = [given.enter_context(readable(data)) for data in (program, *inputs)]
                    sent = [file.fileno() for file in (source, first, *process.theirs, *later)]
                    socket.send_fds(self._control, [json.dumps(request).encode()], sent)
                for end in process.theirs:  # so that the pipes end with the process
                    end.close()
                yield process
                process.stop()
        except OSError as error:
            said = self._said()
            self.close()
            raise SandboxError(f"a box has died: {said or error}") from error
        except BaseException:  # the box's next reply would be taken for that of another program
            self.close()
            raise


@functools.cache
def refused_to_nobody(isolation: Isolation) -> str | None:
    """Return the reason why root's boxes of this kind cannot belong to `nobody`, in one line; None if they can."""
    try:
        with Box(isolation, as_nobody=True) as box:
            run = box.run(b"import numpy", b"", Limits(cpu=10.0, wall=STARTED, memory=2**28, output=0))
    except SandboxError as error:
        return str(error)
    return None if run.end is End.EXITED else "it cannot read numpy"


def _tasks() -> int:
    """Count this machine's processes and threads: an upper bound for those of one user, which the kernel limits."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def _kernel() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
