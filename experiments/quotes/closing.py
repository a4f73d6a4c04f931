"""Numbers of docs/closing.md."""

from collections.abc import Iterator

from experiments.results import Difference, Report, Results, Row, only
from experiments.smollm2.bases import BASE, FILES


def quotes(results: Results) -> Iterator[str]:
    """Quotes of docs/closing.md, from the published results."""
    rows = results["closing"]
    yield from miniature([row for row in rows if row["experiment"] == "first_zero"])
    real_rows = [row for row in rows if row["experiment"] == "smollm2"]
    yield from real(real_rows, results[FILES["A"]], results.report(FILES["B"]))


def points(row: Row, alike: str = "difference") -> Difference:
    """Points over the hard close at the same budget, or by `at_tokens` at as many tokens."""
    return Difference(*(100 * value for value in row[alike]))


def losses(rows: list[Row], close: str, alike: str = "difference") -> list[float]:
    """Points that a close loses to the hard one, wherever it was measured."""
    return [-points(row, alike).points for row in rows if row["close"] == close and row[alike] is not None]


def miniature(rows: list[Row]) -> Iterator[str]:
    """The miniature in which the budget binds."""
    yield f"a close at a pause loses up to {max(losses(rows, 'pause')):.1f} points"
    yield f"where the model nearly would up to {max(losses(rows, 'nearly')):.1f}"
    pause = losses(rows, "pause", "at_tokens")
    yield f"(between {max(pause):.1f} points worse and {-min(pause):.1f} better)"
    messages = [abs(loss) for close in ("message", "s1_no_wait") for loss in losses(rows, close)]
    yield f"(within {max(messages):.1f} points, no interval without 0)"
    yield f"costs up to {max(losses(rows, 'hint') + losses(rows, 'hint', 'at_tokens')):.0f} points"
    escapes = [row["escape_ratio"] for row in rows if row["close"] != "hint"]
    yield f"is below {max(escapes) + 0.0005:.1%}"


def real(rows: list[Row], base_a: Row, base_b: Report) -> Iterator[str]:
    """Base B of SmolLM2 and its E1."""
    at = {(row["close"], row["thinking_budget"]): row for row in rows if row["model"] == "base"}
    first, second = (points(at["pause", budget], "at_tokens") for budget in (36, 48))
    yield f"gains {first.points:.1f} points ({first.interval()}) at 36 and {second} at 48"
    yield f"and loses {-points(at['pause', 48])} at 48"
    escape = {key: f"{row['escape_ratio']:.0%}" for key, row in at.items()}
    yield f"({escape['separate', 24]} of the forced at 24, {escape['separate', 48]} at 48)"
    yield f"it does so less ({escape['pause', 48]} at 48)"
    stopping = only(base_a["stopping"], model=BASE)
    shares = dict(zip(stopping["budgets"], stopping["escape_ratio"], strict=True))
    yield f"Base A does so in {shares['24+20']:.0%} and {shares['48+20']:.0%} after a hard close"
    yield f"*Nearly* gains {points(at['nearly', 48], 'at_tokens')} at 48"
    none = points(at["nearly", 36], "at_tokens")
    yield f"no gain is shown ({none.points:.1f}, {none.interval()})"
    yield f"The hint costs up to {max(losses(list(at.values()), 'hint', 'at_tokens')):.1f} at as many tokens"
    words = [-loss for loss in losses(list(at.values()), "s1_no_wait")]
    yield f"{min(words):.1f} to {max(words):.1f} points, with an answer counted without a box"
    boxes = [-base_b.less(BASE, BASE, thinking, "s1, boxes only", "separate").points for thinking in (24, 48)]
    yield f"then loses {boxes[0]:.1f} and {boxes[1]:.1f} points"
    e1 = [row for row in rows if row["model"] == "e1" and row["close"] not in ("separate", "hint")]
    yield f"all but the hint are within {max(abs(points(row).points) for row in e1):.1f} points"
    forced = only(rows, model="e1", close="separate", thinking_budget=24)["forced_ratio"]
    yield f"since it closes {1 - forced:.0%} of its"
