"""Records the verdicts of the graders of LiveCodeBench and EvalPlus on our programs.

    PYTHONPATH=tests/answers python -m upstream.record --livecodebench FOLDER --evalplus-python FILE

writes `verdicts.json` beside this file. LiveCodeBench is a clone of its repository, EvalPlus an environment in which
pip has installed its repository, both at the commits in `verdicts.json`. Those graders run programs unprotected: ours
are harmless.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

from upstream.answers import texts
from upstream.problems import PROBLEMS, Kind

VERDICTS = Path(__file__).with_name("verdicts.json")
SECONDS = 6  # of a test, LiveCodeBench's default


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--livecodebench", type=Path, required=True, help="a clone of its repository")
    parser.add_argument("--evalplus-python", type=Path, required=True, help="an interpreter that has it")
    given = parser.parse_args()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # programs read it where a grader does not hide it
    sys.argv[1:] = []  # and fileinput reads these
    recorded = {
        "date": date.today().isoformat(),
        "LiveCodeBench": livecodebench(given.livecodebench),
        "EvalPlus": evalplus(given.evalplus_python),
    }
    VERDICTS.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")


def livecodebench(folder: Path) -> dict[str, Any]:
    """Return the commit and the verdicts of LiveCodeBench's grader."""
    sys.path.append(str(folder))
    from lcb_runner.evaluation.compute_code_generation_metrics import evaluate_generations_by_problem
    from lcb_runner.lm_styles import LMStyle
    from lcb_runner.utils.extraction_utils import extract_code

    commit = subprocess.check_output(["git", "-C", folder, "rev-parse", "HEAD"], text=True).strip()
    verdicts = {}
    for name, text in texts().items():
        problem = PROBLEMS[text.problem]
        if problem.kind is not Kind.HUMANEVAL:
            code = extract_code(text.text, LMStyle.OpenAIChat) if text.is_answer else text.text
            (results,), _ = evaluate_generations_by_problem(([code], problem.sample(), False, SECONDS))
            verdicts[name] = all(result > 0 for result in results)  # as its metrics have it
    return {"commit": commit, "python": platform.python_version(), "verdicts": verdicts}


def evalplus(python: Path) -> dict[str, Any]:
    """Return the version and the verdicts of EvalPlus's grader."""
    graded = {name: text for name, text in texts().items() if PROBLEMS[text.problem].kind is Kind.HUMANEVAL}
    lines = [
        {**PROBLEMS[text.problem].literals(), "text": text.text, "is_answer": text.is_answer}
        for text in graded.values()
    ]
    command = [python, Path(__file__).with_name("under_evalplus.py")]
    said = subprocess.check_output(command, input="".join(json.dumps(line) + "\n" for line in lines), text=True)
    about, *verdicts = map(json.loads, said.splitlines())
    return {**about, "verdicts": {name: each == "pass" for name, each in zip(graded, verdicts, strict=True)}}


if __name__ == "__main__":
    main()
