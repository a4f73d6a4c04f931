"""Programs of this project, in processes forked from one that has imported the libraries already.

Importing Transformers, TRL and vLLM takes a core fifteen seconds and more, so that a test which starts, kills and
resumes a program would mostly import. All else is as from the command line: a process of its own in a group of its own,
which can be killed, and the program's `main`. Not for a program that needs another environment when libraries are
imported.
"""

import atexit
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

LIBRARIES = ("e1_trl.train", "e1_trl.evaluation.evaluate", "e1_trl.engines.local", "vllm", "vllm.entrypoints.llm")


class Program:
    """A running program; of `subprocess.Popen` what the tests use of it."""

    def __init__(self, pid: int, connection: socket.socket):
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        """The exit status if it has ended; negative: the signal that ended it."""
        return self._status(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not, after so many seconds.
        """
        status = self._status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("a program", timeout or 0.0)
        return status

    def kill(self) -> None:
        """Kill -9 the process alone."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _status(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._connection.recv(64) or b"-1")
            except (TimeoutError, BlockingIOError):
                return None
            self._connection.close()
        return self.returncode


class Server:
    """The process that programs are forked from; started when the first is asked for, and ended with the tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None

    def start(self, module: str, argv: Sequence[str], cwd: Path, log: Path, environment: Mapping[str, str]) -> Program:
        """Run `main(argv)` of a module, with what it prints added to a file."""
        request = {
            "module": module,
            "argv": list(argv),
            "cwd": str(cwd),
            "log": str(log),
            "environment": dict(environment),
        }
        with self._lock:
            if self._requests is None:
                self._requests = self._served()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                socket.send_fds(self._requests, [json.dumps(request).encode()], [theirs.fileno()])
        return Program(int(ours.recv(64)), ours)

    def _served(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        atexit.register(process.kill)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        return ours


def serve(requests: socket.socket) -> None:
    """Fork a program for each request, and tell its connection the process id, and at its end the exit status."""
    for library in LIBRARIES:
        importlib.import_module(library)
    running: dict[int, socket.socket] = {}
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            woken.recv(4096)
        while running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            with running.pop(pid) as connection, contextlib.suppress(OSError):
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        if requests not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, 1)
        if not message:
            return
        connection = socket.socket(fileno=descriptors[0])
        pid = os.fork()
        if not pid:
            for other in (requests, wake, woken, connection, *running.values()):
                other.close()
            become(json.loads(message))
        running[pid] = connection
        connection.send(str(pid).encode())


def become(request: dict[str, object]) -> None:
    """Be the program, and end as it does."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(str(request["cwd"]))
    log = os.open(str(request["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(log, number)
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    sys.argv = [str(request["module"]), *request["argv"]]  # type: ignore[misc]
    status = 1
    try:
        importlib.import_module(str(request["module"])).main(request["argv"])
        status = 0
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        # As at the end of an interpreter, whose own end would be the server's.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
