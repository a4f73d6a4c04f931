"""Honest programs that print the sum of the two lines of stdin, each in another idiom."""

IDIOMS = {
    "input": "a = int(input()); b = int(input()); print(a + b)",
    "read": "import sys; print(sum(map(int, sys.stdin.read().split())))",
    "readline": "import sys; input = sys.stdin.readline; print(int(input()) + int(input()))",
    "readlines": "import sys; print(sum(map(int, sys.stdin.readlines())))",
    "iteration": "import sys; print(sum(int(line) for line in sys.stdin))",
    "open(0)": "print(sum(map(int, open(0).read().split())))",
    "fileinput": "import fileinput; print(sum(int(line) for line in fileinput.input()))",
    "buffer": "import sys; print(sum(map(int, sys.stdin.buffer.read().split())))",
    "buffer lines": "import sys; r = sys.stdin.buffer.readline; print(int(r()) + int(r()))",
    "mixed": "import sys; a = int(input()); print(a + int(sys.stdin.read()))",
    "os.read": "import os; print(sum(map(int, os.read(0, 1 << 20).split())))",
    "os.write": "import os; os.write(1, str(int(input()) + int(input())).encode())",
    "stdout.buffer": "import sys; sys.stdout.buffer.write(str(int(input()) + int(input())).encode())",
    "stdout.write": "import sys; sys.stdout.write(str(int(input()) + int(input())))",
    "BytesIO": "import io, os; i = io.BytesIO(os.read(0, os.fstat(0).st_size))\n"
    "print(int(i.readline()) + int(i.readline()))",
    "mmap": "import mmap; m = mmap.mmap(0, 0, access=mmap.ACCESS_READ); print(int(m.readline()) + int(m.readline()))",
    "seek": "import sys; n = len(sys.stdin.readlines()); sys.stdin.seek(0); print(sum(int(input()) for _ in range(n)))",
    "select": "import select, sys; assert select.select([sys.stdin], [], [], 5)[0]\n"
    "print(int(sys.stdin.readline()) + int(sys.stdin.readline()))",
    "thread": "import sys, threading\nthreading.stack_size(1 << 26)\nsys.setrecursionlimit(10**6)\n"
    "def main(): print(int(input()) + int(input()))\nthreading.Thread(target=main).start()",
    "recursion": "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 27)\n"
    "def f(n): return n and 1 + f(n - 1)\n"
    "def main(): assert f(10**5) == 10**5; print(int(input()) + int(input()))\n"
    "t = threading.Thread(target=main); t.start(); t.join()",
    "stack size": "import resource; resource.setrlimit(resource.RLIMIT_STACK, (1 << 24, resource.RLIM_INFINITY)) "
    "if resource.getrlimit(resource.RLIMIT_STACK)[1] < 0 else None\nprint(int(input()) + int(input()))",
    "global": "total = 0\ndef add():\n    global total\n    total += int(input())\nadd(); add(); print(total)",
    "main": "def main(): print(int(input()) + int(input()))\nif __name__ == '__main__': main()",
    "numpy": "import numpy as np, sys; print(np.array(sys.stdin.read().split(), dtype=np.int64).sum())",
    "exit": "print(int(input()) + int(input())); exit()",
    "quit in a function": "def main():\n    print(int(input()) + int(input()))\n    quit(0)\nmain()",
    "own stdout": "out = open(1, 'w'); print(int(input()) + int(input()), file=out)",
    "kept stdout": "import io, sys; out = sys.stdout; sys.stdout = io.StringIO()\n"
    "out.write(str(int(input()) + int(input())))",
    "closed stdout": "import sys; print(int(input()) + int(input())); sys.stdout.close()",
    "no stdout": "import sys; print(int(input()) + int(input())); sys.stdout.flush(); sys.stdout = None",
    "destructor": "class X:\n    def __del__(self): print(int(input()) + int(input()))\nx = X()",
    "names without import": "h = []; heapq.heappush(h, int(input())); heappush(h, int(input())); print(reduce(add, h))",
    "modules without import": "print(functools.reduce(operator.add, [int(input()), int(input())]), string.digits[:0])",
    "devnull": "import os, sys\nprint('x', file=open(os.devnull, 'w')); print(int(input()) + int(input()))",
    "missing package": "try: import sympy\nexcept ImportError: pass\nprint(int(input()) + int(input()))",
    "deep recursion through C": "import sys; sys.setrecursionlimit(10**6)\n@lru_cache(None)\n"
    "def f(n): return n and 1 + f(n - 1)\nassert f(20000) == 20000; print(int(input()) + int(input()))",
    "sys.exit": "import sys; print(int(input()) + int(input())); sys.exit()",
    "os._exit": "import os; print(int(input()) + int(input()), flush=True); os._exit(0)",
    "exit handler": "import atexit; atexit.register(lambda: print(int(input()) + int(input())))",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
    "print(P(int(input())).x + int(input()))",
    "pickle": "import pickle\nclass P: pass\np = pickle.loads(pickle.dumps(P())); print(int(input()) + int(input()))",
    "typing": "from typing import *\nx: List[int] = [int(input()), int(input())]\nprint(sum(x))",
    "lru_cache": "from functools import lru_cache\n@lru_cache(None)\ndef f(n): return n and 1 + f(n - 1)\n"
    "print(f(int(input())) + f(int(input())))",
    "big integers": "print(len(str(10**20000)) and int(input()) + int(input()))",
    "random": "import random; random.random(); print(int(input()) + int(input()))",
}
