r"""Extracts the numbers of an answer: tells `18.8` from `10.2 + 8.6`.

For a computer algebra system `\boxed{10.2 + 8.6}` equals 18.8, and a policy that is rewarded for it stops computing. A
list of forbidden operations would have gaps. Instead, this module describes numbers: remove everything else, and let
the caller check whether the rest still equals the answer. For `10.2 + 8.6`, `\sqrt{16}` or `5!` it does not; for
`x = 18.8\text{ cm}` it does.
"""

import enum
import math
import re
from dataclasses import dataclass, field
from typing import Any

# Fractions of longer numbers do not count as numbers: nobody writes them, and parsing them takes time.
TERM = r"(?: [0-9]{1,40} (?: \. [0-9]{1,40} )? | \. [0-9]{1,40} )"
FRACTION = rf"""
    (?: (?: (?P<whole>[0-9]++) \s* )?
        \\frac \s* \{{ \s* (?P<numerator> [-+]? {TERM}) \s* \}} \s* \{{ \s* (?P<denominator> [-+]? {TERM}) \s* \}}
      | (?P<dividend> {TERM}) \s* [/:] \s* (?P<divisor> {TERM}) (?! \.? [0-9] )
    )"""
EXPONENT = r"10 \s* \^ \s* (?: [-+]? [0-9]+ | \{ \s* [-+]? [0-9]+ \s* \} )"
NUMBER = rf"""
    (?: (?: [-+−] | \\pm | \\mp ) \s* )?
    (?: {FRACTION}
      | {EXPONENT}
      | (?: [0-9]+ (?: \. [0-9]+ )? | \. [0-9]+ ) (?: \s* (?: \\times | \\cdot | [×·*] ) \s* {EXPONENT} )?
      | \\infty
    )
    (?: \s* \\? % )?"""
# Environments that only arrange numbers, unlike a vmatrix, whose determinant is computed.
ENVIRONMENT = "(?: [pbB]? matrix | smallmatrix | array | tabular | cases | aligned | gathered )"
TOKEN = re.compile(
    rf"""
    (?P<space> \s+ )
  | (?P<number> {NUMBER} )
  | (?P<comparison> [<>] =? | != | [≤≥≠] | \\(?: leqslant|geqslant|leq?|geq?|lt|gt|neq? ) (?![a-zA-Z]) )
  | (?P<relation> = | \\(?:in|equiv) (?![a-zA-Z]) )
  | (?P<approximation> ≈ | \\(?:approx|simeq|doteq) (?![a-zA-Z]) )
  | (?P<separator> (?: [,;&] | \\\\ | \\cup (?![a-zA-Z]) ) \s* )
  | (?P<script> [\^_] \s* (?: [0-9]+ | \{{ \s* -? [0-9]+ \s* \}} ) )  # of a unit or a name, or the base of a number
  | (?P<opening> \\begin\{{{ENVIRONMENT}\}} | \\?\{{ | [(\[] )
  | (?P<closing> \\end\{{{ENVIRONMENT}\}} | \\?\}} | [)\]] )
  | (?P<other> \\[a-zA-Z]+ | \\. | . )
    """,
    re.VERBOSE | re.DOTALL,
)


