"""What an evaluation takes of the memory grows with the number of answers, not with their tokens."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BASE, ROOT, options
from transformers import AutoTokenizer

from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.prepare import Prepared, prepare
from e1_trl.evaluation.store import Store
from e1_trl.report import samples
from e1_trl.rollout import Segment, Stop

PROBLEMS, SAMPLES = 250, 20
BUDGETS = [f"{thinking}+20" for thinking in range(80, 481, 80)]
MOST = 150_000  # KiB on top of the libraries; four times as many answers are to fit into a gigabyte with them

RESUME = """
import sys
from pathlib import Path
from test_size import prepared, unasked
from e1_trl.evaluation.evaluate import evaluate

def peak():
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])

work = prepared(*map(Path, sys.argv[1:]))
before = peak()
evaluate(work, unasked)
print(peak() - before)
"""


def prepared(data: Path, output: Path) -> Prepared:
    words = ["--methods", "separate", "--max_problems", PROBLEMS, "--samples", SAMPLES, "--budgets", *BUDGETS]
    return prepare(parse(options(data, output, *words, "--temperature", 1, "--max_model_length", 1024)))


def unasked(*_: object) -> None:
    raise AssertionError("an engine was started for nothing")


@pytest.mark.slow
def test_a_resume_of_five_thousand_answers_at_six_budgets_holds_few_of_them(nano_data: Path, tmp_path: Path) -> None:
    work, rng = prepared(nano_data, tmp_path / "out"), random.Random(0)
    ids = AutoTokenizer.from_pretrained(BASE).encode("0123456789+-=;", add_special_tokens=False)
    with Store.open(tmp_path / "out", work.facts) as store:
        store.bind()
        for place in work.plan.places():
            tree, stored = work.plan.tree(*place, ()), []
            while requests := tree.requests():
                for (_, branch), request in requests:  # no thinking ends by itself, and every solution is cut
                    segment = Segment(rng.choices(ids, k=request.max_tokens), Stop.LENGTH)
                    stored.append(tree.receive(branch, segment))
            store.add(stored)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    resume = [sys.executable, "-c", RESUME, nano_data, tmp_path / "out"]
    done = subprocess.run(resume, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(samples.read(tmp_path / "out", ["problem"])) == PROBLEMS * SAMPLES * len(BUDGETS)
    assert int(done.stdout.split()[-1]) < MOST
