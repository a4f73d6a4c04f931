"""Problems that are left out: those that are evaluated on, and those that a file names."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from e1_trl.errors import UserError
from e1_trl.problems.prompts import normalised

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

SHORTEST = 40  # characters, normalised, of a text that is also found inside a longer one


def decontaminate(problems: "Dataset", others: "Dataset", name: str) -> "Dataset":
    """Return the problems that hold no text of `others`, whatever the case, spacing, punctuation and LaTeX style.

    A template may surround a text; one of fewer than `SHORTEST` characters must be the whole problem. A warning counts
    the dropped problems, and names the others. Rephrased ones are not found.

    Raises:
        UserError: none is left.
    """
    known = {normalised(problem) for problem in others["problem"]}
    beginnings: dict[str, list[str]] = {}
    for text in known:
        beginnings.setdefault(text[:SHORTEST], []).append(text)

    def overlaps(text: str) -> bool:
        starts = range(len(text) - SHORTEST + 1)
        found = (start for start in starts if text[start : start + SHORTEST] in beginnings)
        return text in known or any(
            text.startswith(each, start) for start in found for each in beginnings[text[start : start + SHORTEST]]
        )

    overlap = [overlaps(normalised(problem)) for problem in problems["problem"]]
    remedy = "; train or evaluate on another dataset"
    return _without(problems, overlap, f"occur in {name}", remedy) if any(overlap) else problems


def _without(problems: "Dataset", named: list[bool], why: str, remedy: str = "") -> "Dataset":
    kept = [row for row, is_named in enumerate(named) if not is_named]
    if not kept:
        raise UserError(f"all {len(problems)} problems {why}{remedy}")
    logger.warning("left out %d of %d problems: they %s", len(problems) - len(kept), len(problems), why)
    return problems.select(kept)


def named_in(file: Path) -> frozenset[str]:
    """Read the identities in a file of JSON lines, each with an `id`.

    Raises:
        UserError: there is no such file, or a line is none of those.
    """
    if not file.is_file():
        written = "`e1 validate --config RECIPE` writes that of programs, and --exclude '' does without"
        raise UserError(f"exclude: no file {file}; {written}")
    named = set()
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            named.add(str(json.loads(line)["id"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file}, line {number}: {line[:80]!r} is no JSON with an id") from error
    return frozenset(named)


def exclude(problems: "Dataset", file: Path) -> "Dataset":
    """Return the problems whose `key` a file does not name, with a warning that counts the others, even if none is.

    Raises:
        UserError: as `named_in`; or no problem is left.
    """
    if not (named := named_in(file)):
        return problems
    return _without(problems, [key in named for key in problems["key"]], f"are named in {file}")
