"""Reads the tests of programs as datasets have them, into suites.

TACO            {"inputs": [...], "outputs": [...]}, with "fn_name" for calls
PrimeIntellect  [{"type": "stdin_stdout" | "function_call", "input": ..., "output": ..., "fn_name": ...}]
LiveCodeBench   [{"testtype": "stdin" | "functional", "input": ..., "output": ..., "metadata": {"func_name": ...}}]
Codeforces      [{"input": ..., "output": ...}]
assertions      {"type": "assert", "code": "def check(candidate): ..."}, of which only literals are read
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from e1_trl.answers.programs.sandbox.inside.values import plain
from e1_trl.answers.programs.suite import Case, Rule, Suite

INTEGER = re.compile(r"0|-?[1-9]\d{0,99}", re.ASCII)


def read_suite(tests: Any, rule: Rule, call: str | None = None, checker: str | None = None) -> Suite:
    """The suite in any of the shapes above, as a value or as its JSON.

    Args:
        tests: what a dataset has.
        rule: when an output is right.
        call: the function that is called, where the tests do not name it.
        checker: the program that says what is right instead of the rule, as `generated_checker` in open-r1/codeforces.

    Raises:
        ValueError: one line about what is wrong with it.
    """
    try:
        value = json.loads(tests) if isinstance(tests, str) else tests
        if isinstance(value, Mapping) and value.get("type") == "assert":
            if call is None:
                raise ValueError("assertions do not name the function that they test")
            return Suite(tuple(_asserted(value["code"])), call.rpartition(".")[2], rule, checker)
        if isinstance(value, Mapping):
            name = value.get("fn_name") or None
            if not isinstance(name, str | None):
                raise TypeError(f"fn_name {str(name)[:40]!r} is no name")
            pairs = list(zip(value["inputs"], value["outputs"], strict=True))
            cases = tuple(_called(given, out) if name else _piped(given, out) for given, out in pairs)
            return Suite(cases, name, rule, checker)
        if isinstance(value, Sequence):
            cases, name = _listed(value, call)
            return Suite(cases, name, rule, checker)
    except (KeyError, TypeError, AttributeError, RecursionError, SyntaxError) as error:
        raise ValueError(f"tests of an unknown shape ({type(error).__name__}: {error}): {str(tests)[:80]}") from error
    raise ValueError(f"tests of an unknown shape: {str(tests)[:80]}")


def _listed(tests: Sequence[Mapping[str, Any]], call: str | None) -> tuple[tuple[Case, ...], str | None]:
    """The cases of a list of tests, and the function that they call."""
    kinds = {test.get("type", test.get("testtype", "stdin")) for test in tests}
    if len(kinds) > 1:
        raise ValueError(f"tests of several kinds: {', '.join(sorted(kinds))}")
    if kinds == {"function_call"}:
        names = {test["fn_name"] for test in tests}
        if len(names) > 1:
            raise ValueError(f"tests of several functions: {', '.join(sorted(names))}")
        name = names.pop()
        if not isinstance(name, str):
            raise ValueError("calls of a function without a name")
        return tuple(_called(test["input"], test["output"]) for test in tests), name
    if kinds == {"functional"}:
        named = {(test.get("metadata") or {}).get("func_name") or call for test in tests}
        name = named.pop()
        if name is None or named:
            raise ValueError("functional tests do not name one function")
        # One argument a line.
        cases = (
            Case(
                arguments([json.loads(line) for line in test["input"].split("\n")]),
                (as_json(json.loads(test["output"])),),
            )
            for test in tests
        )
        return tuple(cases), name
    if kinds <= {"stdin_stdout", "stdin"}:
        return tuple(_piped(test["input"], test["output"]) for test in tests), None
    raise ValueError(f"tests of an unknown kind: {', '.join(map(str, kinds))}")


def _piped(given: Any, expected: Any) -> Case:
    return Case(_lines(given), (_lines(expected),))


def _lines(text: Any) -> str:
    """Some sets have a list of lines where a text is meant."""
    if isinstance(text, list):
        return "\n".join(map(str, text))
    if not isinstance(text, str):
        raise TypeError(f"{str(text)[:40]!r} is no text")
    return text


def _called(given: Any, returns: Any) -> Case:
    """A call; what it returns often stands in a list of its own."""
    if not isinstance(given, list):
        raise TypeError(f"the arguments {str(given)[:40]} are no list")
    alternatives = [returns, *returns] if isinstance(returns, list) and len(returns) == 1 else [returns]
    accepted = dict.fromkeys(map(as_json, [*alternatives, *map(_with_integers, alternatives)]))
    return Case(arguments([_with_integers(argument) for argument in given]), tuple(accepted))


def _with_integers(value: Any) -> Any:
    """A dictionary with integers for keys where all of them can be: JSON knows texts only, and the graders of these
    sets read them so."""
    if isinstance(value, dict) and value and all(INTEGER.fullmatch(key) for key in value):
        return {int(key): item for key, item in value.items()}
    return value


def arguments(positional: Sequence[Any], named: Mapping[str, Any] | None = None) -> str:
    """The arguments of a call in the form in which a box takes them."""
    return json.dumps({"positional": plain(list(positional), True), "named": plain(dict(named or {}), True)})


def as_json(value: Any) -> str:
    """A value in the form in which a box returns it."""
    return json.dumps(plain(value))


def _asserted(code: str) -> list[Case]:
    """The cases of a `check` function: `assert candidate(...) == value`, or lists of inputs and results."""
    tree = ast.parse(code)
    found: list[Case] = []
    lists: dict[str, Any] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assert(
                test=ast.Compare(left=ast.Call(func=ast.Name("candidate")) as call, ops=[ast.Eq()], comparators=[value])
            ):
                if any(keyword.arg is None for keyword in call.keywords):
                    raise ValueError(f"line {node.lineno}: a call with unpacked arguments")
                named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
                given = [ast.literal_eval(argument) for argument in call.args]
                found.append(Case(arguments(given, named), (as_json(ast.literal_eval(value)),)))
            case ast.Assign(targets=[ast.Name(("inputs" | "results") as name)], value=value):
                lists[name] = ast.literal_eval(value)
            case ast.Assert() if _calls_candidate(node):
                raise ValueError(f"line {node.lineno}: an assertion that is not `candidate(...) == value`")
    if "inputs" in lists and "results" in lists:
        check_helper(tree)
        pairs = zip(lists["inputs"], lists["results"], strict=True)
        found += [Case(arguments(given), (as_json(result),)) for given, result in pairs]
    return found


def check_helper(tree: ast.Module) -> None:
    """Check that the function which is handed what `candidate` returns compares as the rules do.

    Raises:
        ValueError: it may not: it does something else with that value than `out == exp` or `allclose(out, exp, …)`.
    """
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(name), args=[ast.Call(func=ast.Name("candidate")), ast.Name() | ast.Call(), _]):
                names.add(name)
    helpers = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if len(names) != 1 or not names <= helpers.keys():
        raise ValueError("the tests have no helper that is given what candidate returns, and what is expected")
    (name,) = names
    out, expected = (argument.arg for argument in helpers[name].args.args[:2])
    uses = [node for node in ast.walk(helpers[name]) if isinstance(node, ast.Name) and node.id == out]
    known = [node for node in ast.walk(helpers[name]) if _compares(node, out, expected)]
    changed = any(
        isinstance(node, ast.Name) and node.id == expected and isinstance(node.ctx, ast.Store)
        for node in ast.walk(helpers[name])
    )
    if len(uses) != len(known) or changed:
        raise ValueError(f"line {helpers[name].lineno}: {name} compares otherwise than by == or allclose")


def _compares(node: ast.AST, out: str, expected: str) -> bool:
    match node:
        case ast.Compare(left=ast.Name(a), ops=[ast.Eq()], comparators=[ast.Name(b)]):
            return (a, b) == (out, expected)
        case ast.Call(func=ast.Attribute(attr="allclose"), args=[ast.Name(a), ast.Name(b)]):
            return (a, b) == (out, expected)
    return False


def _calls_candidate(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "candidate"
        for part in ast.walk(node)
    )
