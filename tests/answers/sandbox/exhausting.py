"""Hostile programs that take too much: processes, threads, memory, files, output, time, stack."""

from hostile import CRASHED, EXITED, MEMORY, OUTPUT, TIMED_OUT, Hostile

PROGRAMS = [
    Hostile(1, "fork bomb", "import os\nwhile True: os.fork()", (CRASHED,)),
    Hostile(2, "double fork", "import os\nif os.fork() == 0:\n    os.setsid()\n    os.fork()", (CRASHED,)),
    Hostile(2, "vfork by spawn", "import os; os.posix_spawn('/bin/true', ['true'], {})", (CRASHED,)),
    Hostile(
        2,
        "raw clone",
        "import ctypes\nfor number in (56, 57, 58, 435):\n"
        "    if ctypes.CDLL(None).syscall(number, 17, 0, 0, 0, 0) >= 0: print('cloned')",
        (EXITED, CRASHED),
    ),
    Hostile(
        3,
        "thread bomb",
        "import threading\nstop = threading.Event()\n"
        "while True: threading.Thread(target=stop.wait, daemon=True).start()",
        (CRASHED, MEMORY),
    ),
    Hostile(
        3,
        "queued signals",
        "import signal, threading\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])\nsent = 0\n"
        "try:\n    while sent < 1000: signal.pthread_kill(threading.get_ident(), signal.SIGRTMIN); sent += 1\n"
        "except OSError: pass\n"
        "if sent > 99: print(sent)",
        (EXITED,),
    ),
    Hostile(4, "huge string", "x = 'a' * 10**12", (MEMORY,)),
    Hostile(4, "doubling list", "x = [0]\nwhile True: x += x", (MEMORY,)),
    Hostile(4, "touched bytes", "x = bytearray(8 << 30)", (MEMORY,)),
    Hostile(5, "shared mapping", "import mmap\nkept = [mmap.mmap(-1, 1 << 26) for _ in range(64)]", (CRASHED, MEMORY)),
    Hostile(5, "memory file", "import os; os.memfd_create('x')", (CRASHED,)),
    Hostile(
        5,
        "System V memory",
        "import ctypes\nif ctypes.CDLL(None).shmget(0, 1 << 20, 0o1666) >= 0: print('shared')",
        (EXITED,),
    ),
    Hostile(
        6,
        "big files",
        "import os\nfor folder in ('/', '/tmp', '/dev/shm', '/var/tmp', '.', '/dev', '/usr'):\n"
        "    try: open(os.path.join(folder, 'e1'), 'wb').write(bytes(1 << 20)); print(folder)\n"
        "    except OSError: pass",
        (EXITED,),
    ),
    Hostile(6, "many files", "for i in range(10**6): open(f'/tmp/{i}', 'w')", (CRASHED,)),
    Hostile(7, "endless print", "while True: print('x' * 1000)", (OUTPUT,), None),
    Hostile(8, "one line of 2 GB", "import os\nwhile True: os.write(1, b'x' * (1 << 16))", (OUTPUT,), None),
    Hostile(8, "much on stderr", "import sys\nfor _ in range(10**5): sys.stderr.write('x' * 1000)", (EXITED,)),
    Hostile(9, "slow trickle", "import time\nwhile True: print('.', flush=True); time.sleep(0.1)", (TIMED_OUT,), None),
    Hostile(10, "long sleep", "import time; time.sleep(1e9)", (TIMED_OUT,)),
    Hostile(
        11,
        "ignored signals",
        "import signal\nfor s in (signal.SIGALRM, signal.SIGXCPU, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\n"
        "while True: pass",
        (TIMED_OUT,),
    ),
    Hostile(
        12,
        "caught everything",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        (TIMED_OUT,),
    ),
    Hostile(25, "never exits", "import threading; print(1, flush=True); threading.Event().wait()", (TIMED_OUT,), None),
    Hostile(
        25,
        "closes stdout and sleeps",
        "import os, time; print(1, flush=True); os.close(1); time.sleep(1e9)",
        (TIMED_OUT,),
        None,
    ),
    Hostile(33, "unbounded recursion", "def f(): f()\nf()", (CRASHED, MEMORY)),
    Hostile(33, "recursion in C", "x = []\nfor _ in range(10**6): x = [x]\nrepr(x)", (CRASHED, MEMORY)),
    Hostile(34, "deep source", "(" * 10**5, (CRASHED, MEMORY)),
    Hostile(34, "nested source", "x = " + "[" * 10**4 + "]" * 10**4, (CRASHED, MEMORY)),
    Hostile(34, "10 MB of source", "x = 1\n" * (10**7 // 6), (EXITED, TIMED_OUT, MEMORY)),
    Hostile(34, "folded constants", "x = 10**10**8", (TIMED_OUT, MEMORY)),
    Hostile(34, "evaluated constants", "eval('9**9**9')", (TIMED_OUT, MEMORY)),
    Hostile(35, "regular expression", "import re; re.match('(a+)+$', 'a' * 40 + 'b')", (TIMED_OUT,)),
    Hostile(35, "in C", "sum(range(10**12))", (TIMED_OUT,)),
    Hostile(35, "holds the interpreter", "int('9' * 10**7)", (TIMED_OUT,)),
    Hostile(
        39,
        "many threads of numpy",
        "import numpy; a = numpy.random.rand(300, 300); print((a @ a).shape)",
        (EXITED,),
        None,
    ),
    Hostile(40, "stops itself", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", (TIMED_OUT,)),
    Hostile(40, "new session", "import os\nos.setpgid(0, 0)", (CRASHED,)),
    Hostile(44, "loop in a class", "class X:\n    while True: pass", (TIMED_OUT,)),
    Hostile(44, "loop in a default", "def f(x=sum(range(10**12))): pass", (TIMED_OUT,)),
    Hostile(
        46,
        "thread that never ends",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1e9,)).start()",
        (TIMED_OUT,),
    ),
    Hostile(47, "does not read 50 MB", "print(1)", (EXITED,), b"1\n", b"x" * 50_000_000),
    Hostile(
        47,
        "reads past the end",
        "import sys\na = sys.stdin.read(); b = sys.stdin.read()\nprint(len(a), len(b))",
        (EXITED,),
        b"50000000 0\n",
        b"x" * 50_000_000,
    ),
]
