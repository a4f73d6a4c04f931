"""Hostile programs, and a check that a box contains one."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e1_trl.answers.programs.sandbox.box import Box
from e1_trl.answers.programs.sandbox.process import STDERR, End, Limits

SECRET = "e1-trl-planted-secret"
# Patient with programs that end by themselves, however busy the machine is; strict with those that do not.
LIMITS = Limits(cpu=20.0, wall=60.0, memory=2**28, output=2**20)
STRICT = Limits(cpu=1.0, wall=3.0, memory=2**28, output=2**20)

CRASHED = End.CRASHED
EXITED = End.EXITED
KILLED = End.KILLED
TIMED_OUT = End.TIMED_OUT
MEMORY = End.OUT_OF_MEMORY
OUTPUT = End.TOO_MUCH_OUTPUT
ANYTHING = None


@dataclass(frozen=True)
class Hostile:
    """A program, what it is fed, the ends that are right, and what it may have printed (anything if None).

    None may print `SECRET`. `{planted}` in a source stands for the file that holds it, `{parent}` for the process that
    runs the box, and `{cwd}` for the folder that it works in.
    """

    name: str
    source: str
    ends: tuple[End, ...]
    stdout: bytes | None = b""
    stdin: bytes = b""


def hostile(programs: dict[tuple[End | None, ...], dict[str, str]]) -> list[Hostile]:
    """Programs by the ends that are right, and by their names; where `ANYTHING` is among those, it may be printed."""
    return [
        Hostile(name, source, tuple(end for end in ends if end), None if ANYTHING in ends else b"")
        for ends, sources in programs.items()
        for name, source in sources.items()
    ]


def ignoring(errors: str, *lines: str) -> str:
    """A program of several statements, each tried whatever became of those before it."""
    return "\n".join(f"try:\n    {line}\nexcept {errors}: pass" for line in lines)


@contextlib.contextmanager
def planted(folder: Path) -> Iterator[Path]:
    """The secret, in a file, in our environment and in our memory."""
    file = folder / "secret"
    file.write_text(SECRET)
    os.environ["E1_TRL_SECRET"] = SECRET
    try:
        yield file
    finally:
        del os.environ["E1_TRL_SECRET"]


def faults(box: Box, hostile: Hostile, secret: Path) -> list[str]:
    """Run a hostile program, twice more in one process if it ends without being killed, and then a harmless one.

    Returns what went wrong: nothing if the program is contained.
    """
    source = hostile.source
    for name, value in (("planted", secret), ("parent", os.getpid()), ("cwd", os.getcwd())):
        source = source.replace("{" + name + "}", str(value))
    endless = TIMED_OUT in hostile.ends
    every = [box.run(source.encode(), hostile.stdin, STRICT if endless else LIMITS)]
    if not endless:
        with box.start(source.encode(), [hostile.stdin] * 2, LIMITS) as process:
            while not process.ended and len(every) < 3:
                every.append(process.run(LIMITS))
    following = box.run(b"print(int(input()) + 1)", b"41\n", LIMITS)
    found = [] if following.stdout == b"42\n" else [f"the next program ended as {following.end}"]
    for ran in every:
        wrong = {
            f"it ended as {ran.end}: {ran.stderr.decode(errors='replace')}": ran.end not in hostile.ends,
            f"it wrote {ran.stdout[:200]!r}": hostile.stdout is not None and ran.stdout != hostile.stdout,
            "it got at the secret": SECRET.encode() in ran.stdout + ran.stderr + ran.answer,
            "more came out than may": len(ran.stdout) > LIMITS.output + 1 or len(ran.stderr) > STDERR,
        }
        found += [fault for fault, is_so in wrong.items() if is_so]
    return found
