"""Numbers of docs/real.md."""

from collections.abc import Iterator
from statistics import fmean

from experiments.results import Results


def quotes(results: Results) -> Iterator[str]:
    """Quotes of docs/real.md: the split, and the steps of the bases' second stage."""
    split = results["real"]["split"]
    left = split["left_out"]
    yield f"{split['test']} are held out for the test and {split['validation']} for choices"
    yield f"and {split['train']:,} are trained on"
    yield f"at most eight problems of each, {max(split['stories']) + 1} in the test"
    yield f"as close as {split['bound']} to a problem held out"
    steps = [results["real_grpo"][base] for base in ("base 1", "base 2")]
    ends = [f"{fmean(row['right'] for row in own[-10:]):.1%}" for own in steps]
    begun = fmean(row["right"] for row in steps[0][:10])
    lengths = [[own[place]["thinking_tokens"] for place in (0, -1)] for own in steps]
    yield f"Base 1 had {steps[0][-1]['step']} steps of 512 answers, base 2 had {steps[1][-1]['step']}"
    yield f"problems rose from {begun:.1%} in the first ten to {ends[0]} in the last ten (base 2: to {ends[1]})"
    yield f"thoughts fell from {lengths[0][0]} to {lengths[0][1]} tokens ({lengths[1][0]} to {lengths[1][1]})"
    slow = results["real_grpo"]["base 2, at a third of the rate"]
    at_both = [own[len(slow) - 1]["thinking_tokens"] for own in (slow, steps[1])]
    yield f"rate thoughts stayed at {at_both[0]} tokens, where the full rate had {at_both[1]}"
    yield f"{left['mawps and svamp']} problems of MAWPS and SVAMP, and {left['gsm8k']} of GSM8K"
