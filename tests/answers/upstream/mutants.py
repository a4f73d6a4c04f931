"""Makes programs of a reference: wrong ones mostly, by changing one thing in it, and right ones in another form.

Of the forms, an exact grader rejects some: they are as a model might write the same, or nearly the same.
"""

import ast
import random
from collections.abc import Callable, Iterator
from typing import Any

Change = Callable[[], None]

SWAPPED: dict[type, type] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add},
    **{ast.Mult: ast.Add, ast.Div: ast.FloorDiv, ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv},
}
# What becomes of a value `x` that is returned, and of which type some of what is expected must be.
FORMS = {
    "lists as tuples, and the reverse": (list, "tuple(x) if type(x) is list else list(x) if type(x) is tuple else x"),
    "floats off by 5e-8 of them": (float, "x * (1 + 5e-8) if type(x) is float else x"),
    "floats off by 5e-7 of them": (float, "x * (1 + 5e-7) if type(x) is float else x"),
    "whole floats as integers": (float, "int(x) if type(x) is float and x == x // 1 else x"),
    "floats of numpy": (float, "__import__('numpy').float64(x) if type(x) is float else x"),
    "integers as floats": (int, "float(x) if type(x) is int and abs(x) < 2**53 else x"),
    "integers of numpy": (int, "__import__('numpy').int64(x) if type(x) is int and abs(x) < 2**63 else x"),
    "numbers in arrays of numpy": (
        list,
        "__import__('numpy').array(x) if type(x) is list and {*map(type, x)} in ({int}, {float}) else x",
    ),
}
UNIMPORTED = "without imports"
WRAPPED = "\n\ndef {name}(*given, answer={name}):\n    return formed(answer(*given))\n"
OVERRIDDEN = "\n\nclass Solution(Solution):\n    def {name}(self, *given): return formed(super().{name}(*given))\n"
FORMED = "\ndef formed(x):\n    x = type(x)(map(formed, x)) if type(x) in (list, tuple) else x\n    return {form}\n"


def mutants(reference: str, name: str, count: int, chance: random.Random) -> dict[str, str]:
    """At most so many programs by what was changed, each in another place of the function of this name."""
    places = len(list(_changes(ast.parse(reference), name)))
    found: dict[str, str] = {}
    for place in sorted(chance.sample(range(places), min(count, places))):
        tree = ast.parse(reference)
        what, change = list(_changes(tree, name))[place]
        change()
        found[f"{what}, place {place}"] = ast.unparse(tree)
    return found


def other_form(reference: str, name: str, expected: Any, chance: random.Random) -> tuple[str, str]:
    """Which form was drawn of those that such values can have, and the reference in it."""
    types = set(_types(expected))
    form = chance.choice([*(form for form, (kind, _) in FORMS.items() if kind in types), UNIMPORTED])
    if form == UNIMPORTED:
        tree = ast.parse(reference)
        tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
        return form, ast.unparse(tree)
    around = OVERRIDDEN if "class Solution" in reference else WRAPPED
    return form, reference + around.format(name=name) + FORMED.format(form=FORMS[form][1])


def _types(value: Any) -> Iterator[type]:
    yield type(value)
    for item in value if isinstance(value, list) else ():
        yield from _types(item)


def _changes(tree: ast.Module, name: str) -> Iterator[tuple[str, Change]]:
    """What can be changed in the function, and how."""
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
    for node in ast.walk(function):
        for field in ("op", "ops"):
            operators = getattr(node, field, None)
            first = operators[0] if isinstance(operators, list) else operators
            if type(first) in SWAPPED:
                new = SWAPPED[type(first)]()
                value = [new, *operators[1:]] if isinstance(operators, list) else new
                yield f"{type(first).__name__} to {type(new).__name__}", _setting(node, field, value)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            for step in (1, -1):
                yield f"{node.value} to {node.value + step}", _setting(node, "value", node.value + step)
    if function.args.args:
        early = ast.parse(f"return {function.args.args[-1].arg}").body
        yield "returns its argument", _setting(function, "body", early)


def _setting(node: ast.AST, field: str, value: object) -> Change:
    return lambda: setattr(node, field, value)
