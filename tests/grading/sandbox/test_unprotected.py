"""Where no isolation holds: refused, unless it is asked for; then limits hold, and what programs start is killed."""

import logging
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest
from conftest import ROOT
from hostile import LIMITS, STRICT
from idioms import IDIOMS

from e1_trl.grading.sandbox import box as boxes
from e1_trl.grading.sandbox import command, isolation
from e1_trl.grading.sandbox.box import Box, End, Run
from e1_trl.grading.sandbox.command import Isolation, SandboxError
from e1_trl.grading.sandbox.isolation import choose


def nothing_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(reading_only: bool) -> bytes:
        raise OSError("there is no libseccomp")

    monkeypatch.setattr(command, "compiled", compiled)


def nothing_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes start unprotected only."""
    real = command.command
    fails = ["/bin/false"]
    monkeypatch.setattr(
        boxes, "command", lambda kind, controls: real(kind, controls) if kind is Isolation.UNPROTECTED else fails
    )


@pytest.fixture(scope="module", params=[True, False], ids=["filtered", "unfiltered"])
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        if not request.param:
            nothing_filters(monkeypatch)
        opened = Box(Isolation.UNPROTECTED)
    with opened:
        yield opened


@pytest.fixture
def unfiltered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    nothing_filters(monkeypatch)
    with Box(Isolation.UNPROTECTED) as opened:
        yield opened


def run(box: Box, source: str, stdin: bytes = b"") -> Run:
    return box.run(source.encode(), stdin, LIMITS)


# Opening a file for writing is denied, whichever it is.
HONEST = {name: source for name, source in IDIOMS.items() if name != "devnull"}


@pytest.mark.parametrize("source", HONEST.values(), ids=HONEST.keys())
def test_honest_programs_pass(box: Box, source: str) -> None:
    ran = run(box, source, b"19\n23\n")
    assert (ran.end, ran.stdout.strip()) == (End.EXITED, b"42"), ran.stderr.decode()


@pytest.mark.parametrize(
    ("source", "end"),
    [
        ("while True: pass", End.TIMED_OUT),
        ("import time; time.sleep(1e9)", End.TIMED_OUT),
        ("x = bytearray(8 << 30)", End.OUT_OF_MEMORY),
        ("x = [0]\nwhile True: x += x", End.OUT_OF_MEMORY),
        ("while True: print('x' * 1000)", End.TOO_MUCH_OUTPUT),
    ],
)
def test_limits_hold(box: Box, source: str, end: End) -> None:
    assert box.run(source.encode(), b"", STRICT if end is End.TIMED_OUT else LIMITS).end is end
    assert run(box, HONEST["input"], b"19\n23\n").stdout == b"42\n"


def test_the_filter_keeps_what_can_be_kept_without_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    attacks = {name: source for name, source in isolation.ATTACKS.items() if not name.startswith("reads")}
    monkeypatch.setattr(isolation, "ATTACKS", attacks)
    isolation.attack(Isolation.UNPROTECTED)


def test_nothing_is_written_to_a_file_even_without_a_filter(unfiltered: Box, tmp_path: str) -> None:
    ran = run(unfiltered, f"with open({str(tmp_path)!r} + '/new', 'w') as file: file.write('x')")
    assert ran.end is End.CRASHED and b"File too large" in ran.stderr


LEFT = {
    "a child": "import os, time\npid = os.fork()\nif pid: print(pid)\nelse: time.sleep(1e9)",
    "a daemon": "import os, time\nr, w = os.pipe()\nif os.fork():\n    print(os.read(r, 20).decode())\nelse:\n"
    "    os.setsid()\n    if os.fork(): os._exit(0)\n    os.write(w, str(os.getpid()).encode())\n"
    "    for descriptor in range(3): os.close(descriptor)\n    time.sleep(1e9)",
    "many, each in a session of its own": "import os, time\nfor _ in range(20):\n    pid = os.fork()\n    if not pid:\n"
    "        os.setsid(); time.sleep(1e9)\n    print(pid)",
}


@pytest.mark.parametrize("source", LEFT.values(), ids=LEFT.keys())
def test_what_a_program_leaves_is_gone_after_its_run(unfiltered: Box, source: str) -> None:
    ran = run(unfiltered, source)
    assert ran.end is End.EXITED, ran
    left = [int(pid) for pid in ran.stdout.split()]
    assert left and not any(psutil.pid_exists(pid) for pid in left)


def test_what_a_killed_program_has_started_is_gone(unfiltered: Box) -> None:
    ran = unfiltered.run(f"{LEFT['a daemon']}\nsys.stdout.flush()\nwhile True: pass".encode(), b"", STRICT)
    assert ran.end is End.TIMED_OUT
    assert ran.stdout and not psutil.pid_exists(int(ran.stdout))


def test_one_that_flees_from_process_to_process_is_caught(unfiltered: Box) -> None:
    flees = (
        "import os\nif os.fork(): os._exit(0)\nfor _ in range(10**5):\n    if os.fork(): os._exit(0)\n    os.setsid()"
    )
    idle = psutil.Process(unfiltered._process.pid).children(recursive=True)
    assert run(unfiltered, flees).end is End.EXITED
    assert psutil.Process(unfiltered._process.pid).children(recursive=True) == idle


KILLED = """
import sys
from e1_trl.grading.sandbox import command
from e1_trl.grading.sandbox.box import Box, Limits
def compiled(reading_only): raise OSError
command.compiled = compiled
box = Box(command.Isolation.UNPROTECTED)
print(box._process.pid, flush=True)
box.run(sys.argv[1].encode(), b"", Limits(cpu=600.0, wall=600.0, memory=2**28, output=2**16))
"""


def test_killed_with_its_grader_nothing_goes_on() -> None:
    source = f"{LEFT['a daemon']}\ntime.sleep(1e9)"
    with subprocess.Popen([sys.executable, "-c", KILLED, source], stdout=subprocess.PIPE, cwd=ROOT) as grader:
        assert grader.stdout is not None
        zygote = psutil.Process(int(grader.stdout.readline()))
        deadline = time.monotonic() + 30
        while len(family := [zygote, *zygote.children(recursive=True)]) < 3:  # the program, and its daemon
            assert time.monotonic() < deadline, family
            time.sleep(0.05)
        time.sleep(0.5)
        family = [zygote, *zygote.children(recursive=True)]
        grader.kill()
    assert not psutil.wait_procs(family, timeout=10)[1]


def test_without_any_isolation_it_refuses_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_holds(monkeypatch)
    with pytest.raises(SandboxError, match=r"programs cannot be run safely here.*userns.*Landlock"):
        choose()


def test_asked_for_it_runs_unprotected_and_warns_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nothing_holds(monkeypatch)
    for _ in range(2):
        with caplog.at_level(logging.WARNING):
            assert choose(unprotected=True) is Isolation.UNPROTECTED
        (warning,) = caplog.messages
        assert "UNPROTECTED" in warning and "userns" in warning and "\n" not in warning
        caplog.clear()
    nothing_filters(monkeypatch)
    choose(unprotected=True)
    assert "whatever this user can do" in caplog.text and "libseccomp" in caplog.text


def test_where_an_isolation_holds_asking_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    try:
        held = choose()
    except SandboxError as error:
        pytest.skip(str(error))
    assert choose(unprotected=True) is held and not caplog.messages
