"""Share of E1's gain that the untrained base reaches with "Wait" banned, written into the page of a miniature.

The bases' thoughts are planted with rechecks that "Wait" opens, so that this is the cheapest way to be brief. Called by
publish.sh, after the report:

    python -m experiments.banned nano 64+32
"""

import sys
from pathlib import Path

from e1_trl.report.markdown import replace_section
from experiments.results import Results

MODELS = ("base", "base, Wait banned", "e1")


def share_of_gain(of: str, base: float, banned: float, trained: float) -> str:
    """Say what share of a trained model's gain over its base one banned token reaches; all are from 0 to 1."""
    gain, whole = banned - base, trained - base
    reached = f"reaches {gain / whole:.0%} of E1's gain" if gain < whole else "gains more than E1"
    return (
        f"With `Wait` banned the untrained base gains {100 * gain:.1f} points {of}, and E1 {100 * whole:.1f}: one "
        f"banned token {reached}."
    )


def main() -> None:
    name, budget = sys.argv[1:]
    report = Results(Path("docs/results")).report(name)
    accuracies = (report.accuracy(model, int(budget.partition("+")[0])) for model in MODELS)
    text = share_of_gain(f"at {budget}", *accuracies)
    replace_section(Path(f"docs/{name}.md"), "banned", f"{text}\n")


if __name__ == "__main__":
    main()
