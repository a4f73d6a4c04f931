"""The core: what `E1Trainer` imports, wherever in its files. Everything else in the package is optional.

A module that is in the core by an accident is named with the chain of imports that brought it in.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import ROOT

TRAINER, SAMPLING = "e1_trl.training.trainer", "e1_trl.rollout"
# By folder, with the packages that lie above them.
CORE = {
    "": ("", "arguments", "budget", "errors", "rollout", "seeds"),
    "engines": ("", "colocated", "engine", "local", "openai", "server", "weight_check"),
    "answers": ("", "grade"),
    "problems": ("", "prompts"),
    "training": (
        "",
        "arguments",
        "beforehand",
        "budgets",
        "callbacks",
        "config",
        "cuda",
        "groups",
        "launched",
        "logprob_gap",
        "packing",
        "phases",
        "progress",
        "rewards",
        "scoring",
        "trainer",
        "varlen",
        "versions",
    ),
}
MODULES = {".".join(filter(None, ("e1_trl", folder, name))) for folder, names in CORE.items() for name in names}
MOST_MODULES, MOST_LINES = 36, 4_400
MOST_LINES_OF_SAMPLING = 900  # of the package itself, and of the state machine that says what to sample next


def file_of(module: str, root: Path) -> Path | None:
    """The file of a module or package below a folder; None if there is none."""
    place = root.joinpath(*module.split("."))
    files = (place / "__init__.py", place.with_suffix(".py"))
    return next((file for file in files if file.is_file()), None)


def named_in(node: ast.AST) -> set[str]:
    """Modules, or names in them, that a syntax tree imports, in functions too; not what annotations alone need."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return set().union(*map(named_in, node.orelse))
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert not node.level, "a relative import, which nothing here resolves"
        return {f"{node.module}.{alias.name}" for alias in node.names}
    return set().union(*map(named_in, ast.iter_child_nodes(node)))


def with_packages(name: str, root: Path) -> list[str]:
    """A module, or the one that a name is in, and the packages above it, as far as they are files below a folder."""
    parts = name.split(".")
    modules = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return [module for module in modules if file_of(module, root) is not None]


def closure_of(start: str, root: Path) -> dict[str, str]:
    """The modules that a module imports, directly or through others, each with the one that names it first."""
    found = dict.fromkeys(with_packages(start, root), start)
    waiting = [*found]
    for module in waiting:  # which grows
        file = file_of(module, root)
        assert file is not None
        for name in sorted(named_in(ast.parse(file.read_text()))):
            new = [each for each in with_packages(name, root) if each not in found]
            found |= dict.fromkeys(new, module)
            waiting += new
    return found


def chain_of(module: str, found: Mapping[str, str]) -> str:
    """How a module came into a closure, as `it <- what imports it <- … <- the start`."""
    chain = [module]
    while found[chain[-1]] != chain[-1]:
        chain.append(found[chain[-1]])
    return " <- ".join(chain)


def lines_of(found: Mapping[str, str], root: Path) -> dict[str, int]:
    """The lines of each module's file."""
    files = {module: file_of(module, root) for module in found}
    return {module: len(file.read_text().splitlines()) for module, file in files.items() if file is not None}


def faults(start: str, allowed: set[str] | None, most_lines: int, root: Path = ROOT) -> list[str]:
    """What is wrong with a closure, one line each: modules that are not allowed in it, or too many lines."""
    found = closure_of(start, root)
    over = [] if allowed is None else sorted(found.keys() - allowed)
    said = [f"{chain_of(module, found)}: not one of the core" for module in over]
    lines = lines_of(found, root)
    if sum(lines.values()) > most_lines:
        longest = sorted(lines, key=lambda module: -lines[module])[:5]
        largest = ", ".join(f"{lines[module]} of {chain_of(module, found)}" for module in longest)
        said.append(f"{start} imports {sum(lines.values())} lines, {most_lines} may be; most are {largest}")
    return said


def test_the_trainer_imports_the_core_and_nothing_else() -> None:
    assert faults(TRAINER, MODULES, MOST_LINES) == []
    assert closure_of(TRAINER, ROOT).keys() == MODULES, "the list names what the trainer no longer imports"
    assert len(MODULES) <= MOST_MODULES


def test_the_core_imports_nothing_by_a_name_that_this_could_not_see() -> None:
    files = {module: file_of(module, ROOT) for module in MODULES}
    dynamic = {module for module, file in files.items() if file is not None and "import_module" in file.read_text()}
    assert dynamic == {"e1_trl"}, "only the package itself imports lazily, what its users name"


@pytest.mark.parametrize("start", ["e1_trl", SAMPLING])
def test_what_only_samples_imports_little(start: str) -> None:
    assert faults(start, None, MOST_LINES_OF_SAMPLING) == []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package with an edge that its core may have, and one for type annotations."""
    files = {
        "e1_trl/__init__.py": "",
        "e1_trl/extra/__init__.py": "",
        "e1_trl/extra/card.py": "LICENSE = 'none'\n",
        "e1_trl/budget.py": "import json\n",
        "e1_trl/trainer.py": (
            "from typing import TYPE_CHECKING\n\nfrom e1_trl.budget import Budget\n\n"
            "if TYPE_CHECKING:\n    from e1_trl.extra.card import LICENSE\n"
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


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
def test_an_edge_that_is_added_is_found_and_named(root: Path, edge: str) -> None:
    core = {"e1_trl", "e1_trl.budget", "e1_trl.trainer"}
    assert faults("e1_trl.trainer", core, 7, root) == []
    with (root / "e1_trl" / "budget.py").open("a") as file:
        file.write(edge)
    named = [line for line in faults("e1_trl.trainer", core, 100, root) if line.endswith(": not one of the core")]
    assert named == [
        "e1_trl.extra <- e1_trl.budget <- e1_trl.trainer: not one of the core",
        "e1_trl.extra.card <- e1_trl.budget <- e1_trl.trainer: not one of the core",
    ]


def test_lines_that_are_over_are_counted_and_the_longest_files_named(root: Path) -> None:
    (said,) = faults("e1_trl.trainer", None, 6, root)
    assert said.startswith(
        "e1_trl.trainer imports 7 lines, 6 may be; most are 6 of e1_trl.trainer, 1 of e1_trl.budget <- "
    )


@pytest.mark.parametrize("edge", ["checkpoints.model_card", "training.data", "answers.kinds", "problems.arguments"])
def test_each_of_the_edges_that_were_dropped_would_be_found_in_the_package_itself(tmp_path: Path, edge: str) -> None:
    for file in (ROOT / "e1_trl").rglob("*.py"):
        copied = tmp_path / file.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(file.read_text())
    with (tmp_path / "e1_trl" / "training" / "config.py").open("a") as file:
        file.write(f"\n\ndef later():\n    import e1_trl.{edge}\n")
    said = faults(TRAINER, MODULES, 100_000, tmp_path)
    assert f"e1_trl.{edge} <- e1_trl.training.config <- {TRAINER}: not one of the core" in said
