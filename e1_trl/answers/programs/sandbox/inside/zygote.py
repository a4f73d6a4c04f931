"""What runs inside a box: preloads the usual modules, then forks once for every program.

Started without the module site, so it knows the standard library and, of this project, the folder it lies in. It is
trusted, but it lives beside programs that are not, so it holds nothing worth reading: a program arrives through a
descriptor that only its own process opens, and what is expected of it never comes here.

There are two zygotes, one of which has imported numpy: forking it takes a quarter longer. Arguments: the descriptors of
their control sockets, the filters of system calls of the box and of programs (hexadecimal), the folders
of the packages that programs may import, and, for Landlock, the paths that may be read. Over each socket comes one
request at a time, as JSON with descriptors:

    request  {"size": of the program, in bytes, "cpu": seconds, "memory": bytes, "tasks": number,
             "call": name or null}, and the
             descriptors of the program, stdin, stdout, stderr, the answer, the pipes for turns, and
             later inputs
    stop     anything else, or the end of the socket: the program is killed
    started  from the process of the program, so that the kernel tells its id to whom it may concern
    reply    wait status and CPU time (microseconds), once for every request

A program is one process: its filter of system calls denies it another one, and signals to any but itself. So its end
is the end of all that it started.
"""

import _sitebuiltins
import builtins
import ctypes
import fcntl
import gc
import json
import os
import random
import select
import signal
import socket
import struct
import sys

# Relative, since in a box this folder is all that there is of the project.
from .modules import PRELOADED, name_streams, preload, star
from .program import become
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
from .state import State

RECURSION_LIMIT = 50_000  # LiveCodeBench's
# The C library's. That of the module os has every program mend the locks of threads that there are not, and seed the
# module random: a sixth of the memory pages that it touches, each of which is copied for it.
FORK = ctypes.PyDLL(None).fork


def main() -> None:
    """Start the zygotes of a box, and wait for their ends. See the module for the arguments."""
    del sys.path[0]  # this folder was imported from there
    given = [int(descriptor) for descriptor in sys.argv[1:3]]
    controls = [socket.socket(fileno=fcntl.fcntl(number, fcntl.F_DUPFD, ANSWER + 1)) for number in given]
    for number in given:
        os.close(number)
    os.dup2(2, ANSWER)  # no other file gets this number
    ours, theirs, packages, *readable = sys.argv[3:]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as a launcher may leave it, no program could be waited for
    folders = packages.split(os.pathsep)
    sys.path += folders
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    # Without the module site, which brings them.
    builtins.exit, builtins.quit = (_sitebuiltins.Quitter(name, "") for name in ("exit", "quit"))
    preload(PRELOADED)
    star()
    if not os.path.exists("/dev/stdin"):
        name_streams()
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.set_int_max_str_digits(0)
    demand(libc.capset(struct.pack("=Ii", CAPABILITIES, 0), bytes(24)))
    for number, modules in enumerate(((), ("numpy",))):
        parent = os.getpid()
        if not os.fork():
            die_with(parent)
            controls.pop(1 - number).close()
            preload(modules)
            restrictions = settle(bytes.fromhex(ours), bytes.fromhex(theirs), folders, readable)
            controls[0].send(READY)
            serve(controls[0], restrictions)
            return
    for control in controls:
        control.close()
    for _ in controls:
        os.wait()


def settle(ours: bytes, theirs: bytes, folders: list[str], readable: list[str]) -> Restrictions:
    """Give up what this process does not need any more; what programs will have to. The filters are of either."""
    if readable:
        confine(readable)
        # What is preloaded is all that there is: these are the folders of all packages, not only of those for programs.
        del sys.path[-len(folders) :]
        sys.path_importer_cache.clear()
    gc.collect()
    gc.freeze()
    limit_box()
    install(ours)
    return Restrictions(theirs, address_space())


def die_with(parent: int) -> None:
    """Have this process killed when its parent ends."""
    demand(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != parent:
        os._exit(CRASHED)


def serve(control: socket.socket, restrictions: Restrictions) -> None:
    """Serve requests until the socket ends."""
    state = State()
    nothing, errors = os.open(os.devnull, os.O_RDONLY), os.dup(2)
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
            die_with(parent)
            control.send(STARTED)
            become(request, source, descriptors[ANSWER + 2 :], restrictions, state)
        for descriptor in descriptors:
            os.close(descriptor)
        for number in range(len(standard)):  # so that the pipes end with the program
            os.dup2(errors if number == 2 else nothing, number)
        wait(control, pid)


def wait(control: socket.socket, pid: int) -> None:
    """Reply when the program has ended, or has been killed since something came over the socket."""
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
