"""Numbers of the README."""

from collections.abc import Iterator
from statistics import fmean

from experiments.quotes.speed import step
from experiments.results import Report, Results


def quotes(results: Results) -> Iterator[str]:
    nano = results.report("nano")
    yield (
        f"at 64 tokens the base is right on {nano.accuracy('base', 64):.0%}, "
        f"the trained model on {nano.accuracy('e1', 64):.1%}"
    )
    yield row(nano, "base", "e1", 64)
    yield row(results.report("nano_code"), "base", "e1", 64)
    yield row(results.report("smollm2"), "smollm2-base", "smollm2-e1", 24)
    lognormal, equal = (
        step(results, lengths)["step_ratio"].split()[0] for lengths in ("train_step_lognormal", "train_step")
    )
    yield f"a step takes [{lognormal} to {equal}]"
    cut, e1 = (
        fmean(row["unconstrained_accuracy"] for row in results["systems"] if row["system"] == name)
        for name in ("grpo_cut", "e1")
    )
    yield f"plain GRPO with a cut is right on {cut:.1%} without a budget, E1 on {e1:.1%}"
    sweep = results["sweep"]
    yield f"Six budgets cost {sweep['shared_tokens'] / sweep['separate_tokens']:.2f} of the tokens"


def row(report: Report, base: str, trained: str, thinking: int) -> str:
    """The cells of the first table: at the training budget, and without one."""
    at_budget = f"{report.accuracy(base, thinking):.1%} → {report.accuracy(trained, thinking):.1%}"
    without = f"{report.accuracy(base):.1%} → {report.accuracy(trained):.1%}"
    fewer = 1 - report.row(trained)["mean_tokens"] / report.row(base)["mean_tokens"]
    return f"{at_budget} | {without}, with {fewer:.0%} fewer tokens"
