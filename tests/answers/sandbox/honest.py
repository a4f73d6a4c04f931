"""Honest programs, each in another idiom: a box is to give what plain Python gives, `python a.py < in | cat`.

Most print the sum of the two lines of stdin. Some end wrong in plain Python, and so must they in a box.
"""

STDIN = b"19\n23\n"

# What a box alone gives: names without an import, no limit on the digits of integers, deeper recursion.
ONLY_HERE = {
    "names": "h = []; heapq.heappush(h, int(input())); heappush(h, int(input())); print(reduce(add, h))",
    "modules": "print(functools.reduce(operator.add, [int(input()), int(input())]), string.digits[:0])",
    "big integers": "print(len(str(10**20000)) and int(input()) + int(input()))",
    "recursion": "def f(n): return n and 1 + f(n - 1)\nassert f(40000) == 40000\nprint(int(input()) + int(input()))",
    "deep recursion through C": "import sys; sys.setrecursionlimit(10**6)\n@lru_cache(None)\n"
    "def f(n): return n and 1 + f(n - 1)\nassert f(20000) == 20000; print(int(input()) + int(input()))",
}

FAST = """
import io, os, sys

class Bytes(io.IOBase):
    newlines = 0

    def __init__(self, file):
        self.number, self.kept = file.fileno(), io.BytesIO()
        self.writes = "w" in file.mode
        self.write = self.kept.write

    def fill(self):
        chunk = os.read(self.number, max(os.fstat(self.number).st_size, 1 << 13))
        place = self.kept.tell()
        self.kept.seek(0, 2)
        self.kept.write(chunk)
        self.kept.seek(place)
        return chunk

    def read(self):
        while self.fill():
            pass
        return self.kept.read()

    def readline(self):
        while not self.newlines:
            chunk = self.fill()
            self.newlines = chunk.count(b"\\n") + (not chunk)
        self.newlines -= 1
        return self.kept.readline()

    def flush(self):
        if self.writes:
            os.write(self.number, self.kept.getvalue())
            self.kept.seek(0)
            self.kept.truncate()

class Text(io.IOBase):
    def __init__(self, file):
        self.buffer = Bytes(file)
        self.flush, self.writes = self.buffer.flush, self.buffer.writes
        self.write = lambda text: self.buffer.write(text.encode("ascii"))
        self.read = lambda: self.buffer.read().decode("ascii")
        self.readline = lambda: self.buffer.readline().decode("ascii")

sys.stdin, sys.stdout = Text(sys.stdin), Text(sys.stdout)
input = lambda: sys.stdin.readline().rstrip("\\r\\n")
"""
# A stdout of one's own that keeps what is written until it is flushed.
KEEPING = """
import os, sys

class Keeping:
    def __init__(self):
        self.kept = []

    def write(self, text):
        self.kept.append(text)

    def flush(self):
        os.write(1, "".join(self.kept).encode())
        self.kept.clear()

sys.stdout = Keeping()
"""
SUM = "print(int(input()) + int(input()))"

