"""Filters of system calls: they deny every program the calls that computing an answer does not need.

They list denied calls, as isolate does: a list of allowed calls breaks with every release of numpy. There are two
filters, since installing one takes time: calls that the box does not need either are denied to the box, once, and its
programs inherit that; the rest are denied to each program.
"""

import errno
import socket
import struct
import tempfile
from typing import Any

from e1_trl.answers.programs.sandbox.inside.restrictions import PID, PR_SET_PDEATHSIG

CLONE_THREAD = 0x10000
LOW = 0xFFFFFFFF  # the half of an argument that the kernel reads
# Commands by which the kernel signals other processes (F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY), and
# locks, which others see (F_GETLK, F_SETLK, F_SETLKW and their F_OFD_ variants).
FILE_COMMANDS = (8, 10, 15, 1024, 1026, 5, 6, 7, 36, 37, 38)
# Calls that tell about any process of the machine by its id.
ABOUT_PROCESSES = ("prlimit64", "getsid", "getpgid", "sched_getaffinity", "sched_getscheduler", "sched_getparam")
OF_PROCESS = 1 << 31  # set in the number of a clock of a process's or thread's time
MADV_COLD = 20  # the first kind of advice that affects the cache of files
OTHER_KINDS = (2, 4, 8)  # bits of every socket type but SOCK_STREAM
# Newer calls than these lists know (cachestat is 451 on every architecture) fail as if the kernel lacked them.
NEWEST = 450
UNKNOWN = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in (
        (0x20, 0, 0, 0),  # load the number of the call
        (0x35, 0, 1, NEWEST + 1),  # if it is at least this one
        (0x06, 0, 0, 0x00050000 | errno.ENOSYS),  # fail with ENOSYS
    )
)

DENIED_TO_PROGRAMS = ("fork", "vfork", "pidfd_open", "recvmsg")
# By what the calls reach.
DENIED = {
    "another program in this process": "execve execveat",
    "other processes: seeing, stopping, reading or writing them": (
        "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp tkill pidfd_getfd "
        "pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo setpgid setpriority sched_setscheduler sched_setattr "
        "sched_setaffinity ioprio_set sched_setparam sync syncfs"
    ),
    "namespaces, mounts, roots": (
        "unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick "
        "mount_setattr swapon swapoff quotactl quotactl_fd"
    ),
    "the network, and every socket but the pair that asyncio needs": (
        "socket bind connect listen accept accept4 sendmsg sendmmsg recvmmsg setsockopt"
    ),
    "memory and messages that outlive a process or are shared with others": (
        "memfd_create memfd_secret shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl "
        "mq_open mq_unlink flock"
    ),
    "the file system, to which nothing can be written anyway": (
        "truncate unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir creat utime utimes utimensat "
        "futimesat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr mknod mknodat chmod fchmod "
        "fchmodat chown fchown lchown fchownat link linkat symlink symlinkat name_to_handle_at open_by_handle_at "
        "fanotify_init inotify_init inotify_init1"
    ),
    "the cache of files, in which a program can leave and read bits": (
        "mincore fadvise64 readahead preadv2 pwritev2 fsync fdatasync sync_file_range"
    ),
    "rarely used calls with a history of faults in the kernel": (
        "bpf keyctl add_key request_key io_uring_setup io_uring_enter io_uring_register userfaultfd splice tee "
        "vmsplice copy_file_range sendfile"
    ),
    "scarce resources, and settings of the whole machine": (
        "io_setup io_submit io_destroy io_getevents io_cancel timer_create membarrier seccomp landlock_create_ruleset "
        "landlock_add_rule landlock_restrict_self set_mempolicy mbind migrate_pages move_pages perf_event_open "
        "personality kexec_load kexec_file_load init_module finit_module delete_module acct syslog iopl ioperm "
        "modify_ldt vhangup reboot sethostname setdomainname settimeofday clock_settime adjtimex clock_adjtime "
        "lookup_dcookie uselib setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset"
    ),
}


def compiled() -> tuple[bytes, bytes]:
    """Compile the filter that the box installs, and the one that each program does, with its id in place of `PID`."""
    import pyseccomp as seccomp

    denied = seccomp.ERRNO(errno.EPERM)
    missing = seccomp.ERRNO(errno.ENOSYS)
    box = seccomp.SyscallFilter(seccomp.ALLOW)
    program = seccomp.SyscallFilter(seccomp.ALLOW)
    for filter, names in ((box, " ".join(DENIED.values()).split()), (program, DENIED_TO_PROGRAMS)):
        for name in names:
            if seccomp.resolve_syscall(seccomp.Arch.NATIVE, name) > 0:  # otherwise this architecture lacks it
                filter.add_rule(denied, name)
    # Programs may set the size of their stack; glibc passes 0 for the calling process.
    for name in ABOUT_PROCESSES:
        box.add_rule(denied, name, seccomp.Arg(0, seccomp.NE, 0))
    for name in ("getpriority", "ioprio_get"):
        box.add_rule(denied, name, seccomp.Arg(1, seccomp.NE, 0))
    program.add_rule(denied, "clock_gettime", seccomp.Arg(0, seccomp.MASKED_EQ, OF_PROCESS, OF_PROCESS))
    for command in FILE_COMMANDS:
        box.add_rule(denied, "fcntl", seccomp.Arg(1, seccomp.MASKED_EQ, LOW, command))
    box.add_rule(denied, "madvise", seccomp.Arg(2, seccomp.GE, MADV_COLD))
    # A pair of streams reaches nobody; other kinds can send to any name. Flags ask for rarely used features, which had
    # faults in the kernel.
    box.add_rule(denied, "socketpair", seccomp.Arg(0, seccomp.NE, socket.AF_UNIX))
    for other in OTHER_KINDS:
        box.add_rule(denied, "socketpair", seccomp.Arg(1, seccomp.MASKED_EQ, other, other))
    for name in ("sendto", "recvfrom"):
        box.add_rule(denied, name, seccomp.Arg(3, seccomp.NE, 0))
    # Only the terminal's commands for devices and files stay: Python sends one to every file it opens.
    box.add_rule(denied, "ioctl", seccomp.Arg(1, seccomp.GT, 0x54FF))
    box.add_rule(denied, "ioctl", seccomp.Arg(1, seccomp.LT, 0x5400))
    # A fork is a clone without this flag; without clone3, whose flags no filter can see, glibc uses clone.
    box.add_rule(missing, "clone3")
    program.add_rule(denied, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, CLONE_THREAD, 0))
    program.add_rule(denied, "prctl", seccomp.Arg(0, seccomp.MASKED_EQ, LOW, PR_SET_PDEATHSIG))
    for name in ("kill", "tgkill"):  # abort() signals itself
        program.add_rule(denied, name, seccomp.Arg(0, seccomp.NE, PID))
    return UNKNOWN + _exported(box), _exported(program)


def _exported(filter: Any) -> bytes:
    with tempfile.TemporaryFile() as file:
        filter.export_bpf(file)
        file.seek(0)
        return file.read()
