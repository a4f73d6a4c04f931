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


def mean(rows: Rows, base: int, system: str, name: str) -> float:
    """Mean over the seeds of a number of the answers without a budget."""
    return fmean(row[name] for row in rows.of(base, system, FREE, None))


def readme(results: Results) -> Iterator[str]:
    """The rows of the README's table, and separate budgets beside truncation."""
    rows = read(results)
    for before, after, tight in ((TAUGHT, f"{TAUGHT}_{E1}", BUDGETS[2]), (BASE, E1, TIGHT)):
        for base in BASES:
            cells = []
            for asked in (("separate", tight), (FREE, None)):
                ends = (fmean(row["accuracy"] for row in rows.of(base, system, *asked)) for system in (before, after))
                lead = less(rows.values(base, after, *asked), rows.values(base, before, *asked))
                cells.append(f"{' → '.join(f'{end:.1%}' for end in ends)} ({lead.interval('+')}")
            saved = 1 - mean(rows, base, after, "mean_thinking_tokens") / mean(
                rows, base, before, "mean_thinking_tokens"
            )
            yield cells[0]
            yield f"| {cells[1]}), thinking {saved:.0%} less |"
    each = [
        [rows.of(base, TAUGHT, method, BUDGETS[2])[0]["accuracy"] for method in ("separate", "s1")] for base in BASES
    ]
    yield f"untrained, by s1 | {', '.join(f'{plain:.1%} → {s1:.1%}' for plain, s1 in each)} |"
    yield levels(rows)


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
    """Quotes of docs/real.md: the split, the steps of the bases' second stage, and what came out."""
    yield from split(results)
    yield from steps(results)
    rows = read(results)
    first, second = (over_base(rows, base, "separate", TIGHT) for base in BASES)
    yield f"{-first.points:.1f} points less often than base 1 ({first.interval('+')}) and {second.points:.1f} more"
    yield f"often than base 2 ({second.interval('+')})"
    lost = -over_base(rows, 1, FREE, None)
    yield f"Without a budget it loses {lost.points:.1f} points from base 1 ({lost.interval()})"
    free = less(rows.values(1, "grpo_free", FREE, None), rows.values(1, E1, FREE, None))
    yield f"and is {free.points:.1f} behind *grpo_free* there ({free.interval()})"
    yield from trainings(rows)
    yield from long_thoughts(rows)
    yield from cut(rows)
    at = [row["closes_again_ratio"] for row in rows.of(2, BASE, "separate", TIGHT)]
    yield f"At {TIGHT} it writes `</think>` and the answer again in {at[0]:.0%}"
    trained = [row for row in rows.rows if (row["base"], row["method"]) == (2, FREE) and row["system"] != BASE]
    first, second = sorted(row["truncated_ratio"] for row in trained)[-2:]
    yield f"no longer stop in {first:.1%} and {second:.1%} of their answers"
    yield from taught(rows)
    ahead = methods(rows, 1, "separate", "truncation")
    yield f"by {ahead.points:.1f} points at {TIGHT} ({ahead.interval()})"
    boxes = [
        100 * row["accuracy_by_boxes"]
        for method in ("s1", "separate")
        for base in BASES
        for row in rows.of(base, BASE, method, TIGHT)
    ]
    yield "right on {:.1f} and {:.1f}% at 12+16, separate budgets on {:.1f} and {:.1f}%".format(*boxes)
    yield f"it is {methods(rows, 1, 'separate', 's1', BUDGETS[-1]).points:.1f} behind"


def taught(rows: Rows) -> Iterator[str]:
    """Models before the bases' second stage."""
    tokens, right = (
        [mean(rows, base, TAUGHT, name) for base in BASES] for name in ("mean_thinking_tokens", "accuracy")
    )
    yield levels(rows)
    yield f"thinks for {tokens[0]:.0f} and {tokens[1]:.0f} tokens"
    yield f"whole ones, which are right on {100 * right[0]:.1f} and {right[1]:.1%}"
    first, second = (methods(rows, base, "separate", "truncation", TIGHT, TAUGHT) for base in BASES)
    yield f"by {first.points:.1f} points ({first.interval()}) and {second} at {TIGHT}"
    boxes = [row["accuracy_by_boxes"] for row in rows.rows if (row["system"], row["method"]) == (TAUGHT, "s1")]
    yield f"on *taught* it is right on {max(boxes):.0%} at most"


