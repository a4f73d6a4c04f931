"""README, CONTRIBUTING, docs/ and examples/: links lead somewhere, and commands that are named exist."""

import re
from pathlib import Path

import pytest
from conftest import ROOT

from e1_trl.cli import COMMANDS

FOLDERS = ("docs", "examples", "experiments")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *(file for name in FOLDERS for file in sorted((ROOT / name).rglob("*.md")))]
HISTORY = {"LOG.md", "CHANGELOG.md"}  # names there what is gone


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def anchors(document: Path) -> set[str]:
    """Those that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", without_code(document.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(document.read_text())):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_every_command_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.M))
    for document in DOCUMENTS:
        if document.name not in HISTORY:
            text = document.read_text()
            assert set(re.findall(r"(?:`|^)make ([a-z0-9]+)", text, re.M)) <= targets, document.name
            assert set(re.findall(r"(?:`|^)e1 ([a-z]+)", text, re.M)) <= COMMANDS.keys(), document.name


def test_the_readme_is_under_900_words() -> None:
    assert len((ROOT / "README.md").read_text().split()) < 900
