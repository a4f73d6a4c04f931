"""Reads an answer: what math-verify makes of it, after what it would misread was written otherwise."""

from typing import TypeAlias

import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse
from math_verify.parser import NormalizationConfig, normalize_latex

from e1_trl.answers.mathematics.spellings import readable, write_both_signs

# Units and words are left in, so that a second number among them is seen.
AS_WRITTEN = NormalizationConfig(units=False, malformed_operators=True, nits=False, boxed="none")

Form: TypeAlias = sympy.Basic | sympy.MatrixBase | str
Forms: TypeAlias = list[Form]  # what math-verify read: the expression if it could, then the text


def as_written(text: str) -> str:
    """The LaTeX of an answer with everything in it that math-verify drops."""
    return normalize_latex(readable(text), AS_WRITTEN)


def read(boxed: str) -> Forms:
    """What math-verify reads in a box."""
    latex = readable(boxed)
    forms = _read(latex)
    if not is_read(forms) and (signed := write_both_signs(latex)) != latex:
        return _read(signed)
    return forms


def is_read(forms: Forms) -> bool:
    """Whether there is more than a text."""
    return any(isinstance(form, (sympy.Basic, sympy.MatrixBase)) for form in forms)


def read_unboxed(text: str) -> Forms:
    """What math-verify reads directly after "Final Answer:"; empty if there is nothing that it can read."""
    paragraph = text.strip().partition("\n\n")[0].replace("**", " ")  # Markdown's bold
    return parse(
        f"Final Answer: {paragraph}",
        [
            LatexExtractionConfig(boxed_match_priority=-1, try_extract_without_anchor=False),
            ExprExtractionConfig(try_extract_without_anchor=False),
        ],
        parsing_timeout=None,
    )


def _read(latex: str) -> Forms:
    # "first_match": when the box can not be read, do not go looking for anything in it that can.
    return parse(
        rf"\boxed{{{latex}}}",
        [LatexExtractionConfig(boxed_match_priority=0)],
        extraction_mode="first_match",
        parsing_timeout=None,
    )
