"""Programs graded per second, the cost of programs that hit their time limit, and attempts to leave the sandbox.

    python -m benchmarks.bench_programs --document docs/results/bench.md      (seven minutes; nothing else should run)

Cheap programs, so that nearly all of the time is the sandbox's own. What takes turns are the isolations; batches of
right programs, with and without some that never end, and of a mix; and the same tests in bare forks, one for each: no
isolation, no limits, no pipes, nothing compared. Then every hostile program of the tests is run, and what is left of
them is counted.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.results import arguments, in_turns, publish, ratio, spread
from e1_trl.answers.arguments import TESTS
from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs.grader import ProgramGrader
from e1_trl.answers.programs.sandbox.command import Isolation
from e1_trl.answers.programs.sandbox.inside.zygote import PRELOADED
from e1_trl.answers.programs.sandbox.process import Limits
from e1_trl.answers.programs.suite import Case, Suite, Suites
from e1_trl.cores import cores
from e1_trl.report.markdown import table

sys.path.append(str(Path(__file__).parents[1] / "tests" / "answers" / "sandbox"))
from containment import contain, refused  # type: ignore[import-not-found]

PROGRAMS, ROUNDS = 200, 5
RIGHT = (Outcome.CORRECT,)
SPINNING = (Outcome.TIMED_OUT, *RIGHT * 19)  # 5% never end
MIXED = (*RIGHT * 4, *(Outcome.WRONG,) * 4, Outcome.CRASHED, Outcome.TIMED_OUT)  # wrong and crashing at the first test
LIMITS = Limits(cpu=1.0, wall=4.0, memory=2**29, output=2**20)
WORKERS = cores()
HEADER = (
    "isolation",
    "programs per second",
    f"wall with {1 / len(SPINNING):.0%} at their limit, to without",
    "of a mix per second",
    "of bare forks",
)

READ = "n = int(input())\nprint(n + sum(map(int, input().split())){})"
SOURCES = {
    Outcome.CORRECT: READ.format(""),
    Outcome.WRONG: READ.format(" + 1"),
    Outcome.CRASHED: READ.format(" / 0"),
    Outcome.TIMED_OUT: "while True: pass",
}
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


def suite() -> Suite:
    """Fifteen tests, each of a number and a line of numbers."""
    cases = [(i, list(range(i, 2 * i + 5))) for i in range(TESTS)]
    return Suite(tuple(Case(f"{n}\n{' '.join(map(str, line))}\n", (f"{n + sum(line)}\n",)) for n, line in cases))


def timed(grader: ProgramGrader, kinds: Sequence[Outcome], _: int = 0) -> float:
    """Seconds that one batch of programs of these kinds, which take turns, takes in any round.

    Raises:
        ValueError: not every program was graded as it should be.
    """
    expected = [kinds[number % len(kinds)] for number in range(PROGRAMS)]
    # The number makes each another program: equal ones are run once.
    solutions = [f"```python\n{SOURCES[kind]}  # {number}\n```" for number, kind in enumerate(expected)]
    start = time.perf_counter()
    grades = grader.grade(solutions, [[Suites().add(suite())]] * PROGRAMS)
    wall = time.perf_counter() - start
    if [grade.outcome for grade in grades] != expected:
        raise ValueError(f"{sum(g.outcome is not e for g, e in zip(grades, expected, strict=True))} grades are wrong")
    return wall


def bare(_: int) -> float:
    """Seconds that as many tests take in bare forks in any round, by as many processes as there are workers."""
    words = [sys.executable, "-I", "-c", BARE, str(PROGRAMS * TESTS // WORKERS), *PRELOADED]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(WORKERS)]
    return max(float(process.communicate()[0]) for process in running)


def measure(isolations: Sequence[Isolation]) -> dict[str, list[float]]:
    """Seconds of the rounds of bare forks, and by isolation of its batches."""
    with ExitStack() as stack:
        runs: dict[str, Callable[[int], float]] = {"bare": bare}
        for kind in isolations:
            grader = ProgramGrader(LIMITS, WORKERS, isolation=kind)
            stack.callback(grader.close)
            timed(grader, RIGHT)  # opens the boxes
            runs[kind] = partial(timed, grader, RIGHT)
            runs[f"{kind}, spinning"] = partial(timed, grader, SPINNING)
            runs[f"{kind}, mixed"] = partial(timed, grader, MIXED)
        return in_turns(runs, ROUNDS, "programs")


def main() -> None:
    parsed = arguments("Measure the grading of programs, and count what gets out.", "programs.json", "programs")
    isolations = [kind for kind in Isolation if refused(kind) is None]
    walls = measure(isolations)
    contained = contain(WORKERS)
    content = {
        "workers": WORKERS,
        "programs": PROGRAMS,
        "tests_per_program": TESTS,
        "spinning_share": 1 / len(SPINNING),
        "spinning_limit_s": LIMITS.cpu,
        "wall_s": walls,
        "hostile_cases": contained["cases"],
        "escaped": contained["escaped"],
        "survivors": contained["survivors"],
    }
    rows = [
        (
            kind,
            spread([PROGRAMS / wall for wall in walls[kind]]),
            ratio(walls[f"{kind}, spinning"], walls[kind]),
            spread([PROGRAMS / wall for wall in walls[f"{kind}, mixed"]]),
            ratio(walls["bare"], walls[kind]),
        )
        for kind in isolations
    ]
    cases = contained["cases"]
    text = table(HEADER, rows) + (
        f"\n{TESTS} tests a program; bare forks: {PROGRAMS * TESTS / median(walls['bare']):.0f} tests per second. Of "
        f"{cases} runs of hostile programs {cases - len(contained['escaped'])} are contained; "
        f"{contained['survivors']} processes survive.\n"
    )
    publish(parsed, content, text)


if __name__ == "__main__":
    main()
