"""Numbers of docs/real.md, and of the real model in the README."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from e1_trl.report.statistics import Values
from experiments.real.make_base import BASE, TAUGHT
from experiments.real.measure import BUDGETS, E1, FREE, TIGHT, Rows, minus
from experiments.results import Difference, Results

BASES = (1, 2)
CUT = "grpo_cut"
LONG, PLAIN, SHORT = (f"{TAUGHT}_{each}" for each in (E1, "free", "cut"))  # trained from long thoughts
WIDE = BUDGETS[2]  # at which E1 is


def read(results: Results) -> Rows:
    """The rows, with the stories of the test problems."""
    return Rows(results["real"]["rows"], results["real"]["split"]["stories"])


def less(ones: Values, others: Values | None = None) -> Difference:
    """Compare two systems, or the difference of two methods on the same models with none, in points."""
    found = minus(ones, others)
    return Difference(*(100 * value for value in (found.difference, *found.interval)))


def over_base(rows: Rows, base: int, *asked: Any, system: str = E1) -> Difference:
    """Points that a system is ahead of its base, asked alike."""
    return less(rows.values(base, system, *asked), rows.values(base, BASE, *asked))


def methods(rows: Rows, base: int, one: str, other: str, budget: str = TIGHT, system: str = BASE) -> Difference:
    """Points that a method is ahead of another on a base."""
    return less(rows.values(base, system, one, budget) - rows.values(base, system, other, budget))


def readme(results: Results) -> Iterator[str]:
    """Rows of the README's table: accuracies of each base, with a budget and without one, and two intervals."""
    rows = read(results)
    asked = [(base, *at) for base in BASES for at in (("separate", WIDE), (FREE, None))]

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    def right(system: str, base: int, method: str, budget: str | None) -> str:
        return f"{fmean(row['accuracy'] for row in rows.of(base, system, method, budget)):.1%}"

    def lead(other: str, base: int, *at: Any) -> str:
        return less(*(rows.values(base, name, *at) for name in (LONG, other))).interval("+")

    for name, system in (("untrained", TAUGHT), ("E1", LONG)):
        yield line([name, *(right(system, *each) for each in asked)])
    yield line(["E1's gain, 95%", *(lead(TAUGHT, *each) for each in asked)])
    for name, system in (("plain GRPO, as many tokens", PLAIN), ("plain GRPO, cut at 32 tokens", SHORT)):
        yield line([name, *(right(system, *each) for each in asked)])
    yield line(["E1's lead over the cut, 95%", *(lead(SHORT, *each) for each in asked)])
    boxes = [rows.of(base, each, "s1", WIDE)[0]["accuracy_by_boxes"] for base in BASES for each in (TAUGHT, LONG)]
    yield f"by boxes alone it is right on at most {max(boxes):.1%}"
    for name, system in (("untrained", TAUGHT), ("E1", LONG)):
        others = ("; ".join(right(system, base, each, WIDE) for each in ("s1", "truncation")) for base in BASES)
        yield line([f"{name}: s1; truncation", *(cell for each in others for cell in (each, ""))])


def levels(rows: Rows) -> str:
    """Accuracy of *taught* with separate budgets, and with truncation."""
    right = [
        100 * row["accuracy"]
        for method in ("separate", "truncation")
        for base in BASES
        for row in rows.of(base, TAUGHT, method, TIGHT)
    ]
    ours, others = ([f"{value:.1f}" for value in own] for own in (right[:2], right[2:]))
    return f"{' and '.join(ours)} against {' and '.join(dict.fromkeys(others))}%"


