"""Tables for tests: cases as text, and real rows, which are not part of the project."""

import gzip
import json
from typing import Any

import pytest
from conftest import DATA


def read_table(text: str) -> dict[str, dict[str, list[str]]]:
    """Read a table: headings, below each, indented, `label: item | item`, which goes on in lines indented further."""
    table = dict[str, dict[str, list[str]]]()
    for line in filter(None, text.splitlines()):
        if not line.startswith(" "):
            labels = table[line] = {}
            continue
        items = line.strip()
        if not line.startswith(" " * 8):
            label, _, items = items.partition(": ")
            labels[label] = []
        labels[label] += items.split(" | ")
    return table


def read_rows(file: str) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines in the folder of data, by its path there; skip the test without it."""
    if not (DATA / file).exists():
        pytest.skip(f"{DATA / file} is not on this machine")
    content = (DATA / file).read_bytes()
    return [json.loads(line) for line in (gzip.decompress(content) if file.endswith("gz") else content).splitlines()]
