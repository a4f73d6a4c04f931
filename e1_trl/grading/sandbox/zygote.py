"""What runs inside a box: preloads the usual modules, then forks once for every program.

Started by its path and without the module site, so it knows the standard library and nothing of this project. It is
trusted, but it lives beside programs that are not, so it holds nothing worth reading: a program arrives through a
descriptor that only its own process opens, and what is expected of it never comes here.

Arguments: the descriptor of the control socket, the filter of system calls (hexadecimal), the folder of the packages
that programs may import, and, where there are no namespaces, the paths that may be read. Over the socket comes one
request at a time, as JSON with descriptors:

    request  {"cpu": seconds, "address_space": bytes, "call": name or null} and the descriptors of the program, stdin,
             stdout, stderr and the answer
    stop     anything else, or the end of the socket: the program is killed
    reply    wait status and CPU time (microseconds), once for every request

A program is one process: the filter of system calls denies it another one, and signals to any but itself. So its end
is the end of all that it started.
"""

import _sitebuiltins
import atexit
import builtins
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import math
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

ANSWER = 3  # the descriptor, in a program's process
REPLY = struct.Struct("<iq")
# Exit statuses. A program may end with them, too, and so lie about why it failed, not about whether it did.
CRASHED, OUT_OF_MEMORY, NOT_CALLABLE = 1, 113, 114
PID = 0x5EC0DE5E  # stands in the filter for the id of the process that it is installed in

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
STACK = 2**26  # bytes of the main thread's: recursion through C takes more than the usual 8 MiB
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
SECCOMP_MODE_FILTER = 2
CAPABILITIES = 0x20080522  # the version of capset's header

libc = ctypes.CDLL(None, use_errno=True)


def serve(control: socket.socket, sealed: bytes) -> None:
    """Serve requests until the socket ends. `sealed` is the filter of system calls."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 8)
        if not request:
            return
        if not descriptors:
            continue  # a stop that came too late
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            control.close()
            demand(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
            if os.getppid() != parent:
                os._exit(CRASHED)
            become(json.loads(request), descriptors, sealed)
        for descriptor in descriptors:
            os.close(descriptor)
        wait(control, pid)


def wait(control: socket.socket, pid: int) -> None:
    """Reply when the program has ended, or has been killed because something came over the socket."""
    watched = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(control, select.POLLIN)
    if watched not in (descriptor for descriptor, _ in poll.poll()):
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    os.close(watched)
    control.send(REPLY.pack(status, int((usage.ru_utime + usage.ru_stime) * 1e6)))


def become(request: dict[str, Any], descriptors: list[int], sealed: bytes) -> None:
    """Be the program's process, and end with it as an interpreter of its own would."""
    os.setsid()
    program, *others = descriptors
    with open(program, "rb") as file:
        source = file.read()
    others = [os.dup(descriptor) for descriptor in others]  # clear of the numbers that they get
    for number, descriptor in enumerate(others):
        os.dup2(descriptor, number)
    os.closerange(len(others), 1 << 16)
    restrict(request, sealed)

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


def plain(value: Any, tuples: bool = False) -> Any:
    """The value in exact types, as JSON can have them; a tuple is a list, unless `tuples` are told apart.

    A subclass, and what numpy made, is what it holds, whatever it says of itself; any other class is a TypeError.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list or (kind is tuple and not tuples):
        return [plain(item, tuples) for item in value]
    if kind in (tuple, set, frozenset):
        return {"tuple" if kind is tuple else "set": [plain(item, tuples) for item in value]}
    if kind is dict:
        return {"dict": [[plain(key, tuples), plain(item, tuples)] for key, item in value.items()]}
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return plain(value.tolist(), tuples)
    for base, items in VIEWS.items():  # a Counter is a dictionary; what it says of itself is not asked
        if issubclass(kind, base):
            return plain(items(value), tuples)
    raise TypeError(f"{kind.__name__} is no plain type")


VIEWS: dict[type, Callable[[Any], Any]] = {
    dict: lambda value: dict(dict.items(value)),
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
}


def rebuilt(value: Any) -> Any:
    """What `plain` was made of, tuples told apart."""
    if isinstance(value, list):
        return [rebuilt(item) for item in value]
    if isinstance(value, dict):
        ((kind, items),) = value.items()
        made: type = {"tuple": tuple, "set": set, "dict": dict}[kind]
        return made(rebuilt(items) if kind != "dict" else [(rebuilt(key), rebuilt(item)) for key, item in items])
    return value


@functools.cache
def names() -> dict[str, Any]:
    """The public names of the starred modules, then the modules themselves; never one that hides a builtin."""
    found: dict[str, Any] = {}
    for module in map(importlib.import_module, STARRED):
        public = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        found.update((name, getattr(module, name)) for name in public)
    found.update((name, importlib.import_module(name)) for name in STARRED)
    return {name: value for name, value in found.items() if not hasattr(builtins, name)}


def restrict(request: dict[str, Any], sealed: bytes) -> None:
    """Give up, for good, all that a program does not need."""
    cpu = math.ceil(request["cpu"])
    for limit, value in (
        (resource.RLIMIT_AS, request["address_space"]),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = STACK if hard == resource.RLIM_INFINITY else min(STACK, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, hard))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    install(sealed.replace(struct.pack("=I", PID), struct.pack("=I", os.getpid())))


def install(sealed: bytes) -> None:
    """Install a filter of system calls (a compiled BPF program) in this process."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    program = Program(len(sealed) // 8, sealed)
    demand(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    demand(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))


def demand(result: int) -> None:
    """Raise what a failed call of the C library left behind: no program starts less restricted than it should."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


# Rights over files that a version of Landlock can take away, as the number of bits.
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
WRITE_FILE, READ_FILE, READ_FOLDER = 1 << 1, 1 << 2, 1 << 3
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # on every architecture


def confine(readable: list[str]) -> None:
    """Take away, from this process and all that it forks, every file but those under the readable paths (Landlock).

    Raises:
        OSError: the kernel has no Landlock, or does not let this process use it.
    """
    version = libc.syscall(CREATE_RULESET, None, 0, 1)
    demand(version)
    files = (1 << FILE_RIGHTS[min(version, 5)]) - 1
    network = 0b11 if version >= 4 else 0
    scoped = 0b11 if version >= 6 else 0
    attributes = struct.pack("=QQQ", files, network, scoped)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = libc.syscall(CREATE_RULESET, attributes, len(attributes), 0)
    demand(ruleset)
    for path in readable:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = READ_FILE | READ_FOLDER if os.path.isdir(path) else READ_FILE
        rights |= WRITE_FILE if path == os.devnull else 0
        demand(libc.syscall(ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, opened), 0))
        os.close(opened)
    demand(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    demand(libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    sealed = bytes.fromhex(sys.argv[2])
    sys.path.append(sys.argv[3])
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    # Without the module site, which brings them.
    builtins.exit, builtins.quit = (_sitebuiltins.Quitter(name, "") for name in ("exit", "quit"))
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.set_int_max_str_digits(0)
    demand(libc.capset(struct.pack("=Ii", CAPABILITIES, 0), bytes(24)))
    if sys.argv[4:]:
        confine(sys.argv[4:])
        # What is preloaded is all that there is: the folder of all packages cannot be listed any more.
        sys.path.remove(sys.argv[3])
        sys.path_importer_cache.clear()
    names()
    gc.collect()
    gc.freeze()
    control.send(b"ready")
    serve(control, sealed)


if __name__ == "__main__":
    main()
