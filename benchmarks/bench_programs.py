"""How many programs are graded in a second, what programs that run into their time limit cost, and what gets out.

    python -m benchmarks.bench_programs --document docs/results/bench.md      (five minutes; nothing else should run)

Cheap right programs, so that nearly all of the time is the sandbox's own: each test of each program is a process of its
own. Isolations take turns and change places each round, and so do batches with and without programs that never end, and
the same tests in bare forks: no isolation, no limits, no pipes, nothing compared. Then every hostile program of the
tests is run, and what is left of them is counted.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.results import arguments, publish, spread
from e1_trl.answers.arguments import TESTS
from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs.grader import ProgramGrader
from e1_trl.answers.programs.sandbox.box import Limits
from e1_trl.answers.programs.sandbox.command import Isolation
from e1_trl.answers.programs.sandbox.inside.modules import PRELOADED
from e1_trl.answers.programs.suite import Case, Suite
from e1_trl.report.markdown import table

sys.path.append(str(Path(__file__).parents[1] / "tests" / "answers" / "sandbox"))
from containment import contain, refused  # type: ignore[import-not-found]

PROGRAMS, ROUNDS = 200, 5
SPINNING = 20  # one of so many never ends: 5%
LIMITS = Limits(cpu=1.0, wall=4.0, memory=2**29, output=2**20)
WORKERS = len(os.sched_getaffinity(0))
HEADER = (
    "isolation",
    "programs per second",
    f"wall with {1 / SPINNING:.0%} at their limit, to without",
    "of bare forks",
)

# The number makes each another program: equal ones are run once.
CHEAP = "```python\nn = int(input())\nprint(n + sum(map(int, input().split())))  # {number}\n```"
ENDLESS = "```python\nwhile True: pass  # {number}\n```"
# Prints the seconds that so many forks take, each of which compiles and runs such a program.
BARE = """
import importlib, io, os, sys, time
for module in sys.argv[2:]:
    importlib.import_module(module)
source = "n = int(input())\\nprint(n + sum(map(int, input().split())))"
start = time.perf_counter()
for _ in range(int(sys.argv[1])):
    if not (pid := os.fork()):
        sys.stdin, sys.stdout = io.StringIO("3\\n1 2 3 4 5 6 7\\n"), io.StringIO()
        exec(compile(source, "solution.py", "exec"))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
print(time.perf_counter() - start)
"""


def suite() -> str:
    """Fifteen tests, each of a number and a line of numbers."""
    cases = [(i, list(range(i, 2 * i + 5))) for i in range(TESTS)]
    return Suite(
        tuple(Case(f"{n}\n{' '.join(map(str, line))}\n", (f"{n + sum(line)}\n",)) for n, line in cases)
    ).as_text()


def timed(grader: ProgramGrader, endless: bool) -> float:
    """Seconds that one batch takes.

    Raises:
        ValueError: not every program was graded as it should be.
    """
    kinds = [endless and i % SPINNING == 0 for i in range(PROGRAMS)]
    solutions = [(ENDLESS if kind else CHEAP).format(number=i) for i, kind in enumerate(kinds)]
    start = time.perf_counter()
    grades = grader.grade(solutions, [[grader.suites.add(suite())]] * PROGRAMS)
    wall = time.perf_counter() - start
    expected = [Outcome.TIMED_OUT if kind else Outcome.CORRECT for kind in kinds]
    if [grade.outcome for grade in grades] != expected:
        raise ValueError(f"{sum(g.outcome is not e for g, e in zip(grades, expected, strict=True))} grades are wrong")
    return wall


def bare() -> float:
    """Seconds that as many tests take in bare forks, by as many processes as there are workers."""
    words = [sys.executable, "-I", "-c", BARE, str(PROGRAMS * TESTS // WORKERS), *PRELOADED]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(WORKERS)]
    return max(float(process.communicate()[0]) for process in running)


def measure(isolations: list[Isolation]) -> tuple[dict[Isolation, dict[str, list[float]]], list[float]]:
    """Seconds of each round: of both batches by isolation (all take turns), and of bare forks."""
    walls = {kind: {"plain": list[float](), "spinning": list[float]()} for kind in isolations}
    bares = list[float]()
    graders = {kind: ProgramGrader(LIMITS, WORKERS, isolation=kind) for kind in isolations}
    try:
        for grader in graders.values():
            timed(grader, endless=False)  # opens the boxes
        for turn in range(ROUNDS):
            order = [(kind, batch) for kind, batches in walls.items() for batch in batches]
            for kind, batch in order if turn % 2 == 0 else reversed(order):
                walls[kind][batch].append(timed(graders[kind], endless=batch == "spinning"))
            bares.append(bare())
    finally:
        for grader in graders.values():
            grader.close()
    return walls, bares


def row(isolation: Isolation, plain: list[float], spinning: list[float], bares: list[float]) -> tuple[str, ...]:
    """From the wall times of the rounds, in seconds."""
    return (
        isolation,
        spread([PROGRAMS / wall for wall in plain]),
        spread([more / less for more, less in zip(spinning, plain, strict=True)]),
        spread([less / more for less, more in zip(bares, plain, strict=True)]),
    )


def main() -> None:
    parsed = arguments("Measure the grading of programs, and count what gets out.", "programs.json", "programs")
    walls, bares = measure([kind for kind in Isolation if refused(kind) is None])
    contained = contain(WORKERS)
    content = {
        "workers": WORKERS,
        "programs": PROGRAMS,
        "tests_per_program": TESTS,
        "spinning_share": 1 / SPINNING,
        "spinning_limit_s": LIMITS.cpu,
        "wall_s": walls,
        "bare_forks_s": bares,
        "hostile_cases": contained.cases,
        "escaped": contained.escaped,
        "survivors": contained.survivors,
    }
    rows = [row(kind, batches["plain"], batches["spinning"], bares) for kind, batches in walls.items()]
    text = table(HEADER, rows) + (
        f"\n{TESTS} tests a program; bare forks: {PROGRAMS * TESTS / median(bares):.0f} tests per second. Of "
        f"{contained.cases} runs of hostile programs {contained.cases - len(contained.escaped)} are contained; "
        f"{contained.survivors} processes survive.\n"
    )
    publish(parsed, content, text)


if __name__ == "__main__":
    main()
