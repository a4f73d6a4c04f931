"""Numbers of docs/real.md, and of the real model in the README."""

from collections.abc import Iterator
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
    for base in BASES:
        cells = []
        for asked in (("separate", TIGHT), (FREE, None)):
            ends = (fmean(row["accuracy"] for row in rows.of(base, system, *asked)) for system in (BASE, E1))
            cells.append(" → ".join(f"{end:.1%}" for end in ends))
            cells[-1] += f" ({over_base(rows, base, *asked).interval('+')}"
        saved = 1 - mean(rows, base, E1, "mean_thinking_tokens") / mean(rows, base, BASE, "mean_thinking_tokens")
        yield f"| {cells[0]}) | {cells[1]}), thinking {saved:.0%} less |"
    ours, ends = f"{TAUGHT}_{E1}", []
    for asked in (("separate", BUDGETS[2]), (FREE, None)):
        both = (rows.of(1, system, *asked)[0]["accuracy"] for system in (TAUGHT, ours))
        lead = less(rows.values(1, ours, *asked), rows.values(1, TAUGHT, *asked))
        ends.append(f"{' → '.join(f'{each:.1%}' for each in both)} ({lead.interval('+')}")
    saved = 1 - mean(rows, 1, ours, "mean_thinking_tokens") / mean(rows, 1, TAUGHT, "mean_thinking_tokens")
    yield f"| {ends[0]} points) | {ends[1]}), thinking {saved:.0%} less |"
    plain, s1 = (rows.of(1, TAUGHT, method, BUDGETS[2])[0]["accuracy"] for method in ("separate", "s1"))
    yield f"| the same base, untrained, by s1 | {plain:.1%} → {s1:.1%} |"
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
    """E1 from *taught* of base 1."""
    ours = f"{TAUGHT}_{E1}"
    (before,), (after,) = (rows.of(1, system, FREE, None) for system in (TAUGHT, ours))
    at = [100 * rows.of(1, system, "separate", BUDGETS[2])[0]["accuracy"] for system in (TAUGHT, ours)]
    yield f"{at[0]:.1f} to {at[1]:.1f}% right at {BUDGETS[2]}"
    less_thinking = 1 - after["mean_thinking_tokens"] / before["mean_thinking_tokens"]
    yield f"{100 * before['accuracy']:.1f} to {after['accuracy']:.1%} without a budget, with {less_thinking:.0%} less"
    yield f"{round(after['generated_tokens'], -4):,} tokens, one seed"
    yield f"rollouts {after['first_reward']:.1%} are right in the first ten steps and {after['last_reward']:.1%} in the"
    yield f"where {1 - after['last_forced']:.0%} of the thoughts end in time"
    leads = [less(rows.values(1, ours, "separate", each), rows.values(1, TAUGHT, "separate", each)) for each in BUDGETS]
    yield f"{'leads' if all(lead.low > 0 for lead in leads) else 'does not lead'} *taught* at every budget"
    first, _, third, _ = leads
    yield f"by {first.points:.1f} points at {BUDGETS[0]} ({first.interval()}), {third.points:.1f} at {BUDGETS[2]}"
    yield f"{third.points:.1f} at {BUDGETS[2]} ({third.interval()}), and"
    bare = [rows.of(1, system, "separate", BUDGETS[2])[0]["unboxed_ratio"] for system in (TAUGHT, ours)]
    yield f"*taught* leaves {bare[0]:.1%} of its answers without a box, most cut, and *taught_e1* {bare[1]:.1%}"
    free = less(rows.values(1, ours, FREE, None), rows.values(1, TAUGHT, FREE, None))
    yield f"{free} without a budget, where it thinks for {after['mean_thinking_tokens']:.0f} tokens instead of"


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
