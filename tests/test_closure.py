"""The core: what `E1Trainer` imports, wherever in its files. Everything else in the package is optional.

A module that is in the core by an accident is named with the chain of imports that brought it in.
"""

from pathlib import Path

import pytest

from tests import closure
from tests.closure import ROOT, SAMPLING, TRAINER, closure_of

# By package, which is in the core, too.
CORE = {
    "e1_trl": "arguments budget errors marker ports rollout trl_internals versions",
    "e1_trl.engines": "colocated engine local openai server weight_check",
    "e1_trl.answers": "grade",
    "e1_trl.problems": "prompts",
    "e1_trl.training": "arguments beforehand budgets callbacks config cuda groups phases progress rewards scoring "
    "trainer varlen",
}
MODULES = {*CORE, *(f"{package}.{name}" for package, names in CORE.items() for name in names.split())}


def faults(start: str, allowed: set[str] | None, most_lines: int, root: Path = ROOT) -> list[str]:
    """What is wrong with a closure, one line each: modules that are not allowed in it, or too many lines."""
    found = closure_of(start, root)
    over = [] if allowed is None else sorted(found.keys() - allowed)
    said = [f"{closure.chain_of(module, found)}: not one of the core" for module in over]
    lines = closure.lines_of(found, root)
    if sum(lines.values()) > most_lines:
        longest = sorted(lines, key=lambda module: -lines[module])[:5]
        largest = ", ".join(f"{lines[module]} of {closure.chain_of(module, found)}" for module in longest)
        said.append(f"{start} imports {sum(lines.values())} lines, {most_lines} may be; most are {largest}")
    return said


def test_the_trainer_imports_the_core_and_nothing_else() -> None:
    assert faults(TRAINER, MODULES, closure.MOST_LINES) == []
    assert closure_of(TRAINER).keys() == MODULES, "the list names what the trainer no longer imports"


def test_the_core_imports_nothing_by_a_name_that_this_could_not_see() -> None:
    texts = {module: file.read_text() for module, file in closure.files_of(ROOT).items() if module in MODULES}
    calls = ("import_module", "resolve_name", "__import__")
    dynamic = {module for module, text in texts.items() if any(call in text for call in calls)}
    assert dynamic == {"e1_trl", "e1_trl.arguments"}, "only names that users give are imported by name"


@pytest.mark.parametrize("start", ["e1_trl", SAMPLING])
def test_what_only_samples_imports_little(start: str) -> None:
    assert faults(start, None, closure.MOST_LINES_OF_SAMPLING) == []


# A package with an edge that its core may have, and one for type annotations.
FILES = {
    "__init__.py": "",
    "extra/__init__.py": "",
    "extra/card.py": "LICENSE = 'none'\n",
    "budget.py": "import json\n",
    "trainer.py": (
        "from typing import TYPE_CHECKING\n\nfrom e1_trl.budget import Budget\n\n"
        "if TYPE_CHECKING:\n    from e1_trl.extra.card import LICENSE\n"
    ),
}


@pytest.mark.parametrize(
    "edge",
    [
        "from e1_trl.extra.card import LICENSE\n",
        "from e1_trl.extra import card\n",
        "import e1_trl.extra.card as card\n",
        "def later():\n    from e1_trl.extra.card import LICENSE\n",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import e1_trl.extra.card\n",
    ],
)
def test_an_edge_that_is_added_is_found_and_named(tmp_path: Path, edge: str) -> None:
    core = {"e1_trl", "e1_trl.budget", "e1_trl.trainer"}
    (tmp_path / "e1_trl" / "extra").mkdir(parents=True)
    for name, text in FILES.items():
        (tmp_path / "e1_trl" / name).write_text(text)
    assert faults("e1_trl.trainer", core, 7, tmp_path) == []
    with (tmp_path / "e1_trl" / "budget.py").open("a") as file:
        file.write(edge)
    assert faults("e1_trl.trainer", core, 100, tmp_path) == [
        "e1_trl.extra <- e1_trl.budget <- e1_trl.trainer: not one of the core",
        "e1_trl.extra.card <- e1_trl.budget <- e1_trl.trainer: not one of the core",
    ]
