"""Table of docs/recipes.md: the nodes that each recipe fits, by `e1 plan`.

python -m experiments.fits
"""

from pathlib import Path

from e1_trl.plan.setup import Launch
from e1_trl.plan.verdict import fitting
from e1_trl.recipes import shipped
from e1_trl.report.markdown import replace_section, table

DOCUMENT = Path(__file__).parents[1] / "docs" / "recipes.md"
NODES = {"1 × 24": (1, 22.0), "1 × 80": (1, 79.2), "4 × 80": (4, 79.2), "8 × 40": (8, 39.4), "8 × 80": (8, 79.2)}  # GiB


def make_table() -> str:
    """The table of what fits, in Markdown; a recipe for one GPU takes one, and a server has half of them."""
    rows = []
    for name in (name for name, file in shipped("recipes").items() if file.parent.name == "recipes"):
        setup, cells = Launch.read(name, None, None, []).setup, []
        for gpus, gib in NODES.values():
            trained = 1 if setup.zero == 0 else gpus // (2 if setup.served else 1)
            changed = fitting(setup, trained, int(gib * 2**30))
            words = [field if value is True else f"{field} {value}" for field, value in (changed or {}).items()]
            cells.append("no" if changed is None else ", ".join(words) or "yes")
        rows.append((f"`{name}`", *cells))
    return table(("recipe", *(f"{node} GB" for node in NODES)), rows)


if __name__ == "__main__":
    replace_section(DOCUMENT, "fits", make_table())
