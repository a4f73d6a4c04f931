"""What a process gives up for good before it becomes a program: limits, system calls, and files (Landlock)."""

import ctypes
import math
import mmap
import os
import resource
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass

PID = 0x5EC0DE5E  # stands in the filter for the id of the process that it is installed in
PID_BYTES = PID.to_bytes(4, sys.byteorder)
DESCRIPTORS = 96  # that a process may have: a program 60, whatever those of its later tests take
STACK = 2**26  # bytes of the main thread's: recursion through C takes more than the usual 8 MiB
PATIENCE = 2  # times the CPU time: the kernel's limit is for what the grader, which measures it, does not get to kill
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
SECCOMP_MODE_FILTER = 2
PIDFD_OPEN = 434  # on every architecture; the module os has it only where Python was built with a young C library
CAPABILITIES = 0x20080522  # the version of capset's header

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Restrictions:
    """What every program of a box gives up.

    Attributes:
        filter: of system calls, a compiled BPF program.
        address_space: what the process that programs are forked from holds, in bytes.
    """

    filter: bytes
    address_space: int

    def impose(self, cpu: float, memory: int, tasks: int) -> None:
        """Take away, for good, all that a program does not need.

        CPU time is in seconds, memory in bytes; `tasks` are the processes and threads of its user, by which root is not
        held.

        Raises:
            OSError: something cannot be taken away.
        """
        limit(
            [
                (resource.RLIMIT_AS, self.address_space + memory),
                (resource.RLIMIT_CPU, math.ceil(PATIENCE * cpu)),
                (resource.RLIMIT_NPROC, tasks),
            ]
        )
        install(self.filter.replace(PID_BYTES, os.getpid().to_bytes(4, sys.byteorder)))


def limit(most: Iterable[tuple[int, int]]) -> None:
    """Set limits of resources for good, each as low as it is already or as given."""
    for name, value in most:
        hard = resource.getrlimit(name)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (value, value))


def limit_box() -> None:
    """Set the limits that are the same for every program, and that a zygote can live with."""
    none = (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE)
    few = [(resource.RLIMIT_NOFILE, DESCRIPTORS), (resource.RLIMIT_SIGPENDING, 64)]
    limit([*few, *((name, 0) for name in none)])
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = STACK if hard == resource.RLIM_INFINITY else min(STACK, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, hard))


def address_space() -> int:
    """Bytes of address space that this process holds, up to 1 MiB more: the least limit that leaves room for a page.

    Found by trying: in a box there is no /proc to read it from, and the one outside may not show other processes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, (1 << 44 if hard == resource.RLIM_INFINITY else hard) >> 20  # MiB
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
    """A BPF program, as prctl takes it: the number of its instructions, of 8 bytes each, and where they are."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(filter: bytes) -> None:
    """Install a filter of system calls in this process."""
    demand(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    program = Program(len(filter) // 8, filter)
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
