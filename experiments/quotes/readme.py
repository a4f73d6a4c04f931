"""Numbers of the README."""

from collections.abc import Iterator

from experiments.quotes import real
from experiments.quotes.speed import step
from experiments.quotes.systems import RANDOM, systems
from experiments.results import Report, Results
from experiments.systems.measure import BANNED
from experiments.systems.miniatures import BEST_OF
from experiments.systems.tables import mean


def quotes(results: Results) -> Iterator[str]:
    nano = results.report("nano")
    yield (
        f"at 64 tokens the base is right on {nano.accuracy('base', 64):.0%}, with `Wait` banned on "
        f"{nano.accuracy('base, Wait banned', 64):.1%}, the trained model on {nano.accuracy('e1', 64):.1%}"
    )
    yield row(nano, "base", "e1", 64)
    yield row(nano, "base", "base, Wait banned", 64)
    programs = results.report("nano_code")
    yield row(programs, "base", "e1", 64)
    yield row(programs, "base", "base, Wait banned", 64)
    yield from real.readme(results)
    methods = results.report("methods")
    separate, truncated = (methods.accuracy("e1", 32, method) for method in ("separate", "truncation"))
    yield f"(E1: {100 * truncated:.1f} against {separate:.1%} at 32+32)"
    *miniatures, lognormal = (
        step(results, f"train_step{lengths}")["step_ratio"].split()[0]
        for lengths in ("", "_own", "_trained", "_lognormal")
    )
    taken = f"takes {min(miniatures)} to {max(miniatures)} of TRL's time on miniatures"
    yield f"{taken} (some rounds: above 1), {lognormal} with"
    yield policies(results)
    sweep = results["sweep"]
    yield f"Six budgets at once take {sweep['shared_tokens'] / sweep['separate_tokens']:.0%} of the tokens"


def policies(results: Results) -> str:
    """Gains of mean accuracy over the budgets on best_of, in points, over all seeds."""
    found = systems(list(results["systems"]), BEST_OF.name)
    base = mean(found["base"], "mean_accuracy")
    gains = {name: 100 * (mean(rows, "mean_accuracy") - base) for name, rows in found.items()}
    return (
        f"E1 gains {gains['e1']:.1f} points of mean accuracy over six budgets (a banned token {gains[BANNED]:.1f}), "
        f"random budgets {gains[RANDOM]:.1f}, two variants {gains['rows_quarter']:.1f} and {gains['forks_mean']:.1f}"
    )


def row(report: Report, base: str, trained: str, thinking: int) -> str:
    """The cells of the first table: at the training budget, and without one."""
    at_budget = f"{report.accuracy(base, thinking):.1%} → {report.accuracy(trained, thinking):.1%}"
    without = f"{report.accuracy(base):.1%} → {report.accuracy(trained):.1%}"
    fewer = 1 - report.row(trained)["mean_tokens"] / report.row(base)["mean_tokens"]
    return f"{at_budget} | {without}, with {fewer:.0%} fewer tokens"
