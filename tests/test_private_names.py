"""Whether the installed TRL and vLLM still have what docs/private-names.md says that we use of them, and no more."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator

import pytest
from conftest import ROOT

PACKAGE = ROOT / "e1_trl"
ADAPTER = PACKAGE / "trl_internals.py"
TEXT = (ROOT / "docs" / "private-names.md").read_text()
ROW = r"^\| `([\w.]+):(?:(\w+)\.)?(\w+)` \| (?:`\((.*)\)` )?\| [^|]+ \| ([^|]+) \|$"
LISTED = re.findall(ROW, TEXT, re.M)
PYTHONS = re.findall(r"^- `(\w+)\.(\w+)`:", TEXT, re.M)
DOCUMENTED = {"trl", "trl.rewards"}  # modules of TRL that its documentation imports from
# Of these objects, which only the adapter can reach, names are as common as `model`.
BEHIND_THE_ENGINE = {"VLLMGeneration", "VLLMClient"}


def difference(module: str, owner: str, name: str, parameters: str) -> str:
    """How the installed package differs from a row of the list; empty if it does not."""
    try:
        place = importlib.import_module(module)
        place = getattr(place, owner) if owner else place
    except (ImportError, AttributeError) as error:
        return str(error)
    found = inspect.getattr_static(place, name, None)
    if inspect.isfunction(found):
        now = ", ".join(inspect.signature(found).parameters)
        return "" if now == parameters else f"it takes ({now})"
    # An attribute, which its class sets.
    is_set = re.search(rf"\b{name}\b[^=\n]* = ", inspect.getsource(place))
    return "" if is_set and not parameters else "it is gone"


@pytest.mark.parametrize("row", LISTED, ids=lambda row: ".".join(filter(None, row[:3])))
def test_every_listed_name_is_there_with_its_parameters(row: tuple[str, ...]) -> None:
    *place, remedy = row
    if found := difference(*place):
        pytest.fail(f"{'.'.join(filter(None, place[:3]))}: {found}. Look at {remedy}", pytrace=False)


def test_every_row_of_the_list_is_read_and_what_is_pythons_is_there() -> None:
    assert len(LISTED) == TEXT.count("\n| `") and len(PYTHONS) == TEXT.count("\n- `")
    for module, name in PYTHONS:
        assert hasattr(importlib.import_module(module), name)


def test_every_name_with_a_leading_underscore_in_the_code_is_our_own_or_listed() -> None:
    used, own = set(), set()
    for file in PACKAGE.glob("**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
                (own if on_self and isinstance(node.ctx, ast.Store) else used).add(node.attr)
    listed = {row[2] for row in LISTED} | {name for _, name in PYTHONS}
    assert used - own - listed - {"_exit"} == set()  # os._exit is documented


def trls_names_in(code: str) -> Iterator[str]:
    """Names of TRL in a module that only the adapter may have, and modules that only it may import from."""
    rows = [row for row in LISTED if row[0].startswith("trl.")]
    names = {row[2] for row in rows if row[1] not in BEHIND_THE_ENGINE or row[2].startswith("_")} | BEHIND_THE_ENGINE
    names.discard("__iter__")
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "trl":
            yield from {node.module} - DOCUMENTED
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("trl"))
        elif isinstance(node, ast.Attribute):
            # Fields of the configuration have the names of two attributes of the trainer, and are documented.
            is_field = ast.unparse(node.value).rpartition(".")[2] == "args"
            yield from {node.attr} & names if not is_field else ()
        elif isinstance(node, ast.FunctionDef | ast.Name):
            yield from {node.name if isinstance(node, ast.FunctionDef) else node.id} & names - {"log_completions"}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from {node.value} & {name for name in names if name.startswith("_")}


def test_trls_private_names_stand_in_the_adapter_alone() -> None:
    others = {file: [*trls_names_in(file.read_text())] for file in PACKAGE.glob("**/*.py") if file != ADAPTER}
    assert {str(file): names for file, names in others.items() if names} == {}
    assert len({*trls_names_in(ADAPTER.read_text())}) > 12
