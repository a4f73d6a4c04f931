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

from e1_trl.grading.sandbox.command import SandboxError, bubblewrap

NOBODY = 65534
BOXES = 3  # of each isolation: most of the time goes by in waiting for those that sleep
BECOME = (
    f"import os, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); os.execv(sys.argv[1], sys.argv[1:])"
)


def closed(path: Path) -> Path | None:
    """The outermost folder on the way to a path that other users may not pass."""
    folders = [folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001]
    return folders[0] if folders else None


def readable(paths: list[Path]) -> list[str]:
    """The beginning of a command that sees these paths as other users would if the folders around them were open.

    Raises:
        SandboxError: they are closed, and nothing here can show them.
    """
    whole = [bubblewrap(), "--dev-bind", "/", "/", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    hidden = list[Path]()
    for path in paths:
        folder = closed(path)
        if folder is None:
            continue
        if folder not in hidden:
            whole += ["--tmpfs", str(folder)]
            hidden.append(folder)
        between = [parent for parent in reversed(path.parents) if parent.is_relative_to(folder) and parent != folder]
        whole += [part for parent in between for part in ("--dir", str(parent))]
        whole += ["--ro-bind", str(path), str(path)]
    if not hidden:
        return []
    tried = subprocess.run([*whole, "/bin/true"], capture_output=True, text=True)
    if tried.returncode:
        raise SandboxError(f"closed to other users: {', '.join(map(str, hidden))} ({tried.stderr.strip()})")
    return whole


def printed(*arguments: object, before: Sequence[str] = ()) -> Any:
    """What Python with these arguments prints, which is JSON."""
    whole = [*before, sys.executable, "-B", *map(str, arguments)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/"}
    ran = subprocess.run(whole, capture_output=True, text=True, cwd="/", env=environment)
    if before and "PermissionError" in ran.stderr:
        pytest.skip(f"closed to other users: {ran.stderr}")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture
def nobody() -> list[str]:
    """The beginning of a command that the user nobody runs."""
    if os.geteuid() != 0:
        pytest.skip("this user is unprivileged: the other tests of the sandbox are these")
    try:
        before = readable(list(dict.fromkeys(Path(path).resolve() for path in (sys.base_prefix, sys.prefix, ROOT))))
    except SandboxError as error:
        pytest.skip(str(error))
    return [*before, sys.executable, "-c", BECOME]


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
