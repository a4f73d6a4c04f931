"""Programs of this project, in processes forked from one that has imported the libraries already.

Importing Transformers, TRL and vLLM takes a core fifteen seconds and more, so that a test which starts, kills and
resumes a program would mostly import. All else is as from the command line: a process of its own in a group of its own,
which can be killed, and the program's `main`. Not for a program that needs another environment when libraries are
imported.
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
    """`main(argv)` of a module, with what it prints added to a file; of `subprocess.Popen` what the tests use of it."""

    def __init__(self, module: str, argv: Sequence[str], cwd: Path, log: Path, environment: Mapping[str, str]):
        super().__init__(daemon=True)  # ends with the tests
        self.module, self.argv, self.cwd, self.log = module, list(argv), cwd, log
        self.environment = dict(environment)
        self.start()

    @property
    def returncode(self) -> int | None:
        return self.exitcode

    def poll(self) -> int | None:
        """The exit status if it has ended; negative: the signal that ended it."""
        return self.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not, after so many seconds.
        """
        self.join(timeout)
        if self.exitcode is None:
            raise subprocess.TimeoutExpired(self.module, timeout or 0.0)
        return self.exitcode

    def run(self) -> None:
        """Be the program, in the forked process, and end as it does."""
        os.setsid()
        os.chdir(self.cwd)
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for number in (1, 2):
            os.dup2(log, number)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.argv = [self.module, *self.argv]
        # What a fork server's process has otherwise than an interpreter of its own.
        multiprocessing.set_start_method(None, force=True)
        self._config["daemon"] = False  # it may have processes of its own
        try:
            importlib.import_module(self.module).main(self.argv)
        finally:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
