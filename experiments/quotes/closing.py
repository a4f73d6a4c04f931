"""Numbers of docs/closing.md."""

from collections.abc import Iterator

from experiments.results import Results, Row

GENTLE = ("pause", "nearly", "hint")


def quotes(results: Results) -> Iterator[str]:
    """Quotes of docs/closing.md, from the published results."""
    rows = results["closing"]
    yield f"a close at a pause loses up to {max(losses(rows, 'pause')):.1f} points"
    yield f"where the model nearly would up to {max(losses(rows, 'nearly')):.1f}"
    pause = losses(rows, "pause", "at_tokens")
    yield f"(between {max(pause):.1f} points worse and {-min(pause):.1f} better)"
    messages = [abs(loss) for close in ("message", "s1_no_wait") for loss in losses(rows, close)]
    yield f"(within {max(messages):.1f} points, no interval without 0)"
    yield f"costs up to {max(losses(rows, 'hint') + losses(rows, 'hint', 'at_tokens')):.0f} points"
    ends = [[losses(at(rows, model, 144), close)[0] for close in GENTLE] for model in ("e1", "base")]
    (ours, theirs) = (f"{min(each):.1f} to {max(each):.1f}" for each in ends)
    yield f"(by {ours} points at 144 tokens, the base by {theirs})"
    for close, words in (("nearly", "points where it nearly would close and"), ("hint", "after a hint")):
        trained, base = (losses(at(rows, model, 18), close)[0] for model in ("e1", "base"))
        yield f"by {trained:.1f} {words}"
    yield f"(the base by none and {base:.1f})"
    escapes = [row["escape_ratio"] for row in rows if row["close"] != "hint"]
    yield f"is below {max(escapes) + 0.0005:.1%}"


def at(rows: list[Row], model: str, thinking: int) -> list[Row]:
    """Rows of a model of `first_zero` at a thinking budget."""
    wanted = ("first_zero", model, thinking)
    return [row for row in rows if (row["experiment"], row["model"], row["thinking_budget"]) == wanted]


def losses(rows: list[Row], close: str, alike: str = "difference") -> list[float]:
    """Points that a close loses to the hard one at the same budget, or by `at_tokens` at as many tokens."""
    return [-100 * row[alike][0] for row in rows if row["close"] == close and row[alike] is not None]
