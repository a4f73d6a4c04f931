"""Numbers of docs/nano.md, docs/nano_code.md and docs/ablations.md."""

from collections.abc import Iterator

from experiments.results import Difference, Report, Results, Row

THINKING = (32, 64, 128, 192, None)


def line(row: Row) -> str:
    """The first cells of a row in the table of a report."""
    parts = row["thinking_budget"], row["solution_budget"]
    budget = "unlimited" if parts[0] is None else f"{parts[0]}+{parts[1]}"
    accuracy = f"{row['accuracy']:.1%} | {row['ci_low']:.1%} – {row['ci_high']:.1%}"
    tokens = " | ".join(f"{row[name]:.1f}" for name in ("mean_tokens", "mean_thinking_tokens", "mean_solution_tokens"))
    return f"| {row['model']} | {row['method']} | {budget} | {accuracy} | {tokens} |"


def nano(results: Results) -> Iterator[str]:
    """Quotes of docs/nano.md."""
    report, seeds = results.report("nano"), results.report("ablations", "training_seed")
    for model, thinking in (("base", 64), ("base", None), ("e1", 32), ("e1", 64), ("e1", None)):
        yield line(report.row(model, thinking))
    e1, base = report.row("e1", 32), report.row("base", 32)
    yield f"takes {report.row('e1', 64)['mean_thinking_tokens']:.0f} tokens on average"
    loss = -report.less("e1", "base")
    yield f"({loss.points:.1f} points, {loss.interval()})"
    others = [seeds.row(model, 32)["accuracy_forced"] for model in ("e1", "seed-43", "seed-44")]
    yield f"At 32 tokens {e1['accuracy_forced']:.0%} of its forced answers are right"
    over_seeds = f"{100 * min(others):.0f} to {max(others):.0%} over the seeds"
    yield f"({over_seeds}), and {base['accuracy_forced']:.0%} of the base's"
    banned = report.row("base, Wait banned", 64)
    lengths = {f"{row['mean_thinking_tokens']:.1f}" for row in (banned, report.row("e1", 64))}
    yield f"both think for {' and '.join(sorted(lengths))} tokens on average"
    yield f"It misses {banned['truncated_ratio']:.1%} there"
    problems = e1["problems"]
    yield f"{problems:,} problems that E1 was not trained on"
    yield f"Of the {e1['accuracy_forced'] * e1['forced_ratio'] * problems:.0f} right forced answers"


def nano_code(results: Results) -> Iterator[str]:
    """Quotes of docs/nano_code.md."""
    report = results.report("nano_code")
    for model in ("base", "e1"):
        for thinking in (32, 64, None):
            yield line(report.row(model, thinking))
    yield f"on {report.row('base', 64)['problems']} problems that E1 was not trained on"
    gain, half, twice = (report.less("e1", "base", thinking) for thinking in (64, 32, 128))
    yield f"rises by {gain.points:.1f} points ({gain.interval()}), at half of it by {half.points:.1f}"
    yield f"at twice by {twice.points:.1f} ({twice.interval()})"
    banned = report.less("e1", "base, Wait banned", 64)
    yield f"is {banned.points:.1f} points ({banned.interval()}) behind E1"
    lost = report.less("base, Wait banned", "base")
    yield f"costs it {-lost.points:.1f} points ({-lost.high:.1f} to {-lost.low:.1f})"
    without = report.less("e1", "base")
    fewer = 1 - report.row("e1")["mean_tokens"] / report.row("base")["mean_tokens"]
    yield f"({without.points:.1f}, {without.interval()}), with {fewer:.0%} fewer tokens"


def ablations(results: Results) -> Iterator[str]:
    """Quotes of docs/ablations.md."""
    parts = {name: results.report("ablations", name) for name in results["ablations"]["comparisons"]}
    yield from accuracies(parts)
    budgets, seeds = parts["training_budget"], parts["training_seed"]
    low, high = budgets.accuracy("e1", 32), budgets.accuracy("e1", 64)
    yield f"from {low:.1%} at 32 to {high:.1%} at 64"
    worse = [-budgets.less("budget-128", "e1", thinking).points for thinking in THINKING[1:]]
    yield f"128 is {min(worse):.1f} to {max(worse):.1f} points worse from 64 on"
    slow, own = (budgets.row(model)["mean_thinking_tokens"] for model in ("budget-192", "e1"))
    yield f"192 thinks for {slow:.0f} tokens instead of {own:.0f}"
    yield f"It is {-budgets.less('budget-192', 'e1', 64).points:.0f} points behind at 64"
    short = budgets.row("budget-32")["eos_ratio"]
    yield f"{budgets.less('budget-32', 'e1', 32).points:.0f} points ahead at 32, ruined elsewhere. {short:.0%} of its"
    second, first = (parts["iterative"].less("second-round-128", "e1", thinking) for thinking in (64, 32))
    yield f"{second.points:.1f} points from 64 on ({second.interval()}), {first.points:.1f} at 32 ({first.interval()})"
    yield from mixed(parts["mixed_models"])
    words, trained = (
        parts["forced_text"].less(*pair) for pair in (("base, transition", "base", 64), ("transition", "e1", 32))
    )
    yield f"{-words.points:.0f} points at 64 ({rounded(-words)})"
    yield f"is {trained.points:.0f} points ahead at 32 ({rounded(trained)}), less than seeds differ by"
    at_32, at_64 = (
        [seeds.accuracy(model, thinking) for model in ("e1", "seed-43", "seed-44")] for thinking in (32, 64)
    )
    yield f"show no difference ({100 * min(at_64):.1f} to {max(at_64):.1%})"
    yield f"span {100 * min(at_32):.0f} to {max(at_32):.0%}"
    yield f"and by {100 * (max(at_32) - min(at_32)):.0f} points at 32+32"
    yield from methods(results.report("methods"))


