"""Markdown: a table, and its place in a document."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from e1_trl.atomic import write_atomically


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, with a line break at its end."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def around(text: str, name: str) -> tuple[str, str] | None:
    """A text up to the end of the line `<!-- name -->`, and from the line `<!-- /name -->` on.

    `None` if it has no such lines in that order.
    """
    before, opening, rest = text.partition(f"<!-- {name} -->\n")
    _, closing, after = rest.partition(f"<!-- /{name} -->")
    return (before + opening, closing + after) if opening and closing else None


def put(text: str, name: str, content: str) -> str:
    """A text with the content in its section of that name, which comes at the end if it is not there.

    Raises:
        ValueError: one of the section's lines is there without the other, or twice.
    """
    lines = [text.count(f"<!-- {name} -->"), text.count(f"<!-- /{name} -->")]
    if lines == [0, 0]:
        return f"{text.rstrip()}\n\n<!-- {name} -->\n{content}<!-- /{name} -->\n"
    parts = around(text, name)
    if parts is None or lines != [1, 1]:
        raise ValueError(
            f"the lines <!-- {name} --> and <!-- /{name} --> must stand there once each; mend or remove them"
        )
    return content.join(parts)


def around_section(document: Path, name: str) -> tuple[str, str]:
    """The text of a document up to the end of the line `<!-- name -->`, and from the line `<!-- /name -->` on.

    Raises:
        ValueError: the document has no such lines in that order.
    """
    parts = around(document.read_text(), name)
    if parts is None:
        raise ValueError(f"{document} has no section between the lines <!-- {name} --> and <!-- /{name} -->")
    return parts


def replace_section(document: Path, name: str, text: str) -> None:
    """Put `text` between the lines `<!-- name -->` and `<!-- /name -->` of a document.

    Raises:
        ValueError: the document has no such lines in that order.
        StoreError: it cannot be written.
    """
    before, after = around_section(document, name)
    write_atomically(document, lambda path: path.write_text(f"{before}{text}{after}"))
