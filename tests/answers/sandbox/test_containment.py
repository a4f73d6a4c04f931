"""Every hostile program in every isolation: by whoever runs the tests, and if that is root, by the user nobody, too."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import containment
import pytest
from conftest import ROOT

from e1_trl.answers.programs.sandbox.box import COUNTED_BY_NAMESPACE, TASKS, _kernel
from e1_trl.answers.programs.sandbox.command import Isolation, SandboxError, bubblewrap

NOBODY = 65534
BOXES = 3  # of each isolation: most of the time goes by in waiting for those that sleep
BECOME = (
    f"import os, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); os.execv(sys.argv[1], sys.argv[1:])"
)


def printed(*arguments: object, before: Sequence[str] = ()) -> Any:
    """Run Python with these arguments; returns the JSON that it prints."""
    whole = [*before, sys.executable, "-B", *map(str, arguments)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/"}
    ran = subprocess.run(whole, capture_output=True, text=True, cwd="/", env=environment)
    if before and "PermissionError" in ran.stderr:
        pytest.skip(f"closed to other users: {ran.stderr}")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture
def open_to_all() -> list[str]:
    """The beginning of a command that sees interpreter and project as if the folders around them were open to all."""
    if os.geteuid() != 0:
        pytest.skip("this user is unprivileged: the other tests of the sandbox are these")
    try:
        whole = [bubblewrap(), "--dev-bind", "/", "/", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    except SandboxError as error:
        pytest.skip(str(error))
    hidden = list[Path]()
    for path in dict.fromkeys(Path(path).resolve() for path in (sys.base_prefix, sys.prefix, ROOT)):
        outermost = next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)
        if outermost is None:
            continue
        if outermost not in hidden:
            whole += ["--tmpfs", str(outermost)]
            hidden.append(outermost)
        inner = [folder for folder in reversed(path.parents) if outermost in folder.parents]
        whole += [part for folder in inner for part in ("--dir", str(folder))]
        whole += ["--ro-bind", str(path), str(path)]
    if not hidden:
        return []
    tried = subprocess.run([*whole, "/bin/true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"closed to other users: {', '.join(map(str, hidden))} ({tried.stderr.strip()})")
    return whole


@pytest.fixture
def nobody(open_to_all: list[str]) -> list[str]:
    """The beginning of a command that the user nobody runs."""
    return [*open_to_all, sys.executable, "-c", BECOME]


def contained(found: dict[str, Any], user: int) -> None:
    held = found.pop("isolations")
    if not held:
        pytest.skip("no isolation starts")
    cases = len(containment.PROGRAMS) * len(held)
    assert found == {"user": user, "cases": cases, "escaped": {}, "survivors": 0}


@pytest.mark.slow
def test_every_hostile_program_is_contained() -> None:
    contained(printed(containment.__file__, BOXES), os.geteuid())


@pytest.mark.slow
def test_every_hostile_program_is_contained_for_an_unprivileged_user_too(nobody: list[str]) -> None:
    contained(printed(containment.__file__, BOXES, before=nobody), NOBODY)


# How many threads it gets, of as many as stdin asks for.
BOMB = """
import os, threading
asked, threads, wait = int(input()), 0, threading.Event().wait
threading.stack_size(1 << 15)
try:
    while threads < asked:
        threading.Thread(target=wait, daemon=True).start()
        threads += 1
except RuntimeError:
    pass
print(threads, flush=True)
os._exit(0)
"""
# For each isolation: whose processes a box is, how many threads a program gets, and how many it asks for.
THREADS = """
import json, psutil, sys
sys.path.append(sys.argv[1])
from containment import refused
from e1_trl.answers.programs.sandbox.box import TASKS, Box, _tasks
from e1_trl.answers.programs.sandbox.process import Limits
from e1_trl.answers.programs.sandbox.command import Isolation
found = {}
for kind in Isolation:
    if refused(kind) is None:
        with Box(kind) as box:
            asked = _tasks() + 10 * TASKS
            ran = box.run(sys.argv[2].encode(), b"%d" % asked, Limits(cpu=20.0, wall=60.0, memory=2**30, output=2**16))
            family = psutil.Process().children(recursive=True)
            found[kind] = [list({each.uids().real for each in family}), int(ran.stdout), asked]
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("who", ["open_to_all", "nobody"])
def test_threads_are_limited_whoever_trains(who: str, request: pytest.FixtureRequest) -> None:
    folder = Path(containment.__file__).parent
    found = printed("-c", THREADS, folder, BOMB, before=request.getfixturevalue(who))
    if not found:
        pytest.skip("no isolation starts")
    for kind, (users, threads, asked) in found.items():
        assert users == [NOBODY]
        alone = kind == Isolation.NAMESPACES and _kernel() >= COUNTED_BY_NAMESPACE
        assert 32 < threads < (TASKS if alone else asked)