def page(results: Results) -> Iterator[str]:
    """Quotes of docs/real.md: the split, the bases' second stage, and what came out."""
    yield from split(results)
    yield from steps(results)
    rows = read(results)
    first, second = (over_base(rows, base, "separate", TIGHT) for base in BASES)
    yield f"{-first.points:.1f} points less often than base 1 ({first.interval('+')}) and {second.points:.1f} more"
    yield f"often than base 2 ({second.interval('+')})"
    lost = -over_base(rows, 1, FREE, None)
    yield f"Without a budget it loses {lost.points:.1f} points from base 1 ({lost.interval()})"
    yield from trainings(rows)
    yield from long_thoughts(rows)
    yield from plain_grpo(rows)
    yield from plain_cut(rows)
    yield from cut(rows)
    trained = [row for row in rows.rows if (row["base"], row["method"]) == (2, FREE) and row["system"] != BASE]
    first, second = sorted(row["truncated_ratio"] for row in trained)[-2:]
    yield f"**Two of eight models from base 2** no longer stop in {first:.1%} and {second:.1%} of their answers"
    yield from taught(rows)
    ahead = methods(rows, 1, "separate", "truncation")
    yield f"of the bases on base 1 only, by {ahead.points:.1f} ({ahead.interval()})"
    yield from by_boxes(rows)


def by_boxes(rows: Rows) -> Iterator[str]:
    """Accuracy of s1 where only answers in a box count, next to other methods."""

    def right(*asked: Any) -> str:
        return " and ".join(f"{100 * rows.of(base, *asked)[0]['accuracy_by_boxes']:.1f}" for base in BASES) + "%"

    tight, wide = (
        [right(system, method, at) for method in methods]
        for system, at, methods in ((BASE, TIGHT, ("s1", "separate")), (LONG, WIDE, ("s1", "truncation")))
    )
    yield f"right on {tight[0]} of the bases' answers at {TIGHT}, separate budgets on {tight[1]}"
    yield f"of *taught_e1*'s at {WIDE} on {wide[0]}, truncation on {wide[1]}"
    yield f"(by boxes s1 has {right(TAUGHT, 's1', BUDGETS[0])} there)"


def taught(rows: Rows) -> Iterator[str]:
    """Models before the bases' second stage."""
    yield levels(rows)
    first, second = (methods(rows, base, "separate", "truncation", TIGHT, TAUGHT) for base in BASES)
    yield f"at {TIGHT} on *taught* by {first.points:.1f} points ({first.interval()}) and {second}"


def long_thoughts(rows: Rows) -> Iterator[str]:
    """E1 from *taught*."""
    ours, at = LONG, WIDE

    def both(*asked: Any, name: str = "accuracy", systems: Sequence[str] = (TAUGHT, ours)) -> list[list[float]]:
        return [[rows.of(base, system, *asked)[0][name] for system in systems] for base in BASES]

    def pair(values: Iterable[float], digits: int = 1) -> str:
        return " and ".join(f"{100 * value:.{digits}f}" for value in values) + "%"

    ends = [
        " and ".join(f"{100 * a:.1f} to {b:.1%}" for a, b in both(*asked)) for asked in (("separate", at), (FREE, None))
    ]
    yield f"{ends[0]} right at {at}, {ends[1]} without a budget"
    tokens = both(FREE, None, name="mean_thinking_tokens")
    yield f"with {' and '.join(f'{1 - after / before:.0%}' for before, after in tokens)} less thinking"
    trained = [rows.of(base, ours, FREE, None)[0] for base in BASES]
    generated = dict.fromkeys(f"{round(row['generated_tokens'], -4):,}" for row in trained)
    yield f"from *taught* [with {' and '.join(generated)}]"
    leads = [
        [less(rows.values(base, ours, *asked), rows.values(base, TAUGHT, *asked)) for base in BASES]
        for asked in (*(("separate", each) for each in BUDGETS), (FREE, None))
    ]
    leads_all = all(each.low > 0 for own in leads for each in own)
    yield f"*taught_e1* {'leads' if leads_all else 'does not lead'} *taught* at every budget"
    yield f"at {at} by {leads[2][0].points:.1f} points ({leads[2][0].interval()}) on base 1 and {leads[2][1]} on base 2"
    bare = list(zip(*both("separate", at, name="unboxed_ratio"), strict=True))
    yield f"*taught* leaves {pair(bare[0])} of its answers without a box, most cut, and *taught_e1* {pair(bare[1])}"
    behind = [
        less(rows.values(base, TAUGHT, "s1", BUDGETS[0]), rows.values(base, ours, "separate", BUDGETS[0]))
        for base in BASES
    ]
    yield f"At {BUDGETS[0]} *taught* by s1 is still ahead, by {behind[0].points:.1f} and {behind[1].points:.1f} points"


