"""Import closures: the modules that a module imports, wherever in its file, and through which others."""

import ast
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAINER = "e1_trl.training.trainer"
SAMPLING = "e1_trl.rollout"
MOST_LINES = 4_591  # of the trainer
MOST_LINES_OF_SAMPLING = 900  # of the package itself, and of the state machine that says what to sample next


def file_of(module: str, root: Path) -> Path | None:
    """Return the file of a module or package below a folder; None if it has none."""
    place = root.joinpath(*module.split("."))
    files = (place / "__init__.py", place.with_suffix(".py"))
    return next((file for file in files if file.is_file()), None)


def named_in(node: ast.AST) -> set[str]:
    """Collect the modules, or names in them, that a syntax tree imports, except for annotations alone."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return set().union(*map(named_in, node.orelse))
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert not node.level, "relative imports are not resolved here"
        return {f"{node.module}.{alias.name}" for alias in node.names}
    return set().union(*map(named_in, ast.iter_child_nodes(node)))


def with_packages(name: str, root: Path) -> list[str]:
    """Return a module, or the module of a name, and the packages above it, as far as they are files below a folder."""
    parts = name.split(".")
    modules = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return [module for module in modules if file_of(module, root) is not None]


def closure_of(start: str, root: Path = ROOT) -> dict[str, str]:
    """Return the modules that a module imports, directly or through others, each with its first importer."""
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
    """Format the way of a module into a closure: `module <- its importer <- … <- the start`."""
    chain = [module]
    while found[chain[-1]] != chain[-1]:
        chain.append(found[chain[-1]])
    return " <- ".join(chain)


def lines_of(found: Mapping[str, str], root: Path = ROOT) -> dict[str, int]:
    """Count the lines of each module's file."""
    files = {module: file_of(module, root) for module in found}
    return {module: len(file.read_text().splitlines()) for module, file in files.items() if file is not None}
