"""What EvalPlus's grader says of programs. Runs in its interpreter, and knows nothing of this project.

Reads from stdin, a line of JSON each: a problem, programs and answers for it, and the next problem. Writes a line about
the versions, then "pass", "fail" or "timeout" for each program and answer. They run unprotected.
"""

import ast
import json
import platform
import sys
from importlib.metadata import distribution

from evalplus.eval import untrusted_check
from evalplus.gen.util import trusted_exec
from evalplus.sanitize import sanitize


def read(problem: dict) -> dict:
    """The arguments of EvalPlus's grader. Where there is a reference, what it returns is what is expected, as there."""
    call, inputs = problem["call"], ast.literal_eval(problem["inputs"])
    if problem.get("reference"):
        expected, seconds = trusted_exec(problem["reference"], inputs, call, record_time=True)
    else:
        expected, seconds = ast.literal_eval(problem["expected"]), [0.0] * len(inputs)
    return {"inputs": inputs, "entry_point": call, "expected": expected, "atol": problem["atol"], "ref_time": seconds}


def main() -> None:
    installed = distribution("evalplus")
    commit = json.loads(installed.read_text("direct_url.json") or "{}").get("vcs_info", {}).get("commit_id")
    about = {"version": installed.version, "commit": commit, "python": platform.python_version()}
    print(json.dumps(about), flush=True)
    problem: dict = {}
    for line in sys.stdin:
        given = json.loads(line)
        if "inputs" in given:
            problem = read(given)
            continue
        code = sanitize(given["text"], problem["entry_point"]) if given["is_answer"] else given["text"]
        sys.stdout.flush()
        said, _ = untrusted_check("humaneval", code, fast_check=True, **problem)
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
