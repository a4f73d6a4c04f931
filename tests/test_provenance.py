"""Where numbers come from: this project's commit or version, never that of whatever surrounds it."""

import os
import shutil
import subprocess
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import python

import e1_trl
from e1_trl.provenance import Provenance

PACKAGE = Path(e1_trl.__file__).parent


def repository(root: Path, project: str = "e1-trl", folder: str = ".") -> str:
    """Commit a project with this package in a folder and a page of documentation, and return the commit."""
    shutil.copytree(PACKAGE, root / folder / "e1_trl", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "docs").mkdir()
    (root / "docs" / "page.md").write_text("none yet\n")
    (root / "pyproject.toml").write_text(f'[project]\nname = "{project}"\n')
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", "-C", root, *command], check=True)
    return subprocess.check_output(["git", "-C", root, "rev-parse", "HEAD"], text=True).strip()


def run(site: Path, program: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a program with the package in a folder, and write nothing beside it."""
    return python("-B", "-c", program, *words, cwd=site, PYTHONPATH=str(site))


def commit_of(site: Path) -> str:
    done = run(site, "from e1_trl.checkout import commit; print(commit())")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("project", "folder"), [("foreign", ".venv/site-packages"), ("e1-trl", ".venv/site-packages"), ("foreign", ".")]
)
def test_a_package_that_lies_in_another_repository_names_its_version(tmp_path: Path, project: str, folder: str) -> None:
    repository(tmp_path, project, folder)
    assert commit_of(tmp_path / folder) == f"version {version('e1-trl')}"


def test_a_checkout_of_ours_names_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    ours = repository(tmp_path)
    assert commit_of(tmp_path) == ours[:12]
    (tmp_path / "docs" / "page.md").write_text("what was measured at this commit\n")
    assert commit_of(tmp_path) == ours[:12]
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "e1-trl"\nversion = "9"\n')
    assert commit_of(tmp_path) == f"{ours[:12]}-dirty"


def test_nothing_is_published_from_code_that_no_commit_holds(tmp_path: Path) -> None:
    repository(tmp_path)
    program = (
        "import sys; from pathlib import Path; from e1_trl import command_line\n"
        "from e1_trl.atomic import write_atomically\n"
        "command_line.run_command('e1 report', lambda: write_atomically(Path(sys.argv[1]), 'new'))"
    )
    write = partial(run, tmp_path, program)
    assert write("docs/page.md").stderr == write("docs/other.md").stderr == ""  # the page itself differs by then
    (tmp_path / "e1_trl" / "errors.py").open("a").write("# a change\n")
    assert write("results.md").stderr == ""
    said = write("docs/third.md").stderr
    assert said.startswith(f"e1 report: nothing is published into {tmp_path / 'docs'} from uncommitted code: ")
    assert said.count("\n") == 1 and "(e1_trl/errors.py …)" in said and not (tmp_path / "docs" / "third.md").exists()


def test_a_record_names_commit_day_machine_and_seeds_once_each(tmp_path: Path) -> None:
    made = Provenance.here([1, 0, 1])
    assert made.seeds == (0, 1) and made.commit and len(made.date) == len("2026-01-31")
    assert f"{os.cpu_count()} cores, Python 3." in made.machine
    assert str(made).endswith("; seed 0, 1")
    with pytest.raises(ValueError, match=r"no .*provenance\.json, which a training writes"):
        Provenance.read(tmp_path)
    made.write(tmp_path)
    assert Provenance.read(tmp_path) == made
