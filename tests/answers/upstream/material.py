"""Problems of HumanEval+ and LeetCode with their references, for our grader and for theirs."""

import ast
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upstream.problems import Kind, Problem

from e1_trl.answers.programs.formats import read_suite
from e1_trl.answers.programs.sandbox.box import Box
from e1_trl.answers.programs.suite import Rule, Suite
from e1_trl.problems.program_benchmarks import humanevalplus

ROOT = "find_zero"  # its answers are compared by what a polynomial is there:
NEARLY_ZERO = 1e-4


@dataclass(frozen=True)
class Material:
    """A problem with a right program; its tests as our grader has them, and as theirs takes them."""

    name: str
    call: str
    reference: str
    suite: Suite
    theirs: dict[str, Any]

    @property
    def expected(self) -> list[Any]:
        """In their types: integers may be too long to be read, and are not their own."""
        return [json.loads(case.expected[0], parse_int=len) for case in self.suite.cases]


def humaneval(file: Path, box: Box) -> Iterator[Material]:
    """For EvalPlus."""
    with gzip.open(file, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows:
        call, reference = row["entry_point"], row["question"] + row["reference"]
        theirs = {"call": call, "reference": reference, "atol": NEARLY_ZERO if call == ROOT else 0.0}
        for node in ast.walk(ast.parse(row["tests"]["code"])):
            match node:
                case ast.Assign(targets=[ast.Name("inputs")], value=value):
                    theirs["inputs"] = ast.unparse(value)
                case ast.Call(func=ast.Name("assertion"), args=[_, _, ast.Constant(float(number))]):
                    theirs["atol"] = number
        suite = Suite.from_text(humanevalplus(row, box).suite)
        yield Material(row["task_id"], call, reference, suite, theirs)


def leetcode(file: Path) -> Iterator[Material]:
    """For LiveCodeBench, in whose form arguments have no names."""
    for number, line in enumerate(file.read_text().splitlines()):
        row = json.loads(line)
        call, reference = row["entry_point"].rpartition(".")[2], row["reference"]
        functions = [node for node in ast.walk(ast.parse(reference)) if isinstance(node, ast.FunctionDef)]
        names = [part.arg for part in next(node for node in functions if node.name == call).args.args[1:]]
        cases = []
        for node in ast.walk(ast.parse(row["tests"]["code"])):
            match node:
                case ast.Assert(test=ast.Compare(left=ast.Call(keywords=keywords), comparators=[value])):
                    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords}
                    lines = [json.dumps(given[name]) for name in names]
                    cases.append(("\n".join(lines), json.dumps(ast.literal_eval(value))))
        problem = Problem(Kind.FUNCTIONAL, tuple(cases), call)
        yield Material(
            f"row {number}, {call}", call, reference, read_suite(problem.tests(), Rule.EXACT), problem.sample()
        )