def accuracies(parts: dict[str, Report]) -> Iterator[str]:
    """The table of all models."""
    models = {(row["model"], row["method"]): report for report in parts.values() for row in report.rows}
    for (model, method), report in models.items():
        if method != "unconstrained":
            last = THINKING if method == "separate" else THINKING[:-1]
            cells = " | ".join(f"{report.accuracy(model, thinking, method):.1%}" for thinking in last)
            yield f"| {model} | {cells} |"


def rounded(difference: Difference) -> str:
    """An interval in whole points."""
    return f"{difference.low:.0f} to {difference.high:.0f}"


def mixed(report: Report) -> Iterator[str]:
    """Thinking by one model, solution by the other."""
    gain = report.less("e1 → base", "base", 64, "mixed", "separate")
    behind = -report.less("e1 → base", "e1", 64, "mixed", "separate")
    yield (
        f"is {gain.points:.0f} points better with E1's thinking than with its own, "
        f"and {behind.points:.0f} ({rounded(behind)}) behind E1"
    )
    at = {thinking: report.less("base → e1", "base", thinking, "mixed", "separate") for thinking in (32, 128, 192)}
    yield (
        f"gain {at[32].points:.0f} points at 32 ({rounded(at[32])}), {at[128].points:.0f} at 128 ({rounded(at[128])}) "
        f"and {at[192].points:.0f} at 192 ({rounded(at[192])})"
    )


def methods(report: Report) -> Iterator[str]:
    """The section on methods."""

    def less(model: str, method: str, thinking: int, alike: str = "budget") -> Difference:
        return report.less(model, model, thinking, method, "separate", alike)

    def against(model: str, thinking: int) -> str:
        s1, truncated = (report.accuracy(model, thinking, method) for method in ("s1", "truncation"))
        return f"{100 * s1:.1f} against {truncated:.1%} at {thinking}+32"

    s1, cut = (report.accuracy("base", 32, method) for method in ("s1", "truncation"))
    boxes = report.accuracy("base", 32, "s1, boxes only")
    yield f"base at 32+32 it is above ({100 * s1:.1f} against {cut:.1%}), but not by boxes alone ({boxes:.1%})"
    truncated, separate = report.accuracy("e1", 32, "truncation"), report.accuracy("e1", 32)
    yield f"truncated at 32+32 this E1 is right on {truncated:.1%}"
    first, second = less("base", "truncation", 128), less("base", "truncation", 192)
    yield f"by {first.points:.1f} points at 128+32 ({first.interval()})"
    yield f"and {second.points:.1f} at 192+32 ({second.interval()})"
    yield f"E1 is right on {truncated:.1%}, and on {separate:.1%} with 32 of them reserved"
    first, second = (-less("base", "truncation", thinking, "tokens used") for thinking in (32, 64))
    at = [report.row("base", thinking, "truncation")["mean_tokens"] for thinking in (32, 64, 128)]
    yield f"by {first.points:.1f} at {at[0]:.0f} tokens and by {second.points:.1f} at {at[1]:.0f}"
    yield f"no difference is shown at {at[2]:.0f}"
    ahead = less("e1", "truncation", 32, "tokens used")
    tokens = report.row("e1", 32, "truncation")["mean_tokens"]
    yield f"on E1 truncation is ahead by {ahead.points:.1f} at {tokens:.0f} ({ahead.interval()})"
    for model, words, first, second in (("base", "the base", 128, 192), ("e1", "E1", 32, 64)):
        yield f"on {words} {against(model, first)} and {against(model, second)}"
    without = less("base", "s1_no_wait", 32)
    yield f"by {without.points:.1f} at 32+32 ({without.interval()})"
    used = [less("base", "s1_no_wait", thinking, "tokens used").points for thinking in (64, 128, 192)]
    yield "at equal tokens used by {:.1f}, {:.1f} and {:.1f} from 64 on".format(*used)
    first, *rest = (
        less("base", "s1_no_wait, boxes only", *at).points for at in ((32,), (64, "tokens used"), (128, "tokens used"))
    )
    yield f"by boxes alone by {first:.1f} at 32+32, and at equal tokens by {rest[0]:.1f} and {rest[1]:.1f}"
    behind = [-less(*each).points for each in (("base", "s1", 128), ("e1", "s1", 32), ("e1", "s1", 64))]
    yield "is behind by {:.1f} at 128+32, and on E1 by {:.1f} at 32+32 and {:.1f} at 64+32".format(*behind)
