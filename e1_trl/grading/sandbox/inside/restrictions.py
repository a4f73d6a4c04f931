"""What a process gives up for good before it becomes a program: limits, system calls, and files (Landlock)."""

import ctypes
import math
import os
import resource
import struct
from typing import Any

PID = 0x5EC0DE5E  # stands in the filter for the id of the process that it is installed in
STACK = 2**26  # bytes of the main thread's: recursion through C takes more than the usual 8 MiB
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
SECCOMP_MODE_FILTER = 2
CAPABILITIES = 0x20080522  # the version of capset's header

libc = ctypes.CDLL(None, use_errno=True)


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
