"""Numbers in the prose of docs/systems.md about forks, their mean, and random budgets; its tables have a test."""

import math
from collections.abc import Iterator
from statistics import fmean

import numpy as np

from experiments.results import Results
from experiments.systems.compare import over_seeds
from experiments.systems.tables import Row, at_best_rate, by_system, mean, plain

QUARTER = "0.25"
RANDOM = "e1_random_rows"


def systems(rows: list[Row], miniature: str) -> dict[str, list[Row]]:
    """Return the rows of each system of a miniature, at the rate at which it is ranked."""
    own = at_best_rate([row for row in rows if row["miniature"] == miniature])
    return {plain(each[0]["system"]): each for each in by_system(own)}


def after_a_quarter(rows: list[Row]) -> str:
    """Return the mean accuracy after a quarter of the tokens, over the seeds."""
    return f"{fmean(row['area_at'][QUARTER] for row in rows):.1%}"


def p_over_seeds(found: dict[str, list[Row]]) -> float:
    """Return the p of forks with the mean against random budgets, over seeds; NaN if either has one only."""
    means = [np.array([row["mean_accuracy"] for row in found[name]]) for name in ("forks_mean", RANDOM)]
    return over_seeds(*means).p if min(map(len, means)) > 1 else math.nan


def quotes(results: Results) -> Iterator[str]:
    """Quotes of docs/systems.md."""
    rows: list[Row] = list(results["systems"])
    small = systems(rows, "first_zero_short")
    short = {name: after_a_quarter(own) for name, own in small.items() if "base" not in name}
    yield (
        f"forks with the mean have {short['forks_mean']}, AnytimeReasoner {short['anytime']}, MGPO {short['mgpo']}, "
        f"E1 {short['e1']}, forks {short['forks']}, random budgets {short[RANDOM]} and S-GRPO {short['s_grpo']}"
    )
    lead = mean(small["forks_mean"], "mean_accuracy") - mean(small[RANDOM], "mean_accuracy")
    yield f"At the end forks with the mean are {100 * lead:.1f} points ahead of random budgets"
    found = systems(rows, "best_of")
    here, above = (p_over_seeds(each) for each in (found, small))
    yield f"Over seeds p is {here:.2f}, and {above:.2f} on the miniature above"
    ends = {name: mean(found[name], "mean_accuracy") for name in found}
    free = {name: mean(found[name], "unconstrained_accuracy") for name in found}
    seeds = [row["mean_accuracy"] for row in found[RANDOM]]
    yield (
        f"Forks at 5e-5 end {100 * (ends['forks'] - ends[RANDOM]):.1f} points ahead of random budgets per rollout, "
        f"with {100 * (free['forks'] - free[RANDOM]):.1f} points more without a budget"
    )
    yield f"trained with the mean of their advantages, at 5e-5 too, end {100 * (ends['forks_mean'] - ends[RANDOM]):.1f}"
    best = [row["mean_accuracy"] for row in found["forks_mean"]]
    yield f"their worst seed has {min(best):.1%}, the best of random budgets {max(seeds):.1%}"
    yield f"they have {after_a_quarter(found['forks_mean'])}, and random budgets {after_a_quarter(found[RANDOM])}"
    # At 1e-4, by their seeds.
    high = [row for row in rows if (row["miniature"], row["system"]) == ("best_of", "forks_mean")]
    at_high = mean(high, "unconstrained_accuracy")
    yield f"At 1e-4 it is {after_a_quarter(high)}, and {mean(high, 'mean_accuracy'):.1%} at the end, but {at_high:.0%}"
    first = found[RANDOM][0]["mean_accuracy"]
    control = found["rows_quarter"][0]["mean_accuracy"]
    yield f"it ends {100 * (control - first):.1f} points above random budgets"
    yield f"mean of forks is another {100 * (high[0]['mean_accuracy'] - control):.1f} points above it"
    mean_of_forks, rows_quarter = (after_a_quarter([own[0]]) for own in (high, found["rows_quarter"]))
    yield f"it has {mean_of_forks}, where `rows_quarter` has {rows_quarter}"
    yield f"right on only {high[1]['unconstrained_accuracy']:.0%} without a budget"