def plain_grpo(rows: Rows) -> Iterator[str]:
    """Plain GRPO from *taught* without a tight budget, and how far E1 leads it."""
    at = [
        [less(*(rows.values(base, name, "separate", each) for name in (LONG, PLAIN))) for base in BASES]
        for each in BUDGETS
    ]
    leads_all = all(each.low > 0 for own in at for each in own)
    yield f"it {'leads' if leads_all else 'does not lead'} plain GRPO at every budget"
    asked = ("separate", WIDE)
    leads = [less(rows.values(base, LONG, *asked), rows.values(base, PLAIN, *asked)) for base in BASES]
    right = [100 * rows.of(base, PLAIN, *asked)[0]["accuracy"] for base in BASES]
    yield f"on {right[0]:.1f} and {right[1]:.1f}%"
    yield " and ".join(f"{lead.points:.1f} ({lead.interval()})" for lead in leads)


def plain_cut(rows: Rows) -> Iterator[str]:
    """Plain GRPO from *taught* with a cut at as many tokens as E1 has in both parts, next to E1."""
    asked = ((SHORT, "separate"), (LONG, "separate"), (SHORT, "truncation"))
    theirs, ours, truncated = (
        " and ".join(f"{100 * rows.of(base, *each, WIDE)[0]['accuracy']:.1f}" for base in BASES) + "%" for each in asked
    )
    yield f"right on {theirs} at {WIDE}, E1 on {ours}"
    yield f"truncated at 32 tokens, on {truncated}"
    leads = [less(*(rows.values(base, name, "separate", WIDE) for name in (LONG, SHORT))) for base in BASES]
    first, second = (f"({lead.interval('+')})" for lead in leads)
    yield f"{leads[0].points:+.1f} points {first} and {leads[1].points:+.1f} {second}"
    behind = -less(*(rows.values(2, name, FREE, None) for name in (LONG, SHORT)))
    yield f"Without a budget E1 is {behind.points:.1f} ({behind.interval()}) behind it on base 2"


def trainings(rows: Rows) -> Iterator[str]:
    """Beginnings and ends of the trainings."""
    still = [row["last_forced"] for base in BASES for row in rows.of(base, E1, FREE, None)]
    generated = [row["generated_tokens"] for row in rows.rows if row["system"] in (E1, CUT, "grpo_free", "random")]
    ends = {f"{round(tokens, -4):,}" for tokens in (min(generated), max(generated))}
    yield f"on the same problems and {' to '.join(sorted(ends))} [generated tokens]"
    yield f"At its end {100 * min(still):.1f} to {max(still):.1%} of its thoughts were still cut"


def cut(rows: Rows) -> Iterator[str]:
    """Plain GRPO with a cut next to E1: truncated at the same tokens, and with separate budgets, too."""
    first, second = (
        [less(rows.values(base, CUT, method, TIGHT), rows.values(base, E1, "separate", TIGHT)) for base in BASES]
        for method in ("truncation", "separate")
    )
    yield f"by {first[0].points:.1f} points from base 1 ({first[0].interval('+')}) and {first[1].points:.1f}"
    yield f"and {first[1].points:.1f} from base 2 ({first[1].interval()})"
    yield f"({second[0].points:+.1f}, {second[0].interval('+')}; {second[1].points:+.1f}, {second[1].interval('+')})"


def split(results: Results) -> Iterator[str]:
    """The problems held out."""
    found = results["real"]["split"]
    yield f"{found['test']} problems are held out for the test, {found['validation']} for choices"
    yield f"and {found['train']:,} are trained on"
    yield f"at most eight problems of each, {max(found['stories']) + 1} in the test"
    yield f"similar to one held out by {found['bound']} or more, by [shared rare words]"


def steps(results: Results) -> Iterator[str]:
    """The bases' second stage."""
    found = [results["real_grpo"][base] for base in ("base 1", "base 2")]
    lengths = [[own[place]["thinking_tokens"] for place in (0, -1)] for own in found]
    yield f"from {lengths[0][0]} to {lengths[0][1]} tokens (base 2: {lengths[1][0]} to {lengths[1][1]})"
