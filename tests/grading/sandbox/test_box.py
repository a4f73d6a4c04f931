"""Programs in boxes: what they may, what they may not, and that nothing of them is left."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyseccomp
import pytest
from conftest import ROOT
from hostile import PROGRAMS, SECRET, Hostile, ignoring

from e1_trl.grading.sandbox import box as boxes
from e1_trl.grading.sandbox import isolation
from e1_trl.grading.sandbox.box import Box, End, Limits, Run
from e1_trl.grading.sandbox.command import START, Isolation, SandboxError, command

# Patient with programs that end by themselves, however busy the machine is; strict with those that do not.
LIMITS = Limits(cpu=20.0, wall=60.0, memory=2**28, output=2**20)
STRICT = Limits(cpu=1.0, wall=3.0, memory=2**28, output=2**20)


def refused(kind: Isolation) -> str | None:
    """Why this machine cannot have such a box, if it cannot."""
    try:
        isolation.attack(kind)
    except SandboxError as error:
        if "does not start" not in str(error):  # it starts, and leaks or does not work: no reason to skip
            raise
        return str(error)
    return None


@pytest.fixture(scope="module", params=Isolation)
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    why = refused(request.param)
    if why is not None:
        pytest.skip(why)
    with Box(request.param) as opened:
        yield opened


def run(box: Box, source: str, stdin: bytes = b"", limits: Limits = LIMITS) -> Run:
    return box.run(source.encode(), stdin, limits)


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
    "BytesIO": "import io, os; i = io.BytesIO(os.read(0, os.fstat(0).st_size or 1 << 16))\n"
    "print(int(i.readline()) + int(i.readline()))",
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


@pytest.mark.parametrize("source", IDIOMS.values(), ids=IDIOMS.keys())
def test_every_idiom_of_reading_and_writing_works(box: Box, source: str) -> None:
    ran = run(box, source, b"19\n23\n")
    assert (ran.end, ran.stdout.strip()) == (End.EXITED, b"42"), ran.stderr.decode()


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The secret, in a file, in our environment and in our memory."""
    file = tmp_path_factory.mktemp("planted") / "secret"
    file.write_text(SECRET)
    os.environ["E1_TRL_SECRET"] = SECRET
    yield file
    del os.environ["E1_TRL_SECRET"]


@pytest.mark.slow
@pytest.mark.parametrize("hostile", PROGRAMS, ids=lambda hostile: f"{hostile.number}-{hostile.name}")
def test_a_hostile_program_ends_as_it_should_and_the_next_one_passes(box: Box, hostile: Hostile, planted: Path) -> None:
    source = hostile.source
    for name, value in (("planted", planted), ("parent", os.getpid()), ("cwd", os.getcwd())):
        source = source.replace("{" + name + "}", str(value))
    endless = End.TIMED_OUT in hostile.ends
    before = time.monotonic()
    ran = run(box, source, hostile.stdin, STRICT if endless else LIMITS)
    assert not endless or time.monotonic() - before < 30
    assert ran.end in hostile.ends, ran
    assert hostile.stdout is None or ran.stdout == hostile.stdout
    assert SECRET.encode() not in ran.stdout + ran.answer
    assert len(ran.stdout) <= LIMITS.output + 1 and len(ran.stderr) <= boxes.STDERR
    assert run(box, "print(int(input()) + 1)", b"41\n").stdout == b"42\n"


def test_a_next_program_sees_nothing_of_the_one_before(box: Box) -> None:
    first = ignoring(
        "BaseException",
        "import builtins, json, random, sys, threading; builtins.kept = json.kept = sys.kept = 1",
        "builtins.print = json.dumps = sys.stdout.write = None",
        "random.seed(1); sys.setrecursionlimit(50); threading.stack_size(1 << 20); sys.modules.clear()",
    )
    run(box, first)
    looked = (
        "import builtins, json, sys\n"
        "print([hasattr(m, 'kept') for m in (builtins, json, sys)], sys.getrecursionlimit())"
    )
    assert run(box, looked).stdout == b"[False, False, False] 50000\n"
    drawn = {run(box, "import random; print(random.random())").stdout for _ in range(3)}
    assert len(drawn) == 3


NO_ARGUMENTS = b'{"positional": [], "named": {"dict": []}}'

VALUES = {
    "1": "1",
    "None": "null",
    "True": "true",
    "[1, (2, 'x')]": '[1, [2, "x"]]',
    "{1: {2}}": '{"dict": [[1, {"set": [2]}]]}',
    "1.5": "1.5",
    "__import__('numpy').arange(2)": "[0, 1]",
    "__import__('numpy').float64(0.5)": "0.5",
}


@pytest.mark.parametrize("expression", VALUES)
def test_what_a_function_returns_comes_back_as_json(box: Box, expression: str) -> None:
    for source in (f"def f(): return {expression}", f"class Solution:\n    def f(self): return {expression}"):
        ran = box.run(source.encode(), NO_ARGUMENTS, LIMITS, call="f")
        assert (ran.end, ran.answer.decode()) == (End.EXITED, VALUES[expression]), ran.stderr


@pytest.mark.parametrize(
    ("made", "plainly"),
    [
        ("Counter('aab')", '{"dict": [["a", 2], ["b", 1]]}'),
        ("defaultdict(int, {1: 2})", '{"dict": [[1, 2]]}'),
        ("namedtuple('P', 'x y')(1, 2)", "[1, 2]"),
        ("type('L', (list,), {'__eq__': lambda *a: True, '__iter__': lambda s: iter([1])})([2])", "[2]"),
        ("type('S', (str,), {'__str__': lambda s: '1'})('2')", '"2"'),
        ("type('I', (int,), {'__int__': lambda s: 1, '__repr__': lambda s: '1'})(2)", "2"),
    ],
)
def test_a_subclass_is_what_it_holds_and_not_what_it_says(box: Box, made: str, plainly: str) -> None:
    ran = box.run(f"def f(): return {made}".encode(), NO_ARGUMENTS, LIMITS, call="f")
    assert (ran.end, ran.answer.decode()) == (End.EXITED, plainly), ran.stderr


