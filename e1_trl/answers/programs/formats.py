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
from e1_trl.errors import UserError

INTEGER = re.compile(r"0|-?[1-9]\d{0,99}", re.ASCII)


def read_suite(tests: Any, rule: Rule, call: str | None = None) -> Suite:
    """The suite in any of the shapes above.

    Args:
        tests: what a dataset has.
        rule: when an output is right.
        call: the function that is called, where the tests do not name it.

    Raises:
        UserError: one line about what is wrong with it.
    """
    listed = tests
    try:
        match tests:
            case {"type": "assert", "code": code}:
                if call is None:
                    raise UserError("assertions do not name the function that they test")
                return Suite(tuple(_asserted(code)), call.rpartition(".")[2], rule)
            case Mapping():
                name = tests.get("fn_name") or None
                kind = "function_call" if name else "stdin"
                pairs = zip(tests["inputs"], tests["outputs"], strict=True)
                listed = [{"type": kind, "fn_name": name, "input": given, "output": out} for given, out in pairs]
        return Suite(*_listed(listed, call), rule)
    except (KeyError, TypeError, AttributeError, RecursionError, SyntaxError) as error:
        raise UserError(f"tests of an unknown shape ({type(error).__name__}: {error}): {str(tests)[:80]}") from error


def _listed(tests: Sequence[Mapping[str, Any]], call: str | None) -> tuple[tuple[Case, ...], str | None]:
    """The cases of a list of tests, and the function that they call."""
    kinds = {test.get("type", test.get("testtype", "stdin")) for test in tests}
    if len(kinds) > 1:
        raise UserError(f"tests of several kinds: {', '.join(sorted(kinds))}")
    pairs = [(test["input"], test["output"]) for test in tests]
    match kinds.pop() if kinds else "stdin":
        case "stdin" | "stdin_stdout":
            return tuple(Case(_lines(given), (_lines(out),)) for given, out in pairs), None
        case "function_call":
            names = {test["fn_name"] for test in tests}
            cases = tuple(_called(given, out) for given, out in pairs)
        case "functional":
            names = {(test.get("metadata") or {}).get("func_name") or call for test in tests}
            cases = tuple(
                Case(arguments(list(map(json.loads, given.split("\n")))), (as_json(json.loads(out)),))  # one a line
                for given, out in pairs
            )
        case kind:
            raise UserError(f"tests of an unknown kind: {kind}")
    if len(names) != 1 or not isinstance(name := names.pop(), str):
        raise UserError("the tests do not name one function")
    return cases, name


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
                    raise UserError(f"line {node.lineno}: a call with unpacked arguments")
                named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
                given = [ast.literal_eval(argument) for argument in call.args]
                found.append(Case(arguments(given, named), (as_json(ast.literal_eval(value)),)))
            case ast.Assign(targets=[ast.Name(("inputs" | "results") as name)], value=value):
                lists[name] = ast.literal_eval(value)
            case ast.Assert() if any(
                isinstance(part, ast.Call) and getattr(part.func, "id", "") == "candidate" for part in ast.walk(node)
            ):
                raise UserError(f"line {node.lineno}: an assertion that is not `candidate(...) == value`")
    if "inputs" in lists and "results" in lists:
        check_helper(tree)
        pairs = zip(lists["inputs"], lists["results"], strict=True)
        found += [Case(arguments(given), (as_json(result),)) for given, result in pairs]
    return found


def check_helper(tree: ast.Module) -> None:
    """Check that the function which is handed what `candidate` returns compares as the rules do.

    Raises:
        UserError: it may not: it does something else with that value than `out == exp` or `allclose(out, exp, …)`.
    """
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(name), args=[ast.Call(func=ast.Name("candidate")), ast.Name() | ast.Call(), _]):
                names.add(name)
    helpers = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if len(names) != 1 or not names <= helpers.keys():
        raise UserError("the tests have no helper that is given what candidate returns, and what is expected")
    helper = helpers[names.pop()]
    out, expected = (argument.arg for argument in helper.args.args[:2])
    uses = known = changes = 0
    for node in ast.walk(helper):
        match node:
            case ast.Name(name) if name == out:
                uses += 1
            case ast.Name(name, ctx=ast.Store()) if name == expected:
                changes += 1
            case (
                ast.Compare(left=ast.Name(a), ops=[ast.Eq()], comparators=[ast.Name(b)])
                | ast.Call(func=ast.Attribute(attr="allclose"), args=[ast.Name(a), ast.Name(b)])
            ) if (a, b) == (out, expected):
                known += 1
    if uses != known or changes:
        raise UserError(f"line {helper.lineno}: {helper.name} compares otherwise than by == or allclose")
