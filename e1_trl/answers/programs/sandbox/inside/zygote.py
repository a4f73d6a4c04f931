"""The main program of a box: preloads the usual modules and numpy, then forks once for every program.

It starts without the module site, so it knows only the standard library and, of this project, its own folder. It is
trusted, but runs next to programs that are not, so it holds nothing worth reading: a program's text comes through a
descriptor that only its own process reads, and expected outputs never come here.

Arguments: the descriptor of its control socket, the filters of system calls of the box and of programs (hexadecimal),
the folders of the packages that programs may import and, for Landlock, the readable paths. Over the socket comes one
request at a time, as JSON with descriptors:

    request  {"size": of the program, in bytes, "cpu": seconds, "memory": bytes, "tasks": number,
             "call": name or null}, and the descriptors of the program, stdin, stdout, stderr, the
             answer, the pipes for turns, and later inputs
    stop     anything else, or the end of the socket: the program is killed
    started  from the program's process, so that the kernel attests its id
    reply    wait status and CPU time (microseconds), once for every request

A program is one process: its filter of system calls denies it any other, and signals to any but itself. So nothing
outlives it.
"""

import _sitebuiltins
import builtins
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import random
import select
import signal
import socket
import struct
import sys
from typing import Any

# Relative, since a box contains only this folder of the project.
from .program import State, become
from .protocol import ANSWER, CRASHED, READY, REPLY, STARTED
from .restrictions import (
    CAPABILITIES,
    DESCRIPTORS,
    PIDFD_OPEN,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    Restrictions,
    address_space,
    confine,
    demand,
    install,
    libc,
    limit_box,
)

RECURSION_LIMIT = 50_000  # LiveCodeBench's
PRELOADED = (
    *("bisect", "calendar", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions"),
    *("functools", "heapq", "io", "itertools", "json", "math", "operator", "queue", "random", "re", "statistics"),
    *("string", "struct", "textwrap", "time", "traceback", "typing", "sortedcontainers"),
)
# Modules whose names need no import, as in LiveCodeBench's grader, on which its prompts and data rely.
STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "typing"),
)
# From the C library: os.fork has every child repair thread locks and seed the module random, which touches, and so
# copies, a sixth of a program's memory pages.
FORK = ctypes.PyDLL(None).fork


def main() -> None:
    """Become the zygote of a box. The module documents the arguments."""
    del sys.path[0]  # from where this folder was imported
    given, ours, theirs, packages, *readable = sys.argv[1:]
    control = socket.socket(fileno=fcntl.fcntl(int(given), fcntl.F_DUPFD, ANSWER + 1))
    os.close(int(given))
    os.dup2(2, ANSWER)  # so that no other file gets this number
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a launcher may ignore it, and then no program could be waited for
    folders = packages.split(os.pathsep)
    sys.path += folders
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    # The module site would define these.
    builtins.exit, builtins.quit = (_sitebuiltins.Quitter(name, "") for name in ("exit", "quit"))
    for name in (*PRELOADED, "numpy"):
        with contextlib.suppress(ImportError):  # the machine may lack packages
            importlib.import_module(name)
    # Builtins: in the module of every program, these names would copy the memory pages of all that they refer to.
    vars(builtins).update(starred_names())
    if not os.path.exists("/dev/stdin"):
        name_streams()
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.set_int_max_str_digits(0)
    demand(libc.capset(struct.pack("=Ii", CAPABILITIES, 0), bytes(24)))
    restrictions = settle(bytes.fromhex(ours), bytes.fromhex(theirs), folders, readable)
    control.send(READY)
    serve(control, restrictions)


def starred_names() -> dict[str, Any]:
    """Return the starred modules and their public names, without those that would hide a builtin."""
    modules = {name: importlib.import_module(name) for name in STARRED}
    found: dict[str, Any] = {}
    for module in modules.values():
        public = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        found.update((name, getattr(module, name)) for name in public)
    return {name: value for name, value in (found | modules).items() if not hasattr(builtins, name)}


def name_streams() -> None:
    """Make `open` accept the standard streams by name, which without /proc are no files."""
    opened = builtins.open
    numbers = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}

    def open_named(file: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(file, str | os.PathLike) and os.fspath(file) in numbers:
            file = os.dup(numbers[os.fspath(file)])
        return opened(file, *rest, **named)

    builtins.open = io.open = open_named


def settle(ours: bytes, theirs: bytes, folders: list[str], readable: list[str]) -> Restrictions:
    """Give up what this process no longer needs; returns the restrictions of programs.

    `ours` and `theirs` are the filters of system calls of the box and of programs.
    """
    if readable:
        confine(readable)
        # Programs import only what is preloaded: these folders hold all packages, not only those for programs.
        del sys.path[-len(folders) :]
        sys.path_importer_cache.clear()
    gc.collect()
    gc.freeze()
    limit_box()
    install(ours)
    return Restrictions(theirs, address_space())


def serve(control: socket.socket, restrictions: Restrictions) -> None:
    """Serve requests until the socket ends."""
    state = State()
    nothing = os.open(os.devnull, os.O_RDONLY)
    errors = os.dup(2)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, DESCRIPTORS)
        if not message:
            return
        if not descriptors:
            continue  # a stop that came too late
        request = json.loads(message)
        source, *standard = descriptors[: ANSWER + 2]
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
        parent = os.getpid()
        random.seed()
        pid = FORK()
        demand(pid)
        if not pid:
            demand(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))  # the kernel kills it with its parent
            if os.getppid() != parent:
                os._exit(CRASHED)
            control.send(STARTED)
            become(request, source, descriptors[ANSWER + 2 :], restrictions, state)
        for descriptor in descriptors:
            os.close(descriptor)
        for number in range(len(standard)):  # so that the pipes end with the program
            os.dup2(errors if number == 2 else nothing, number)
        wait(control, pid)


def wait(control: socket.socket, pid: int) -> None:
    """Wait for the program to end, killing it when anything comes over the socket, and reply."""
    watched = libc.syscall(PIDFD_OPEN, pid, 0)
    demand(watched)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(control, select.POLLIN)
    if watched not in (descriptor for descriptor, _ in poll.poll()):
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    os.close(watched)
    control.send(REPLY.pack(status, int((usage.ru_utime + usage.ru_stime) * 1e6)))
