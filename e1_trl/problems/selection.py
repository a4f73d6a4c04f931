"""Problems by their texts: those that are left out, and what a tokenizer loses of one."""

import json
import logging
import re
import reprlib
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from e1_trl.errors import UserError
from e1_trl.problems.prompts import Prompt, last_question

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

SHORTEST = 40  # characters, normalised, of a text that is also found inside a longer one
# Characters and their commands in LaTeX, or their likes.
COMMANDS = {"≤": "le", "≥": "ge", "≠": "ne", "×": "times", "÷": "div", "·": "cdot", "⋅": "cdot", "°": "circ", "π": "pi"}
COMMANDS |= {"∞": "infty", "±": "pm", "…": "dots", "√": "sqrt", "−": "-", "–": "-", "—": "-"}
SYMBOLS = str.maketrans(COMMANDS)
SCRIPTS = {"^": re.compile("[⁰¹²³⁴-⁹]+"), "_": re.compile("[₀-₉]+")}
SHORT = reprlib.Repr()
SHORT.maxstring = 200
# What LaTeX writes in several ways, or for the eye alone. Operators stay: they tell 2 - 3 from 2 + 3.
STYLE = re.compile(
    r"""\\(?:left|right|[bB]ig+[lrm]?|q?quad|displaystyle|limits|mbox|operatorname|emph)(?![a-z])
    | \\(?:text|math)(?:bf|it|rm)?(?![a-z]) | \\!
    | (?<=\\)[dtcl](?=frac|dots)         # \dfrac is \frac, \ldots is \dots
    | (?<=\\[lg]e)q(?:slant)?(?![a-z])   # \leqslant is \le
    | \[/?[bi]\]                         # italics on forums
    | (?<!\d)\.|\.(?!\d)                # a full stop, no decimal point
    | [\^_]\s*\{\s*\} | \^(?=\s*\{?\s*(?:\\circ|circ)) | _{2,} | \\_
    | [\s$&,;:?'"`‘’“”~{}()\[\]\\]
    """,
    re.VERBOSE,
)


def decontaminate(problems: "Dataset", others: "Dataset", name: str) -> "Dataset":
    """Return the problems that hold no text of `others`, whatever the case, spacing, punctuation and LaTeX style.

    A template may surround a text; one of fewer than `SHORTEST` characters must be the whole problem. A warning counts
    the dropped problems, and names the others. Rephrased ones are not found.
    """
    known = {normalised(problem) for problem in others["problem"]}
    parts = [text for text in known if len(text) >= SHORTEST]
    texts = map(normalised, problems["problem"])
    overlap = [text in known or any(part in text for part in parts) for text in texts]
    return _without(problems, overlap, f"occur in {name}") if any(overlap) else problems


def _without(problems: "Dataset", named: list[bool], why: str) -> "Dataset":
    kept = [row for row, is_named in enumerate(named) if not is_named]
    if not kept:
        raise UserError(f"all {len(problems)} problems {why}")
    logger.warning("left out %d of %d problems: they %s", len(problems) - len(kept), len(problems), why)
    return problems.select(kept)


def normalised(text: str) -> str:
    """Remove from a text what two copies of one problem may differ in: case, spacing, punctuation, LaTeX style."""
    plain = text.translate(SYMBOLS).replace("...", "dots")
    for sign, digits in SCRIPTS.items():
        plain = digits.sub(rf"{sign}\g<0>", plain)
    return STYLE.sub("", unicodedata.normalize("NFKC", plain).casefold())


def explain_loss(tokenizer: "PreTrainedTokenizerBase", prompt: Prompt, prompt_ids: Sequence[int]) -> str | None:
    """Explain that a prompt, decoded from its token ids, no longer holds its question; return `None` if it does."""
    question = last_question(prompt)
    read = tokenizer.decode(prompt_ids)
    if normalised(question) in normalised(read):
        return None
    return (
        "the chat template or the tokenizer loses a part of a question: expected "
        f"{SHORT.repr(question)}, found {SHORT.repr(read)}"
    )


def named_in(file: Path) -> frozenset[str]:
    """Read the identities in a file of JSON lines, each with an `id`."""
    if not file.is_file():
        written = "`e1 validate --config RECIPE` writes that of programs, and --exclude '' does without"
        raise UserError(f"exclude: no file {file}; {written}")
    try:
        return frozenset(str(json.loads(line)["id"]) for line in file.read_text().split("\n") if line.strip())
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} must hold lines of JSON, each with an id: {error!r}") from error


def exclude(problems: "Dataset", file: Path) -> "Dataset":
    """Return the problems whose `key` a file does not name, with a warning that counts the others, even if none is."""
    if not (named := named_in(file)):
        return problems
    return _without(problems, [key in named for key in problems["key"]], f"are named in {file}")
