"""How many programs are graded in a second, what programs that run into their time limit cost, and what gets out.

    python -m benchmarks.bench_programs --document docs/benchmark.md      (five minutes; nothing else should run)

Cheap right programs, so that nearly all of the time is the sandbox's own: each test of each program is a process of its
own. Isolations take turns and change places each round, and so do batches with and without programs that never end, and
the same tests in bare forks: no isolation, no limits, no pipes, nothing compared. Then every hostile program of the
tests is run, and what is left of them is counted.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.results import Results
from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs.grader import ProgramGrader
from e1_trl.answers.programs.sandbox.box import Limits
from e1_trl.answers.programs.sandbox.command import Isolation
from e1_trl.answers.programs.sandbox.inside.modules import PRELOADED
from e1_trl.answers.programs.suite import Case, Suite
from e1_trl.problems.arguments import TESTS
from e1_trl.report.markdown import replace_section, table

sys.path.append(str(Path(__file__).parents[1] / "tests" / "answers" / "sandbox"))
from containment import contain, refused  # type: ignore[import-not-found]

PROGRAMS, ROUNDS = 200, 5
SPINNING = 20  # one of so many never ends: 5%
LIMITS = Limits(cpu=1.0, wall=4.0, memory=2**29, output=2**20)
WORKERS = len(os.sched_getaffinity(0))
HEADER = (
    "isolation",
    "programs per second",
    "tests per second",
    "wall",
    f"wall with {1 / SPINNING:.0%} at their limit",
    "ratio",
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


@dataclass(frozen=True)
class Speed:
    """What one isolation does: medians over rounds, and the range of the programs per second.

    `spinning_ratio` is that of the wall time of a batch in which some programs run into their limit of CPU time to that
    of one without, in the same round: median, lowest and highest; `of_bare_forks` likewise that of its tests per second
    to those that bare forks do.
    """

    isolation: Isolation
    programs_per_s: float
    programs_per_s_low: float
    programs_per_s_high: float
    tests_per_s: float
    wall_s: float
    spinning_wall_s: float
    spinning_ratio: float
    spinning_ratio_low: float
    spinning_ratio_high: float
    of_bare_forks: float
    of_bare_forks_low: float
    of_bare_forks_high: float


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


def measure(isolations: list[Isolation]) -> tuple[list[Speed], float]:
    """All isolations and both batches in turns, and how many tests a second bare forks do."""
    walls: dict[tuple[Isolation, bool], list[float]] = {(kind, spin): [] for kind in isolations for spin in (0, 1)}
    bares = list[float]()
    graders = {kind: ProgramGrader(LIMITS, WORKERS, isolation=kind) for kind in isolations}
    try:
        for grader in graders.values():
            timed(grader, endless=False)  # opens the boxes
        for turn in range(ROUNDS):
            order = list(walls) if turn % 2 == 0 else list(reversed(walls))
            for kind, endless in order:
                walls[kind, endless].append(timed(graders[kind], endless))
            bares.append(bare())
    finally:
        for grader in graders.values():
            grader.close()
    return [speed(kind, walls[kind, False], walls[kind, True], bares) for kind in isolations], median(bares)


def speed(isolation: Isolation, plain: list[float], spinning: list[float], bares: list[float]) -> Speed:
    """From the wall times of the rounds, in seconds: without and with programs that never end, and of bare forks."""
    ratios = [more / less for more, less in zip(spinning, plain, strict=True)]
    of_bare = [less / more for less, more in zip(bares, plain, strict=True)]
    return Speed(
        isolation=isolation,
        programs_per_s=PROGRAMS / median(plain),
        programs_per_s_low=PROGRAMS / max(plain),
        programs_per_s_high=PROGRAMS / min(plain),
        tests_per_s=PROGRAMS * TESTS / median(plain),
        wall_s=median(plain),
        spinning_wall_s=median(spinning),
        spinning_ratio=median(ratios),
        spinning_ratio_low=min(ratios),
        spinning_ratio_high=max(ratios),
        of_bare_forks=median(of_bare),
        of_bare_forks_low=min(of_bare),
        of_bare_forks_high=max(of_bare),
    )


def summary(rows: list[Speed]) -> list[tuple[str, ...]]:
    return [
        (
            row.isolation,
            f"{row.programs_per_s:.0f} ({row.programs_per_s_low:.0f} to {row.programs_per_s_high:.0f})",
            f"{row.tests_per_s:.0f}",
            f"{row.wall_s:.2f} s",
            f"{row.spinning_wall_s:.2f} s",
            f"{row.spinning_ratio:.2f} ({row.spinning_ratio_low:.2f} to {row.spinning_ratio_high:.2f})",
            f"{row.of_bare_forks:.2f} ({row.of_bare_forks_low:.2f} to {row.of_bare_forks_high:.2f})",
        )
        for row in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the grading of programs, and count what gets out.")
    parser.add_argument("--output", type=Path, default=Path("docs/results/programs.json"), help="JSON file")
    parser.add_argument("--document", type=Path, help="Markdown file whose section `programs` is replaced")
    arguments = parser.parse_args()
    made = Results.read()  # the same commit, though the results before these have changed the checkout
    published = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    if (published.get("sources"), published.get("machine")) == (made.sources, made.provenance.machine):
        return
    isolations = [kind for kind in Isolation if kind is not Isolation.UNPROTECTED and refused(kind) is None]
    rows, bare_s = measure(isolations)
    contained = contain(WORKERS)
    content = {
        "programs_per_s": rows[0].programs_per_s,  # of the strongest isolation
        "tests_per_s": rows[0].tests_per_s,
        "workers": WORKERS,
        "hostile_cases": contained.cases,
        "hostile_contained": contained.cases - len(contained.escaped),
        "survivors": contained.survivors,
        **asdict(replace(made.provenance, seeds=())),
        "sources": made.sources,
        "programs": PROGRAMS,
        "tests_per_program": TESTS,
        "bare_tests_per_s": PROGRAMS * TESTS / bare_s,
        "rounds": ROUNDS,
        "spinning_share": 1 / SPINNING,
        "spinning_limit_s": LIMITS.cpu,
        "rows": [asdict(row) for row in rows],
        "escaped": contained.escaped,
    }
    arguments.output.write_text(json.dumps(content, indent=1) + "\n")
    text = table(HEADER, summary(rows)) + (
        f"\nBare forks: {content['bare_tests_per_s']:.0f} tests per second. Of {content['hostile_cases']} runs of "
        f"hostile programs {content['hostile_contained']} are contained; {content['survivors']} processes survive.\n"
    )
    print(text)
    if arguments.document is not None:
        replace_section(arguments.document, "programs", text)


if __name__ == "__main__":
    main()
