"""Checkers: programs that say whether an output is right, where a problem has several right outputs.

A checker is called as those of open-r1/codeforces are, `checker.py input.txt correct_output.txt submission_output.txt`,
and says yes by printing `1`. Models write checkers, so they are trusted no more than what they check: a checker runs in
a box, in a process of its own that starts when the program has ended, and of the program only the output reaches it.
Nothing can be written in a box, so the three files exist only for those who open them by name: `checker_main` is the
main program of that process.

A checker that fails on the expected output, too, is a fault of the tests: what it was to check is neither right nor
wrong.
"""

import json
import logging
from pathlib import Path

from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs.sandbox.box import End, Run
from e1_trl.answers.programs.suite import Case

logger = logging.getLogger(__name__)

MAIN = Path(__file__).with_name("checker_main.py").read_bytes()
YES = b"1"


def request(checker: str, case: Case, output: bytes) -> bytes:
    """What `MAIN` is given on stdin, for what a program wrote or returned in this case."""
    files = {
        "input.txt": case.input,
        "correct_output.txt": case.expected[0],
        "submission_output.txt": output.decode("utf-8", errors="replace"),
    }
    return json.dumps({"checker": checker, "files": files}, ensure_ascii=False).encode("utf-8", "surrogatepass")


def verdict(run: Run | None) -> Outcome:
    """What a run of `MAIN` says; None is one that could not be had."""
    if run is None:
        return Outcome.UNGRADED
    if run.end is not End.EXITED:
        logger.warning("a checker ended with %s, which grades nothing: %.200r", run.end, run.said)
        return Outcome.UNGRADED
    return Outcome.CORRECT if run.stdout.strip() == YES else Outcome.WRONG
