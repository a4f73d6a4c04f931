"""Log of a training: reward, tokens and shares of closed and forced thoughts per step, and sampled rollouts."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from e1_trl.atomic import write_atomically
from e1_trl.errors import UserError
from e1_trl.provenance import Provenance
from e1_trl.report import pictures

Entry = dict[str, float | None]  # value of each metric; None: not logged at that step

PANELS = {
    "reward": ("reward", "reward/closed", "reward/forced"),
    "tokens": ("thinking/mean_tokens", "solution/mean_tokens"),
    "ratio": (
        "thinking/closed_ratio",
        "thinking/forced_ratio",
        "thinking/eos_ratio",
        "solution/truncated_ratio",
        "grading/unevaluated",
    ),
    "log-probability gap (nats)": ("sampling/sampling_logp_difference/mean",),
}
NAMES = ("step", "step_time", "entropy", "grad_norm", *(name for panel in PANELS.values() for name in panel))
VALIDATION = "eval_budget/"
PANEL = (4.0, 3.2)  # inches


@dataclass(frozen=True)
class TrainingLog:
    run: Path
    provenance: Provenance  # of the training
    steps: list[Entry]
    validation: list[Entry]

    @classmethod
    def read(cls, run: Path) -> "TrainingLog":
        """Read the log of a finished run; a `UserError` if it has no state, no provenance, or no logged step."""
        file = run / "trainer_state.json"
        if not file.exists():
            raise UserError(f"there is no {file}: it is written when the training ends")
        history = json.loads(file.read_text())["log_history"]
        # Only entries of steps have a loss; the summary at the end of a run has none.
        steps = [{name: entry.get(name) for name in NAMES} for entry in history if "loss" in entry]
        if not steps:
            raise UserError(f"{file} logs no step; train with logging_steps: 1")
        validation = [
            {name: entry[name] for name in entry if name == "step" or name.startswith(VALIDATION)}
            for entry in history
            if any(name.startswith(VALIDATION) for name in entry)
        ]
        return cls(run, Provenance.read(run), steps, validation)

    def draw(self) -> Figure:
        """Draw one panel per group of metrics, over the steps, and one for validation at several budgets, if any."""
        panels: list[tuple[str, Sequence[str], list[Entry]]] = [(*panel, self.steps) for panel in PANELS.items()]
        if self.validation:
            accuracies = dict.fromkeys(name for each in self.validation for name in each if name.endswith("/accuracy"))
            panels.append(("validation accuracy at budget", [*accuracies], self.validation))
        figure = Figure(figsize=(PANEL[0] * len(panels), PANEL[1]), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axis, (title, names, entries) in zip(axes, panels, strict=True):
            for name in names:
                points = [(entry["step"], value) for entry in entries if (value := entry.get(name)) is not None]
                if points:
                    label = name.removeprefix(VALIDATION).removesuffix("/accuracy")
                    axis.plot(*zip(*points, strict=True), label=label)
            axis.set(xlabel="step", title=title)
            if axis.lines:
                axis.legend(fontsize="small")
        return figure

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write NAME.json (provenance, steps and validations) and NAME.png; return their paths."""
        content = asdict(self)
        del content["run"]
        results = folder / f"{name}.json"
        picture = folder / f"{name}.png"
        write_atomically(results, json.dumps(content, indent=1) + "\n")
        pictures.save(self.draw(), picture)
        return [results, picture]

    def rollouts(self, steps: int, each: int) -> list[tuple[int, list[dict[str, str]]]]:
        """Read the rollouts that `log_completions` kept, by step; each rollout is texts by the names of its parts.

        At most `steps` steps are read, the first and the last among them, and at most `each` rollouts of a step.
        """
        files = sorted((self.run / "completions").glob("completions_*.parquet"))
        shown = dict.fromkeys(round(i * (len(files) - 1) / max(1, steps - 1)) for i in range(steps)) if files else ()
        return [_rollouts(files[i], each) for i in shown]


def _rollouts(file: Path, count: int) -> tuple[int, list[dict[str, str]]]:
    table = pd.read_parquet(file)
    found = [
        {
            "prompt": row.prompt if isinstance(row.prompt, str) else "\n".join(turn["content"] for turn in row.prompt),
            "facts": f"thinking {row.thinking_end} after {row.thinking_tokens} tokens, solution of "
            f"{row.solution_tokens}{', truncated' if row.solution_truncated else ''}, advantage {_advantage(row)}",
            **dict(zip(("thinking", "close", "solution"), row.parts, strict=True)),
        }
        for row in table.head(count).itertuples()
    ]
    return int(table["step"].iloc[0]), found


def _advantage(row: Any) -> str:
    """Format a rollout's advantage: a recipe's own function has its columns beside TRL's."""
    own = [getattr(row, f"{part}_advantage", row.advantage) for part in ("thinking", "solution")]
    return " and ".join(f"{value:+.2f}" for value in dict.fromkeys(own))
