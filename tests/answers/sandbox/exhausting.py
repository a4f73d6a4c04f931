"""Hostile programs that take too much: processes, threads, memory, files, output, time, stack."""

from hostile import ANYTHING, CRASHED, EXITED, MEMORY, OUTPUT, TIMED_OUT, Hostile, hostile

PROGRAMS = hostile(
    {
        (CRASHED,): {
            "fork bomb": "import os\nwhile True: os.fork()",
            "vfork by spawn": "import os; os.posix_spawn('/bin/true', ['true'], {})",
            "memory file": "import os; os.memfd_create('x')",
            "many files": "for i in range(10**6): open(f'/tmp/{i}', 'w')",
            "new session": "import os\nos.setpgid(0, 0)",
        },
        (EXITED, CRASHED): {
            "raw clone": "import ctypes\nfor number in (56, 57, 58, 435):\n"
            "    if ctypes.CDLL(None).syscall(number, 17, 0, 0, 0, 0) >= 0: print('cloned')",
        },
        (CRASHED, MEMORY): {
            "thread bomb": "import threading\nstop = threading.Event()\n"
            "while True: threading.Thread(target=stop.wait, daemon=True).start()",
            "shared mapping": "import mmap\nkept = [mmap.mmap(-1, 1 << 26) for _ in range(64)]",
            "unbounded recursion": "def f(): f()\nf()",
            "recursion in C": "x = []\nfor _ in range(10**6): x = [x]\nrepr(x)",
            "nested source": "x = " + "[" * 10**4 + "]" * 10**4,
        },
        (EXITED,): {
            "queued signals": "import signal, threading\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])\nsent = 0\n"
            "try:\n    while sent < 1000: signal.pthread_kill(threading.get_ident(), signal.SIGRTMIN); sent += 1\n"
            "except OSError: pass\n"
            "if sent > 99: print(sent)",
            "System V memory": "import ctypes\nif ctypes.CDLL(None).shmget(0, 1 << 20, 0o1666) >= 0: print('shared')",
            "big files": "import os\nfor folder in ('/', '/tmp', '/dev/shm', '/var/tmp', '.', '/dev', '/usr'):\n"
            "    try: open(os.path.join(folder, 'e1'), 'wb').write(bytes(1 << 20)); print(folder)\n"
            "    except OSError: pass",
            "much on stderr": "import sys\nfor _ in range(10**5): sys.stderr.write('x' * 1000)",
        },
        (MEMORY,): {
            "huge string": "x = 'a' * 10**12",
            "touched bytes": "x = bytearray(8 << 30)",
        },
        (OUTPUT, ANYTHING): {
            "endless print": "while True: print('x' * 1000)",
            "one line of 2 GB": "import os\nwhile True: os.write(1, b'x' * (1 << 16))",
        },
        (TIMED_OUT, ANYTHING): {
            "never exits": "import threading; print(1, flush=True); threading.Event().wait()",
            "closes stdout and sleeps": "import os, time; print(1, flush=True); os.close(1); time.sleep(1e9)",
        },
        (TIMED_OUT,): {
            "long sleep": "import time; time.sleep(1e9)",
            "ignored signals": "import signal\n"
            "for s in (signal.SIGALRM, signal.SIGXCPU, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\n"
            "while True: pass",
            "caught everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            "regular expression": "import re; re.match('(a+)+$', 'a' * 40 + 'b')",
            "in C": "sum(range(10**12))",
            "holds the interpreter": "int('9' * 10**7)",
            "stops itself": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
            "thread that never ends": "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(1e9,)).start()",
        },
        (EXITED, TIMED_OUT, MEMORY): {
            "10 MB of source": "x = 1\n" * (10**7 // 6),
        },
        (TIMED_OUT, MEMORY): {
            "folded constants": "x = 10**10**8",
            "evaluated constants": "eval('9**9**9')",
        },
        (EXITED, ANYTHING): {
            "many threads of numpy": "import numpy; a = numpy.random.rand(300, 300); print((a @ a).shape)",
        },
    }
)
PROGRAMS += [
    Hostile("does not read 50 MB", "print(1)", (EXITED,), b"1\n", b"x" * 50_000_000),
    Hostile(
        "reads past the end",
        "import sys\na = sys.stdin.read(); b = sys.stdin.read()\nprint(len(a), len(b))",
        (EXITED,),
        b"50000000 0\n",
        b"x" * 50_000_000,
    ),
]
