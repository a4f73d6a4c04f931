"""Import closures: the modules that a module imports, wherever in its file, and through which others."""

import ast
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAINER = "e1_trl.training.trainer"
SAMPLING = "e1_trl.rollout"
MOST_LINES = 4_560  # of the trainer
MOST_LINES_OF_SAMPLING = 900  # of the package itself, and of the state machine that says what to sample next


def files_of(root: Path) -> dict[str, Path]:
    """Return the file of each module and package of e1_trl below a folder."""
    files = {file.relative_to(root).with_suffix(""): file for file in root.glob("e1_trl/**/*.py")}
    return {".".join(path.parts).removesuffix(".__init__"): file for path, file in files.items()}


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


def closure_of(start: str, root: Path = ROOT) -> dict[str, str]:
    """Return the modules that a module imports, directly or through others, each with its first importer."""
    files = files_of(root)

    def with_packages(name: str) -> list[str]:
        """Return a module, or the module of a name, and the packages above it."""
        parts = name.split(".")
        modules = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
        return [module for module in modules if module in files]

    found = dict.fromkeys(with_packages(start), start)
    waiting = [*found]
    for module in waiting:  # which grows
        for name in sorted(named_in(ast.parse(files[module].read_text()))):
            new = [each for each in with_packages(name) if each not in found]
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
    files = files_of(root)
    return {module: len(files[module].read_text().splitlines()) for module in found}
