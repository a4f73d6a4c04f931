import ast
import importlib
import inspect
import re
from importlib.metadata import PackageNotFoundError, version

import pytest
from conftest import ROOT

LISTED = re.findall(
    r"^\| `(\S+):(\w+)\.(\w+)` \| (\w+) ([\d.]+) \|", (ROOT / "docs" / "private-names.md").read_text(), re.M
)


@pytest.mark.parametrize(("module", "owner", "name", "package", "release"), LISTED)
def test_every_listed_name_exists_in_the_listed_version(
    module: str, owner: str, name: str, package: str, release: str
) -> None:
    source = inspect.getsource(getattr(importlib.import_module(module), owner))
    assert re.search(rf"\b{name}\b", source)
    try:
        installed = version(package)
    except PackageNotFoundError:
        installed = version(f"{package}-cpu")
    assert installed.startswith(f"{release}.")


def test_every_private_name_in_the_code_is_our_own_or_listed() -> None:
    used, own = set(), set()
    for file in (ROOT / "e1_trl").glob("**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
                (own if on_self and isinstance(node.ctx, ast.Store) else used).add(node.attr)
    assert used - own - {name for _, _, name, _, _ in LISTED} == set()
