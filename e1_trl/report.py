"""What published results share: the commit that made them, Markdown tables, and the place of a table in a document."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path


def commit() -> str:
    """The checked-out commit, with `-dirty` if tracked files differ from it; "unknown" outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def markdown(header: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def replace_section(document: Path, name: str, text: str) -> None:
    """Put `text` between the lines `<!-- name -->` and `<!-- /name -->` of a document.

    Raises:
        ValueError: the document has no such lines.
    """
    content, start, end = document.read_text(), f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if start not in content or end not in content:
        raise ValueError(f"{document} has no section between {start.strip()} and {end}")
    before, rest = content.split(start, 1)
    document.write_text(f"{before}{start}{text}{end}{rest.split(end, 1)[1]}")
