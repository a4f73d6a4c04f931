"""Compare the sentences that quote results with the documents, and count the numbers that none of them covers.

A quote is a piece of a document, written as an f-string whose numbers are computed from docs/results. Line breaks, bold
type and the sign of a minus do not matter.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from experiments.quotes import closing, miniatures, readme, real, speed, systems
from experiments.results import Results

ROOT = Path(__file__).parents[2]
QUOTES: dict[str, Callable[[Results], Iterable[str]]] = {
    "README.md": readme.quotes,
    "docs/nano.md": miniatures.nano,
    "docs/nano_code.md": miniatures.nano_code,
    "docs/ablations.md": miniatures.ablations,
    "docs/real.md": real.page,
    "docs/closing.md": closing.quotes,
    "docs/policies.md": systems.policies,
    "docs/systems.md": systems.quotes,
    "docs/benchmark.md": speed.benchmark,
    "docs/gpu.md": speed.gpu,
    "docs/evaluation.md": speed.sweep,
}
NUMBER = re.compile(r"(?<![\w./+-])[-+]?\d[\d,]*(?:\.\d+)?%?")
# Code, tables that a command writes, targets of links, budgets.
NO_PROSE = re.compile(r"^```.*?^```$|<!-- (\S+) -->.*?<!-- /\1 -->|(?<=\])\([^)]*\)|\b\d+\+\d+\b", re.M | re.S)
CONTEXT = 30  # characters around a number that is listed


def plain(text: str) -> str:
    """Text without what makes no difference to a reader of the page."""
    return " ".join(text.replace("**", "").replace("\N{MINUS SIGN}", "-").split())


def failures(text: str, document: str, quotes: Iterable[str]) -> list[str]:
    """A line for each quote that the text of a document does not have, with what it has in that place."""
    found = []
    page = plain(text)
    for quote in map(plain, quotes):
        if quote in page:
            continue
        other_numbers = NUMBER.sub("\0", quote).split("\0")
        there = re.search(NUMBER.pattern.join(map(re.escape, other_numbers)), page)
        instead = f"found “{there[0]}”" if there else "found no such words: change the quote in experiments/quotes"
        found.append(f"{document}: expected “{quote}” by docs/results, {instead}")
    return found


def uncovered(text: str, quotes: Iterable[str]) -> list[str]:
    """The numbers in the prose of a document that stand in no quote, each with the words around it."""
    prose = plain(NO_PROSE.sub(" ", text))
    for quote in quotes:
        words = plain(NO_PROSE.sub(" ", quote))
        prose = prose.replace(words, NUMBER.sub("#", words))
    return [prose[max(0, each.start() - CONTEXT) : each.end() + CONTEXT] for each in NUMBER.finditer(prose)]
