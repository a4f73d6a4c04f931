"""The process of one program: runs it on its tests, and ends as an interpreter of its own would."""

import _thread
import atexit
import builtins
import contextlib
import gc
import json
import os
import random
import signal
import sys
import threading
import types
from typing import Any

from .protocol import ANSWER, CRASHED, DONE, NEXT, NOT_CALLABLE, OUT_OF_MEMORY, TURN
from .restrictions import DESCRIPTORS, Restrictions
from .values import plain, rebuilt

STREAMS = {"stdin": "r", "stdout": "w", "stderr": "w"}


class State:
    """The interpreter's state before any program, as far as restoring it is cheaper than a fork.

    It does not cover changes inside modules.
    """

    def __init__(self) -> None:
        self.modules = dict(sys.modules)
        self.builtins = dict(vars(builtins))
        self.recursion = sys.getrecursionlimit()
        self.errors = [getattr(sys, name).errors for name in STREAMS]

    def restore(self, pipes: list[int]) -> bool:
        """Restore the state; returns False if threads go on or the program redirected its pipes."""
        signal.alarm(0)
        for namespace, kept in ((sys.modules, self.modules), (vars(builtins), self.builtins)):
            dropped = dict(namespace)  # freed only when the namespace is complete again
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
    """Return the inodes of the pipes that this process writes to."""
    return [os.fstat(number).st_ino for number in range(1, ANSWER + 1)]


def become(request: dict[str, Any], source: int, turns: list[int], restrictions: Restrictions, state: State) -> None:
    """Become the program whose text is in the file `source`, and end as an interpreter of its own would.

    The descriptors of its first test are in place; `turns` are the pipes for taking turns and the inputs of later
    tests. Another test begins only in a process that could be reset. This function does as little as possible: every
    memory page that a new process touches is copied for it.
    """
    os.setsid()
    text = os.read(source, request["size"])
    restrictions.impose(request["cpu"], request["memory"], request["tasks"])
    for number, descriptor in enumerate(turns, DONE):  # in order, each to a lower number
        os.dup2(descriptor, number)
    end = DONE + len(turns)
    os.closerange(end, DESCRIPTORS)
    pipes = written()
    try:
        code = compile(text, "solution.py", "exec")
    except BaseException as error:
        os._exit(ended_by(error))
    for following in range(NEXT + 1, end):
        status = tested(code, request["call"])
        may = b""
        with contextlib.suppress(BaseException):
            os.dup2(following, 0)
            os.closerange(NEXT + 1, following + 1)
            os.closerange(end, DESCRIPTORS)
            if status == 0 and state.restore(pipes) and os.write(DONE, TURN):
                may = os.read(NEXT, 1)
        if not may:
            os._exit(status)
    os.closerange(DONE, DESCRIPTORS)
    os._exit(tested(code, request["call"]))


def tested(code: types.CodeType, called: str | None) -> int:
    """Run one test; returns the exit status."""
    # A function is called in an imported module, so that a guarded main program does not run.
    name = "solution" if called else "__main__"
    main = sys.modules[name] = types.ModuleType(name)
    main.__file__ = "solution.py"
    sys.argv = ["solution.py"]
    status = 0
    try:
        arguments = json.load(sys.stdin) if called else {}
        exec(code, main.__dict__)
        if called:
            status = call(main, called, arguments)
    except BaseException as error:
        status = ended_by(error)
    del main
    try:
        return finish(name) or status
    except BaseException as error:
        return status or ended_by(error)


def finish(name: str) -> int:
    """End as an interpreter does: join threads, run exit handlers and destructors, flush the streams.

    Returns the exit status, which is not 0 if a stream could not be flushed.
    """
    status = 0
    if _thread._count():
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except BaseException as error:
            status = ended_by(error)
    with contextlib.suppress(BaseException):  # from here on an interpreter's status does not change
        sys.stdin = sys.__stdin__
        sys.stdout = sys.__stdout__
        sys.stderr = sys.__stderr__
        # Destructors run while the program's names still exist, unless something else refers to these names.
        sys.modules.pop(name, None)
        gc.collect()
        held = [kept for kept in gc.get_objects() if type(kept) is dict and kept.get("__name__") == name]
        for kept in held:
            kept.clear()
        if held:
            gc.collect()
    with contextlib.suppress(BaseException):
        sys.__stdout__.flush()  # type: ignore[union-attr]
    return status


def ended_by(error: BaseException) -> int:
    """Return the exit status that an interpreter would have; the traceback goes to stderr."""
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    if isinstance(error, SystemExit):
        if error.code is None:
            return 0
        if isinstance(error.code, int):
            return error.code & 0xFF
    with contextlib.suppress(BaseException):
        sys.excepthook(type(error), error, error.__traceback__)
        sys.stderr.flush()
    return CRASHED


def call(main: types.ModuleType, name: str, arguments: dict[str, Any]) -> int:
    """Call the function, or the method of the class Solution, and write its result to the answer as JSON."""
    owner = main.__dict__.get("Solution")
    function = main.__dict__.get(name)
    if owner is not None and hasattr(owner, name):
        function = getattr(owner(), name)
    if not callable(function):
        return NOT_CALLABLE
    value = function(*rebuilt(arguments["positional"]), **rebuilt(arguments["named"]))
    text = json.dumps(plain(value)).encode()
    while text:
        text = text[os.write(ANSWER, text) :]
    return 0
