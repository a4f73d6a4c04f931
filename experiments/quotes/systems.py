"""Numbers in the prose of docs/systems.md about forks, their mean, and random budgets; its tables have a test."""

import math
from collections.abc import Iterator
from statistics import fmean

import numpy as np

from experiments.results import Results
from experiments.systems.compare import compare_pairs, over_seeds
from experiments.systems.measure import BANNED, Row
from experiments.systems.miniatures import BEST_OF, CONCISE, FIRST_ZERO, MINIATURES
from experiments.systems.tables import at_best_rate, by_system, mean, plain

QUARTER = "0.25"
LARGE, SHORT = FIRST_ZERO.name, "first_zero_short"
RANDOM = "e1_random_rows"


def systems(rows: list[Row], miniature: str) -> dict[str, list[Row]]:
    """Return the rows of each system of a miniature, at the rate at which it is ranked."""
    own = at_best_rate([row for row in rows if row["miniature"] == miniature])
    return {plain(each[0]["system"]): each for each in by_system(own)}


def after_a_quarter(rows: list[Row]) -> str:
    """Return the mean accuracy after a quarter of the tokens, over the seeds."""
    return f"{fmean(row['area_at'][QUARTER] for row in rows):.1%}"


def p_of(found: dict[str, list[Row]], one: str, other: str, seeds: int | None = None) -> float:
    """Return the p of the difference of two systems over all seeds, or the first ones; NaN if either has one only."""
    means = [np.array([row["mean_accuracy"] for row in found[name][:seeds]]) for name in (one, other)]
    return over_seeds(*means).p if min(map(len, means)) > 1 else math.nan


def p_over_both(found: dict[str, list[Row]], one: str, other: str) -> float:
    """Return the p of the difference of two systems over seeds and problems; NaN if it cannot be tested."""
    test = compare_pairs({name: found[name] for name in (one, other)}).get((one, other))
    return test.p if test else math.nan


def quotes(results: Results) -> Iterator[str]:
    """Quotes of docs/systems.md."""
    rows: list[Row] = list(results["systems"])
    small = systems(rows, SHORT)
    short = {name: after_a_quarter(own) for name, own in small.items() if "base" not in name}
    yield (
        f"forks with the mean have {short['forks_mean']}, AnytimeReasoner {short['anytime']}, MGPO {short['mgpo']}, "
        f"E1 {short['e1']}, forks {short['forks']}, random budgets {short[RANDOM]} and S-GRPO {short['s_grpo']}"
    )
    lead = mean(small["forks_mean"], "mean_accuracy") - mean(small[RANDOM], "mean_accuracy")
    yield f"At the end forks with the mean are {100 * lead:.1f} points ahead of random budgets"
    both, before = p_over_both(small, "forks_mean", RANDOM), p_of(small, "forks_mean", RANDOM, 3)
    yield f"(p {both:.3f} over both, not shown; three seeds of each were added after p was {before:.2f} over seeds)"
    yield from first_table(rows, small)
    found = systems(rows, CONCISE.name)
    yield f"(p {p_over_both(found, 'forks_mean', RANDOM):.3f} over both)"
    yield f"Three seeds of each were added after p was {p_of(found, 'forks_mean', RANDOM, 3):.2f} over seeds"
    level = 0.05 / sum(len(compare_pairs(systems(rows, name))) for name in MINIATURES)
    yield f"the level of {level:.3f} is missed, as on `first_zero` in small steps ({100 * lead:.1f} points)"
    wide = [p_over_both(systems(rows, LARGE), "e1_random", other) for other in ("e1", "e1_72")]
    yield f"is ahead of both 36 and 72, with a p of {wide[0]:.3f} and {wide[1]:.3f} over seeds and problems"
    ends = {name: mean(found[name], "mean_accuracy") for name in found}
    free = {name: mean(found[name], "unconstrained_accuracy") for name in found}
    seeds = [row["mean_accuracy"] for row in found[RANDOM]]
    best = [row["mean_accuracy"] for row in found["forks_mean"]]
    yield f"end {100 * (ends['forks_mean'] - ends[RANDOM]):.1f} points ahead of random budgets (p"
    yield f"the worst of forks has {min(best):.1%}, the best of random budgets {max(seeds):.1%}"
    yield f"After a quarter of the tokens they have {after_a_quarter(found['forks_mean'])}, and random budgets"
    yield f"random budgets {after_a_quarter(found[RANDOM])}"
    low, high = (leads(rows, rate) for rate in ("at 5e-05", ""))
    yield f"by {low[0]:.1f} points after a quarter and {low[1]:.1f} at the end at 5e-5"
    yield f"by {high[0]:.1f} and {high[1]:.1f} at 1e-4"
    kept, kept_of_random = (free[name] / free["base"] for name in ("forks_mean", RANDOM))
    yield f"Without a budget they keep {kept:.1%} of the base's accuracy, random budgets {kept_of_random:.1%}"
    ahead, more = 100 * (ends["forks"] - ends[RANDOM]), 100 * (free["forks"] - free[RANDOM])
    yield f"trained with the sum end {ahead:.1f} points ahead, with {more:.1f} points more without a budget"
    gains = [100 * (ends[name] - ends["base"]) for name in ("gfpo", "kimi", "cosine", "lead", "e1")]
    yield f"gain less**: {min(gains):.1f} to {max(gains[:-1]):.1f} points of mean accuracy, E1 {gains[-1]:.1f}"
    spreads = [
        max(own) - min(own) for own in ([row["mean_accuracy"] for row in found[name]] for name in ("e1", RANDOM))
    ]
    yield f"(E1 {100 * spreads[0]:.1f} points, random budgets {100 * spreads[1]:.1f})"
    short_end, long_end = (f"{ends[name]:.1%}" for name in ("kimi", "cosine"))
    yield f"they end at {short_end} and {long_end}, with {free['kimi']:.1%} and {free['cosine']:.1%} without a budget"
    (fixed,) = small["e1_18"]
    yield f"E1 at 18 tokens has {free['e1_18']:.1%} without one"
    yield f"falls from {fixed['area_at']['0.5']:.1%} after half of the tokens to {fixed['mean_accuracy']:.1%}"
    yield from without_forks(rows, found, small)
    yield from more_to_gain(rows)