def test_a_guarded_main_program_does_not_run_where_a_function_is_called(box: Box) -> None:
    source = b"def f(): return 1\nif __name__ == '__main__': print(int(input()))"
    assert box.run(source, NO_ARGUMENTS, LIMITS, call="f").answer == b"1"


LOOK_ALIKES = {
    "equals everything": "class X:\n    def __eq__(self, other): return True\ndef f(): return X()",
    "a class that lies": "class X:\n    __class__ = int\ndef f(): return X()",
    "numpy by name only": "class X:\n    def tolist(self): return self\nX.__module__ = 'numpy'\ndef f(): return X()",
    "a list within itself": "def f():\n    x = []\n    x.append(x)\n    return x",
    "nothing at all": "import os\ndef f(): os._exit(0)",
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_only_plain_values_come_back(box: Box, name: str) -> None:
    ran = box.run(LOOK_ALIKES[name].encode(), NO_ARGUMENTS, LIMITS, call="f")
    assert ran.answer == b"" and (ran.end is not End.EXITED or name == "nothing at all")


def test_a_function_that_is_not_there_is_told_apart(box: Box) -> None:
    for source in ("g = 1", "f = 1", "class Solution: pass", "class Solution:\n    f = 1"):
        ran = box.run(source.encode(), NO_ARGUMENTS, LIMITS, call="f")
        assert ran.end is End.NOT_CALLABLE


def test_processor_time_counts_and_waiting_does_not(box: Box) -> None:
    limits = Limits(cpu=1.0, wall=60.0, memory=2**28, output=2**16)
    assert run(box, "import time; time.sleep(2); print(1)", limits=limits).end is End.EXITED
    ran = run(box, "while True: pass", limits=limits)
    assert ran.end is End.TIMED_OUT and 0.9 < ran.cpu < 3


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_nothing_is_left_of_programs_or_boxes(box: Box) -> None:
    def of_boxes() -> list[psutil.Process]:
        return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]

    mounts = Path("/proc/mounts").read_text()
    before, open_before = len(of_boxes()), descriptors()
    with Box(box.isolation) as other:
        inside = len(of_boxes())
        for hostile in PROGRAMS:
            if End.TIMED_OUT not in hostile.ends:
                run(other, hostile.source, hostile.stdin)
        assert len(of_boxes()) == inside
    assert (len(of_boxes()), descriptors()) == (before, open_before)
    assert Path("/proc/mounts").read_text() == mounts


def test_a_box_that_breaks_says_so(box: Box) -> None:
    with Box(box.isolation) as broken:
        for process in psutil.Process(broken._process.pid).children(recursive=True):
            process.kill()
        broken._process.kill()
        with pytest.raises(SandboxError):
            run(broken, "print(1)")


KILLED = """
import sys, threading
from e1_trl.grading.sandbox.box import Box, Limits
from e1_trl.grading.sandbox.command import Isolation
box = Box(Isolation(sys.argv[1]))
print(box._process.pid, flush=True)
box.run(b"while True: pass", b"", Limits(cpu=600.0, wall=600.0, memory=2**28, output=2**16))
"""


def test_killed_with_its_grader_nothing_goes_on(box: Box) -> None:
    command = [sys.executable, "-c", KILLED, box.isolation]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as grader:
        assert grader.stdout is not None
        first = psutil.Process(int(grader.stdout.readline()))
        deadline = time.monotonic() + 30
        while len(family := [first, *first.children(recursive=True)]) < {Isolation.NAMESPACES: 4}.get(box.isolation, 2):
            assert time.monotonic() < deadline, family
            time.sleep(0.05)
        grader.kill()
    assert not psutil.wait_procs(family, timeout=10)[1]


def allow_all() -> str:
    """A filter that denies nothing."""
    with tempfile.TemporaryFile() as file:
        pyseccomp.SyscallFilter(pyseccomp.ALLOW).export_bpf(file)
        file.seek(0)
        return file.read().hex()


@pytest.mark.parametrize("attack", isolation.ATTACKS)
def test_the_self_test_finds_every_attack_where_nothing_stops_it(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if attack == "makes a namespace":
        probe = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"
        if subprocess.run([sys.executable, "-c", probe], check=False).returncode:
            pytest.skip("namespaces are forbidden to everybody here")
    if attack == "reads the environment of ours" and os.geteuid() == 0:
        pytest.skip("root's is closed to a process without capabilities, whatever else holds it")
    whole = command(Isolation.LANDLOCK, 0)
    *start, _, _, packages = whole[: whole.index(START) + 5]
    monkeypatch.setattr(boxes, "command", lambda _, control: [*start, str(control), allow_all(), packages])
    monkeypatch.setattr(boxes, "ENVIRONMENT", os.environ)
    monkeypatch.setattr(isolation, "ATTACKS", {attack: isolation.ATTACKS[attack]})
    with pytest.raises(SandboxError, match=f"does not hold: a program {attack}"):
        isolation.attack(Isolation.LANDLOCK)


def test_without_any_isolation_it_refuses_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "command", lambda *_: ["/bin/false"])
    with pytest.raises(SandboxError, match=r"programs cannot be run safely here.*userns.*Landlock"):
        isolation.choose()
