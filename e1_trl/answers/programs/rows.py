"""The rows of datasets of programs: their tests, read into suites, and their known solutions.

Tests come in one of these shapes:

TACO            {"inputs": [...], "outputs": [...]}, with "fn_name" for calls
PrimeIntellect  [{"type": "stdin_stdout" | "function_call", "input": ..., "output": ..., "fn_name": ...}]
LiveCodeBench   [{"testtype": "stdin" | "functional", "input": ..., "output": ..., "metadata": {"func_name": ...}}]
Codeforces      [{"input": ..., "output": ...}]
assertions      {"type": "assert", "code": "def check(candidate): ..."}, in which only literals are read
"""

import ast
import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from e1_trl.answers.programs import livecodebench
from e1_trl.answers.programs.sandbox.inside.values import plain
from e1_trl.answers.programs.suite import Case, Rule, Suite
from e1_trl.errors import UserError

SOLUTIONS = "solutions"  # DeepCoder's column
CHECKER = "generated_checker"  # open-r1/codeforces's column
LONGEST = 200  # characters of a message
INTEGER = re.compile(r"0|-?[1-9]\d{0,99}", re.ASCII)


def read_answer(row: Mapping[str, Any], column: str, count: int) -> Suite:
    """Return the tests of a row: the `count` tests (0: all) with the longest inputs.

    The function to call is named by the tests, by the column `entry_point`, or by `func_name` in `metadata`. In rows as
    LiveCodeBench publishes them the tests are in two columns; either may be named.

    Raises:
        UserError: the tests are malformed, or several outputs are right and the column `generated_checker` holds the
            program that decides, as in open-r1/codeforces.
    """
    if row.get(CHECKER):
        raise UserError(f"{CHECKER} says which of several outputs are right, and e1_trl runs no checker")
    tests = livecodebench.tests_of(row) if column in livecodebench.TESTS else row[column]
    try:
        tests = json.loads(tests) if isinstance(tests, str) else tests
        # LiveCodeBench compares exactly; the other sets allow for rounding.
        exact = isinstance(tests, list) and any(isinstance(test, dict) and test.get("testtype") for test in tests)
        return read_suite(tests, Rule.EXACT if exact else Rule.TOLERANT, _function_of(row)).chosen(count)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"the tests are no JSON: {error}") from error
    except ValueError as error:
        raise UserError(str(error)[:LONGEST]) from error  # it may quote megabytes of tests


def _function_of(row: Mapping[str, Any]) -> str | None:
    """Return the function that the columns next to the tests name, if any."""
    metadata = row.get("metadata")
    with contextlib.suppress(ValueError):
        metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    name = row.get("entry_point") or (metadata.get("func_name") if isinstance(metadata, Mapping) else None)
    return name if isinstance(name, str) else None


def in_block(program: str) -> str:
    """Put a program in a Python block, as in an answer, unless it contains a block already."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", program)), default=0))
    return program if re.search(r"^\s*```", program, re.MULTILINE) else f"{fence}python\n{program}\n{fence}"


def references(row: Mapping[str, Any], column: str) -> list[str]:
    """Return the row's own solutions, with or without a fence; none if it has no such column."""
    found = row.get(column)
    if isinstance(found, str):
        decoded = None
        with contextlib.suppress(ValueError):
            decoded = json.loads(found)  # some sets hold a list as text
        found = decoded if isinstance(decoded, list) else [found]
    return [solution for solution in found or [] if isinstance(solution, str) and solution.strip()]


def read_suite(tests: Any, rule: Rule, call: str | None = None) -> Suite:
    """Read tests in any of the shapes above; `call` is the function to call, where they do not name it."""
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
    """Return the cases of a list of tests and the function that they call."""
    # Arrow gives every test the keys of all, with None for those that it lacks.
    kinds = {test.get("type") or test.get("testtype") or "stdin" for test in tests}
    if len(kinds) > 1:
        raise UserError(f"tests of several kinds: {', '.join(sorted(kinds))}")
    pairs = [(test["input"], test["output"]) for test in tests]
    match kinds.pop() if kinds else "stdin":
        case "stdin" | "stdin_stdout":
            return tuple(Case(_lines(given), (_lines(out),)) for given, out in pairs), None
        case "function_call":
            names = {test["fn_name"] for test in tests}
            cases = tuple(_called(given, out) for given, out in pairs)
        case "functional":  # one argument per line
            names = {(test.get("metadata") or {}).get("func_name") or call for test in tests}
            cases = tuple(
                Case(arguments(list(map(json.loads, given.split("\n")))), (as_json(json.loads(out)),))
                for given, out in pairs
            )
        case kind:
            raise UserError(f"tests of an unknown kind: {kind}")
    if len(names) != 1 or not isinstance(name := names.pop(), str):
        raise UserError("the tests do not name one function")
    return cases, name


