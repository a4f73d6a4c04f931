"""Whether the installed TRL and vLLM still have what docs/private-names.md says that we use of them, and no more."""

import ast
import importlib
import inspect
import re

import pytest
from conftest import ROOT

TEXT = (ROOT / "docs" / "private-names.md").read_text()
LISTED = re.findall(r"^\| `([\w.]+):(?:(\w+)\.)?(\w+)` \| (?:`\((.*)\)` )?\|", TEXT, re.M)
PYTHONS = re.findall(r"^- `(\w+)\.(\w+)`:", TEXT, re.M)


@pytest.mark.parametrize(("module", "owner", "name", "parameters"), LISTED)
def test_every_listed_name_is_there_with_its_parameters(module: str, owner: str, name: str, parameters: str) -> None:
    place = importlib.import_module(module)
    place = getattr(place, owner) if owner else place
    found = inspect.getattr_static(place, name, None)
    if inspect.isfunction(found):
        assert ", ".join(inspect.signature(found).parameters) == parameters
    else:  # an attribute, which its class sets
        assert not parameters and re.search(rf"\b{name}\b[^=\n]* = ", inspect.getsource(place))


def test_every_row_of_the_list_is_read_and_what_is_pythons_is_there() -> None:
    assert len(LISTED) == TEXT.count("\n| `") and len(PYTHONS) == TEXT.count("\n- `")
    for module, name in PYTHONS:
        assert hasattr(importlib.import_module(module), name)


def test_every_name_with_a_leading_underscore_in_the_code_is_our_own_or_listed() -> None:
    used, own = set(), set()
    for file in (ROOT / "e1_trl").glob("**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
                (own if on_self and isinstance(node.ctx, ast.Store) else used).add(node.attr)
    listed = {name for _, _, name, _ in LISTED} | {name for _, name in PYTHONS}
    assert used - own - listed - {"_exit"} == set()  # os._exit is documented