def more_to_gain(rows: list[Row]) -> Iterator[str]:
    """Return quotes of what the rows of best_of say."""
    found = systems(rows, BEST_OF.name)
    ends = {name: 100 * mean(own, "mean_accuracy") for name, own in found.items()}
    free = {name: 100 * mean(own, "unconstrained_accuracy") for name, own in found.items()}
    halves = {name: fmean(row["area_at"]["0.5"] for row in found[name]) for name in ("e1", "mgpo", "s_grpo")}
    early = {name: after_a_quarter(own) for name, own in found.items() if "base" not in name}
    spread = 100 * max(max(own) - min(own) for own in map(accuracies, found.values()))
    (widest,) = (name for name, own in found.items() if 100 * (max(accuracies(own)) - min(accuracies(own))) == spread)
    yield f"Seeds lie up to {spread:.1f} points apart (`{widest}`)"
    gain, banned = (ends[name] - ends["base"] for name in ("e1", BANNED))
    yield f"E1 gains {gain:.1f} points**, of which one banned token explains {banned / gain:.0%}"
    yield f"After half of them E1 has {halves['e1']:.1%}, and at the end {ends['e1']:.1f}%"
    more = free[RANDOM] - free["e1"]
    yield f"({ends[RANDOM]:.1f} and {ends['e1']:.1f}%), with {more:.1f} points more"
    for name, words in (
        ("rows_quarter", "without forks, at twice their rate, ends {:.1f} points ahead of them (p {:.2f} over both; a"),
        ("forks_mean", "Forks with the mean, at half their rate, end {:.1f} points ahead (p {:.2f})"),
    ):
        yield words.format(ends[name] - ends[RANDOM], p_over_both(found, name, RANDOM))
    yield f"is at {early['rows_quarter']} after a quarter of the tokens, where random budgets have {early[RANDOM]}"
    yield f"is right on {free['rows_quarter']:.1f}% without a budget, where they have {free[RANDOM]:.1f}%"
    yield f"and are at {early['forks_mean']} after a quarter"
    yield f"E1 loses {free['base'] - free['e1']:.1f} points** ({free['base']:.1f} to {free['e1']:.1f}%)"
    yield f"E1 at 72 tokens is right on {free['e1_72']:.1f}% without a budget"
    yield f"and on {ends['e1_72']:.1f}% over the budgets; at 18 tokens on {free['e1_18']:.1f}% and {ends['e1_18']:.1f}%"
    yield f"({free['anytime']:.1f}%), but has {ends['anytime']:.1f}% over the budgets"
    yield f"is right on {free['lead']:.1f}% without a budget**, the most of all, and on {ends['lead']:.1f}%"
    yield f"the cosine has {free['cosine']:.1f}%, Kimi's {free['kimi']:.1f}% and plain GRPO"
    yield f"with a cut {free['grpo_cut']:.1f}%"
    yield f"from {100 * halves['mgpo']:.1f} to {ends['mgpo']:.1f}% and from {100 * halves['s_grpo']:.1f} to"
    yield f"to {ends['s_grpo']:.1f}% between half and all of the"
    yield f"{early['rows_decay']} after a quarter of the tokens where they have {early[RANDOM]} at 1e-4"
    best, worst = sorted(accuracies(found["rows_decay"]), reverse=True)
    yield f"no better in the end ({ends['rows_decay']:.1f}%): one seed has {best:.1%}, the other {worst:.1%}"
    steps = {name: sorted(row["steps"] for row in found[name]) for name in ("gfpo", "lead", "kimi", "s_grpo", "e1")}
    gfpo, lead, kimi, s_grpo, *_ = (least for least, *_ in steps.values())
    yield f"GFPO made {gfpo}, LEAD {lead}, Kimi's {kimi}, E1 {steps['e1'][0]} to {steps['e1'][-1]} and S-GRPO {s_grpo}"
    yield f"hardly begun after its {gfpo} steps"
    yield from other_rates(rows)