def _lines(text: Any) -> str:
    """Return the text; some sets hold a list of lines instead."""
    if isinstance(text, list):
        return "\n".join(map(str, text))
    if not isinstance(text, str):
        raise TypeError(f"expected a text, found {str(text)[:40]!r}")
    return text


def _called(given: Any, returns: Any) -> Case:
    """Return the case of a call; the expected value is often in a list of its own."""
    if not isinstance(given, list):
        raise TypeError(f"expected a list of arguments, found {str(given)[:40]}")
    alternatives = [returns, *returns] if isinstance(returns, list) and len(returns) == 1 else [returns]
    accepted = dict.fromkeys(map(as_json, [*alternatives, *map(_with_integers, alternatives)]))
    return Case(arguments([_with_integers(argument) for argument in given]), tuple(accepted))


def _with_integers(value: Any) -> Any:
    """Convert a dictionary's keys to integers if all can be, as these sets' own graders do: JSON keys are texts."""
    if isinstance(value, dict) and value and all(INTEGER.fullmatch(key) for key in value):
        return {int(key): item for key, item in value.items()}
    return value


def arguments(positional: Sequence[Any], named: Mapping[str, Any] | None = None) -> str:
    """Encode the arguments of a call in the form that a box takes."""
    return json.dumps({"positional": plain(list(positional), True), "named": plain(dict(named or {}), True)})


def as_json(value: Any) -> str:
    """Encode a value in the form that a box returns."""
    return json.dumps(plain(value))


def _asserted(code: str) -> list[Case]:
    """Return the cases of a `check` function: `assert candidate(...) == value`, or lists of inputs and results."""
    tree = ast.parse(code)
    found: list[Case] = []
    lists: dict[str, Any] = {}
    read: set[ast.Call] = set()
    unread: list[int] = []  # lines
    for node in ast.walk(tree):
        match node:
            case ast.Assert(
                test=ast.Compare(left=ast.Call(func=ast.Name("candidate")) as call, ops=[ast.Eq()], comparators=[value])
            ):
                if any(keyword.arg is None for keyword in call.keywords):
                    raise UserError(f"line {node.lineno}: a call with unpacked arguments")
                named = {keyword.arg: _literal(keyword.value) for keyword in call.keywords if keyword.arg}
                found.append(Case(arguments(list(map(_literal, call.args)), named), (as_json(_literal(value)),)))
                read.add(call)
            case ast.Assign(targets=[ast.Name(("inputs" | "results") as name)], value=value):
                lists[name] = _literal(value)
            case ast.Call(func=ast.Name("candidate")) if node not in read:  # ast.walk comes to its assertion first
                unread.append(node.lineno)
    if "inputs" in lists and "results" in lists:
        check_helper(tree)
        pairs = zip(lists["inputs"], lists["results"], strict=True)
        found += [Case(arguments(given), (as_json(result),)) for given, result in pairs]
        del unread[:1]  # the call in the loop
    if unread:
        raise UserError(f"line {unread[0]}: a call other than in `assert candidate(...) == value`")
    return found


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise UserError(f"line {node.lineno}: {ast.unparse(node)[:40]!r} is no literal") from error


def check_helper(tree: ast.Module) -> None:
    """Check that the helper that gets the result of `candidate` uses it for `out == exp` or `allclose(out, exp, …)`."""
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(name), args=[ast.Call(func=ast.Name("candidate")), ast.Name() | ast.Call(), _]):
                names.add(name)
    helpers = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if len(names) != 1 or not names <= helpers.keys():
        raise UserError("the tests have no helper that takes the candidate's result and the expected one")
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
