"""Programs of this project, in processes forked from one that has imported the libraries.

Importing Transformers, TRL and vLLM takes fifteen seconds and more, so a test that starts, kills and resumes a program
would mostly import. Otherwise a program runs as from the command line: its `main`, in a process and a process group of
its own. Not for programs that need another environment while libraries are imported.
"""

import atexit
import importlib
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from e1_trl.processes import forget_killed, kill_tree

multiprocessing.set_forkserver_preload(
    [
        *("vllm", "vllm.entrypoints.llm", "vllm.entrypoints.launchers.api_server.entry", "vllm.v1.engine.core"),
        "tests.warm_imports",
    ]
)


class Program(ForkServerProcess):
    """`main(argv)` of a module, whose output is appended to a file; has the methods of `Popen` that the tests use."""

    def __init__(self, module: str, argv: Sequence[str], cwd: Path, log: Path, environment: Mapping[str, str]):
        super().__init__(daemon=True)  # ends with the tests
        self.module, self.argv, self.cwd, self.log = module, list(argv), cwd, log
        self.environment = dict(environment)
        self.start()

    @property
    def returncode(self) -> int | None:
        return self.exitcode

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None if the program still runs."""
        return self.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the program's end and return its exit status.

        Raises:
            subprocess.TimeoutExpired: the program still runs after `timeout` seconds.
        """
        self.join(timeout)
        if self.exitcode is None:
            raise subprocess.TimeoutExpired(self.module, timeout or 0.0)
        return self.exitcode

    def run(self) -> None:
        """Run the program in the forked process, and end as it would."""
        os.setsid()
        os.chdir(self.cwd)
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for number in (1, 2):
            os.dup2(log, number)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.argv = [self.module, *self.argv]
        # Undo the differences of a fork server's process from a new interpreter.
        sys.path[:0] = [str(self.cwd), *filter(None, self.environment.get("PYTHONPATH", "").split(os.pathsep))]
        multiprocessing.set_start_method(None, force=True)
        self._config["daemon"] = False  # it may start processes
        try:
            importlib.import_module(self.module).main(self.argv)
        finally:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()


class Group:
    """Programs of one training, a process each, as a launcher starts them; has the methods of `Program`."""

    def __init__(self, members: Sequence[Program]):
        self.members = members

    @property
    def returncode(self) -> int | None:
        """The exit status of a program that failed, or 0 once all have ended; None until then."""
        codes = [member.poll() for member in self.members]
        return next(filter(None, codes), None if None in codes else 0)

    def poll(self) -> int | None:
        return self.returncode

    def wait(self) -> int:
        """Wait until all have ended, or one has failed; kill the others then, and return the exit status."""
        while (code := self.returncode) is None:
            time.sleep(0.1)
        self.kill()
        return code

    def kill(self) -> None:
        """Kill the programs with all their processes."""
        for member in self.members:
            kill_tree(member.pid)
            member.wait()
        forget_killed()  # a forked process does not remove its shared memory when it ends, either
