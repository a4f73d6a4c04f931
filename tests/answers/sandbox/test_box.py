"""Programs in boxes: they do what they may, no more, and leave nothing behind."""

import functools
import os
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import numpy
import psutil
import pyseccomp
import pytest
from conftest import ROOT
from containment import PROGRAMS, refused, runs
from honest import ONLY_HERE, STDIN
from honest import PROGRAMS as HONEST
from hostile import LIMITS, ignoring

from e1_trl.answers.programs.sandbox import box as boxes
from e1_trl.answers.programs.sandbox import isolation
from e1_trl.answers.programs.sandbox.box import Box
from e1_trl.answers.programs.sandbox.command import ENVIRONMENT, START, Isolation, SandboxError, command
from e1_trl.answers.programs.sandbox.filter import _exported
from e1_trl.answers.programs.sandbox.process import End, Limits, Run


@pytest.fixture(scope="module", params=list(Isolation))
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    why = refused(request.param)
    if why is not None:
        pytest.skip(why)
    with Box(request.param) as opened:
        yield opened


def run(box: Box, source: str, stdin: bytes = b"", limits: Limits = LIMITS) -> Run:
    return box.run(source.encode(), stdin, limits)


@functools.cache
def plainly(source: str) -> tuple[bool, bytes]:
    """Run a program in plain Python, `python a.py < in | cat`; returns whether it succeeds, and its output."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.py").write_text(source)
        Path(folder, "in").write_bytes(STDIN)
        with Path(folder, "in").open() as stdin:
            whole = [sys.executable, "-X", "utf8", "a.py"]
            ran = subprocess.run(whole, stdin=stdin, capture_output=True, cwd=folder, env=ENVIRONMENT)
    return ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("source", HONEST.values(), ids=HONEST.keys())
def test_a_program_does_what_it_does_in_plain_python(box: Box, source: str) -> None:
    ran = run(box, source, STDIN)
    assert (ran.end is End.EXITED, ran.stdout) == plainly(source), ran.stderr.decode()


@pytest.mark.parametrize("source", ONLY_HERE.values(), ids=ONLY_HERE.keys())
def test_a_program_has_more_than_in_plain_python(box: Box, source: str) -> None:
    ran = run(box, source, STDIN)
    assert (ran.end, ran.stdout.strip()) == (End.EXITED, b"42"), ran.stderr.decode()


def test_one_read_gets_all_of_a_big_input(box: Box) -> None:
    assert run(box, "import os; print(len(os.read(0, 1 << 25)))", b"x" * 2**24).stdout == b"%d\n" % 2**24


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

# A subclass is what it holds, and not what it says.
VALUES = {
    "1": "1",
    "None": "null",
    "True": "true",
    "[1, (2, 'x')]": '[1, [2, "x"]]',
    "{1: {2}}": '{"dict": [[1, {"set": [2]}]]}',
    "{10**5000}": f'{{"set": [1{"0" * 5000}]}}',
    "1.5": "1.5",
    "__import__('numpy').arange(2)": "[0, 1]",
    "[__import__('numpy').eye(1)]": "[[[1.0]]]",
    "__import__('numpy').float64(0.5)": "0.5",
    "__import__('sortedcontainers').SortedList([2, 1])": "[1, 2]",
    "__import__('sortedcontainers').SortedSet([1])": '{"set": [1]}',
    "Counter('aab')": '{"dict": [["a", 2], ["b", 1]]}',
    "defaultdict(int, {1: 2})": '{"dict": [[1, 2]]}',
    "namedtuple('P', 'x y')(1, 2)": "[1, 2]",
    "type('L', (list,), {'__eq__': lambda *a: True, '__iter__': lambda s: iter([1])})([2])": "[2]",
    "type('S', (str,), {'__str__': lambda s: '1'})('2')": '"2"',
    "type('I', (int,), {'__int__': lambda s: 1, '__repr__': lambda s: '1'})(2)": "2",
}


@pytest.mark.parametrize("expression", VALUES)
def test_what_a_function_returns_comes_back_as_json(box: Box, expression: str) -> None:
    for source in (f"def f(): return {expression}", f"class Solution:\n    def f(self): return {expression}"):
        ran = box.run(source.encode(), NO_ARGUMENTS, LIMITS, call="f")
        assert (ran.end, ran.answer.decode()) == (End.EXITED, VALUES[expression]), ran.stderr


def test_a_guarded_main_program_does_not_run_where_a_function_is_called(box: Box) -> None:
    source = b"def f(): return 1\nif __name__ == '__main__': print(int(input()))"
    assert box.run(source, NO_ARGUMENTS, LIMITS, call="f").answer == b"1"


@pytest.mark.slow
def test_processor_time_counts_and_waiting_does_not(box: Box) -> None:
    limits = Limits(cpu=1.0, wall=60.0, memory=2**28, output=2**16)
    assert run(box, "import time; time.sleep(2); print(1)", limits=limits).end is End.EXITED
    ran = run(box, "while True: pass", limits=limits)
    assert ran.end is End.TIMED_OUT and 0.9 < ran.cpu < 3


@pytest.mark.slow
def test_nothing_is_left_of_programs_or_boxes(box: Box) -> None:
    def of_boxes() -> list[psutil.Process]:
        return [process for process in psutil.Process().children(recursive=True) if runs(process)]

    mounts = Path("/proc/mounts").read_text()
    before = len(of_boxes())
    open_before = len(os.listdir("/proc/self/fd"))
    with Box(box.isolation) as other:
        inside = len(of_boxes())
        for hostile in PROGRAMS:
            if End.TIMED_OUT not in hostile.ends:
                run(other, hostile.source, hostile.stdin)
        assert len(of_boxes()) == inside
    assert (len(of_boxes()), len(os.listdir("/proc/self/fd"))) == (before, open_before)
    assert Path("/proc/mounts").read_text() == mounts


def test_a_box_that_dies_says_why(box: Box) -> None:
    with Box(box.isolation) as broken, open(os.devnull) as file:
        assert run(broken, "print(1)").stdout == b"1\n"
        socket.send_fds(broken._control, [b"no request"], [file.fileno()])
        with pytest.raises(SandboxError, match=r"a box has died: .*JSONDecodeError"):
            run(broken, "print(1)")


def test_the_weaker_isolation_is_taken_with_the_reason_and_advice(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def attack(kind: Isolation) -> None:
        if kind is Isolation.NAMESPACES:
            raise SandboxError("a box does not start: x")

    monkeypatch.setattr(isolation, "attack", attack)
    assert isolation.choose() is Isolation.LANDLOCK
    said = caplog.messages[0]
    assert said.startswith("programs run with landlock, since a box does not start: x; it needs Linux 5.3 and unprivi")
    assert "\n" not in said


ATTACKED = """
import sys
from e1_trl.answers.programs.sandbox.isolation import Isolation, what_is_lacking
print(what_is_lacking(Isolation(sys.argv[1])))
"""


def test_a_launcher_may_ignore_the_ends_of_its_children(box: Box) -> None:
    source = f"import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n{ATTACKED}"
    assert subprocess.check_output([sys.executable, "-c", source, box.isolation], cwd=ROOT) == b"None\n"


def test_the_interpreter_may_be_a_copy_and_its_packages_elsewhere(box: Box, tmp_path: Path) -> None:
    venv.create(tmp_path, symlinks=False, with_pip=False)
    packages = [str(Path(module.__file__ or "").parents[1]) for module in (numpy, pyseccomp)]
    ran = subprocess.run(
        [tmp_path / "bin" / "python", "-c", ATTACKED, box.isolation],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *packages])},
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "None\n", ran.stderr


def test_where_memory_runs_out_the_kernel_kills_a_box_before_its_grader(box: Box) -> None:
    def score(process: psutil.Process) -> int:
        return int(Path(f"/proc/{process.pid}/oom_score_adj").read_text())

    first = psutil.Process(box._process.pid)
    assert {score(process) for process in (first, *first.children(recursive=True))} == {1000}
    assert score(psutil.Process()) < 1000


KILLED = """
import sys, threading
from e1_trl.answers.programs.sandbox.box import Box
from e1_trl.answers.programs.sandbox.process import Limits
from e1_trl.answers.programs.sandbox.command import Isolation
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


