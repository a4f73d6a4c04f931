"""Numbers of docs/smollm2.md."""

from collections.abc import Iterable, Iterator
from statistics import fmean

from experiments.quotes.miniatures import line
from experiments.results import Report, Results
from experiments.smollm2.bases import BASE, BUDGETS, FILES, SEEDS


def quotes(results: Results) -> Iterator[str]:
    """Quotes of docs/smollm2.md. A and B are its bases."""
    a, b = (results.report(name) for name in FILES.values())
    for report in (a, b):
        for model in dict.fromkeys(row["model"] for row in report.rows):
            yield line(report.row(model, 24))
            yield line(report.row(model))
    near = results["smollm2-overlap"]["share_with_an_overlap_of"]
    yield f"{near['0.75']:.1%} share 75% of the words with one"
    yield f"{near['0.7']:.1%} share 70%, {near['0.65']:.1%} share 65%"
    yield from learned(a, b)
    yield from without_a_budget(a, b)
    yield from s1(a, b)
    yield from truncation(a, b)
    yield from random_budgets(b)


def both(values: list[float], digits: int = 0) -> str:
    """The smallest and the largest: `13 to 15`."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def alike(written: Iterable[str]) -> str:
    """One number where all are the same, else each."""
    return " and ".join(sorted(set(written)))


def learned(a: Report, b: Report) -> Iterator[str]:
    """Results of E1 at 24+20 and 12+20 on either base."""
    e1 = [100 * report.row(seed, 24)["closed_ratio"] for report in (a, b) for seed in SEEDS]
    first, second = sorted(report.row(BASE, 24)["closed_ratio"] for report in (a, b))
    yield f"closes {both(e1)}% of its thoughts in time, the bases {100 * first:.0f} and {second:.0%}"
    gains = [[report.less(seed, BASE, 24).points for seed in SEEDS] for report in (a, b)]
    yield f"{both(gains[0], 1)} points more often from A and {both(gains[1], 1)} from B"
    forced = [100 * report.row(seed, 12)["accuracy_forced"] for report in (a, b) for seed in SEEDS]
    base = alike(f"{report.row(BASE, 12)['accuracy_forced']:.0%}" for report in (a, b))
    yield f"{both(forced)}% of its forced answers are right, {base} of either base's"
    no_thinking = [100 * report.accuracy(seed, 0, "no_thinking") for report in (a, b) for seed in SEEDS]
    base = alike(f"{report.accuracy(BASE, 0, 'no_thinking'):.0%}" for report in (a, b))
    yield f"which is right on {base} of either base and {both(no_thinking)}% of E1"
    yield f"all {a.accuracy(SEEDS[0], 24) * a.row(SEEDS[0], 24)['problems']:.0f} right answers of E1"


def without_a_budget(a: Report, b: Report) -> Iterator[str]:
    """Cost of shorter thinking without a budget."""
    first, second, third, fourth = (-report.less(seed, BASE) for report in (a, b) for seed in SEEDS)
    yield f"from A {first.points:.1f} points ({first.interval()}) and {second}, from B {third}"
    yield f"no loss is shown ({fourth.points:.1f}, {fourth.interval()})"


def s1(a: Report, b: Report) -> Iterator[str]:
    """The comparison that reverses."""
    behind = [-a.less(BASE, BASE, thinking, "s1", "separate").points for thinking in BUDGETS]
    yield f"at every budget, by {both(behind, 1)} points"
    yield f"s1 is ahead by {b.less(BASE, BASE, 24, 's1', 'separate')} at 24+20"
    cut = [report.row(BASE, 24)["truncated_ratio"] for report in (a, b)]
    yield f"Of B's solutions {cut[1]:.0%} are cut off there, of A's {cut[0]:.0%}"
    e1 = [
        [
            100 * (report.accuracy(seed, thinking) - report.accuracy(seed, thinking, "s1"))
            for seed in SEEDS
            for thinking in (12, 24)
        ]
        for report in (a, b)
    ]
    yield f"by {both(e1[0], 1)} points from A, and by {both(e1[1], 1)} from B"


def truncation(a: Report, b: Report) -> Iterator[str]:
    """Truncation beside separate budgets."""
    at = {
        thinking: [report.less(BASE, BASE, thinking, "truncation", "separate").points for report in (a, b)]
        for thinking in (12, 24)
    }
    e1 = [100 * (each.accuracy(seed, 12, "truncation") - each.accuracy(seed, 12)) for each in (a, b) for seed in SEEDS]
    yield (
        f"truncation is ahead by {at[12][0]:.1f} and {at[12][1]:.1f} points on the bases, by {both(e1, 1)} on E1, "
        f"and at 24+20 by {at[24][0]:.1f} and {at[24][1]:.1f} on the bases"
    )

    def used(report: Report, thinking: int) -> tuple[float, str]:
        less = -report.less(BASE, BASE, thinking, "truncation", "separate", "tokens used")
        return less.points, f"{report.row(BASE, thinking, 'truncation')['mean_tokens']:.0f}"

    (first, tokens), (second, more), (third, most) = used(a, 24), used(a, 48), used(b, 48)
    yield f"on A by {first:.1f} points at {tokens} tokens and {second:.1f} at {more}"
    yield f"on B only by {third:.1f} at {most}"
    ahead = b.less(BASE, BASE, 12, "truncation", "separate", "tokens used")
    yield f"at {used(b, 12)[1]} tokens truncation is ahead on B by {ahead}"


def random_budgets(report: Report) -> Iterator[str]:
    """Random budgets beside E1's two seeds, in points of area; the interval of an area is not in the results."""
    models = dict.fromkeys(row["model"] for row in report.rows)
    area = {model: 100 * fmean(report.accuracy(model, thinking) for thinking in BUDGETS) for model in models}
    first, second = (area[seed] - area["smollm2-random-seed43"] for seed in SEEDS)
    apart = abs(area[SEEDS[0]] - area[SEEDS[1]])
    losses = [-report.less("smollm2-random-seed43", seed).points for seed in SEEDS]
    yield (
        f"the other {first:.1f} and {second:.1f} points of area below its two seeds, which are {apart:.1f} apart, "
        f"and {losses[0]:.1f} and {losses[1]:.1f} below without a budget"
    )
    blind = {model: 100 * report.accuracy(model, 0, "no_thinking") for model in area}
    yield f"(right on {blind['smollm2-random']:.0f} and {blind['smollm2-random-seed43']:.0f}%)"
    yield f"E1's second seed ({blind[SEEDS[1]]:.0f}%)"
    yield f"goes on thinking in the solution ({blind[SEEDS[0]]:.0f}%; the base {blind[BASE]:.0f}%)"
    yield f"and {report.row('smollm2-random-seed43', 12)['truncated_ratio']:.0%} are cut"
    for model, other in (
        *((model, BASE) for model in area if model != BASE),
        *((model, seed) for model in area if "random" in model for seed in SEEDS),
    ):
        short, minus = (name.removeprefix("smollm2-") for name in (model, other))
        yield f"| {short} | {minus} | {round(area[model] - area[other], 6):+.1f} |"
        less = report.less(model, other)
        yield f"| {less.points:+.1f} | {less.interval('+')} |"
