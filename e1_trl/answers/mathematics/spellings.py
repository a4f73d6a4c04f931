"""How answers are spelled: what math-verify would read wrongly or not at all, written so that it can.

Knows nothing about what is equal, nor about what was computed. Runs where it can be killed.
"""

import re
import unicodedata
from fractions import Fraction

E_NOTATION = re.compile(r"(?<=[0-9])[eE]([-+]?[0-9]+)(?![0-9.])")  # math-verify takes the e for Euler's number
CHARACTERS = str.maketrans("０１２３４５６７８９．－＋％–−", "0123456789.-+%--") | {
    ord("∞"): r"\infty ",
    ord("∪"): r"\cup ",
}
VULGAR_FRACTION = re.compile("[¼-¾⅐-⅞]")
REPEATING = re.compile(r"([0-9]{0,15})\.([0-9]{0,15})\\(?:overline|bar|dot)\s*\{\s*([0-9]{1,15})\s*\}")
# In this order.
SPELLINGS = [
    (re.compile(pattern), written)
    for pattern, written in (
        (r"(?<!\\)~(?!=)", " "),
        (r"[ \t\r\n]+", " "),  # in a row they cost math-verify quadratic time
        (r"(?<!\\)\\[\[\]()]", " "),  # a box is in mathematics already: `\[ 98 \]`
        (r"\\begin\s*\{array\}\s*(?:\[[a-z]\]\s*)?\{[^{}]*\}", r"\\begin{matrix}"),
        (r"\\end\s*\{array\}", r"\\end{matrix}"),
        (r"(?<=[0-9])(?:\\[,!;: ]|[\u2009\u202f])(?=[0-9]{3}(?![0-9]))", ""),  # between thousands
        (r"(?<=[0-9])\\[,;: ]\s*(?=\\?%|\\[dtc]?frac)", ""),
        (r"\\(?:bf|rm|it|displaystyle)(?![a-zA-Z])|\\(?:text)?color\s*\{[a-z]+\}", " "),
        (r"\\(?:boldsymbol|bm|underline)\s*(?=\{\s*[-+.0-9\\])", ""),
        (r"\\(?:mathrm|operatorname)\s*\{\s*([ei])\s*\}", r" \1 "),
        (r"(?<=[0-9])i(?![a-zA-Z])", " i"),  # math-verify takes the i of `4 i`, not of `4i`, for the imaginary unit
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset"),
        (r"\\text\s*\{\s*((?:\\?\$)?\s*[0-9][0-9.,:]*)\s*\}", r" \1 "),
        (r"\\text\s*\{\s*((?:\\?\$)?\s*[0-9][0-9.,]*)\s*((?:\\?%)?[^{}0-9+*/^\\=-]*)\}", r" \1 \\text{ \2}"),
        (r"\^\s*\{\s*(?:°|\\degree(?![a-zA-Z]))\s*\}|(?:\^\s*)?(?:°|\\degree(?![a-zA-Z]))", r"^{\\circ}"),
        (r"\\text\s*\{\s*\\?\$\s*\}", ""),
        (r"\\text\s*\{\s*\}", r" \\quad "),  # `2\text{ }3` is no 23
        (r"^\s*\\text\s*\{\s*(?:[Tt]he )?(?:[Ff]inal )?[Aa]nswer(?: is)?:?\s*\}(?=\s*\S)", ""),
        (r"^\s*(?:\\approx(?![a-zA-Z])|≈)", ""),
        (r"(?<![0-9./}])([0-9]+)\s+([0-9]+)\s*/\s*([0-9]+)(?![0-9.])", r"\1\\frac{\2}{\3}"),
        (r"[.,;]\s*$", ""),
        (r"^(?:[^=]*=)?[\s$]*([0-9]+)\s*:\s*([0-9]+)\s*:\s*([0-9]+)[\s$]*$", r"(\1, \2, \3)"),  # not divided twice
        (
            r"^\s*(?:\\left)?\\\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\\mid|[|:])(.*?)(?:\\right)?\\\}\s*$",
            r"\1",
        ),
    )
]


def readable(text: str) -> str:
    """What math-verify would read wrongly or not at all, written so that it can."""
    text = VULGAR_FRACTION.sub(_spelled_fraction, text.translate(CHARACTERS))
    text = REPEATING.sub(_repeating_fraction, text)
    for pattern, written in SPELLINGS:
        text = pattern.sub(written, text)
    return E_NOTATION.sub(r" \\times 10^{\1}", text)


def _spelled_fraction(fraction: re.Match[str]) -> str:
    above, below = unicodedata.normalize("NFKC", fraction[0]).split("⁄")
    return rf"\frac{{{above}}}{{{below}}}"


def _repeating_fraction(decimal: re.Match[str]) -> str:
    whole, fixed, repeated = decimal.groups()
    above = int(whole + fixed + repeated) - int(f"0{whole}{fixed}")
    value = Fraction(above, 10 ** len(fixed) * (10 ** len(repeated) - 1))
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def words(text: str) -> str | None:
    r"""The words of an answer that is nothing but words and dates, `\text{June 20}`, in one way of writing them."""
    plain = (
        re.sub(r"\\(?:text[a-z]*|mathrm|mbox)\s*\{([^{}\\]*)\}", r"\1", text).replace("$", "").strip(" .").casefold()
    )
    return " ".join(plain.split()) if re.fullmatch(r"(?=.*[a-z]{2})[a-z0-9 ,'’-]*", plain) else None
