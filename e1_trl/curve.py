"""Draws how a training run went, from the log that it left: reward, tokens, and how thinking ended, per step.

    python -m e1_trl.curve runs/smollm2/e1 --output docs/results --name smollm2

Writes NAME.json (one entry per logged step, and where it was drawn) and NAME.png.
"""

import argparse
import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib

from e1_trl.report import commit

matplotlib.use("Agg")
from matplotlib import pyplot as plt

METRICS = {
    "reward": ("reward", "reward/closed", "reward/forced"),
    "tokens": ("thinking/mean_tokens", "solution/mean_tokens"),
    "ratio": ("thinking/closed_ratio", "thinking/forced_ratio", "thinking/eos_ratio", "solution/truncated_ratio"),
    "log-probability gap (nats)": ("sampling/sampling_logp_difference/mean",),
}
VALIDATION = "eval_budget/"
OTHER = ("step", "step_time", "entropy", "grad_norm")


def read_log(run: Path) -> list[dict[str, Any]]:
    """The logged training steps of a run, with the metrics that are drawn and a few more.

    Raises:
        FileNotFoundError: the run has no `trainer_state.json`; it is written when the training ends.
    """
    history = json.loads((run / "trainer_state.json").read_text())["log_history"]
    names = [*OTHER, *(name for panel in METRICS.values() for name in panel)]
    return [{name: entry.get(name) for name in names} for entry in history if "reward" in entry]


def read_validation(run: Path) -> list[dict[str, Any]]:
    """The evaluations at several budgets that a run made on its way (`eval_budgets`), if it did."""
    history = json.loads((run / "trainer_state.json").read_text())["log_history"]
    return [
        {name: value for name, value in entry.items() if name == "step" or name.startswith(VALIDATION)}
        for entry in history
        if any(name.startswith(VALIDATION) for name in entry)
    ]


def plot(log: list[dict[str, Any]], validation: list[dict[str, Any]], file: Path) -> None:
    """One panel per group of metrics, over the steps; a last one for validation at several budgets, if there is any."""
    panels = len(METRICS) + bool(validation)
    figure, axes = plt.subplots(1, panels, figsize=(4 * panels, 3.2), layout="constrained")
    if validation:
        for name in (name for name in validation[0] if name.endswith("/accuracy")):
            points = [(entry["step"], entry[name]) for entry in validation]
            axes[-1].plot(*zip(*points, strict=True), "o-", label=name.split("/")[1])
        axes[-1].set(xlabel="step", title="validation accuracy at budget", ylim=(0, 1))
        axes[-1].legend(fontsize="small")
    for axis, (title, names) in zip(axes, METRICS.items(), strict=False):
        for name in names:
            points = [(entry["step"], entry[name]) for entry in log if entry[name] is not None]
            if points:
                axis.plot(*zip(*points, strict=True), label=name)
        axis.set(xlabel="step", title=title)
        axis.legend(fontsize="small")
    figure.savefig(file, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw how a training run went.")
    parser.add_argument("run", type=Path, help="output_dir of a finished run")
    parser.add_argument("--output", type=Path, required=True, help="folder for NAME.json and NAME.png")
    parser.add_argument("--name", required=True, help="name of the files")
    arguments = parser.parse_args()
    log, validation = read_log(arguments.run), read_validation(arguments.run)
    arguments.output.mkdir(parents=True, exist_ok=True)
    stem = arguments.output / arguments.name
    made = {
        "drawn_at_commit": commit(),  # a run does not know its own
        "drawn_on": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "steps": log,
        "validation": validation,
    }
    stem.with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
    plot(log, validation, stem.with_suffix(".png"))
    print(f"wrote {stem}.json and .png: {len(log)} steps, reward {log[0]['reward']:.3f} to {log[-1]['reward']:.3f}")


if __name__ == "__main__":
    main()