@pytest.mark.parametrize("attack", isolation.ATTACKS)
def test_the_self_test_finds_every_attack_where_nothing_stops_it(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if attack == "makes a namespace":
        probe = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"
        if subprocess.run([sys.executable, "-c", probe], check=False).returncode:
            pytest.skip("namespaces are forbidden to everybody here")
    if attack == "reads the environment of ours" and os.geteuid() == 0:
        pytest.skip("root's is closed to a process without capabilities, whatever else holds it")
    whole = command(Isolation.LANDLOCK, 0)
    *start, _, _, _, packages = whole[: whole.index(START) + 6]
    none = [_exported(pyseccomp.SyscallFilter(pyseccomp.ALLOW)).hex()] * 2  # filters that deny nothing
    monkeypatch.setattr(boxes, "command", lambda _, control: [*start, str(control), *none, packages])
    monkeypatch.setattr(boxes, "ENVIRONMENT", os.environ)
    # What belongs to nobody is stopped by that alone.
    monkeypatch.setattr(boxes, "refused_to_nobody", lambda _: "root's, in this test")
    monkeypatch.setattr(isolation, "ATTACKS", {attack: isolation.ATTACKS[attack]})
    with pytest.raises(SandboxError, match=f"does not hold: a program {attack}"):
        isolation.attack(Isolation.LANDLOCK)


def test_a_box_tells_its_size_without_proc(box: Box) -> None:
    """Memory is limited to the requested amount beyond what the box itself holds, within 1 MiB."""
    limits = Limits(cpu=20.0, wall=60.0, memory=2**26, output=2**16)
    take = "import mmap; held = mmap.mmap(-1, {} << 20); print(len(held) >> 20)"
    assert run(box, take.format(56), limits=limits).stdout == b"56\n"
    assert run(box, take.format(66), limits=limits).end is End.CRASHED
