"""What a program finds when it begins, kept before any has run, and put back for its next test in the same process."""

import _thread
import builtins
import gc
import os
import random
import signal
import sys
import threading

from .protocol import ANSWER

STREAMS = {"stdin": "r", "stdout": "w", "stderr": "w"}


class State:
    """What can be put back for less than a fork costs: not what was changed inside of modules."""

    def __init__(self) -> None:
        self.modules, self.builtins = dict(sys.modules), dict(vars(builtins))
        self.recursion, self.errors = sys.getrecursionlimit(), [getattr(sys, name).errors for name in STREAMS]

    def restore(self, pipes: list[int]) -> bool:
        """Put it back: whether all could be. Threads that go on cannot, nor what the program did to the pipes."""
        signal.alarm(0)
        for namespace, kept in ((sys.modules, self.modules), (vars(builtins), self.builtins)):
            dropped = dict(namespace)  # goes when all is there again
            namespace.clear()
            namespace.update(kept)
            del dropped
        for number, (name, mode) in enumerate(STREAMS.items()):
            buffering = 1 if name == "stderr" else -1
            stream = open(number, mode, buffering, "utf-8", self.errors[number], "\n", closefd=False)  # noqa: SIM115
            self.builtins[name] = stream
            for owner, as_name in ((sys, name), (sys, f"__{name}__"), (builtins, name)):
                setattr(owner, as_name, stream)
        sys.setrecursionlimit(self.recursion)
        threading.stack_size(0)
        gc.enable()
        random.seed()
        return not _thread._count() and threading.main_thread().is_alive() and pipes == written()


def written() -> list[int]:
    """Which pipes this process writes to."""
    return [os.fstat(number).st_ino for number in range(1, ANSWER + 1)]