# An expression as text: n for a number, o for an operator, x for a letter or a command, else the first character.
SHAPES = {"number": "n", "other": "x", "approximation": "=", "!": "!"}
SHAPES |= dict.fromkeys("+-*/:×÷·⋅•∗", "o")
SHAPES |= {rf"\{name}": "o" for name in ("cdot", "times", "div", "ast", "star", "bullet")}
SHAPES |= {rf"\{name}": "f" for name in ("binom", "gcd", "lcm", "min", "max")}
ARITHMETIC = re.compile(r"n\)*o?(?:n(?![x^{(\\f])|\(n\))|n[\^!]|f[{(]n[,}]\{?n[)}]")
DECORATION = re.compile(
    r"\\?\$|\\(?:text|mathrm|mbox)\s*\{[^{}0-9]*\}|(?<=[0-9])\\[,;:! ](?=[0-9]{3}(?![0-9]))"
    r"|\\ |\\(?:left|right)(?![a-zA-Z])|(?<![\\a-zA-Z])[a-zA-Z]{4,}"
)
# How sums, equals signs, fractions, products and spaces are written otherwise.
OTHERWISE: list[tuple[re.Pattern[str], Any]] = [
    # An integer root is arithmetic.
    (
        re.compile(r"\\sqrt\s*\{\s*([0-9]{1,15})\s*\}"),
        lambda root: "1+1" if math.isqrt(number := int(root[1])) ** 2 == number else root[0],
    ),
    (re.compile(r"\\equiv(?![a-zA-Z])"), "="),
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"(?<=[0-9])\s*x\s*(?=[0-9])"), r"\\times "),
    (DECORATION, ""),
    (re.compile(r"\\[,;:!]|~"), " "),
]


class Terms(enum.Enum):
    """Terms in which a fraction counts as a number; in any other terms it is an unfinished division."""

    ANY = enum.auto()
    INTEGERS = enum.auto()  # whose quotient is no integer
    LOWEST = enum.auto()  # also without a common divisor


@dataclass
class _Group:
    """The elements between two brackets, each with its separator."""

    latex: str  # the whole answer
    opening: str
    start: int  # of the current side, in `latex`
    elements: list[str] = field(default_factory=list)
    sides: list[str] = field(default_factory=list)  # of the current element, each with the following comparison
    numbers: list[str | None] = field(default_factory=list)  # in the current side; None for a group that is no number
    approximated: bool = False  # the rest of this element repeats it with less precision
    numbered: bool = False  # a side of the current element is a number
    only_numbers: bool = True

    def add(self, number: str | None) -> None:
        if not self.approximated:
            self.numbers.append(number)

    def start_side(self, start: int) -> None:
        """Start again after an equals sign, since the last side is the answer."""
        self.start = start
        self.numbers = []
        self.approximated = False

    def compare(self, sign: re.Match[str]) -> None:
        """Keep the side in front of an inequality sign, whether it is a number or not."""
        self.sides.append(f"{self._side(sign.start())}{sign[0]}")
        self.start_side(sign.end())

    def end_element(self, separator: str, stop: int, start: int) -> None:
        side = self._side(stop)
        if self.numbered:
            self.elements.append(f"{''.join(self.sides)}{side}{separator}")
        self.sides = []
        self.numbered = False
        self.start_side(start)

    def close(self, closing: str, stop: int) -> str | None:
        """Return the text of the group, "" if it has no number, or None if it has more than numbers."""
        self.end_element("", stop, stop)
        if not self.only_numbers:
            return None
        return f"{self.opening}{''.join(self.elements)}{closing}" if self.elements else ""

    def _side(self, stop: int) -> str:
        """Return the number in the current side, or the whole side without one."""
        if len(self.numbers) > 1 or None in self.numbers:
            self.only_numbers = False
        if not self.numbers:
            return self.latex[self.start : stop]
        self.numbered = True
        return str(self.numbers[0])


