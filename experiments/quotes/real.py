"""Numbers of docs/real.md."""

from collections.abc import Iterator

from experiments.results import Results


def quotes(results: Results) -> Iterator[str]:
    """Quotes of docs/real.md: the split."""
    split = results["real"]["split"]
    left = split["left_out"]
    yield f"{split['test']} are held out for the test and {split['validation']} for choices"
    yield f"and {split['train']:,} are trained on"
    yield f"at most eight problems of each, {max(split['stories']) + 1} in the test"
    yield f"as close as {split['bound']} to a problem held out"
    yield f"{left['mawps and svamp']} problems of MAWPS and SVAMP, and {left['gsm8k']} of GSM8K"
