"""Numbers of docs/real.md."""

from collections.abc import Iterator

from experiments.results import Results


def quotes(results: Results) -> Iterator[str]:
    """Quotes of docs/real.md: the split, and the first steps of a base's second stage."""
    split = results["real"]["split"]
    left = split["left_out"]
    yield f"{split['test']} are held out for the test and {split['validation']} for choices"
    yield f"and {split['train']:,} are trained on"
    yield f"at most eight problems of each, {max(split['stories']) + 1} in the test"
    yield f"as close as {split['bound']} to a problem held out"
    steps = results["real_grpo"][:15]  # of the first base
    first, tenth, last = (steps[place]["right"] for place in (0, 9, -1))
    yield f"{first:.1%} were right in the first step, {tenth:.1%} in the tenth and {last:.1%} in the fifteenth"
    yield f"thoughts shortened from {steps[0]['thinking_tokens']} to {steps[-1]['thinking_tokens']} tokens"
    yield f"{left['mawps and svamp']} problems of MAWPS and SVAMP, and {left['gsm8k']} of GSM8K"