PROGRAMS = {
    "input": "a = int(input()); b = int(input()); print(a + b)",
    "open(0)": "print(sum(map(int, open(0).read().split())))",
    "fileinput": "import fileinput; print(sum(int(line) for line in fileinput.input()))",
    "buffer": "import sys; print(sum(map(int, sys.stdin.buffer.read().split())))",
    "mixed": "import sys; a = int(input()); print(a + int(sys.stdin.read()))",
    "BytesIO": "import io, os; i = io.BytesIO(os.read(0, os.fstat(0).st_size))\n"
    "print(int(i.readline()) + int(i.readline()))",
    "mmap": "import mmap; m = mmap.mmap(0, 0, access=mmap.ACCESS_READ); print(int(m.readline()) + int(m.readline()))",
    "seek": "import sys; n = len(sys.stdin.readlines()); sys.stdin.seek(0); print(sum(int(input()) for _ in range(n)))",
    "select": "import select, sys; assert select.select([sys.stdin], [], [], 5)[0]\n"
    "print(int(sys.stdin.readline()) + int(sys.stdin.readline()))",
    "recursion": "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 27)\n"
    "def f(n): return n and 1 + f(n - 1)\n"
    "def main(): assert f(10**5) == 10**5; print(int(input()) + int(input()))\n"
    "t = threading.Thread(target=main); t.start(); t.join()",
    "stack size": "import resource; resource.setrlimit(resource.RLIMIT_STACK, (1 << 24, resource.RLIM_INFINITY)) "
    "if resource.getrlimit(resource.RLIMIT_STACK)[1] < 0 else None\nprint(int(input()) + int(input()))",
    "main": "def main(): print(int(input()) + int(input()))\nif __name__ == '__main__': main()",
    "numpy": "import numpy as np, sys; print(np.array(sys.stdin.read().split(), dtype=np.int64).sum())",
    "quit in a function": "def main():\n    print(int(input()) + int(input()))\n    quit(0)\nmain()",
    "own stdout": "out = open(1, 'w'); print(int(input()) + int(input()), file=out)",
    "closed stdout": "import sys; print(int(input()) + int(input())); sys.stdout.close()",
    "no stdout": "import sys; print(int(input()) + int(input())); sys.stdout.flush(); sys.stdout = None",
    "destructor": "class X:\n    def __del__(self): print(int(input()) + int(input()))\nx = X()",
    "devnull": "import os, sys\nprint('x', file=open(os.devnull, 'w')); print(int(input()) + int(input()))",
    "missing package": "try: import sympy\nexcept ImportError: pass\nprint(int(input()) + int(input()))",
    "os._exit": "import os; print(int(input()) + int(input()), flush=True); os._exit(0)",
    "exit handler": "import atexit; atexit.register(lambda: print(int(input()) + int(input())))",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
    "print(P(int(input())).x + int(input()))",
    "pickle": "import pickle\nclass P: pass\np = pickle.loads(pickle.dumps(P())); print(int(input()) + int(input()))",
    "wrapped everything": "import io, sys\nfor name in ('stdin', 'stdout', 'stderr'):\n"
    f"    setattr(sys, name, io.TextIOWrapper(getattr(sys, name).buffer, encoding='utf-8'))\n"
    f"{SUM}\nprint(1, file=sys.stderr)",
    "detached stdout": f"import io, sys; sys.stdout = io.TextIOWrapper(sys.stdout.detach(), newline='\\n')\n{SUM}",
    "detached and lost": f"import sys; {SUM}; sys.stdout.flush(); sys.stdout.detach()",
    "reconfigured": f"import sys; sys.stdout.reconfigure(line_buffering=True, encoding='utf-16')\n{SUM}",
    "codecs": "import codecs, sys; sys.stdin = codecs.getreader('utf-8')(sys.stdin.buffer)\n"
    f"sys.stdout = codecs.getwriter('utf-8')(sys.stdout.buffer)\n{SUM}\nprint('\xe9')",
    "unflushed wrapper": f"import io, sys; out = io.TextIOWrapper(sys.stdout.buffer)\nout.write('1')\n{SUM}",
    "raw stdout": "import sys; sys.stdout.buffer.raw.write(str(int(input()) + int(input())).encode())",
    "descriptors": "import os; out = os.fdopen(os.dup(1), 'w'); out.write(str(sum(map(int, os.fdopen(0)))))",
    "what it can": "import sys\n"
    "for f in (sys.stdin, sys.stdout, sys.stderr):\n    print(f.seekable(), f.isatty(), f.encoding, f.line_buffering)",
    "fast": f"{FAST}{SUM}",
    "keeping": f"{KEEPING}{SUM}",
    "keeping, and flushed": f"{KEEPING}{SUM}\nsys.stdout.flush()\nprint(1)",
    "keeping, at the exit": f"{KEEPING}import atexit\natexit.register(lambda: {SUM})",
    "keeping, and it fails": f"{KEEPING}{SUM}\nKeeping.flush = None",
    "never flushed": f"import sys\nclass Out: write = sys.stdout.write\nsys.stdout = Out()\n{SUM}",
    "redirected": "import contextlib, io\n"
    f"with contextlib.redirect_stdout(io.StringIO()) as s:\n    {SUM}\nprint(s.getvalue())",
    "printed after the close": f"import sys; {SUM}; sys.stdout.close(); print(1)",
    "closed by number": f"import os; {SUM}; os.close(1)",
    "prompt": "print(int(input('a? ')) + int(input('b? ')))",
    "past the end": "input(); input(); input()",
    "no letter": r"print('\ud800')",
    "/dev/stdin": "print(sum(map(int, open('/dev/stdin'))))",
    "/dev/stdin by its path": "import pathlib; print(sum(map(int, pathlib.Path('/dev/stdin').read_text().split())))",
    "/dev/stdout": "out = open('/dev/stdout', 'w'); out.write(str(int(input()) + int(input())))",
    "input.txt if there": "import sys\ntry: sys.stdin = open('input.txt')\nexcept FileNotFoundError: pass\n" + SUM,
    "judge by environment": f"import os\nif 'ONLINE_JUDGE' not in os.environ: {SUM}",
    "asyncio": "import asyncio\nasync def read():\n    await asyncio.sleep(0.001)\n    return int(input())\n"
    "async def main(): print(sum(await asyncio.gather(read(), read())))\nasyncio.run(main())",
    "pool of threads": "from concurrent.futures import ThreadPoolExecutor\n"
    "with ThreadPoolExecutor(8) as pool: print(sum(pool.map(int, [input(), input()])))",
    "twenty threads": "import threading\nsums = []\nlock = threading.Lock()\n"
    "def add(n):\n    with lock: sums.append(n)\na, b = int(input()), int(input())\n"
    "ts = [threading.Thread(target=add, args=(n,)) for n in range(20)]\n"
    "for t in ts: t.start()\nfor t in ts: t.join()\nprint(a + b, sum(sums))",
    "daemon": f"import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n{SUM}",
    "thread that fails": f"import threading\nthreading.Thread(target=lambda: 1 / 0).start()\n{SUM}",
    "unfinished generator": "def f():\n    try: yield int(input())\n    finally: print(int(input()))\n"
    "g = f(); print(next(g))",
    "finalizer": f"import weakref\nclass X: pass\nx = X(); weakref.finalize(x, lambda: {SUM})",
    "destructor of a global's user": "n = int(input())\nclass X:\n    def __del__(self): print(n)\nx = X()",
    "failing exit handler": f"import atexit; atexit.register(lambda: 1 / 0); {SUM}",
    "exit with a text": f"import sys; {SUM}; sys.exit('done')",
    "exit with 3": f"{SUM}; exit(3)",
    "interrupted": f"{SUM}; raise KeyboardInterrupt",
    "own hook": f"import sys; sys.excepthook = lambda *a: print('failed'); {SUM}; 1 / 0",
    "seeded": "import random; random.seed(7); print(random.random(), random.sample(range(99), 9))",
    "sets of texts": "print(set(map(str, range(99))))",
    "temporary file": "import tempfile\ntry: print(len(tempfile.gettempdir()) > 99)\nexcept OSError: print(False)",
    "numpy from stdin": "import numpy as np, sys; print(np.loadtxt(sys.stdin, dtype=int).sum())",
}