def long_thoughts(rows: Rows) -> Iterator[str]:
    """E1 from *taught*."""
    ours, at = f"{TAUGHT}_{E1}", BUDGETS[2]

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
    (first, second) = zip(*tokens, strict=True)
    yield f"thinks for {second[0]:.0f} and {second[1]:.0f} tokens instead of {first[0]:.0f} and {first[1]:.0f}"
    trained = [rows.of(base, ours, FREE, None)[0] for base in BASES]
    generated = dict.fromkeys(f"{round(row['generated_tokens'], -4):,}" for row in trained)
    yield f"from *taught*, with {' and '.join(generated)} tokens"
    yield f"rollouts {pair(row['first_reward'] for row in trained)} are right in the first ten"
    yield f"{pair(row['last_reward'] for row in trained)} in the last ten"
    yield f"where {pair((1 - row['last_forced'] for row in trained), 0)} of the thoughts end in time"
    leads = [
        [less(rows.values(base, ours, *asked), rows.values(base, TAUGHT, *asked)) for base in BASES]
        for asked in (*(("separate", each) for each in BUDGETS), (FREE, None))
    ]
    leads_all = all(each.low > 0 for own in leads for each in own)
    yield f"it {'leads' if leads_all else 'does not lead'} *taught* at every budget"
    yield f"at {at} by {leads[2][0].points:.1f} points ({leads[2][0].interval()}) on base 1 and {leads[2][1]} on base 2"
    yield f"without a budget by {leads[4][0]} and {leads[4][1]}"
    bare = list(zip(*both("separate", at, name="unboxed_ratio"), strict=True))
    yield f"*taught* leaves {pair(bare[0])} of its answers without a box, most cut, and *taught_e1* {pair(bare[1])}"
    behind = [
        less(rows.values(base, TAUGHT, "s1", BUDGETS[0]), rows.values(base, ours, "separate", BUDGETS[0]))
        for base in BASES
    ]
    yield f"At {BUDGETS[0]} *taught* by s1 is still ahead of it, by {behind[0].points:.1f} and {behind[1].points:.1f}"
    yield f"made the *bases* of the same models, {pair(each[0] for each in both(FREE, None, systems=(BASE,)))} right"


def trainings(rows: Rows) -> Iterator[str]:
    """Beginnings and ends of the trainings."""
    still, random = (
        [row["last_forced"] for base in BASES for row in rows.of(base, system, FREE, None)] for system in (E1, "random")
    )
    generated = [row["generated_tokens"] for row in rows.rows if row["system"] in (E1, CUT, "grpo_free", "random")]
    ends = {f"{round(tokens, -4):,}" for tokens in (min(generated), max(generated))}
    yield f"trained on the same problems and {' to '.join(sorted(ends))} [generated"
    yield f"training {100 * min(still):.1f} to {max(still):.1%} of its thoughts were still cut"
    yield f"With random budgets {100 * (1 - max(random)):.0f} to {1 - min(random):.0%} ended in time"
    tokens = [mean(rows, 1, system, "mean_thinking_tokens") for system in (BASE, CUT)]
    yield f"From base 1 thoughts fall from {tokens[0]:.0f} to {tokens[1]:.0f} tokens"


def cut(rows: Rows) -> Iterator[str]:
    """Plain GRPO with a cut, by truncation at the same tokens, next to others."""
    own = {base: rows.values(base, CUT, "truncation", TIGHT) for base in BASES}
    first, second = (less(own[base], rows.values(base, BASE, "truncation", TIGHT)) for base in BASES)
    yield f"it is {first.points:.1f} points ahead of base 1 truncated alike ({first.interval()})"
    yield f"and {second.points:.1f} of base 2 ({second.interval()})"
    behind = [less(own[base], rows.values(base, E1, "separate", TIGHT)) for base in BASES]
    yield f"by {behind[0].points:.1f} points from base 1 ({behind[0].interval('+')}) and {behind[1].points:.1f}"
    yield f"and {behind[1].points:.1f} from base 2 ({behind[1].interval()})"
    costs = [-over_base(rows, base, FREE, None, system=CUT) for base in BASES]
    yield f"the cut costs {costs[0].points:.1f} points from base 1 ({costs[0].interval()}) and {costs[1].points:.1f}"
    yield f"and {costs[1].points:.1f} from base 2 ({costs[1].interval()})"


def split(results: Results) -> Iterator[str]:
    """The problems held out."""
    found = results["real"]["split"]
    yield f"{found['test']} problems are held out for the test and {found['validation']} for choices"
    yield f"and {found['train']:,} are trained on"
    yield f"at most eight problems of each, {max(found['stories']) + 1} in the test"
    yield f"by [shared rare words](../experiments/real/problems.py), is {found['bound']} or more"


def steps(results: Results) -> Iterator[str]:
    """The bases' second stage."""
    found = [results["real_grpo"][base] for base in ("base 1", "base 2")]
    ends = [f"{fmean(row['right'] for row in own[-10:]):.1%}" for own in found]
    begun = fmean(row["right"] for row in found[0][:10])
    lengths = [[own[place]["thinking_tokens"] for place in (0, -1)] for own in found]
    yield f"({found[0][-1]['step']} and {found[1][-1]['step']} steps of 512 answers"
    yield f"problems rose from {begun:.1%} in the first ten steps to {ends[0]} in the last ten (base 2: to {ends[1]})"
    yield f"thoughts fell from {lengths[0][0]} to {lengths[0][1]} tokens ({lengths[1][0]} to {lengths[1][1]})"
