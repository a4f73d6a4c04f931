"""Tables of systems, from their rows: the leaderboard, learning rates, accuracies, lengths and trainings."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, stdev

from e1_trl.recipes import fields_of
from e1_trl.report.markdown import table
from experiments.banned import share_of_gain
from experiments.systems.compare import answers
from experiments.systems.measure import (
    AT_RATE,
    AVERAGED,
    BANNED,
    NOT_ASKED,
    RATED,
    SHARES,
    THINKING,
    Row,
    mean_over_budgets,
)
from experiments.systems.miniatures import Miniature


def by_system(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each system, by their seeds; the largest mean accuracy first."""
    systems: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        systems.setdefault(row["system"], []).append(row)
    return sorted(systems.values(), key=lambda own: -mean(own, "mean_accuracy"))


def mean(rows: Sequence[Row], name: str) -> float:
    """Mean of a number over seeds."""
    return fmean(row[name] for row in rows)


def at_best_rate(rows: Sequence[Row]) -> list[Row]:
    """The rows of each system at the learning rate that is best for it on the validation split.

    Two rates are compared by their means over the seeds that both have; if none, over all of each.
    """
    rates = defaultdict[str, dict[str, dict[int, float]]](lambda: defaultdict(dict))
    for row in rows:
        rates[plain(row["system"])][row["system"]][row["seed"]] = row["validation_mean_accuracy"]
    chosen = set()
    for found in rates.values():
        best, *others = found
        for other in others:
            seeds = found[best].keys() & found[other].keys()
            at, against = (fmean(found[name][seed] for seed in seeds or found[name]) for name in (other, best))
            best = other if at > against else best
        chosen.add(best)
    return [row for row in rows if row["system"] in chosen]


def plain(system: str) -> str:
    """Return a system's name without its learning rate."""
    name, _, rest = system.partition(AT_RATE)
    return name + "".join(each for each in (AVERAGED, NOT_ASKED) if rest.endswith(each))


def over_problems(own: Sequence[Row]) -> str:
    """The 95% interval over problems of a system's mean accuracy, its seeds averaged.

    Where an answer was not kept it is as wide as the intervals of single seeds are on average.
    """
    kept = answers(own)
    if kept is None:
        low, high = mean(own, "mean_accuracy_low"), mean(own, "mean_accuracy_high")
    else:
        _, low, high = mean_over_budgets(kept)
    return f"{low:.1%} to {high:.1%}"


def over_seeds(own: Sequence[Row]) -> str:
    """The smallest and the largest mean accuracy of a system's seeds, and their standard deviation in points."""
    means = [row["mean_accuracy"] for row in own]
    if len(means) == 1:
        return "one"
    return f"{min(means):.1%} to {max(means):.1%}, SD {100 * stdev(means):.2f}, {len(means)} seeds"


def leaderboard(rows: Sequence[Row], miniature: Miniature) -> str:
    """Rank, system, mean accuracy with both intervals, on the way too, and what answers cost without a budget."""
    lines = []
    shares = [str(share) for share in SHARES if any(str(share) in row["area_at"] for row in rows)]
    for rank, own in enumerate(by_system(at_best_rate(rows)), 1):
        lines.append(
            (
                str(rank),
                own[0]["system"],
                f"{mean(own, 'mean_accuracy'):.1%}",
                over_problems(own),
                over_seeds(own),
                *(_at_share(own, share) for share in shares),
                f"{mean(own, 'unconstrained_accuracy'):.1%}",
                f"{mean(own, 'unconstrained_tokens'):.0f}",
                ", ".join(dict.fromkeys(row["commit"] for row in own)),
            )
        )
    on_the_way = (f"after {float(share):.0%} of the tokens" for share in shares)
    means = ("mean accuracy", "95% over problems", "over seeds", *on_the_way)
    header = ("", "system", *means, "no budget", "tokens", "commit")
    recipes = {file.stem for file in miniature.systems}
    finished = len(recipes & {plain(row["system"]) for row in rows})
    return f"{table(header, lines)}\n{finished} of {len(recipes)} recipes have their row.\n"


def _at_share(own: Sequence[Row], share: str) -> str:
    areas = [row["area_at"][share] for row in own if share in row["area_at"]]
    return f"{fmean(areas):.1%}" if areas else ""


def learning_rates(rows: Sequence[Row], miniature: Miniature) -> str:
    """Systems at each learning rate that they were trained at: what chooses a rate, and what is left without a budget.

    E1 and plain GRPO on every miniature, and others that were trained at more than one.
    """
    lines, usual, said = [], fields_of(miniature.recipe)["learning_rate"], []
    tried = {plain(row["system"]) for row in rows if AT_RATE in row["system"]}
    for name in (*RATED, *sorted(tried - {*RATED})):
        systems = by_system([row for row in rows if plain(row["system"]) == name])
        names = [own[0]["system"].removesuffix(NOT_ASKED).removesuffix(AVERAGED) for own in systems]
        rates = {float(name.partition(AT_RATE)[2] or usual): own for name, own in zip(names, systems, strict=True)}
        lines += [
            (
                name,
                f"{rate:g}",
                str(len(own)),
                f"{mean(own, 'validation_mean_accuracy'):.1%}",
                f"{mean(own, 'mean_accuracy'):.1%}",
                f"{mean(own, 'unconstrained_accuracy'):.1%}",
                f"{mean(own, 'unconstrained_tokens'):.0f}",
            )
            for rate, own in sorted(rates.items())
        ]
        ends = [f"{mean(own, 'unconstrained_accuracy'):.1%} at {rate:g}" for rate, own in sorted(rates.items())]
        said += [f"{name} is right on {', '.join(ends)}"] if ends else []
    header = ("system", "learning rate", "seeds", "validation", "test", "no budget", "tokens")
    return f"{table(header, lines)}\nWithout a budget {'; '.join(said)}.\n"


