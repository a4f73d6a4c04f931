"""The process of one program: becomes it, and ends as an interpreter of its own would."""

import _thread
import atexit
import contextlib
import gc
import json
import os
import sys
import threading
import types
from typing import Any

from .protocol import ANSWER, CRASHED, DONE, NEXT, NOT_CALLABLE, OUT_OF_MEMORY, TURN
from .restrictions import DESCRIPTORS, Restrictions
from .state import State, written
from .values import plain, rebuilt


def become(request: dict[str, Any], source: int, turns: list[int], restrictions: Restrictions, state: State) -> None:
    """Be the program whose text is in the file `source`, and end as an interpreter of its own would.

    The descriptors of its first test are in place; `turns` are the pipes and the inputs of its later ones. It comes to
    a next test only in a process that is as good as new. As little is done here as can be: what a new process touches
    is copied for it.
    """
    os.setsid()
    text = os.read(source, request["size"])
    restrictions.impose(request["cpu"], request["memory"], request["tasks"])
    for number, descriptor in enumerate(turns, DONE):  # each to a lower one, and in their order
        os.dup2(descriptor, number)
    end = DONE + len(turns)
    os.closerange(end, DESCRIPTORS)
    pipes = written()
    try:
        code = compile(text, "solution.py", "exec")
    except BaseException as error:
        os._exit(ended_by(error))
    for following in range(NEXT + 1, end):
        status, may = tested(code, request["call"]), b""
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
    """The exit status after one test."""
    # A function is called in a module that is imported, so that a guarded main program does not run.
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
    """End as an interpreter does: wait for threads, run what was left for the end, and write what was not yet.

    The exit status, if not all could be written.
    """
    status = 0
    if _thread._count():
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if not closed(stream):
                stream.flush()
        except BaseException as error:
            status = ended_by(error)
    with contextlib.suppress(BaseException):  # from here on, an interpreter's status does not change
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        # Destructors run while the program's names are still there, unless something else holds these.
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


def closed(stream: Any) -> bool:
    """Whether nothing is left to flush. What does not say so is flushed."""
    try:
        return stream is None or bool(stream.closed)
    except Exception:
        return False


def ended_by(error: BaseException) -> int:
    """The exit status, as the interpreter has it; the traceback goes to stderr."""
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
    """Call the function, or the method of the class Solution, and write what it returns as JSON to the answer."""
    owner = main.__dict__.get("Solution")
    function = main.__dict__.get(name)
    if owner is not None and hasattr(owner, name):
        function = getattr(owner(), name)
    if not callable(function):
        return NOT_CALLABLE
    positional, named = rebuilt(arguments["positional"]), rebuilt(arguments["named"])
    value = function(*positional, **named)
    text = json.dumps(plain(value)).encode()
    while text:
        text = text[os.write(ANSWER, text) :]
    return 0
