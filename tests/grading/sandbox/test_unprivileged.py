"""The hostile programs again as the user nobody, where the tests are run by root."""

import json
import os
import subprocess
import sys
from pathlib import Path

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
    shut = {folder: None for path in paths if (folder := closed(path)) is not None}
    if not shut:
        return []
    opened = [part for folder in shut for part in ("--tmpfs", str(folder))]
    shown = [part for path in paths if closed(path) for part in ("--ro-bind", str(path), str(path))]
    keep = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    whole = [bubblewrap(), "--dev-bind", "/", "/", *opened, *shown, *keep]
    tried = subprocess.run([*whole, "/bin/true"], capture_output=True, text=True)
    if tried.returncode:
        raise SandboxError(f"other users may not pass {', '.join(map(str, shut))} ({tried.stderr.strip()})")
    return whole


@pytest.mark.slow
def test_every_hostile_program_is_contained_for_an_unprivileged_user_too() -> None:
    if os.geteuid() != 0:
        pytest.skip("this user is unprivileged: the other tests of the sandbox are this one")
    try:
        before = readable(list(dict.fromkeys(Path(p).resolve() for p in (sys.base_prefix, sys.prefix, ROOT))))
    except SandboxError as error:
        pytest.skip(str(error))
    whole = [*before, sys.executable, "-c", BECOME, sys.executable, "-B", containment.__file__, str(BOXES)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/"}
    ran = subprocess.run(whole, capture_output=True, text=True, cwd="/", env=environment)
    if "PermissionError" in ran.stderr:
        pytest.skip(f"closed to other users: {ran.stderr.strip().splitlines()[-1]}")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    held = found.pop("isolations")
    if not held:
        pytest.skip("no isolation starts for the user nobody")
    cases = len(containment.PROGRAMS) * len(held)
    assert found == {"user": NOBODY, "cases": cases, "escaped": {}, "survivors": 0}
