"""What runs inside a box: preloads the usual modules, then forks once for every program.

Started without the module site, so it knows the standard library and, of this project, the folder it lies in. It is
trusted, but it lives beside programs that are not, so it holds nothing worth reading: a program arrives through a
descriptor that only its own process opens, and what is expected of it never comes here.

Arguments: the descriptor of the control socket, the isolation, the filter of system calls (hexadecimal), the folder of
the packages that programs may import, and, for Landlock, the paths that may be read. Over the socket comes one request
at a time, as JSON with descriptors:

    request  {"cpu": seconds, "memory": bytes, "call": name or null} and the descriptors of the program, stdin, stdout,
             stderr and the answer
    stop     anything else, or the end of the socket: the program is killed
    reply    wait status and CPU time (microseconds), once for every request

A program is one process: the filter of system calls denies it another one, and signals to any but itself. So its end
is the end of all that it started. Unprotected it may have no filter; then its processes are sought and killed.
"""

import _sitebuiltins
import atexit
import builtins
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import types
from typing import Any

# Relative, since in a box this folder is all that there is of the project.
from . import orphans
from .protocol import ANSWER, CRASHED, NOT_CALLABLE, OUT_OF_MEMORY, READY, REPLY, UNPROTECTED
from .restrictions import (
    CAPABILITIES,
    PIDFD_OPEN,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    Restrictions,
    address_space,
    confine,
    demand,
    libc,
)
from .values import plain, rebuilt

PRELOADED = (
    *("bisect", "calendar", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions"),
    *("functools", "heapq", "io", "itertools", "json", "math", "operator", "queue", "random", "re", "statistics"),
    *("string", "struct", "textwrap", "time", "traceback", "typing", "numpy", "sortedcontainers"),
)
# Their names are there without an import, as with LiveCodeBench's grader, whose prompts and data count on it.
STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "typing"),
)
RECURSION_LIMIT = 50_000  # LiveCodeBench's
CPU_CLOCK = 2  # with the id of a process, the number of the clock of its CPU time
DESCRIPTORS = 1 << 10  # more than a zygote ever holds, but for the control socket, whose number is its parent's


def serve(control: socket.socket, restrictions: Restrictions) -> None:
    """Serve requests until the socket ends."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 8)
        if not message:
            return
        if not descriptors:
            continue  # a stop that came too late
        request = json.loads(message)
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            control.close()
            demand(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
            if os.getppid() != parent:
                os._exit(CRASHED)
            become(request, descriptors, restrictions)
        for descriptor in descriptors:
            os.close(descriptor)
        wait(control, pid, request["cpu"], restrictions.unprotected)


def wait(control: socket.socket, pid: int, cpu: float, unprotected: bool) -> None:
    """Reply when the program has ended, or has been killed: for its CPU time (seconds), or since something came over
    the socket. The kernel's own limit counts by the clock tick: too much where other machines take the processor."""
    watched = libc.syscall(PIDFD_OPEN, pid, 0)
    demand(watched)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(control, select.POLLIN)
    left, ready = cpu, list[tuple[int, int]]()
    while left > 0 and not ready:
        ready = poll.poll(1000 * left + 1)
        left = cpu - time.clock_gettime(~pid << 3 | CPU_CLOCK)
    if watched not in (descriptor for descriptor, _ in ready):
        os.kill(pid, signal.SIGKILL)
    if unprotected:
        orphans.end(pid)
    _, status, usage = os.wait4(pid, 0)
    os.close(watched)
    if unprotected:
        orphans.end_adopted()
    control.send(REPLY.pack(status, int((usage.ru_utime + usage.ru_stime) * 1e6)))


def become(request: dict[str, Any], descriptors: list[int], restrictions: Restrictions) -> None:
    """Be the program's process, and end with it as an interpreter of its own would."""
    os.setsid()
    program, *others = descriptors
    with open(program, "rb") as file:
        source = file.read()
    others = [os.dup(descriptor) for descriptor in others]  # clear of the numbers that they get
    for number, descriptor in enumerate(others):
        os.dup2(descriptor, number)
    os.closerange(len(others), DESCRIPTORS)
    restrictions.impose(request["cpu"], request["memory"])

    # A function is called in a module that is imported, so that a guarded main program does not run.
    name = "solution" if request["call"] else "__main__"
    main = types.ModuleType(name)
    main.__dict__.update(names(), __file__="solution.py")
    sys.modules[name] = main
    sys.argv = ["solution.py"]
    status = 0
    try:
        arguments = json.load(sys.stdin) if request["call"] else {}
        exec(compile(source, "solution.py", "exec"), main.__dict__)
        if request["call"]:
            status = call(main, request["call"], arguments)
    except BaseException as error:
        status = ended_by(error)
    try:
        finish(main)
    except BaseException as error:
        status = status or ended_by(error)
    os._exit(status)


def finish(main: types.ModuleType) -> None:
    """End as an interpreter does: wait for threads, run what was left for the end, and write what was not yet."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    flush()
    sys.modules.pop(main.__name__, None)
    main.__dict__.clear()
    gc.collect()
    flush()


def flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        try:
            closed = stream is None or stream.closed
        except (AttributeError, ValueError):  # detached, or something else
            closed = False
        if not closed:
            with contextlib.suppress(ValueError, AttributeError):
                stream.flush()  # type: ignore[union-attr]


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


@functools.cache
def names() -> dict[str, Any]:
    """The public names of the starred modules, then the modules themselves; never one that hides a builtin."""
    found: dict[str, Any] = {}
    for module in map(importlib.import_module, STARRED):
        public = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        found.update((name, getattr(module, name)) for name in public)
    found.update((name, importlib.import_module(name)) for name in STARRED)
    return {name: value for name, value in found.items() if not hasattr(builtins, name)}


def main() -> None:
    """Be the zygote of a box. See the module for the arguments."""
    del sys.path[0]  # this folder was imported from there
    control = socket.socket(fileno=int(sys.argv[1]))
    isolation, filter, packages, *readable = sys.argv[2:]
    sys.path.append(packages)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    # Without the module site, which brings them.
    builtins.exit, builtins.quit = (_sitebuiltins.Quitter(name, "") for name in ("exit", "quit"))
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.set_int_max_str_digits(0)
    demand(libc.capset(struct.pack("=Ii", CAPABILITIES, 0), bytes(24)))
    if isolation == UNPROTECTED:
        orphans.adopt()
    if readable:
        confine(readable)
    if readable or isolation == UNPROTECTED:
        # What is preloaded is all that there is: this is the folder of all packages, not only of those for programs.
        sys.path.remove(packages)
        sys.path_importer_cache.clear()
    names()
    gc.collect()
    gc.freeze()
    restrictions = Restrictions(bytes.fromhex(filter), address_space(), isolation == UNPROTECTED)
    control.send(READY)
    serve(control, restrictions)
