"""The house's lint finds planted faults, each where it is, and nothing beside them."""

from pathlib import Path

import pytest

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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clone with a fault of each kind."""
    texts = {
        "README.md": "a few words\n",
        "docs/page.md": PAGE,
        "docs/results/made.md": LONG,
        "e1_trl/__init__.py": "",
        "e1_trl/rollout.py": "",
        "e1_trl/training/trainer.py": "from e1_trl import rollout\n",
        "e1_trl/training/long.py": CODE + "    print()\n" * 59,
        "tests/longer.py": "x = 1\n" * 301,
        "benchmarks/longer.py": "x = 1\n" * 301,
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_each_planted_fault_is_found_in_its_line(root: Path) -> None:
    package = "e1_trl/training/long.py"
    assert [found[:2] for found in house.docstrings(root)] == [(package, 1), (package, 4)]
    assert [found[:2] for found in house.pairs(root)] == [(package, 11)]
    assert [found[:2] for found in house.prose(root)] == [("docs/page.md", 2), ("docs/page.md", 12)]
    assert [*house.functions(root)] == [(package, 15, "long has 60 lines, 59 may be")]
    assert [*house.files(root)] == [("benchmarks/longer.py", 301, "301 lines, 300 may be")]