def only_numbers(latex: str, terms: Terms = Terms.ANY) -> str | None:
    r"""Return the numbers of an answer with their brackets and separators, but without anything else.

    `x = 18.8\text{ cm}` gives `18.8`, and `(x, y) = (1, \frac{1}{2})` gives `(1,\frac{1}{2})`. In a chain of equations
    the last side counts; in an inequality all sides do, and one without a number stays unchanged: `x > 3\text{ cm}`
    gives `x >3`. Numbers are integers, decimals, fractions of them, mixed numbers, powers of ten with or without a
    factor, all with optional sign and percent sign, and infinity.

    None if there is no number, or several in place of one: `10.2 + 8.6`, `3 (4)`. A fraction in other terms than
    `terms` does not count as a number. `latex` is normalized by math-verify. Takes linear time.
    """
    groups = [_Group(latex, "", 0)]
    for token in TOKEN.finditer(latex):
        match token.lastgroup:
            case "number":
                groups[-1].add(token[0] if _is_in(terms, token) else None)
            case "comparison":
                groups[-1].compare(token)
            case "relation":
                groups[-1].start_side(token.end())
            case "approximation":
                groups[-1].approximated = bool(groups[-1].numbers)
            case "separator":
                groups[-1].end_element(token[0], *token.span())
            case "opening":
                groups.append(_Group(latex, token[0], token.end()))
            case "closing":
                closed = groups.pop().close(token[0], token.start())
                if not groups:
                    return None
                if closed != "":
                    groups[-1].add(closed)
    return groups[0].close("", len(latex)) or None if len(groups) == 1 else None


def terms(latex: str) -> Terms:
    r"""Return the terms in which an answer may write its fractions if `latex` is the accepted one.

    Any if that has a fraction of decimals (`\frac{1.5}{2}`) or one that equals an integer, integers if it has only
    other fractions (`\frac{1}{2}`, `1/2`, `1:2`), and lowest terms if it has none.
    """
    fractions = list(re.finditer(FRACTION, latex, re.VERBOSE))
    if not fractions:
        return Terms.LOWEST
    loose = any("." in fraction[0] or _is_whole(*_terms_of(fraction)) for fraction in fractions)
    return Terms.ANY if loose else Terms.INTEGERS


def has_quotient(latex: str) -> bool:
    r"""Return whether an expression has a fraction that only `Terms.ANY` allows: `\frac{84}{12} \pi`."""
    found = [token for token in TOKEN.finditer(latex) if token.lastgroup == "number"]
    return any(not _is_in(Terms.INTEGERS, token) and latex[token.end() : token.end() + 1] != "^" for token in found)


def works_out(latex: str) -> bool:
    r"""Return whether there is arithmetic in front of the last equals sign: in `6*8=48`, but not in `f(2)=48`.

    Arithmetic is numbers with an operator or nothing between them, a number with an exponent or a factorial, or a
    quotient that is an integer (`80/4=20`). A number in front of a letter is a coefficient. Takes linear time, so the
    parent process can call it.
    """
    shapes = []
    for pattern, written in OTHERWISE:
        latex = pattern.sub(written, latex)
    for token in TOKEN.finditer(latex.rpartition("=")[0]):
        if token.lastgroup == "number" and not _is_in(Terms.INTEGERS, token):
            return True
        if token.lastgroup != "space":
            shapes.append(SHAPES.get(token[0]) or SHAPES.get(str(token.lastgroup), token[0].lstrip("\\")[:1] or ","))
    return bool(ARITHMETIC.search("".join(shapes)))


def _is_in(terms: Terms, number: re.Match[str]) -> bool:
    r"""Return whether a number is no fraction, or a fraction in these terms.

    The fraction of a mixed number is below one in any terms; `12\frac{23}{3}` would be a sum. A number divided by
    itself, `\frac{3}{3}`, passes, as in Math-Verify's own cases.
    """
    above, below = _terms_of(number)
    if not below:
        return True
    if number["whole"] and not (above.isdecimal() and below.isdecimal() and int(above) < int(below)):
        return False
    if terms is Terms.ANY:
        return True
    if "." in above or "." in below:
        return False
    if _is_whole(above, below):
        return int(below) in (1, int(above))
    return terms is Terms.INTEGERS or math.gcd(int(above), int(below)) == 1


def _terms_of(number: re.Match[str]) -> tuple[str, str]:
    """Return a number's numerator and denominator, "" if it is no fraction."""
    return number["numerator"] or number["dividend"] or "", number["denominator"] or number["divisor"] or ""


def _is_whole(above: str, below: str) -> bool:
    """Return whether a fraction of integers is an integer."""
    return int(below) != 0 and int(above) % int(below) == 0
