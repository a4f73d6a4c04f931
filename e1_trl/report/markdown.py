"""Markdown tables, and the sections of documents that hold them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from e1_trl.atomic import write_atomically
from e1_trl.errors import UserError, user_errors


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table, with a line break at its end."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def around_section(document: Path, name: str) -> tuple[str, str]:
    """Return the text of a document before a section, with its opening line, and after it, with its closing line."""
    with user_errors(f"{document} cannot be read", OSError):
        text = document.read_text()
    before, opening, rest = text.partition(f"<!-- {name} -->\n")
    _, closing, after = rest.partition(f"<!-- /{name} -->")
    if not opening or not closing:
        raise UserError(f"{document} has no section between the lines <!-- {name} --> and <!-- /{name} -->")
    return before + opening, closing + after


def replace_section(document: Path, name: str, text: str) -> None:
    """Put `text` between the lines `<!-- name -->` and `<!-- /name -->` of a document."""
    before, after = around_section(document, name)
    write_atomically(document, f"{before}{text}{after}")
