import ast
import importlib
import inspect
import re
import textwrap
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

import pytest
from conftest import ROOT

LISTED = re.findall(
    r"^\| `([\w.]+):(?:(\w+)\.)?(\w+)` \| (\w+) ([\d.]+) \| `([^`]+)` \|",
    (ROOT / "docs" / "private-names.md").read_text(),
    re.M,
)

PYTHONS = re.findall(r"^- `(\w+)\.(\w+)`:", (ROOT / "docs" / "private-names.md").read_text(), re.M)

SHOWN = 40  # characters of a value


def pinned(owner: type | ModuleType, name: str) -> str:
    """The parameters of a function of a class or module, or the beginning of what an attribute of a class is set to."""
    attribute = inspect.getattr_static(owner, name, None)
    if inspect.isfunction(attribute):
        return f"({', '.join(inspect.signature(attribute).parameters)})"
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(owner)))):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        parts = [part for target in targets for part in ast.walk(target)]
        if name in {part.id for part in parts if isinstance(part, ast.Name)} | {
            part.attr for part in parts if isinstance(part, ast.Attribute)
        }:
            value = ast.unparse(node.value)
            return f"= {value}" if len(value) <= SHOWN else f"= {value[:SHOWN]}…"
    raise AttributeError(f"{owner.__name__} has no {name}")


@pytest.mark.parametrize(("module", "owner", "name", "package", "release", "pin"), LISTED)
def test_every_listed_name_is_in_the_listed_version_what_it_was(
    module: str, owner: str, name: str, package: str, release: str, pin: str
) -> None:
    try:
        installed = version(package)
    except PackageNotFoundError:
        installed = version(f"{package}-cpu")
    assert installed.startswith(f"{release}.")
    imported = importlib.import_module(module)
    assert pinned(getattr(imported, owner) if owner else imported, name) == pin


def test_a_changed_signature_would_be_noticed() -> None:
    class Owner:
        def __init__(self) -> None:
            self.kept: dict[str, int] = {"a": 1}

        def called(self, prompts: list[str], *, more: int = 0) -> None: ...

    assert pinned(Owner, "called") == "(self, prompts, more)"
    assert pinned(Owner, "kept") == "= {'a': 1}"
    with pytest.raises(AttributeError, match="has no called_otherwise"):
        pinned(Owner, "called_otherwise")


def test_every_row_of_the_list_is_read() -> None:
    rows = [line for line in (ROOT / "docs" / "private-names.md").read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(LISTED)


def test_every_name_with_a_leading_underscore_in_the_code_is_our_own_or_listed() -> None:
    used, own = set(), set()
    for file in (ROOT / "e1_trl").glob("**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
                (own if on_self and isinstance(node.ctx, ast.Store) else used).add(node.attr)
    listed = {name for _, _, name, _, _, _ in LISTED} | {name for _, name in PYTHONS}
    assert used - own - listed - {"_exit"} == set()  # os._exit is documented


def test_every_listed_name_of_python_is_there() -> None:
    assert PYTHONS
    for module, name in PYTHONS:
        assert hasattr(importlib.import_module(module), name)
