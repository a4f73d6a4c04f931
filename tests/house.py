"""Figures of the code base beside their limits, and a lint of its prose and layout that ruff has no rules for.

Each figure stands next to its limit, or goal; a finding of the lint makes the command fail. Python lines over 120
characters are ruff's to find, the limits of the core and of README.md are tests.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests import closure

PACKAGE_LINES = 14_800
TEST_LINES = 16_500
README_WORDS = 900
REAL_WORDS = 900  # of the real model's page, without code and generated tables
FUNCTION_LINES = 59
FILE_LINES = 300
WIDTH = 120  # characters of a line of prose
FOLDERS = ("e1_trl", "experiments", "benchmarks", "examples")
VAGUE = {"What", "Those", "Of", "Whether", "How", "Which", "Where", "Why"}  # first words of a docstring
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MAY_BE_LONG = re.compile(r"^ *```.*?^ *```|^<!-- ([\w-]+) -->.*?^<!-- /\1 -->", re.M | re.S)  # code, generated sections
UNBROKEN = re.compile(r" *(\||#|\[[^]]+\]:)")  # tables, headings, targets of links
LINK = re.compile(r"\[[^]]*\]\([^)]*\)")
Finding = tuple[str, int, str]  # file, line, description


def sources(root: Path, *folders: str) -> dict[str, str]:
    """Read the Python files below some folders; by path from the root."""
    files = (file for folder in folders for file in sorted((root / folder).rglob("*.py")))
    return {str(file.relative_to(root)): file.read_text() for file in files}


def docstrings(root: Path) -> Iterator[Finding]:
    """Find docstrings that begin with a question word or a bare genitive."""
    for file, text in sources(root, *FOLDERS).items():
        for node in ast.walk(ast.parse(text)):
            said = (ast.get_docstring(node) or "").split() if isinstance(node, DOCUMENTED) else []
            if said and said[0] in VAGUE:
                yield file, getattr(node, "lineno", 1), f"a docstring begins with {said[0]}, not a verb or noun"


def pairs(root: Path) -> Iterator[Finding]:
    """Find `a, b = x, y` where two statements would do, as none can in a swap."""
    for file, text in sources(root, "e1_trl").items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                targets = [target for target in node.targets if isinstance(target, ast.Tuple)]
                if any(not _needs_old(target.elts, node.value.elts) for target in targets):
                    yield file, node.lineno, "several assignments in one statement"


def _needs_old(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    """Return whether a value reads a target that one statement after the other would have replaced by then."""
    for at, value in enumerate(values):
        read = {ast.unparse(part) for part in ast.walk(value) if isinstance(part, ast.expr)}
        if read & {ast.unparse(target) for target in targets[:at]}:
            return True
    return False


def prose(root: Path) -> Iterator[Finding]:
    """Find lines of Markdown that are too long and could be broken; tables, code and generated sections may be long."""
    for path in sorted([*root.glob("docs/*.md"), *root.glob("README.md"), *root.glob("CONTRIBUTING.md")]):
        text = MAY_BE_LONG.sub(lambda block: "\n" * block[0].count("\n"), path.read_text())
        for number, line in enumerate(text.splitlines(), 1):
            start = re.match(r" *(?:[-*>] |\d+\. )? *", line)
            whole = LINK.sub(lambda link: link[0].replace(" ", "_"), line)
            if start and len(line) > WIDTH and not UNBROKEN.match(line) and " " in whole[start.end() : WIDTH + 1]:
                yield str(path.relative_to(root)), number, f"{len(line)} characters, {WIDTH} may be"


def functions(root: Path) -> Iterator[Finding]:
    """Find functions that are too long."""
    for (file, number, name), lines in function_lines(root).items():
        if lines > FUNCTION_LINES:
            yield file, number, f"{name} has {lines} lines, {FUNCTION_LINES} may be"


def function_lines(root: Path) -> dict[Finding, int]:
    """Count the lines of all functions."""
    return {
        (file, node.lineno, node.name): (node.end_lineno or 0) - node.lineno + 1
        for file, text in sources(root, *FOLDERS, "tests").items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def files(root: Path) -> Iterator[Finding]:
    """Find files of Python and of JavaScript that are too long."""
    scripts = {str(file.relative_to(root)): file.read_text() for file in sorted(root.glob("e1_trl/**/*.js"))}
    for file, text in {**sources(root, *FOLDERS), **scripts}.items():
        if (lines := text.count("\n")) > FILE_LINES:
            yield file, FILE_LINES + 1, f"{lines} lines, {FILE_LINES} may be"


def figures(root: Path) -> Iterator[tuple[str, int, int | None]]:
    """Yield the figures: name, value, limit; None where there is no limit."""
    core = closure.lines_of(closure.closure_of(closure.TRAINER, root), root)
    yield "modules of the core", len(core), None
    yield "lines of the core", sum(core.values()), closure.MOST_LINES
    sampling = closure.lines_of(closure.closure_of(closure.SAMPLING, root), root)
    yield "lines of sampling", sum(sampling.values()), closure.MOST_LINES_OF_SAMPLING
    lines = {Path(file): text.count("\n") for file, text in sources(root, "e1_trl").items()}
    folders = sorted({file.parts[1] for file in lines if len(file.parts) > 2})
    for folder in folders:
        yield f"lines of {folder}", sum(lines[file] for file in lines if file.parts[1] == folder), None
    yield "lines of single modules", sum(lines[file] for file in lines if len(file.parts) == 2), None
    yield "lines of the package", sum(lines.values()), PACKAGE_LINES
    yield "lines of tests", sum(text.count("\n") for text in sources(root, "tests").values()), TEST_LINES
    yield "lines of the longest function", max(function_lines(root).values(), default=0), FUNCTION_LINES
    yield "words of README.md", len((root / "README.md").read_text().split()), README_WORDS
    yield "words of docs/real.md", len(MAY_BE_LONG.sub("", (root / "docs/real.md").read_text()).split()), REAL_WORDS
    yield "words of docs", sum(len(page.read_text().split()) for page in root.glob("docs/*.md")), None


def main(root: Path = closure.ROOT) -> int:
    """Print figures and findings; return the exit status, 1 if there is a finding."""
    for name, value, limit in figures(root):
        bound = "" if limit is None else f"of {limit:7,}" + "  over" * (value > limit)
        print(f"{name:30}{value:7,} {bound}".rstrip())
    found = [each for check in (docstrings, pairs, prose, functions, files) for each in check(root)]
    for file, number, said in found:
        print(f"{file}:{number}: {said}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