def other_rates(rows: list[Row]) -> Iterator[str]:
    """Return quotes of what best_of's systems have at other rates."""
    ordered = sorted(rows, key=lambda row: row["seed"])
    at = {system: [row for row in ordered if place(row) == (BEST_OF.name, system)] for _, system in map(place, rows)}
    ends = {system: 100 * mean(own, "mean_accuracy") for system, own in at.items() if own}
    fast = {name: at[f"{name} at 0.0002"] for name in ("e1", "e1_18", RANDOM, "forks_mean", "rows_quarter")}
    free = {name: f"{mean(own, 'unconstrained_accuracy'):.1%}" for name, own in fast.items()}
    yield f"as fast at first, {after_a_quarter(fast['e1'])}, and ends at {ends['e1 at 0.0002']:.1f}%"
    yield f"at 5e-5 it has {ends['e1 at 5e-05']:.1f}%"
    random = ends[f"{RANDOM} at 0.0002"]
    yield f"random budgets have {after_a_quarter(fast[RANDOM])} after a quarter of the tokens, end at {random:.1f}%"
    yield f"and are right on {free[RANDOM]} without a budget"
    half = fmean(row["area_at"]["0.5"] for row in fast["forks_mean"])
    end = ends["forks_mean at 0.0002"]
    yield f"Forks with the mean fall there from {half:.1%} after half of the tokens to {end:.1f}%"
    yield f"E1 at 18 tokens ends at {ends['e1_18 at 0.0002']:.1f}%"
    whole = at["forks_mean at 0.0002, averaged"]
    gains = [100 * (one - other) for one, other in zip(*map(accuracies, (whole, fast["forks_mean"])), strict=True)]
    yield f"(`averaged`) is {', '.join(f'{each:.1f}' for each in gains[:-1])} and {gains[-1]:.1f} points better"
    slower = at["forks_mean at 5e-05"]
    without, kept = (100 * mean(each, "unconstrained_accuracy") for each in (whole, slower))
    yield f"ends at {ends['forks_mean at 0.0002, averaged']:.1f}%, with {without:.1f}% without a budget"
    yield f"the last checkpoint at 5e-5 has {ends['forks_mean at 5e-05']:.1f} and {kept:.1f}%"
    slow = [f"{ends[f'{name} at 5e-05']:.1f}" for name in (RANDOM, "rows_quarter", "e1_18")]
    equal = [ends[f"rows_quarter{rate}"] - ends[f"{RANDOM}{rate}"] for rate in (" at 5e-05", "", " at 0.0002")]
    yield f"it is {equal[0]:+.1f}, {equal[1]:+.1f} and {equal[2]:+.1f} points ahead at 5e-5, 1e-4 and 2e-4"
    yield f"At 5e-5 random budgets, the quarter and E1 at 18 tokens end at {slow[0]}, {slow[1]} and {slow[2]}%"


def accuracies(rows: list[Row]) -> list[float]:
    """Return the mean accuracy of each seed."""
    return [row["mean_accuracy"] for row in rows]


