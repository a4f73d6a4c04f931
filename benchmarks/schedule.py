"""The schedule that ours is compared with: one that knows every length beforehand. Simulated; knows no engine."""

from collections.abc import Iterable


def clairvoyant_steps(lengths: Iterable[int], slots: int) -> int:
    """Steps until sequences of these lengths are sampled, if the `slots` that have the most left advance in each.

    A step samples one token of each sequence that runs, and a sequence may give up its slot after any of them, at no
    cost. No schedule takes fewer steps.

    Args:
        lengths: tokens of each sequence.
        slots: sequences that run at a time.
    """
    left, steps = list(lengths), 0
    while left := [tokens for tokens in left if tokens]:
        left.sort(reverse=True)
        left = [tokens - 1 for tokens in left[:slots]] + left[slots:]
        steps += 1
    return steps
