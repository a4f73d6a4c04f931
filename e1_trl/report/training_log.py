"""Draws how a training went, from the log that it left: reward, tokens, and how thinking ended, per step.

    python -m e1_trl.report.training_log runs/smollm2/e1 --output docs/results --name smollm2-training

Writes NAME.json (what trained it, one entry per logged step, one per validation) and NAME.png. Knows nothing of the
training but the names of its metrics.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from e1_trl.atomic import StoreError, write_atomically
from e1_trl.provenance import Provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Entry = dict[str, float | None]  # by the name of the metric; None: not logged at that step

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
    """What `NAME.json` holds: the logged steps of a run, and its validations at several budgets, if it made any."""

    provenance: Provenance  # of the training
    steps: list[Entry]
    validation: list[Entry]

    @classmethod
    def read(cls, run: Path) -> "TrainingLog":
        """The log of a finished run.

        Raises:
            ValueError: the run has no `trainer_state.json` or no provenance, or no step was logged in it.
        """
        file = run / "trainer_state.json"
        if not file.exists():
            raise ValueError(f"there is no {file}: it is written when the training ends")
        history = json.loads(file.read_text())["log_history"]
        # Only a step has a loss: metrics of steps that were not logged are left in the summary of the run, too.
        steps = [{name: entry.get(name) for name in NAMES} for entry in history if "loss" in entry]
        if not steps:
            raise ValueError(f"{file} logs no step; train with logging_steps: 1")
        chosen = [{name: entry[name] for name in entry if name.startswith(VALIDATION)} for entry in history]
        validation = [{"step": entry["step"], **own} for entry, own in zip(history, chosen, strict=True) if own]
        return cls(Provenance.read(run), steps, validation)

    def draw(self) -> "Figure":
        """One panel per group of metrics, over the steps; a last one for validation at several budgets, if any."""
        from matplotlib.figure import Figure

        panels: list[tuple[str, Sequence[str], list[Entry]]] = [(*panel, self.steps) for panel in PANELS.items()]
        if self.validation:
            accuracies = [name for name in self.validation[0] if name.endswith("/accuracy")]
            panels.append(("validation accuracy at budget", accuracies, self.validation))
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


def rollouts(run: Path, steps: int, each: int) -> list[tuple[int, list[dict[str, str]]]]:
    """The rollouts that a run with `log_completions` has kept: of so many of its steps, the first and last among them.

    Raises:
        ValueError: another version logged them.
    """
    files = sorted((run / "completions").glob("completions_*.parquet"))
    shown = dict.fromkeys(round(i * (len(files) - 1) / max(1, steps - 1)) for i in range(steps)) if files else ()
    return [_rollouts(files[i], each) for i in shown]


def _rollouts(file: Path, count: int) -> tuple[int, list[dict[str, str]]]:
    import pandas as pd

    table = pd.read_parquet(file)
    if "parts" not in table:
        raise ValueError(f"{file} has no column parts: another version of e1_trl logged it")
    found = [
        {
            "prompt": row.prompt if isinstance(row.prompt, str) else "\n".join(turn["content"] for turn in row.prompt),
            "facts": f"thinking {row.thinking_end} after {row.thinking_tokens} tokens, solution of "
            f"{row.solution_tokens}{' and cut' * row.solution_truncated}, advantage {row.advantage:+.2f}",
            **dict(zip(("thinking", "close", "solution"), row.parts, strict=True)),
        }
        for row in table.head(count).itertuples()
    ]
    return int(table["step"].iloc[0]), found


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line, `sys.argv` if `argv` is None."""
    parser = argparse.ArgumentParser(prog="e1 curve", description="Draw how a training went.")
    parser.add_argument("run", type=Path, help="output_dir of a finished run")
    parser.add_argument("--output", type=Path, required=True, help="folder for NAME.json and NAME.png")
    parser.add_argument("--name", required=True, help="name of the files")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    arguments = parse(argv)
    results, picture = (arguments.output / f"{arguments.name}{suffix}" for suffix in (".json", ".png"))
    try:
        log = TrainingLog.read(arguments.run)
        arguments.output.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(log), indent=1) + "\n"
        write_atomically(results, lambda path: path.write_text(text))
        write_atomically(picture, lambda path: log.draw().savefig(path, dpi=150, format="png"))
    except (StoreError, ValueError, OSError) as error:
        sys.exit(f"e1 curve: {error}")
    reward = f"reward {log.steps[0]['reward']:.3f} to {log.steps[-1]['reward']:.3f}"
    print(f"wrote {results} and {picture}: {len(log.steps)} steps, {reward}")


if __name__ == "__main__":
    main()
