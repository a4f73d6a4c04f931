"""Restrictions that a process accepts for good before it becomes a program: limits, system calls, files (Landlock)."""

import ctypes
import math
import mmap
import os
import resource
import struct
import sys
from dataclasses import dataclass

PID = 0x5EC0DE5E  # placeholder in the filter for the id of the process that installs it
PID_BYTES = PID.to_bytes(4, sys.byteorder)
DESCRIPTORS = 96  # limit per process: 60 for a program, plus those of its later tests
STACK = 2**26  # bytes for the main thread: recursion through C takes more than the usual 8 MiB
PATIENCE = 2  # times the CPU limit: the kernel kills only programs that the grader, which measures it, could not
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
PIDFD_OPEN = 434  # on every architecture; the module os has it only if Python was built with a recent C library
CAPABILITIES = 0x20080522  # the version of capset's header

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Restrictions:
    """Restrictions of every program in a box."""

    filter: bytes  # for system calls, a compiled BPF program
    address_space: int  # bytes held by the process from which programs are forked

    def impose(self, cpu: float, memory: int, tasks: int) -> None:
        """Restrict this process for good: seconds, bytes, processes and threads of its user, unless that is root."""
        limit(
            (resource.RLIMIT_AS, self.address_space + memory),
            (resource.RLIMIT_CPU, math.ceil(PATIENCE * cpu)),
            (resource.RLIMIT_NPROC, tasks),
        )
        install(self.filter.replace(PID_BYTES, os.getpid().to_bytes(4, sys.byteorder)))


def limit(*most: tuple[int, int]) -> None:
    """Set resource limits for good, each to the given value or the current hard limit, whichever is lower."""
    for name, value in most:
        lower = _at_most(value, resource.getrlimit(name)[1])
        resource.setrlimit(name, (lower, lower))


def _at_most(value: int, hard: int) -> int:
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def limit_box() -> None:
    """Set the limits that all programs share and a zygote can live with."""
    none = (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE)
    limit((resource.RLIMIT_NOFILE, DESCRIPTORS), (resource.RLIMIT_SIGPENDING, 64), *((name, 0) for name in none))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (_at_most(STACK, hard), hard))


def address_space() -> int:
    """Return the bytes of address space that this process holds, rounded up to MiB.

    This is the least limit that leaves room for another page, found by trying: a box has no /proc to read it from.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low = 0  # MiB
    high = _at_most(1 << 44, hard) >> 20
    while high - low > 1:
        middle = (low + high) // 2
        resource.setrlimit(resource.RLIMIT_AS, (middle << 20, hard))
        try:
            mmap.mmap(-1, mmap.PAGESIZE).close()
        except (OSError, MemoryError):
            low = middle
        else:
            high = middle
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high << 20


class Program(ctypes.Structure):
    """A BPF program as prctl takes it: the number of its 8-byte instructions, and a pointer to them."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(filter: bytes) -> None:
    """Install a filter of system calls in this process."""
    demand(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    program = Program(len(filter) // 8, filter)
    demand(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))


def demand(result: int) -> None:
    """Raise the error of a failed call of the C library: no program may start less restricted than intended."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


# Number of file rights (bits) that each version of Landlock can take away.
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_FOLDER = 1 << 3
# System calls, on every architecture.
CREATE_RULESET = 444
ADD_RULE = 445
RESTRICT_SELF = 446


def confine(readable: list[str]) -> None:
    """Deny this process and its children all files except those under the readable paths (Landlock)."""
    version = libc.syscall(CREATE_RULESET, None, 0, 1)
    demand(version)
    files = (1 << FILE_RIGHTS[min(version, 5)]) - 1
    attributes = struct.pack("=Q", files)
    if version >= 4:
        attributes += struct.pack("=Q", 0b11)  # network
    if version >= 6:
        attributes += struct.pack("=Q", 0b11)  # abstract sockets and signals
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