def cheapest(rows: Sequence[Row]) -> str:
    """Share of E1's gain that the untrained base reaches with one token banned, and the rest of the gain."""
    systems = {plain(own[0]["system"]): own for own in by_system(at_best_rate(rows))}
    if not all(name in systems for name in ("base", BANNED, "e1")):
        return ""
    budget = 36
    base, banned, e1 = (mean(systems[name], "mean_accuracy") for name in ("base", BANNED, "e1"))
    tokens = mean(systems[BANNED], "unconstrained_tokens")
    free = mean(systems[BANNED], "unconstrained_accuracy")
    at = THINKING.index(budget)
    guesses = [f"{known(systems[name], at, 'open_ratio') or 0:.1%}" for name in (BANNED, "e1")]
    likeliest = [known(systems[name], at, "likeliest_ratio") for name in (BANNED, "e1")]
    best = "" if None in likeliest else f" The likeliest is named in {likeliest[0]:.1%} and {likeliest[1]:.1%}."
    return (
        f"{share_of_gain('of mean accuracy', base, banned, e1)} Without a budget it is right on {free:.1%}, after "
        f"{tokens:.0f} tokens. Stopped at {budget} tokens, the base without `Wait` names an answer that can still be "
        f"right in {guesses[0]} of its forced answers, E1 in {guesses[1]}.{best}\n"
    )


def accuracies(rows: Sequence[Row]) -> str:
    """Accuracy at each budget, with a forced close and cut at the same total."""
    header = ("system", "none", *(f"{budget}" for budget in THINKING), *(f"{budget}, cut" for budget in THINKING))
    lines = []
    for own in by_system(rows):
        forced = [fmean(row["budgets"][at]["accuracy"] for row in own) for at in range(len(THINKING))]
        cut = [fmean(row["budgets"][at]["accuracy_cut"] for row in own) for at in range(len(THINKING))]
        shares = [mean(own, "no_thinking_accuracy"), *forced, *cut]
        lines.append((own[0]["system"], *(f"{share:.1%}" for share in shares)))
    return table(header, lines)


def lengths(rows: Sequence[Row], at: int) -> str:
    """Tokens used at one budget, by right and wrong answers, and behaviour after a forced close."""
    names = ("names what is open", "names the likeliest", "goes on thinking")
    header = ("system", "thinking", "solution", "right", "wrong", "forced", *names)
    lines = []
    for own in by_system(rows):
        tokens = [
            known(own, at, name)
            for name in ("mean_thinking_tokens", "mean_solution_tokens", "tokens_right", "tokens_wrong")
        ]
        shares = [known(own, at, name) for name in ("forced_ratio", "open_ratio", "likeliest_ratio", "escape_ratio")]
        cells = [*("" if each is None else f"{each:.1f}" for each in tokens)]
        lines.append((own[0]["system"], *cells, *("" if each is None else f"{each:.1%}" for each in shares)))
    return table(header, lines)


def trainings(rows: Sequence[Row]) -> str:
    """Cost of each training."""
    header = ("system", "seed", "generated tokens", "steps", "seconds", "validation", "commit", "date", "machine")
    ordered = sorted(rows, key=lambda row: (row["system"], row["seed"]))
    return table(
        header,
        (
            (
                row["system"],
                str(row["seed"]),
                f"{row['generated_tokens']:,}",
                str(row["steps"]),
                f"{row['train_seconds']:.0f}",
                f"{row['validation_mean_accuracy']:.1%}",
                row["commit"],
                row["date"],
                row["machine"],
            )
            for row in ordered
        ),
    )


def trial(rows: Sequence[Row]) -> str:
    """Mean accuracy over the budgets, and without one, of each estimator in the trial of expected answers."""
    runs: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        runs.setdefault((row["miniature"], row["estimator"], row["learning_rate"]), []).append(row)
    header = ("miniature", "estimator", "learning rate", "tokens", "mean accuracy", "no budget", "commit")
    lines = []
    for (miniature, estimator, rate), own in sorted(runs.items(), key=lambda run: (run[0][0], run[0][2])):
        tokens, area, free = (
            " / ".join(format(row[name], spec) for row in own)
            for name, spec in (("tokens", ",d"), ("mean_accuracy", ".1%"), ("unconstrained", ".1%"))
        )
        lines.append((miniature, estimator, f"{rate:g}", tokens, area, free, own[0]["commit"]))
    return table(header, lines)


def noise(rows: Sequence[Row]) -> str:
    """Noise of each estimator's gradient on each miniature."""
    header = ("miniature", "estimator", "tokens of a problem", "noise", "commit")
    lines = []
    for row in rows:
        tokens, found = row["tokens_a_problem"], row["noise_per_1000_tokens"]
        lines.append((row["miniature"], row["estimator"], f"{tokens:.0f}", f"{found:.1f}", row["commit"]))
    return table(header, lines)


def known(rows: Sequence[Row], at: int, name: str) -> float | None:
    """The mean of a number at a budget over the seeds that have it."""
    values = [row["budgets"][at][name] for row in rows if row["budgets"][at].get(name) is not None]
    return fmean(values) if values else None
