"""Records what the graders of LiveCodeBench and EvalPlus say of our programs, and how often ours says otherwise.

    PYTHONPATH=tests/answers python -m upstream.record --livecodebench FOLDER --evalplus-python FILE

writes `verdicts.json` beside this file. LiveCodeBench is a clone of its repository, EvalPlus an environment in which
pip has installed its repository, both at the commits in `verdicts.json`. With `--humanevalplus FILE` and
`--leetcode FILE`, their references and what `mutants.py` makes of them are graded by EvalPlus or LiveCodeBench, and by
our grader, on one core and in about half an hour. Those graders run programs unprotected: ours are harmless, and
mutants change what a reference computes.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from boxed import named
from upstream.answers import fenced, texts
from upstream.material import Material, humaneval, leetcode
from upstream.mutants import mutants, other_form
from upstream.problems import PROBLEMS, Kind

from e1_trl.answers.kinds import make_grader
from e1_trl.answers.programs.grader import ProgramGrader
from e1_trl.answers.programs.sandbox.box import Box
from e1_trl.answers.programs.sandbox.isolation import choose
from e1_trl.problems.arguments import ProblemArguments

VERDICTS = Path(__file__).with_name("verdicts.json")
SECONDS = 6  # of a test, LiveCodeBench's default
MUTANTS, SEED = 3, 0
# Whether programs for a problem, as the grader takes it, are right.
Judge = Callable[[dict[str, Any], list[str]], list[bool]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--livecodebench", type=Path, required=True, help="a clone of its repository")
    parser.add_argument("--evalplus-python", type=Path, required=True, help="an interpreter that has it")
    parser.add_argument("--humanevalplus", type=Path, help="without it, what was recorded is kept")
    parser.add_argument("--leetcode", type=Path, help="without it, what was recorded is kept")
    given = parser.parse_args()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # programs read it where a grader does not hide it
    sys.argv[1:] = []  # and fileinput reads these

    judge, extract, about = livecodebench(given.livecodebench)
    recorded = json.loads(VERDICTS.read_text()) if VERDICTS.exists() else {}
    recorded["date"] = date.today().isoformat()
    verdicts = {}
    for name, text in texts().items():
        problem = PROBLEMS[text.problem]
        if problem.kind is not Kind.HUMANEVAL:
            code = extract(text.text) if text.is_answer else text.text
            (verdicts[name],) = judge(problem.sample(), [code])
    recorded["LiveCodeBench"] = {**about, "verdicts": verdicts}
    if given.leetcode:
        recorded["LeetCode"] = beside(leetcode(given.leetcode), judge)
        write(recorded)

    with evalplus(given.evalplus_python) as process:
        about, verdicts = json.loads(process.stdout.readline()), {}
        for name, text in texts().items():
            problem = PROBLEMS[text.problem]
            if problem.kind is Kind.HUMANEVAL:
                (verdicts[name],) = told(process, problem.literals(), [text.text], text.is_answer)
        recorded["EvalPlus"] = {**about, "verdicts": verdicts}
        if given.humanevalplus:
            with Box(choose()) as box:
                problems = humaneval(given.humanevalplus, box)
                recorded["HumanEval+"] = beside(problems, lambda problem, programs: told(process, problem, programs))
    write(recorded)


def write(recorded: dict[str, Any]) -> None:
    VERDICTS.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")


def livecodebench(folder: Path) -> tuple[Judge, Callable[[str], str], dict[str, str]]:
    """Its grader, what takes a program from an answer, and what is to be said about it."""
    sys.path.append(str(folder))
    from lcb_runner.evaluation.compute_code_generation_metrics import evaluate_generations_by_problem
    from lcb_runner.lm_styles import LMStyle
    from lcb_runner.utils.extraction_utils import extract_code

    def judge(sample: dict[str, Any], programs: list[str]) -> list[bool]:
        found, _ = evaluate_generations_by_problem((programs, sample, False, SECONDS))
        return [all(result > 0 for result in results) for results in found]  # as its metrics have it

    commit = subprocess.check_output(["git", "-C", folder, "rev-parse", "HEAD"], text=True).strip()
    about = {"commit": commit, "python": platform.python_version()}
    return judge, lambda text: extract_code(text, LMStyle.OpenAIChat), about


@contextmanager
def evalplus(python: Path) -> Iterator[subprocess.Popen[str]]:
    command = [python, Path(__file__).with_name("under_evalplus.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


def told(
    process: subprocess.Popen[str], problem: dict[str, Any], programs: list[str], are_answers: bool = False
) -> list[bool]:
    process.stdin.write(json.dumps(problem) + "\n")
    found = []
    for text in programs:
        process.stdin.write(json.dumps({"text": text, "is_answer": are_answers}) + "\n")
        process.stdin.flush()
        found.append(json.loads(process.stdout.readline()) == "pass")
    return found


def beside(materials: Iterable[Material], judge: Judge) -> dict[str, Any]:
    """How often our grader and theirs differ on programs of each sort, and on which."""
    counted: dict[str, Counter[str]] = {}
    differences = []
    with make_grader(ProblemArguments(grader="programs"), workers=1) as grader:
        assert isinstance(grader, ProgramGrader)
        limits = grader.limits
        for material in materials:
            made = list(programs_of(material))
            programs = [program for _, _, program in made]
            grades = grader.grade([fenced(program) for program in programs], [named(material.suite)] * len(made))
            for (sort, what, _), grade, theirs in zip(made, grades, judge(material.theirs, programs), strict=True):
                ours = grade.correct
                both = "both right" if ours else "both wrong"
                verdict = both if ours is theirs else "only ours right" if ours else "only theirs right"
                counted.setdefault(sort, Counter())[verdict] += 1
                if ours is not theirs:
                    differences.append({"task": material.name, "sort": sort, "what": what, "ours": grade.outcome})
            print(material.name, *(f"{sort}: {dict(count)}" for sort, count in counted.items()), flush=True)
    return {"seed": SEED, "limits": asdict(limits), "counted": counted, "differences": differences}


def programs_of(material: Material) -> Iterator[tuple[str, str, str]]:
    """The sort of each, what was changed, and the program."""
    chance = random.Random(f"{SEED} {material.name}")
    yield "references", "nothing", material.reference
    for what, program in mutants(material.reference, material.call, MUTANTS, chance).items():
        yield "mutants", what, program
    yield "other forms", *other_form(material.reference, material.call, material.expected, chance)


if __name__ == "__main__":
    main()
