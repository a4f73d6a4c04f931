"""Programs for the problems beside: right, wrong and idiomatic ones.

Nothing here says which verdict is right: `verdicts.json` holds what the graders of LiveCodeBench and EvalPlus say, as
`record.py` found it, and `test_upstream_verdicts.py` where ours says otherwise. All of them are harmless, since those
graders run them unprotected.
"""

N = "n = int(input())\n"
XS = "xs = list(map(int, input().split()))\n"
READ = N + XS
TOTAL = f"{READ}print(sum(xs))\n"
MAIN = f"def main():\n    {N}    {XS}    print(sum(xs))\n"
SHIFT = "return [x + 1 for x in nums]"
METHOD = "class Solution:\n    def shifted(self, nums: List[int]) -> List[int]:\n        "
MIDDLE = "def middle(xs): return sum(xs) / len(xs)"

# By problem, programs by what is special about them.
PROGRAMS: dict[str, dict[str, str]] = {
    "total": {
        "input": TOTAL,
        "read": "import sys\nn, *xs = map(int, sys.stdin.read().split())\nprint(sum(xs))",
        "readline": "import sys\nn = int(sys.stdin.readline())\nprint(sum(map(int, sys.stdin.readline().split())))",
        "readline as input": f"import sys\ninput = sys.stdin.readline\n{TOTAL}",
        "readline, its last character cut": f"import sys\n{N}print(sum(map(int, sys.stdin.readline()[:-1].split())))",
        "readlines": "import sys\nlines = sys.stdin.readlines()\nprint(sum(map(int, lines[1].split())))",
        "the last of readlines": "import sys\nprint(sum(map(int, sys.stdin.readlines()[-1].split())))",
        "iterating stdin": "import sys\nlines = [line for line in sys.stdin]\nprint(sum(map(int, lines[1].split())))",
        "stdin by name": f"from sys import stdin\n{TOTAL.replace('input()', 'stdin.readline()')}",
        "stdout by name": f"from sys import stdout\n{READ}stdout.write(str(sum(xs)))",
        "open(0)": "n, *xs = map(int, open(0).read().split())\nprint(sum(xs))",
        "fileinput": "import fileinput\nlines = list(fileinput.input())\nprint(sum(map(int, lines[1].split())))",
        "buffer.read": "import sys\nn, *xs = map(int, sys.stdin.buffer.read().split())\nprint(sum(xs))",
        "buffer.readline": f"import sys\n{TOTAL.replace('input()', 'sys.stdin.buffer.readline()')}",
        "stdout's buffer": f"import sys\n{READ}sys.stdout.buffer.write(b'%d' % sum(xs))",
        "descriptors": "import os\nn, *xs = map(int, os.read(0, 10**6).split())\nos.write(1, b'%d' % sum(xs))",
        "a descriptor's bytes as lines": "import io, os\n"
        f"input = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline\n{TOTAL}",
        "input, then read": f"import sys\n{N}print(sum(map(int, sys.stdin.read().split())))",
        "a thread with a large stack": "import sys, threading\nsys.setrecursionlimit(10**6)\n"
        "threading.stack_size(1 << 26)\ndef deep(n): return n and 1 + deep(n - 1)\n"
        f"{MAIN.replace('sum(xs)', 'sum(xs) + deep(60000) - 60000')}"
        "thread = threading.Thread(target=main)\nthread.start()\nthread.join()",
        "a thread that is not joined": "import threading, time\n"
        f"{MAIN.replace('print', 'time.sleep(0.3); print')}threading.Thread(target=main).start()",
        "deep recursion": f"def deep(n): return n and 1 + deep(n - 1)\n{READ}print(sum(xs) + deep(30000) - 30000)",
        "global": f"total = 0\ndef add(x):\n    global total\n    total += x\n{READ}for x in xs: add(x)\nprint(total)",
        "numpy": f"import numpy as np\n{N}xs = np.array(input().split(), dtype=np.int64)\nprint(xs.sum())",
        "a guard": f"{MAIN}\nif __name__ == '__main__':\n    main()",
        "a guard, reversed": f"{MAIN}\nif '__main__' == __name__:\n    main()",
        "a guard, and more": f"{MAIN}if __name__ == '__main__':\n    main()\ndone = True",
        "a class Solution": "class Solution:\n    def add(self, xs): return sum(self.numbers(xs))\n"
        f"    def numbers(self, xs): return [int(x) for x in xs]\n{N}print(Solution().add(input().split()))",
        "names without imports": f"{N}h = input().split()\nheapify(h)\nprint(reduce(add, map(int, h)))",
        "an import from the future": f"from __future__ import annotations\n{TOTAL}",
        "an import of everything, tried": f"try:\n    from math import *\nexcept ImportError: pass\n{TOTAL}",
        "an import inside": f"def line():\n    import sys\n    return sys.stdin.readline()\n"
        f"{TOTAL.replace('input', 'line')}",
        "a return at the top": f"{TOTAL}return",
        "globals()": f"def add(xs): return sum(xs)\n{READ}print(globals()['add'](xs))",
        "exec": f"{READ}exec('total = sum(xs)')\nprint(total)",
        "carriage returns in the program": TOTAL.replace("\n", "\r\n"),
        "a byte order mark": "\ufeff" + TOTAL,
        "exit()": f"{TOTAL}exit()",
        "quit()": f"{TOTAL}quit()",
        "sys.exit(0)": f"import sys\n{TOTAL}sys.exit(0)",
        "sys.exit(1)": f"import sys\n{TOTAL}sys.exit(1)",
        "os._exit(0), flushed": f"import os\n{READ}print(sum(xs), flush=True)\nos._exit(0)",
        "os._exit(0)": f"import os\n{TOTAL}os._exit(0)",
        "an exception after the answer": f"{TOTAL}1 / 0",
        "reading beyond the end": f"{TOTAL}input()",
        "stderr": f"import sys\nprint('debug', file=sys.stderr)\n{TOTAL}",
        "a prompt": TOTAL.replace("input()", "input('n: ')", 1),
        "spaces and lines around": f"{READ}print('\\n', sum(xs), '  \\n\\n')",
        "no newline": f"{READ}print(sum(xs), end='')",
        "a float": f"{READ}print(float(sum(xs)))",
        "underscores": f"{READ}print('_'.join(str(sum(xs))) if sum(xs) > 0 else sum(xs))",
        "digits of another script": f"{READ}fullwidth = {{ord('0') + i: 0xff10 + i for i in range(10)}}\n"
        "print(str(sum(xs)).translate(fullwidth))",
        "more output": f"{TOTAL}print(n)",
        "off by one": f"{READ}print(sum(xs) + (n > 3))",
        "nothing": "pass",
        "a syntax error": f"{TOTAL}print(",
        "much memory": f"{READ}bytes(5 << 30)\nprint(sum(xs))",
        "an endless loop": f"{TOTAL}while True: pass",
    },
    "unended": {
        "until EOFError": "total = 0\nwhile True:\n    try: total += int(input())\n    except EOFError: break\n"
        "print(total)",
        "while there is a line": "import sys\ntotal = 0\nwhile line := sys.stdin.readline(): total += int(line)\n"
        "print(total)",
    },
    "lengths": {
        "input": "for _ in range(3): print(len(input()))",
        "read": "import sys\nfor line in sys.stdin.read().splitlines(): print(len(line))",
        "readlines": "import sys\nfor line in sys.stdin.readlines(): print(len(line.strip()))",
    },
    "returns": {
        "input": "print(input() + input())",
        "stripped": "print(input().strip() + input().strip())",
    },
    "half": {
        "a float": "print(int(input()) / 2)",
        "more digits": "print('%.6f' % (int(input()) / 2))",
        "an exponent": "print('%.3e' % (int(input()) / 2))",
        "nearly": "print(int(input()) / 2 + 1e-9)",
    },
    "limits": {
        "the same letters": "x = input()\nprint(x, 1) if x == 'inf' else print(x)",
        "other letters for infinity": "x = input()\nprint('Infinity', 1) if x == 'inf' else print(x)",
        "other letters for no number": "x = input()\nprint(x, 1) if x == 'inf' else print('NaN')",
    },
    "accents": {
        "text": "print(input(), 'é')",
        "bytes": "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.readline().strip() + ' é'.encode())",
        "an encoding that it is not in": "# -*- coding: latin-1 -*-\nprint(input(), 'é')",
        "without": "print(input(), 'e')",
    },
    "silence": {
        "nothing": "x = input()\nif x != '0': print(x)",
        "an empty line": "x = input()\nprint(x if x != '0' else '')",
        "always one": "print(1)",
    },
    "zeros": {
        "an integer": "print(10 ** int(input()))",
        "text": "print('1' + '0' * int(input()))",
    },
    "answer": {
        "as expected": "s = input()\nprint('Yes, it is' if s == s[::-1] else 'No')",
        "another case": "s = input()\nprint('YES, it is' if s == s[::-1] else 'NO')",
        "two spaces": "s = input()\nprint('Yes,  it is' if s == s[::-1] else 'No')",
        "its beginning": "s = input()\nprint('Yes' if s == s[::-1] else 'No')",
        "a constant": "print('No')",
    },
    "shifted": {
        "a method": METHOD + SHIFT,
        "a function": f"def shifted(nums): {SHIFT}",
        "the starter code first": f"{METHOD}pass\n\n{METHOD}{SHIFT}",
        "helpers": f"from typing import List\n{METHOD}return self.up(nums)\n    def up(self, nums): {SHIFT}",
        "a static method": f"class Solution:\n    @staticmethod\n    def shifted(nums): {SHIFT}",
        "a class of another name": f"class Answer:\n    def shifted(self, nums): {SHIFT}",
        "a class Solution, and a function beside it": f"class Solution:\n    pass\ndef shifted(nums): {SHIFT}",
        "a class Solution in a comment": f"# no class Solution is needed\ndef shifted(nums): {SHIFT}",
        "a function of another name": f"def shift(nums): {SHIFT}",
        "without self": f"class Solution:\n    def shifted(nums): {SHIFT}",
        "an import from the future": f"from __future__ import annotations\n{METHOD}{SHIFT}",
        "own tests, printed": f"{METHOD}{SHIFT}\nprint(Solution().shifted([1]))",
        "own tests behind a guard": f"{METHOD}{SHIFT}\nif __name__ == '__main__':\n    assert False",
        "own tests that read": f"{METHOD}{SHIFT}\nprint(Solution().shifted(list(map(int, input().split()))))",
        "own tests that fail": f"{METHOD}{SHIFT}\nassert Solution().shifted([1]) == [1]",
        "an exit at the end": f"{METHOD}{SHIFT}\nimport sys\nsys.exit(0)",
        "an exit inside": f"{METHOD}exit()",
        "output besides": f"{METHOD}print(nums); {SHIFT}",
        "in place, returned": f"{METHOD}nums[:] = [x + 1 for x in nums]; return nums",
        "in place, None": f"{METHOD}nums[:] = [x + 1 for x in nums]",
        "a tuple": f"{METHOD}return tuple(x + 1 for x in nums)",
        "a generator": f"{METHOD}yield from (x + 1 for x in nums)",
        "a range": f"{METHOD}return range(nums[0] + 1, nums[-1] + 2) if nums else range(0)",
        "a set": f"{METHOD}return {{x + 1 for x in nums}}",
        "a deque": f"from collections import deque\n{METHOD}return deque(x + 1 for x in nums)",
        "floats": f"{METHOD}return [x + 1.0 for x in nums]",
        "numpy's numbers": f"import numpy as np\n{METHOD}return [np.int64(x + 1) for x in nums]",
        "numpy's array": f"import numpy as np\n{METHOD}return np.array(nums) + 1",
        "Decimals": f"from decimal import Decimal\n{METHOD}return [Decimal(x) + 1 for x in nums]",
        "equal to anything": f"class Any:\n    def __eq__(self, other): return True\n{METHOD}return Any()",
        "one too many": f"{METHOD}return [x + 1 for x in nums] + [0] * (len(nums) > 1)",
        "an exception": f"{METHOD}return [nums[0] + 1, *(x + 1 for x in nums[1:])]",
        "an endless loop": f"{METHOD}while True: pass",
    },
    "pairs": {
        "lists": "def pairs(a, b): return [[x, y] for x, y in zip(a, b)]",
        "tuples in a list": "class Solution:\n    def pairs(self, a, b): return list(zip(a, b))",
        "in another order": "def pairs(a, b): return [[y, x] for x, y in zip(a, b)]",
    },
    "mean": {
        "exactly": "def mean(xs): return sum(xs) / len(xs)",
        "nearly": "def mean(xs): return sum(xs) / len(xs) + 1e-9",
        "numpy": "import numpy as np\ndef mean(xs): return np.mean(xs)",
    },
    "count": {
        "right": "def count(text, letter): return text.count(letter)",
        "True for 1": "def count(text, letter): return text.count(letter) > 1 and 2 or letter in text",
        "a default that is kept": "def count(text, letter, seen=[]):\n"
        "    seen += [c for c in text if c == letter]\n    return len(seen)",
        "right in the first call": "calls = []\ndef count(text, letter):\n    calls.append(text)\n"
        "    return text.count(letter) if len(calls) == 1 else -1",
    },
    "tally": {
        "a Counter": "def tally(words): return Counter(words)",
        "another order": "def tally(words): return {w: words.count(w) for w in reversed(words)}",
    },
    "middle": {
        "exactly": MIDDLE,
        "an integer where it is one": "def middle(xs): return 1.5 if sum(xs) % 2 else sum(map(int, xs)) // 2",
        "within a ten-millionth": f"{MIDDLE} * (1 + 5e-8)",
        "within a millionth": f"{MIDDLE} * (1 + 5e-7)",
        "a thousandth away": f"{MIDDLE} + 1e-3 * (xs[0] < 2)",
        "rounded": "def middle(xs): return round(sum(xs) / len(xs))",
        "numpy, exactly": "import numpy as np\ndef middle(xs): return np.mean(xs)",
        "numpy, nearly": "import numpy as np\ndef middle(xs): return np.mean(xs) * (1 + 1e-9)",
        "Fraction": "from fractions import Fraction\ndef middle(xs): return Fraction(sum(xs)) / len(xs)",
        "no number": "def middle(xs): return float('nan')",
        "a name without its import": "def middle(xs): return fsum(xs) / len(xs)",
        "a type without its import": MIDDLE.replace("xs)", "xs: List[float])", 1),
        "a method of Solution": "class Solution:\n    def middle(self, xs): return sum(xs) / len(xs)",
        "own tests that pass": f"{MIDDLE}\nassert middle([1]) == 1\nprint(middle([2, 3]))",
        "own tests that fail": f"{MIDDLE}\nassert middle([1]) == 2",
        "own tests behind a guard": f"{MIDDLE}\nif __name__ == '__main__':\n    assert False",
        "an exit at the end": f"{MIDDLE}\nexit(0)",
    },
    "small": {
        "an integer": "def small(n): return 1 if n > 1 else 0",
        "a little over a millionth away": "def small(n): return 0.5 + 1.03e-6",
        "two millionths away": "def small(n): return 0.5 + 2e-6",
    },
    "thirds": {
        "nearly": "def thirds(xs): return [x / 3 + 1e-8 for x in xs]",
        "nearly, in a tuple": "def thirds(xs): return tuple(x / 3 + 1e-8 for x in xs)",
        "numpy's array": "import numpy as np\ndef thirds(xs): return np.array(xs) / 3",
    },
    "alike": {"a column": "def alike(n): return [[0.5], [0.5 + 1e-9]]"},
    "rows": {
        "exactly": "def rows(xs): return [[x / 3, x] for x in xs]",
        "nearly": "def rows(xs): return [[x / 3 + 1e-8, x] for x in xs]",
    },
    "ends": {
        "a tuple": "def ends(xs): return (min(xs), max(xs)) if xs else None",
        "a list": "def ends(xs): return [min(xs), max(xs)] if xs else None",
        "a namedtuple": "from collections import namedtuple\nEnds = namedtuple('Ends', 'low high')\n"
        "def ends(xs): return Ends(min(xs), max(xs)) if xs else None",
    },
    "ratio": {
        "exactly": "def ratio(a, b): return a / b if a % b else a // b",
        "a large integer, a little off": "def ratio(a, b): return a / b if a % b else a // b + 5",
    },
    "letters": {
        "a set": "def letters(text): return set(text)",
        "a frozenset": "def letters(text): return frozenset(text)",
        "the keys of a dictionary": "def letters(text): return dict.fromkeys(text).keys()",
    },
    "words": {
        "a generator": "def words(text): yield from text.split()",
        "a default that is kept": "def words(text, found=[]):\n    found += text.split()\n    return found",
        "None for nothing": "def words(text): return text.split() or None",
    },
    "sums": {
        "a float": "def sums(n): return n * (n + 1) / 2",
        "recursion": "def sums(n): return n and n + sums(n - 1)",
        "recursion with a limit": "import sys\nsys.setrecursionlimit(10**5)\ndef sums(n): return n and n + sums(n - 1)",
    },
    "long": {
        "an integer as text": "def long(n): return str(10 ** n)",
        "text": "def long(n): return '1' + n * '0'",
    },
}
