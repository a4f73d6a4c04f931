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
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

multiprocessing.set_forkserver_preload(
    ["e1_trl.train", "e1_trl.evaluation.evaluate", "e1_trl.engines.local", "vllm", "vllm.entrypoints.llm"]
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
        multiprocessing.set_start_method(None, force=True)
        self._config["daemon"] = False  # it may start processes
        try:
            importlib.import_module(self.module).main(self.argv)
        finally:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
