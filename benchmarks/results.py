"""Shared parts of the benchmarks: runs take turns; their numbers go into a JSON file and a section of a document."""

import argparse
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from tqdm import tqdm

from e1_trl.atomic import write_atomically
from e1_trl.checkout import check_committed
from e1_trl.provenance import Provenance
from e1_trl.report.markdown import around_section, replace_section

Name = TypeVar("Name", bound=str)
Result = TypeVar("Result")


def arguments(description: str, output: str, section: str, **own: Mapping[str, Any]) -> argparse.Namespace:
    """Parse the command line of a benchmark, and add the provenance of what is measured now.

    Args:
        description: of the benchmark.
        output: name of its JSON file.
        section: section of a document that it replaces.
        own: its own options, each as `add_argument` takes it.

    Raises:
        UserError: the document lacks the section, or code has uncommitted changes.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path, default=Path("docs/results") / output, help="JSON file")
    parser.add_argument("--document", type=Path, help=f"Markdown file whose section `{section}` is replaced")
    for name, option in own.items():
        parser.add_argument(f"--{name}", **option)
    # The commit is asked for now: results that are written make the checkout another than the commit's.
    parser.set_defaults(section=section, provenance=Provenance.here([0]))
    parsed = parser.parse_args()
    check_committed(parsed.output)
    if parsed.document is not None:
        check_committed(parsed.document)
        around_section(parsed.document, section)
    return parsed


def in_turns(runs: Mapping[Name, Callable[[int], Result]], rounds: int, what: str) -> dict[Name, list[Result]]:
    """Return the result of each run for each round; the order of the runs is drawn again in every round."""
    given: dict[Name, list[Result]] = {name: [] for name in runs}
    for turn in tqdm(range(rounds), desc=what, unit="round"):
        for name in random.Random(turn).sample(list(runs), len(runs)):
            given[name].append(runs[name](turn))
    return given


def publish(parsed: argparse.Namespace, content: Mapping[str, Any], text: str) -> None:
    """Write the content as JSON, and the text into the section of the document; print the text.

    Raises:
        StoreError, ValueError: they cannot be written, or the document lacks the section.
    """
    record = json.dumps({"provenance": asdict(parsed.provenance), **content}, indent=1) + "\n"
    write_atomically(parsed.output, record)
    print(text)
    if parsed.document is not None:
        replace_section(parsed.document, parsed.section, text)


def publish_rows(parsed: argparse.Namespace, key: str, rows: Sequence[Mapping[str, Any]], text: str) -> None:
    """Publish rows among those of the JSON file, in the place of those with the same keys; each says where it is from.

    Raises:
        StoreError, ValueError: they cannot be written, or the document lacks the section.
    """
    record = json.loads(parsed.output.read_text()) if parsed.output.exists() else {"rows": []}
    kept = [row for row in record["rows"] if row[key] not in {row[key] for row in rows}]
    provenance = asdict(parsed.provenance)
    rows = [*kept, *({**row, "provenance": provenance} for row in rows)]
    publish(parsed, {**record, "rows": rows}, text)


def ratio(ours: Sequence[float], others: Sequence[float]) -> str:
    """Median and range of the ratio between two runs of the same round."""
    return spread([one / other for one, other in zip(ours, others, strict=True)])


def spread(values: Sequence[float]) -> str:
    """The median of some rounds and their range, to two digits after the point."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
