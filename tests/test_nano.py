"""The miniature of sums: how many of its test problems its base has seen."""

import itertools
from collections import Counter
from typing import Any

import pytest
from conftest import ROOT

from experiments.nano.make_base import SPLITS, example, problems
from experiments.pretraining import BATCH, RUN, SEED, STEPS, WorkedExamples


class Problems(WorkedExamples):
    """The problems of the pre-training, in the order in which it draws them."""

    def tokenized(self, problem: str, *rest: Any) -> dict[str, Any]:
        return {"input_ids": [0] * len(problem), "problem": problem}


@pytest.mark.slow
def test_the_page_says_how_many_test_problems_came_up_in_the_pretraining() -> None:
    stream: Any = Problems(None, example, None, SEED, STEPS, BATCH)  # type: ignore[arg-type]
    drawn = -(-STEPS // RUN) * RUN * BATCH
    seen = {row["problem"] for row in itertools.islice(stream, drawn)}
    test = [row["problem"] for row in itertools.islice(problems(SEED), SPLITS["test"])]
    steps = Counter(problem.count(";") for problem in test if problem in seen)
    page = " ".join((ROOT / "docs" / "nano.md").read_text().split())
    assert f"{steps.total()} of them, nearly all of the shortest kind" in page
    assert steps[min(steps)] > 0.9 * steps.total()