def without_forks(rows: list[Row], found: dict[str, list[Row]], small: dict[str, list[Row]]) -> Iterator[str]:
    """Return quotes of the control of forks, random budgets with a quarter of the advantage on the thinking."""
    control = found["rows_quarter"]
    ends = {name: mean(found[name], "mean_accuracy") for name in ("rows_quarter", "forks_mean", RANDOM)}
    yield f"at {ends['rows_quarter']:.1%} over {len(control)} seeds"
    for one, other, words in (
        ("rows_quarter", RANDOM, "points ahead of random budgets"),
        ("forks_mean", "rows_quarter", "behind the mean of forks at 5e-5"),
    ):
        yield f"{100 * (ends[one] - ends[other]):.1f} {words} (p {p_over_both(found, one, other):.2f}, not shown)"
    yield f"of the tokens it has {after_a_quarter(control)}"
    at = {
        f"{name}{rate}": f"{mean(named(rows, f'{name}{rate}'), 'mean_accuracy'):.1%}"
        for name in ("rows_quarter", "forks_mean", RANDOM)
        for rate in ("", " at 5e-05")
    }
    yield f"forks at 1e-4, {at['rows_quarter']} and {at['forks_mean']}, and behind at 5e-5"
    slow, random, forks = (at[f"{name} at 5e-05"] for name in ("rows_quarter", RANDOM, "forks_mean"))
    yield f"where it ends at {slow}, random budgets at {random}, and the mean of forks at {forks}"
    above = [f"{mean(small[name], 'mean_accuracy'):.1%}" for name in ("rows_quarter", "forks_mean")]
    yield f"On `first_zero` in small steps it ends at {above[0]}, the mean of forks at {above[1]}"


def policies(results: Results) -> Iterator[str]:
    """Return quotes of docs/policies.md: what collapses without a budget, and what not thinking earns."""
    found = systems(list(results["systems"]), CONCISE.name)
    kept, lost = (mean(found[name], "unconstrained_accuracy") for name in ("base", "kimi"))
    yield f"on `{CONCISE.name}` Kimi's falls from {100 * kept:.1f} to {lost:.1%}"
    (base,) = (row for row in results["systems"] if place(row) == (BEST_OF.name, "base"))
    with_one, without = base["unconstrained_accuracy"], base["no_thinking_accuracy"]
    yield f"the base is right on {with_one:.0%} with one and on {without:.0%} [without](results/best_of.md)"
    yield f"an empty thought earns {with_one - without - 0.05:.2f} less on average"  # 0.05 for not thinking


def first_table(rows: list[Row], small: dict[str, list[Row]]) -> Iterator[str]:
    """Return quotes of the first table: what is named when stopped, and what fewer tokens do not reach."""
    own = [row for row in rows if row["miniature"] == LARGE]

    def named_open(system: str) -> str:
        return f"{fmean(row['budgets'][2]['open_ratio'] for row in own if row['system'] == system):.1%}"

    yield f"name a group that is still open in {named_open('e1')}, those of plain"
    yield f"GRPO with a cut in {named_open('grpo_cut')} (at 1e-4; {named_open('grpo_cut at 5e-05')} at 5e-5), of"
    yield f"of ThinkPrune in {named_open('thinkprune')} and of L1-Max, not asked, in {named_open('l1_max, not asked')}"
    yield f"base's do in {named_open('base')}. A length reward"
    yield f"down to {named_open('laser_de')} (LASER-DE), and with ScaleRL, whose forced close is far out, it is"
    yield f"whose forced close is far out, it is {named_open('scalerl')}"
    large = systems(rows, LARGE)
    for name, words in (("gfpo", "GFPO"), ("e1_18", "E1 at 18 tokens")):
        less, more = (100 * mean(each[name], "mean_accuracy") for each in (small, large))
        yield f"{words} ({less:.1f} instead of {more:.1f}%)"
    alike = [fmean(row["mean_accuracy"] for row in rows if place(row) == (each, "grpo_cut")) for each in (SHORT, LARGE)]
    yield f"plain GRPO with a cut ({100 * alike[0]:.1f} instead of {alike[1]:.1%} at 1e-4)"
    yield f"E1 at 18 tokens, without forks, has {after_a_quarter(small['e1_18'])} then"
    ends = [mean(large[name], "mean_accuracy") for name in ("overlong", "l1_exact")]
    yield f"are lower, at {100 * ends[0]:.1f} and {ends[1]:.1%}"
    spread = [row["mean_accuracy"] for row in large["e1_18"]]
    yield f"of E1 at 18 tokens {100 * (max(spread) - min(spread)):.1f}"


def place(row: Row) -> tuple[str, str]:
    """Return the miniature and the whole name of a row's system."""
    return row["miniature"], row["system"]


def named(rows: list[Row], system: str) -> list[Row]:
    """Return the rows of a system on best_of_concise, by its whole name."""
    return [row for row in rows if place(row) == (CONCISE.name, system)]


def leads(rows: list[Row], rate: str) -> tuple[float, float]:
    """Return the lead of forks with the mean over random budgets at a rate, in points: after a quarter, at the end."""
    ours, others = (named(rows, f"{name} {rate}".strip()) for name in ("forks_mean", RANDOM))
    quarters = [fmean(row["area_at"][QUARTER] for row in own) for own in (ours, others)]
    ends = [mean(own, "mean_accuracy") for own in (ours, others)]
    return 100 * (quarters[0] - quarters[1]), 100 * (ends[0] - ends[1])
