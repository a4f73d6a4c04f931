"""Results of a run at reduced size, and their faults."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from safetensors.torch import load_file

from e1_trl.budget import Budget
from e1_trl.plan.smoke.checks import ADAPTER, GAP, largest_change
from e1_trl.training.progress import BUDGET
from tests.reduced.substitutions import STEPS

LARGEST_GAP = 0.01  # nats; weights that do not reach the engine, or another precision, open a larger one


@dataclass(frozen=True)
class Found:
    """Results of a run."""

    loss: list[float]  # of each optimizer step
    grad_norm: list[float]
    gap: float  # the largest mean difference of vLLM's and the trainer's log-probabilities of a generation, in nats
    moved: list[float]  # the largest change of a weight since the start, after the first step and at the end
    validated: list[int]  # the steps after which there was validation, 0 before the first
    outcomes: dict[str, int]  # number of answers by grade
    isolation: str | None  # of the sandbox; None if no programs are run
    sampled: float  # tokens per problem that vLLM sampled from the saved model at the training's budget
    seconds: float  # from making the model to the end of the evaluation

    @classmethod
    def read(cls, base: Path, output: Path, evaluation: Path, isolation: str | None, seconds: float) -> "Found":
        """Read the folders of a run: its base model, the training's output and the evaluation."""
        history = json.loads((output / "trainer_state.json").read_text())["log_history"]
        steps = [entry for entry in history if "reward" in entry]
        (row,) = json.loads((evaluation / "results.json").read_text())["rows"]
        return cls(
            loss=[entry["loss"] for entry in steps],
            grad_norm=[entry["grad_norm"] for entry in steps],
            gap=max(entry[GAP] for entry in steps),
            moved=[moved_since_start(base, model) for model in (output / "checkpoint-1", output)],
            validated=[entry["step"] for entry in history if any(name.startswith(BUDGET) for name in entry)],
            outcomes=outcomes(output / "completions"),
            isolation=isolation,
            sampled=row["mean_tokens"],
            seconds=seconds,
        )

    def faults(self, budget: Budget, validates: bool) -> Iterator[str]:
        """Describe the faults of a training at this budget, with validation or without."""
        if len(self.loss) != STEPS or not all(map(math.isfinite, self.loss)):
            yield f"the losses are {self.loss}"
        if not all(math.isfinite(norm) and norm > 0 for norm in self.grad_norm):
            yield f"the gradients' norms are {self.grad_norm}"
        if not self.gap < LARGEST_GAP:
            yield f"engine and trainer are {self.gap} nats apart"
        # A step of Adam moves a weight by the learning rate at most. Only from the first one's checkpoint can the
        # second end further from the start.
        if not 0 < 1.5 * self.moved[0] < self.moved[1]:
            yield f"the weights have moved by {self.moved}, so the second step did not follow the first"
        if self.validated != (list(range(STEPS + 1)) if validates else []):
            yield f"there was validation after the steps {self.validated}"
        if self.isolation is not None and not {"correct", "wrong"} <= self.outcomes.keys():
            yield f"programs were graded {self.outcomes}"
        if "ungraded" in self.outcomes:
            yield f"the grader failed: {self.outcomes}"
        if not 0 < self.sampled <= (budget.completion_tokens(1) or 0):
            yield f"vLLM sampled {self.sampled} tokens a problem from the saved model"


def moved_since_start(base: Path, model: Path) -> float:
    """Return the largest change of a weight since the start; of an adapter, in the matrices that start at zero."""
    if not (model / ADAPTER).exists():
        return largest_change(base, model)
    matrices = {name: matrix for name, matrix in load_file(model / ADAPTER).items() if ".lora_B." in name}
    return max(matrix.abs().max().item() for matrix in matrices.values())


def outcomes(tables: Path) -> dict[str, int]:
    """Count the outcomes in the tables of completions."""
    found = pd.concat([pd.read_parquet(file, columns=["outcome"]) for file in sorted(tables.glob("*.parquet"))])
    return {str(outcome): int(count) for outcome, count in found["outcome"].value_counts().items()}
