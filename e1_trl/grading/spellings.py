"""How answers are spelled: what math-verify would read wrongly or not at all, written so that it can.

Knows nothing about what is equal, nor about what was computed. Runs where it can be killed.
"""

import re
import unicodedata

E_NOTATION = re.compile(r"(?<=[0-9])[eE]([-+]?[0-9]+)(?![0-9.])")  # math-verify takes the e for Euler's number
FULLWIDTH = str.maketrans("０１２３４５６７８９．－＋％–−∞", "0123456789.-+%--∞")
VULGAR_FRACTION = re.compile("[¼-¾⅐-⅞]")
# In this order.
SPELLINGS = [
    (re.compile(pattern), written)
    for pattern, written in (
        (r"(?<!\\)\\[\[\]()]", " "),  # a box is in mathematics already: `\[ 98 \]`
        (r"\\begin\s*\{array\}\s*(?:\[[a-z]\]\s*)?\{[^{}]*\}", r"\\begin{matrix}"),
        (r"\\end\s*\{array\}", r"\\end{matrix}"),
        (r"\^?\s*\{?\s*(?:°|\\degree(?![a-zA-Z]))\s*\}?", r"^{\\circ}"),
        (r"(?<=[0-9])(?:\\[,!;: ]|[\u2009\u202f])(?=[0-9]{3}(?![0-9]))", ""),  # between thousands
        (r"\\(?:bf|rm|it|displaystyle)(?![a-zA-Z])|\\(?:text)?color\s*\{[a-z]+\}", " "),
        (r"\\text\s*\{\s*((?:\\?\$)?\s*[0-9][0-9.,]*)\s*((?:\\?%)?[^{}0-9+*/^\\=-]*)\}", r"\1 \\text{ \2}"),
        (r"\\text\s*\{\s*\\?\$\s*\}", ""),
        (r"\\text\s*\{\s*\}", r" \\quad "),  # `2\text{ }3` is no 23
        (r"^\s*\\text\s*\{\s*(?:[Tt]he )?(?:[Ff]inal )?[Aa]nswer(?: is)?:?\s*\}(?=\s*\S)", ""),
        (r"^\s*(?:\\approx(?![a-zA-Z])|≈)", ""),
        (r"(?<![0-9./}])([0-9]+)\s+([0-9]+)\s*/\s*([0-9]+)(?![0-9.])", r"\1\\frac{\2}{\3}"),
        (r"[.,;]\s*$", ""),
    )
]


def readable(text: str) -> str:
    """What math-verify would read wrongly or not at all, written so that it can."""
    text = VULGAR_FRACTION.sub(_spelled_fraction, text.translate(FULLWIDTH))
    for pattern, written in SPELLINGS:
        text = pattern.sub(written, text)
    return E_NOTATION.sub(r" \\times 10^{\1}", text)


def _spelled_fraction(fraction: re.Match[str]) -> str:
    above, below = unicodedata.normalize("NFKC", fraction[0]).split("⁄")
    return rf"\frac{{{above}}}{{{below}}}"


def words(text: str) -> str | None:
    r"""The words of an answer that is nothing but words and dates, `\text{June 20}`, in one way of writing them."""
    plain = (
        re.sub(r"\\(?:text[a-z]*|mathrm|mbox)\s*\{([^{}\\]*)\}", r"\1", text).replace("$", "").strip(" .").casefold()
    )
    return " ".join(plain.split()) if re.fullmatch(r"[a-z0-9 ,'’-]*[a-z]{2}[a-z0-9 ,'’-]*", plain) else None
