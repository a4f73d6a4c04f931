"""Hostile programs that reach for what is not theirs: files, processes, the network, the harness, their own verdict."""

from hostile import ANYTHING, CRASHED, EXITED, KILLED, TIMED_OUT, Hostile, hostile, ignoring

PROGRAMS = hostile(
    {
        (EXITED, ANYTHING): {
            "environment": "import os; print(dict(os.environ))",
            "environments of others": ignoring(
                "OSError", *(f"print(open('/proc/{pid}/environ').read())" for pid in ("self", 1, 2, "{parent}"))
            ),
            "files of the user": ignoring(
                "OSError",
                "import os; print(os.listdir(os.path.expanduser('~')))",
                "print(open('{planted}').read())",
                "print(open('/etc/shadow').read())",
                "print(open('/etc/passwd').read())",
                "print(os.listdir('{cwd}'))",
                "print(os.listdir('/home'))",
            ),
            "memory of the harness": "import gc, sys\nframe = sys._getframe()\n"
            "while frame: print(frame.f_locals.keys()); frame = frame.f_back\n"
            "print([o for o in gc.get_objects() if isinstance(o, str) and 'planted' in o and 'e1-' in o])",
            "memory of others": ignoring(
                "OSError", *(f"print(open('/proc/{pid}/mem', 'rb').read(1))" for pid in ("self", 1, 2, "{parent}"))
            ),
        },
        (EXITED,): {
            "goes out by a pair": "import os, socket\na, b = socket.socketpair()\n"
            + ignoring(
                "OSError",
                "socket.send_fds(a, [b'x'], [0]); print('sent')",
                "socket.recv_fds(b, 1, 1); print('received')",
                "a.send(b'x', socket.MSG_OOB); print('urgent')",
                "a.connect('{planted}'); print('connected')",
                "a.bind('/tmp/e1'); print('bound')",
                "a.sendto(b'x', '{planted}'); print('sent to a name')",
                "a.setsockopt(socket.SOL_SOCKET, 26, bytes(16)); print('filtered')",
            ),
            "signals by other calls": "import ctypes\nlibc = ctypes.CDLL(None)\nfor pid in (1, 2, {parent}):\n"
            "    for number in (129, 200, 297, 424):\n"
            "        if libc.syscall(number, pid, 9, 0, 0) >= 0: print(number, pid)",
            "outlives its parent's end": "import ctypes\nif ctypes.CDLL(None).prctl(1, 0, 0, 0, 0) >= 0: print('free')",
            "changes files by young system calls": "import ctypes, sys\nlibc = ctypes.CDLL(None)\n"
            "for number in range(452, 480):\n"
            "    if libc.syscall(number, -100, sys.executable.encode(), 0o777, 0, 0, 0) >= 0: print(number)",
            "changes a file's flags": "import fcntl, json\nfor command in (0x40086602, 0xC0045878, 0x80086601):\n"
            "    try: fcntl.ioctl(open(json.__file__), command, b'\\0' * 8); print(command)\n    except OSError: pass",
            "watches folders": "import ctypes\nlibc = ctypes.CDLL(None)\n"
            "for number in (253, 294):\n    if libc.syscall(number, 0) >= 0: print(number)",
            "debugs others": "import ctypes, os\nlibc = ctypes.CDLL(None)\nfor pid in (1, 2, os.getppid(), {parent}):\n"
            "    for request in (16, 0x4206):\n"
            "        if libc.ptrace(request, pid, 0, 0) >= 0: print('attached', pid)\n"
            "    if libc.syscall(434, pid, 0) >= 0: print('opened', pid)\n"
            "    if libc.process_vm_readv(pid, 0, 0, 0, 0, 0) >= 0: print('read', pid)",
            "looks for others": "import os, time\nfor pid in (1, 2, os.getppid(), {parent}):\n"
            "    for look in (os.getsid, os.getpgid, os.sched_getaffinity, os.sched_getscheduler, os.sched_getparam,\n"
            "                 lambda pid: os.getpriority(os.PRIO_PROCESS, pid),\n"
            "                 lambda pid: time.clock_gettime(~pid << 3 | 2)):\n"
            "        try: print(pid, look, look(pid))\n        except OSError: pass",
            "inherited descriptors": "import os\nfor number in range(6, 1024):\n"
            "    try: os.write(number, b'x'); print(number)\n    except OSError: pass",
            "replaces files of the harness": "import json, sys\n"
            "for path in ('/box/inside/zygote.py', json.__file__, sys.executable, '/packages/x.py', 'solution.py'):\n"
            "    try: open(path, 'w'); print(path)\n    except OSError: pass",
            "links": "import os\nfor link in (os.symlink, os.link):\n    for folder in ('/', '/tmp', '/dev'):\n"
            "        try: link('/etc/passwd', folder + '/e1'); print(folder)\n        except OSError: pass",
            "sys.exit": "import sys; sys.exit(0)",
            "kernel interfaces": "import ctypes\nlibc = ctypes.CDLL(None)\n"
            "for number in (272, 308, 165, 166, 155, 161, 250, 248, 425, 321, 298, 323, 428, 429, 430, 442):\n"
            "    if libc.syscall(number, 0, 0, 0, 0, 0) >= 0: print(number)",
            "kernel interfaces that nothing needs": "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "for number in (27, 40, 74, 75, 187, 206, 209, 221, 222, 237, 238, 256, 275, 276, 277, 278, 279, 317,\n"
            "               324, 326, 327, 328, 444, 451):\n"
            "    ctypes.set_errno(0)\n    libc.syscall(number, -1, 0, 0, 0, 0, 0)\n"
            "    if ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS): print(number, ctypes.get_errno())\n"
            "if libc.madvise(0, 0, 21) == 0: print('paged out')",
            "locks files for others to see": "import ctypes, fcntl, json, struct\nfile = open(json.__file__)\n"
            "lock = struct.pack('hhqqi', 0, 0, 0, 0, 0)\n"
            "for command in (5, 6, 7, 36, 37, 38):\n"
            "    try: fcntl.fcntl(file, command, lock); print(command)\n    except OSError: pass",
            "devices and owners": ignoring(
                "OSError",
                "import os; os.mknod('/dev/e1', 0o20666, 1 << 8 | 3); print('made')",
                "os.setuid(0); print('root')",
                "os.chmod('/box/inside/zygote.py', 0o4777); print('changed')",
                "os.open('/dev/tty', os.O_RDWR); print('terminal')",
                "os.open('/dev/mem', os.O_RDONLY); print('memory')",
                "os.open('/dev/vda', os.O_RDONLY); print('disk')",
            ),
        },
        (CRASHED, EXITED, ANYTHING): {
            "name lookup": "import socket; print(socket.gethostbyname('localhost'))",
        },
        (EXITED, KILLED): {
            "kills everybody": "import os\nfor pid in (-1, 0, 1, 2, os.getppid(), {parent}, *range(3, 3000)):\n"
            "    try: os.kill(pid, 9); print(pid)\n    except OSError: pass",
        },
        (EXITED, CRASHED): {
            **{
                f"has the kernel signal the parent, {signal} by {owner}": "import fcntl, os, time\nr, w = os.pipe()\n"
                + ignoring(
                    "OSError",
                    f"fcntl.fcntl(r, {owner}, os.getppid())",
                    f"fcntl.fcntl(r, 10, {signal})",
                    "fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK); os.write(w, b'x'); time.sleep(1)",
                )
                for signal in (9, 19)
                for owner in (8, 8 | 1 << 40)
            },
            "exit handler after a failure": "import atexit, os; atexit.register(os._exit, 0); raise ValueError",
            "traces": "import sys; sys.settrace(lambda *a: sys.exit(0)); sys.setprofile(lambda *a: sys.exit(0))\n"
            "len('')",
        },
        (CRASHED, ANYTHING): {
            "segfault": "import ctypes; print(1, flush=True); ctypes.string_at(0)",
            "aborts": "import os; print(1, flush=True); os.abort()",
            "exits with text": "import sys; print(1); sys.exit('no')",
        },
        (CRASHED,): {
            **{
                f"socket {family}": f"import socket; socket.socket(socket.{family}, socket.{kind})"
                for family, kind in (("AF_INET", "SOCK_STREAM"), ("AF_UNIX", "SOCK_STREAM"), ("AF_NETLINK", "SOCK_RAW"))
            },
            **{
                f"pair {arguments}": f"import socket; socket.socketpair({arguments})"
                for arguments in ("type=socket.SOCK_DGRAM", "type=socket.SOCK_SEQPACKET", "type=3", "socket.AF_INET")
            },
            "destructor": "class X:\n    def __del__(self): raise SystemExit(0)\nx = X()\ndel x\nraise ValueError",
            "subprocess": "import subprocess; subprocess.run(['sh', '-c', 'echo out'])",
            "exec": "import os; os.execv('/bin/sh', ['sh', '-c', 'echo out'])",
            "multiprocessing": "import multiprocessing\nmultiprocessing.Pool(2).map(abs, [1])",
            "reads another file as stdin": "import sys; sys.stdin = open('/etc/passwd'); print(input())",
        },
        (CRASHED, TIMED_OUT): {
            "timer": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\nwhile True: pass",
        },
    }
)
PROGRAMS += [
    Hostile(
        "changes its own input",
        "import fcntl, mmap, os\n"
        + ignoring(
            "(OSError, ValueError)",
            "os.write(0, b'x'); print('written')",
            "os.ftruncate(0, 0); print('cut')",
            "os.posix_fallocate(0, 0, 1 << 20); print('grown')",
            "mmap.mmap(0, 0); print('mapped')",
            "os.ftruncate(os.open('/proc/self/fd/0', os.O_RDWR), 0); print('cut by name')",
            "mmap.mmap(os.open('/proc/self/fd/0', os.O_RDWR), 0); print('mapped by name')",
            "open('/proc/self/fd/0', 'w'); print('emptied')",
            "os.write(os.open('/dev/stdin', os.O_RDWR), b'x'); print('written by device')",
            "fcntl.flock(0, fcntl.LOCK_EX); print('locked')",
            "fcntl.fcntl(0, 1033, 1); print('sealed')",
        ),
        (EXITED,),
        stdin=b"1\n",
    ),
    Hostile(
        "strange bytes",
        "import os; os.write(1, "
        "b'\\x00\\xff\\xed\\xa0\\x80\\x1b[2J\\r\\n\\xef\\xbb\\xbf\\x0b\\x0c\\xc2\\x85\\xe2\\x80\\xa8')",
        (EXITED,),
        b"\x00\xff\xed\xa0\x80\x1b[2J\r\n\xef\xbb\xbf\x0b\x0c\xc2\x85\xe2\x80\xa8",
    ),
]
