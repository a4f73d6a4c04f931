"""The checkout that this package runs from, if any: its commit, and a guard on what is published from it.

python -m e1_trl.checkout     fails, with one line, if code has uncommitted changes
"""

import shutil
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from e1_trl.errors import UserError

NAME = "e1-trl"
ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "docs"
# Published files may differ from the commit: commands write one after the other.
CHANGED = ("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/docs")


def commit() -> str:
    """Return the checked-out commit, with `-dirty` if tracked files differ from it; `version …` outside a checkout.

    The repository must be this project's own: an installed package often lies inside somebody else's.
    """
    if _is_checkout():
        described = output_of("git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--exclude=*")
        if described:
            return described + "-dirty" * bool(_changes())
    try:
        return f"version {version(NAME)}"
    except PackageNotFoundError:
        return "version unknown"


def check_committed(file: Path) -> None:
    """Refuse to publish a file, which is one in docs/, while code has uncommitted changes."""
    if file.resolve().is_relative_to(PUBLISHED) and _is_checkout() and (changes := _changes()):
        raise UserError(
            f"nothing is published into {PUBLISHED} from uncommitted code: {len(changes)} files have changes "
            f"({changes[0]} …); commit them first"
        )


def output_of(*command: str) -> str:
    """Return the output of a command; empty where it fails or is not installed."""
    if shutil.which(command[0]) is None:
        return ""
    result = subprocess.run(command, capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else ""


def _changes() -> list[str]:
    lines = output_of("git", "-C", str(ROOT), *CHANGED).splitlines()
    return [line.split(maxsplit=1)[1] for line in lines]


def _is_checkout() -> bool:
    project = ROOT / "pyproject.toml"
    if not project.is_file() or tomllib.loads(project.read_text()).get("project", {}).get("name") != NAME:
        return False
    toplevel = output_of("git", "-C", str(ROOT), "rev-parse", "--show-toplevel")
    return toplevel != "" and Path(toplevel).resolve() == ROOT


if __name__ == "__main__":
    from e1_trl.command_line import run_command

    run_command("e1_trl.checkout", lambda: check_committed(PUBLISHED))
