"""Both bases of SmolLM2 in one table of docs/smollm2.md, since what is found on one need not hold on the other.

python -m experiments.smollm2.bases     from docs/results/smollm2.json (A) and smollm2-random.json (B)
"""

from collections.abc import Callable
from pathlib import Path

from e1_trl.report.markdown import replace_section, table
from experiments.results import Report, Results

DOCUMENT = Path("docs/smollm2.md")
FILES = {"A": "smollm2", "B": "smollm2-random"}
BASE = "smollm2-base"
SEEDS = ("smollm2-e1", "smollm2-e1-seed43")  # trainings of E1 from each base
BUDGETS = (12, 24, 48, 96)
Cell = Callable[[Report, int | None], str]


def ranged(values: list[str]) -> str:
    """The smallest and the largest of numbers that are written already."""
    low, high = min(values, key=float), max(values, key=float)
    return low if low == high else f"{low} to {high}"


def right(report: Report, thinking: int | None) -> str:
    """Accuracy of the base."""
    return f"{report.accuracy(BASE, thinking):.1%}"


def right_of_e1(report: Report, thinking: int | None) -> str:
    """Accuracy of E1, over its seeds."""
    return f"{ranged([f'{100 * report.accuracy(seed, thinking):.1f}' for seed in SEEDS])}%"


def gained(report: Report, thinking: int | None) -> str:
    """Points of E1 over its base, over its seeds."""
    return ranged([f"{report.less(seed, BASE, thinking).points:+.1f}" for seed in SEEDS])


def method_on_base(method: str, alike: str = "budget") -> Cell:
    """Points of a method over separate budgets on the base, with the interval over problems."""

    def cell(report: Report, thinking: int | None) -> str:
        try:
            return f"{report.less(BASE, BASE, thinking, method, 'separate', alike):+}"
        except LookupError:  # its tokens are more than separate budgets use at any budget
            return ""

    return cell


def method_on_e1(method: str) -> Cell:
    """Points of a method over separate budgets on E1, over its seeds."""

    def cell(report: Report, thinking: int | None) -> str:
        pairs = [(report.accuracy(seed, thinking, method), report.accuracy(seed, thinking)) for seed in SEEDS]
        return ranged([f"{100 * (theirs - ours):+.1f}" for theirs, ours in pairs])

    return cell


def at_budgets(cell: Cell) -> Cell:
    """Leave the column without a budget empty."""
    return lambda report, thinking: "" if thinking is None else cell(report, thinking)


def tokens_saved(report: Report, thinking: int | None) -> str:
    """Change of the mean tokens from the base to E1, over its seeds."""
    base = report.row(BASE, thinking)["mean_tokens"]
    return ranged([f"{100 * (report.row(seed, thinking)['mean_tokens'] / base - 1):+.0f}" for seed in SEEDS]) + "%"


def truncated(report: Report, thinking: int | None) -> str:
    """Share of the base's solutions that are cut off."""
    return f"{report.row(BASE, thinking)['truncated_ratio']:.0%}"


LINES: dict[str, Cell] = {
    "base, right": right,
    "E1, right": right_of_e1,
    "E1 less base": gained,
    "E1's tokens, to the base's": tokens_saved,
    "base, solutions cut off": truncated,
    "s1 less separate, base": at_budgets(method_on_base("s1")),
    "s1 by boxes only less separate, base": at_budgets(method_on_base("s1, boxes only")),
    "s1 less separate, E1": at_budgets(method_on_e1("s1")),
    "s1 by boxes only less separate, E1": at_budgets(method_on_e1("s1, boxes only")),
    "truncation less separate, base": at_budgets(method_on_base("truncation")),
    "the same at as many tokens": at_budgets(method_on_base("truncation", "tokens used")),
    "truncation less separate, E1": at_budgets(method_on_e1("truncation")),
}


def as_table(results: Results) -> str:
    """A line of each comparison for each base; ranges are over the two seeds of E1, intervals over problems."""
    reports = {base: results.report(name) for base, name in FILES.items()}
    header = ("", "base", *(f"{budget}+20" for budget in BUDGETS), "no budget")
    return table(
        header,
        [
            (name, base, *(cell(report, thinking) for thinking in (*BUDGETS, None)))
            for name, cell in LINES.items()
            for base, report in reports.items()
        ],
    )


def main() -> None:
    replace_section(DOCUMENT, "smollm2-bases", as_table(Results()))


if __name__ == "__main__":
    main()
