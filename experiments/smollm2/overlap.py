"""Overlap between the words of held-out problems and of the nearest trained problem.

python -m experiments.smollm2.overlap     into docs/results/smollm2-overlap.json: seconds
"""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from e1_trl.atomic import write_atomically
from e1_trl.provenance import Provenance
from experiments.pretraining import SEED
from experiments.smollm2.make_base import problems, split
from experiments.smollm2.problems import overlaps

RESULTS = Path("docs/results/smollm2-overlap.json")
BOUNDS = (0.65, 0.7, 0.75, 0.8)


def nearest(seed: int) -> dict[str, float]:
    """Share of the held-out problems whose nearest trained problem overlaps with them by each bound or more."""
    held, training = split(seed)
    every = problems()  # what counts as a name depends on all texts
    place = {problem.text: index for index, problem in enumerate(every)}
    ours = [place[problem.text] for problem in held]
    theirs = [place[worked.problem.text] for worked in training]
    closest = overlaps(every)[np.ix_(ours, theirs)].max(1)
    return {str(bound): float((closest >= bound).mean()) for bound in BOUNDS}


def main() -> None:
    record = {"provenance": asdict(Provenance.here([SEED])), "share_with_an_overlap_of": nearest(SEED)}
    write_atomically(RESULTS, lambda path: path.write_text(json.dumps(record, indent=1) + "\n"))


if __name__ == "__main__":
    main()
