"""The house's lint finds planted faults, each where it is, and nothing beside them."""

from pathlib import Path

from tests import house

LONG = "word " * 30
PAGE = f"""# A heading may be as long as it likes: {LONG}
{LONG}
| a table | {LONG} |
[target]: https://example.org/{"x" * 120} "a title"
- [one link](https://example.org/{"x" * 120})
<!-- made -->
{LONG}
<!-- /made -->
```
{LONG}
```
- {LONG}
"""
CODE = '''"""Whether a module says this."""


class Pair:
    """Which of two."""

    def swap(self, a, b):
        """Swap."""
        a, b = b, a
        a, b = a + 1, a
        a, b = 1, 2
        return a, b


def long():
'''


# A clone with a fault of each kind.
TEXTS = {
    "README.md": "a few words\n",
    "docs/page.md": PAGE,
    "docs/results/made.md": LONG,
    "e1_trl/training/long.py": CODE + "    print()\n" * 59,
    "tests/longer.py": "x = 1\n" * 301,
    "benchmarks/longer.py": "x = 1\n" * 301,
}


def test_each_planted_fault_is_found_in_its_line(tmp_path: Path) -> None:
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    package = "e1_trl/training/long.py"
    assert [found[:2] for found in house.docstrings(tmp_path)] == [(package, 1), (package, 4)]
    assert [found[:2] for found in house.pairs(tmp_path)] == [(package, 11)]
    assert [found[:2] for found in house.prose(tmp_path)] == [("docs/page.md", 2), ("docs/page.md", 12)]
    assert [*house.functions(tmp_path)] == [(package, 15, "long has 60 lines, 59 may be")]
    assert [*house.files(tmp_path)] == [("benchmarks/longer.py", 301, "301 lines, 300 may be")]
