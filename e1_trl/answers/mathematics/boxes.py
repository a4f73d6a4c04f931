r"""Finds the answer in a solution: the content of the last `\boxed{}`."""

import re

BOX_OPENING = re.compile(r"\\(?:boxed|fbox)\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # `\\.` skips `\{` and `\}`, which group nothing
BETWEEN_BOXES = re.compile(r"(?:\s|[$,;{}]|\\[()\[\],;: ]|\\q?quad|\\text|and|or)*")
LONGEST_BETWEEN_BOXES = 70  # characters, as in math-verify


def boxed_answer(text: str) -> str | None:
    r"""Return the content of the last `\boxed{}` or `\fbox{}`, or None if there is none or it never closes.

    Boxes with only commas, "and", "or" and markup between them are one answer, as in math-verify: `\boxed{2}` and
    `\boxed{3}` gives `2, 3`. An empty box is skipped if there is another, since the text only talks about boxes there.
    Takes linear time, so the parent process can call it.
    """
    contents: list[str] = []
    next_start = len(text)
    for opening in reversed(list(BOX_OPENING.finditer(text))):
        end = _closing_brace(text, opening.end(), next_start)
        if end is None:
            break
        between = text[end + 1 : next_start]
        if any(contents) and not (len(between) < LONGEST_BETWEEN_BOXES and BETWEEN_BOXES.fullmatch(between)):
            break
        content = text[opening.end() : end].strip()
        if not contents or contents[-1] != content:
            contents.append(content)
        next_start = opening.start()
    return ", ".join(filter(None, reversed(contents))) if contents else None


def _closing_brace(text: str, start: int, stop: int) -> int | None:
    """Return the position in [start, stop) of the brace that closes the group that is open at `start`."""
    depth = 1
    for brace in BRACE.finditer(text, start, stop):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return brace.start()
    return None
