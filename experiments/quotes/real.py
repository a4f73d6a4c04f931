"""Numbers of docs/real.md, and of the real model in the README."""

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from e1_trl.report.statistics import Values
from experiments.real.make_base import BASE
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


def methods(rows: Rows, base: int, one: str, other: str, budget: str = TIGHT) -> Difference:
    """Points that a method is ahead of another on a base."""
    return less(rows.values(base, BASE, one, budget) - rows.values(base, BASE, other, budget))


def mean(rows: Rows, base: int, system: str, name: str) -> float:
    """Mean over the seeds of a number of the answers without a budget."""
    return fmean(row[name] for row in rows.of(base, system, FREE, None))


def readme(results: Results) -> Iterator[str]:
    """The rows of the README's table."""
    rows = read(results)
    asked = (("separate", TIGHT), (FREE, None))
    tight, free = (" and ".join(f"{over_base(rows, base, *each):+}" for base in BASES) for each in asked)
    tokens = [[mean(rows, base, name, "mean_thinking_tokens") for name in (E1, BASE)] for base in BASES]
    saved = [1 - trained / before for trained, before in tokens]
    yield f"| {tight} | {free}, thinking {100 * saved[0]:.0f} and {saved[1]:.0%} less |"
    yield "; ".join(
        " and ".join(f"{methods(rows, base, 'separate', other):+}" for base in BASES) for other in ("truncation", "s1")
    )


def page(results: Results) -> Iterator[str]:
    """Quotes of docs/real.md: the split, the steps of the bases' second stage, and what came out."""
    yield from split(results)
    yield from steps(results)
    rows = read(results)
    first, second = (over_base(rows, base, "separate", TIGHT) for base in BASES)
    yield f"{-first.points:.1f} points less often than base 1 ({first.interval('+')}) and {second.points:.1f} more"
    yield f"often than base 2 ({second.interval('+')})"
    loss, none = (over_base(rows, base, "separate", BUDGETS[-1]) for base in BASES)
    gained = "gains nothing" if none.low < 0 < none.high else "does not stay as it was"
    yield f"at more it loses {-loss.points:.0f} points from one base and {gained} from the other"
    still = [row["last_forced"] for base in BASES for row in rows.of(base, E1, FREE, None)]
    yield f"training {100 * min(still):.1f} to {max(still):.1%} were still cut"
    begun, ended = (mean(rows, 1, CUT, f"{end}_reward") for end in ("first", "last"))
    yield f"from base 1 {begun:.1%} are right in the first ten steps and {ended:.1%} in the last"
    true = [mean(rows, 1, system, "equations_right") for system in (BASE, E1)]
    yield f"{true[0]:.0%} of its equations were right before, {true[1]:.0%} after"
    tokens = [mean(rows, 1, system, "mean_thinking_tokens") for system in (BASE, CUT)]
    yield f"thoughts fall from {tokens[0]:.0f} to {tokens[1]:.0f} tokens"
    cut, own = (
        [rows.values(base, *asked, TIGHT) for base in BASES] for asked in ((CUT, "truncation"), (E1, "separate"))
    )
    shares = [100 * values.mean() for values in (*cut, *own)]
    yield "right on {:.1f} and {:.1f}%, where E1 with its forced close has {:.1f} and {:.1f}%".format(*shares)
    first, second = (less(*pair) for pair in zip(cut, own, strict=True))
    yield f"{first.points:.1f} points more from base 1 ({first.interval('+')}), {second.points:.1f} from base 2"
    yield f"from base 2 ({second.interval()})"
    yield " and ".join(f"{-over_base(rows, base, FREE, None, system=CUT)}" for base in BASES)
    first, second = sorted(row["truncated_ratio"] for row in rows.rows if row["method"] == FREE)[-2:]
    yield f"no longer stop in {first:.1%} and {second:.1%} of their answers"
    ahead = methods(rows, 1, "separate", "truncation")
    yield f"by {ahead.points:.1f} points at {TIGHT} ({ahead.interval()})"
    tightest = [methods(rows, base, "s1", "separate", BUDGETS[0]).points for base in BASES]
    yield f"at {BUDGETS[0]}, by {tightest[0]:.1f} and {tightest[1]:.1f} points"
    yield f"it is {methods(rows, 1, 'separate', 's1', BUDGETS[-1]).points:.1f} behind"


def split(results: Results) -> Iterator[str]:
    """The problems held out."""
    found = results["real"]["split"]
    yield f"{found['test']} are held out for the test and {found['validation']} for choices"
    yield f"and {found['train']:,} are trained on"
    yield f"at most eight problems of each, {max(found['stories']) + 1} in the test"
    yield f"as close as {found['bound']} to a problem held out"
    left = found["left_out"]
    yield f"{left['mawps and svamp']} problems of MAWPS and SVAMP, and {left['gsm8k']} of GSM8K"


def steps(results: Results) -> Iterator[str]:
    """The bases' second stage."""
    found = [results["real_grpo"][base] for base in ("base 1", "base 2")]
    ends = [f"{fmean(row['right'] for row in own[-10:]):.1%}" for own in found]
    begun = fmean(row["right"] for row in found[0][:10])
    lengths = [[own[place]["thinking_tokens"] for place in (0, -1)] for own in found]
    yield f"Base 1 had {found[0][-1]['step']} steps of 512 answers, base 2 had {found[1][-1]['step']}"
    yield f"problems rose from {begun:.1%} in the first ten to {ends[0]} in the last ten (base 2: to {ends[1]})"
    yield f"thoughts fell from {lengths[0][0]} to {lengths[0][1]} tokens ({lengths[1][0]} to {lengths[1][1]})"
