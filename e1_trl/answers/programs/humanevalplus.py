"""HumanEval+'s tests as suites, including those that `read_suite` cannot read.

157 of its 164 problems write down the expected results. Six (14, 15, 83, 100, 130 and 139) have a reference function
instead: it runs here once, in a box, so that grading needs only its results. One (32, `find_zero`) accepts any root of
a polynomial. Its own test cannot pass, since it unpacks a number, so it is graded by EvalPlus's rule.
"""

import ast
import logging
from typing import Any

from e1_trl.answers.programs.rows import arguments, as_json, check_helper, read_suite
from e1_trl.answers.programs.sandbox.box import Box
from e1_trl.answers.programs.sandbox.process import End, Limits
from e1_trl.answers.programs.suite import Case, Rule, Suite
from e1_trl.errors import UserError

logger = logging.getLogger(__name__)

REFERENCE = "ref_func"
ROOT = "find_zero"
# Ends of a reference that is right, but slow or long; its test is left out.
OVER_THE_LIMITS = {End.TIMED_OUT, End.OUT_OF_MEMORY, End.TOO_MUCH_OUTPUT}


def humaneval_suite(code: str, name: str, box: Box, limits: Limits) -> Suite:
    """Return the suite of a problem: the tests in `code`, a function `check` with its helpers, of the function `name`.

    Tests that a reference function does not pass within the limits are left out with a warning: some results have a
    million digits or items. With `limits.output` at 2**19 bytes and some seconds of CPU time, the same 39 of 1,503 are
    left out on every machine; without a limit, the suite of problem 15 alone has 147 MB.

    Raises:
        UserError: the tests are malformed, or the reference fails.
        SandboxError: the box broke.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UserError(f"the tests are no Python ({type(error).__name__}): {code[:80]!r}") from error
    if name == ROOT:
        pairs = zip(_literal(tree, "inputs"), _literal(tree, "results"), strict=True)
        cases = tuple(Case(arguments(given), (as_json(result),)) for given, result in pairs)
        return Suite(cases, name, Rule.ROOT)
    if any(isinstance(node, ast.FunctionDef) and node.name == REFERENCE for node in tree.body):
        check_helper(tree)
        return Suite(_by_reference(tree, name, box, limits), name, Rule.TOLERANT)
    return read_suite({"type": "assert", "code": code}, Rule.TOLERANT, name)


def _by_reference(tree: ast.Module, name: str, box: Box, limits: Limits) -> tuple[Case, ...]:
    """Return the cases whose results the reference function computes."""
    inputs = _literal(tree, "inputs")
    # Without `check`, which holds the inputs, and without its call.
    kept = [node for node in tree.body if not isinstance(node, ast.Expr) and getattr(node, "name", "") != "check"]
    source = ast.unparse(ast.Module(kept, [])).encode()
    cases: list[Case] = []
    for given in map(arguments, inputs):
        run = box.run(source, given.encode(), limits, call=REFERENCE)
        if run.end is End.EXITED and run.answer:
            cases.append(Case(given, (run.answer.decode(),)))
        elif run.end not in OVER_THE_LIMITS:
            raise UserError(f"the reference of {name} {run.end} with {given[:80]}: {run.said}")
    if left_out := len(inputs) - len(cases):
        logger.warning("%s: %d of %d tests are over the limits and left out", name, left_out, len(inputs))
    return tuple(cases)


def _literal(tree: ast.Module, name: str) -> list[Any]:
    """Return the list literal that is assigned to this name."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(found)], value=ast.List() as value) if found == name:
                return list(ast.literal_eval(value))
    raise UserError(f"the tests have no list {name!r}")
