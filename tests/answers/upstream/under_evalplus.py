"""Prints the verdicts of EvalPlus's grader on programs. Runs in that grader's interpreter, without this project.

Reads from stdin, a line of JSON each, programs and answers with their problems. Writes a line about the versions, then
"pass", "fail" or "timeout" for each. They run unprotected.
"""

import ast
import json
import platform
import sys
from importlib.metadata import distribution

from evalplus.eval import untrusted_check
from evalplus.sanitize import sanitize


def main() -> None:
    installed = distribution("evalplus")
    commit = json.loads(installed.read_text("direct_url.json") or "{}").get("vcs_info", {}).get("commit_id")
    about = {"version": installed.version, "commit": commit, "python": platform.python_version()}
    print(json.dumps(about), flush=True)
    for given in map(json.loads, sys.stdin.read().splitlines()):  # all of it, before a program could
        inputs = ast.literal_eval(given["inputs"])
        expected = ast.literal_eval(given["expected"])
        problem = {"inputs": inputs, "entry_point": given["call"], "expected": expected, "atol": 0}
        code = sanitize(given["text"], given["call"]) if given["is_answer"] else given["text"]
        said, _ = untrusted_check("humaneval", code, ref_time=[0.0] * len(inputs), fast_check=True, **problem)
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
