"""Read unconstrained thoughts about best_of: are their steps right, and do they close before an answer is certain?

python -m experiments.best_of.transcripts best_of     adds to docs/results/best_of-thoughts.md
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from transformers import AutoTokenizer

from e1_trl.answers.grade import Outcome
from e1_trl.command_line import run_command
from e1_trl.report import samples
from e1_trl.report.markdown import table
from experiments.best_of.make_base import ITEMS, Choice
from experiments.systems.measure import FREE
from experiments.systems.miniatures import BEST_OF, CONCISE

RESULTS = Path("docs/results")
KINDS = ("a wrong step", "closed while an item could still be the best", "decided")
INTRODUCTION = """# Unconstrained thoughts about {miniature}

Made by `python -m experiments.best_of.transcripts` from the evaluations of the systems, 2,048 thoughts each. A step is
wrong if it is not what the problem's item gives: its head, terms, sums and value, and the best item so far.
"""


def kind_of(choice: Choice, thought: Sequence[str]) -> str:
    """Tell a thought with a wrong step from one that ends before, or once, no other item can be the best."""
    done: list[int] = []
    rest = [token for token in thought if token not in ("Wait", "</think>")]
    while rest:
        if rest[0] not in choice.choices:
            return KINDS[0]
        item = ITEMS.index(rest[0])
        done += [item] * (item not in done)
        step = choice.step(item, done)
        if rest[: len(step)] != step:
            return KINDS[0]
        rest = rest[len(step) :]
    return KINDS[1 + choice.decided(done)]


def count(answers: pd.DataFrame) -> list[str]:
    """Return the share of thoughts of each kind, and the share of those that are answered wrongly."""
    tokenizer = AutoTokenizer.from_pretrained(BEST_OF.base)
    kinds = []
    for row in answers.itertuples():
        thought = tokenizer.convert_ids_to_tokens(list(row.token_ids[: row.thinking_tokens]))
        kinds.append(kind_of(Choice.read(row.prompt), thought))
    own, wrong = pd.Series(kinds), (answers["outcome"] != Outcome.CORRECT).to_numpy()
    return [f"{(own == kind).mean():.1%}, {(wrong & (own == kind)).mean():.1%} wrong" for kind in KINDS]


def read_table(text: str) -> dict[str, list[str]]:
    """Read the counts of each training that stand in the document."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
    return {name: counts for name, *counts in rows}


def main() -> None:
    """Add the evaluations of a miniature's systems to its table, in place of their own lines."""
    parser = argparse.ArgumentParser(prog="experiments.best_of.transcripts")
    parser.add_argument("miniature", choices=[BEST_OF.name, CONCISE.name])
    miniature = parser.parse_args().miniature
    document = RESULTS / f"{miniature}-thoughts.md"
    lines = read_table(document.read_text()) if document.exists() else {}
    for folder in sorted(Path("runs/systems", miniature).glob("*/test")):
        answers = samples.read(folder)
        lines[folder.parent.name] = count(answers[answers["method"] == FREE])
    rows = [(name, *counts) for name, counts in sorted(lines.items())]
    document.write_text(f"{INTRODUCTION.format(miniature=miniature)}\n{table(('training', *KINDS), rows)}")


if __name__ == "__main__":
    run_command("experiments.best_of.transcripts", main)
