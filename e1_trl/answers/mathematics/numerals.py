r"""What of an answer is numbers: tells `18.8` from `10.2 + 8.6`.

A computer algebra system does not ask who did the computing: `\boxed{10.2 + 8.6}` equals 18.8, and a policy that is
rewarded for it stops computing. Instead of a list of operations that are forbidden, there is one of what a number looks
like, and a test that has no gaps: take everything away but the numbers, and ask whether what is left is still the
answer. Of `10.2 + 8.6`, `\sqrt{16}` or `5!` it is not; of `x = 18.8\text{ cm}` it is.

Knows nothing about boxes, and no mathematics: whether two answers are equal is for the caller to find out.
"""

import enum
import math
import re
from dataclasses import dataclass, field

# Fractions of longer numbers are no numbers: nobody writes them, and to read them takes time.
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
# These only arrange numbers; of a vmatrix the determinant is computed.
ENVIRONMENT = "(?: [pbB]? matrix | smallmatrix | array | tabular | cases | aligned | gathered )"
TOKEN = re.compile(
    rf"""
    (?P<space> \s+ )
  | (?P<number> {NUMBER} )
  | (?P<comparison> [<>] =? | != | [≤≥≠] | \\(?: leqslant|geqslant|leq?|geq?|lt|gt|neq? ) (?![a-zA-Z]) )
  | (?P<relation> = | \\(?:in|equiv) (?![a-zA-Z]) )
  | (?P<approximation> ≈ | \\(?:approx|simeq|doteq) (?![a-zA-Z]) )
  | (?P<separator> (?: [,;&] | \\\\ | \\cup (?![a-zA-Z]) ) \s* )
  | (?P<script> [\^_] \s* (?: [0-9]+ | \{{ \s* -? [0-9]+ \s* \}} ) )  # of a unit, of a name, of a number's base
  | (?P<opening> \\begin\{{{ENVIRONMENT}\}} | \\?\{{ | [(\[] )
  | (?P<closing> \\end\{{{ENVIRONMENT}\}} | \\?\}} | [)\]] )
  | (?P<other> \\[a-zA-Z]+ | \\. | . )
    """,
    re.VERBOSE | re.DOTALL,
)


# Of an expression as n for a number, o for an operator, x for a letter or a command, and first characters for the rest.
SHAPES = {"number": "n", "other": "x", "approximation": "=", "!": "!"}
SHAPES |= dict.fromkeys(["+", "-", "*", "/", ":", "×", "÷", "·", r"\cdot", r"\times", r"\div"], "o")
ARITHMETIC = re.compile(r"n\)*o?(?:n(?![x^{(\\])|\(n\))|n[\^!]")
DECORATION = re.compile(
    r"\\?\$|\\(?:text|mathrm|mbox)\s*\{[^{}]*\}|\\[,;:! ]|\\(?:left|right)(?![a-zA-Z])|(?<![\\a-zA-Z])[a-zA-Z]{4,}"
)


class Terms(enum.Enum):
    """In which terms a fraction is a number; in any others it is a division that was not carried out."""

    ANY = enum.auto()
    INTEGERS = enum.auto()  # the fraction being none
    LOWEST = enum.auto()  # of these, those that have no divisor in common


@dataclass
class _Group:
    """What stands between two brackets: elements, each with its separator."""

    latex: str  # all of it
    opening: str
    start: int  # of the current side, in `latex`
    elements: list[str] = field(default_factory=list)
    sides: list[str] = field(default_factory=list)  # of the current element, each with the comparison after it
    numbers: list[str | None] = field(default_factory=list)  # in the current side; None: a group that is not numbers
    approximated: bool = False  # what follows in this element is a second, rougher reading of it
    numbered: bool = False  # a side of the current element is a number
    only_numbers: bool = True

    def add(self, number: str | None) -> None:
        if not self.approximated:
            self.numbers.append(number)

    def start_side(self, start: int) -> None:
        """After an equals sign: the answer is what comes last."""
        self.start = start
        self.numbers = []
        self.approximated = False

    def compare(self, sign: re.Match[str]) -> None:
        """After an inequality sign: what stands before it is a part of the answer, whether it is a number or not."""
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
        """The text of the group, "" if there is no number in it, None if it is not made of numbers only."""
        self.end_element("", stop, stop)
        if not self.only_numbers:
            return None
        return f"{self.opening}{''.join(self.elements)}{closing}" if self.elements else ""

    def _side(self, stop: int) -> str:
        """The number of the current side, or all of it if there is none in it."""
        if len(self.numbers) > 1 or None in self.numbers:
            self.only_numbers = False
        if not self.numbers:
            return self.latex[self.start : stop]
        self.numbered = True
        return str(self.numbers[0])


def only_numbers(latex: str, terms: Terms = Terms.ANY) -> str | None:
    r"""The numbers of an answer, with the brackets and separators between them, without all else.

    `x = 18.8\text{ cm}` gives `18.8`, and `(x, y) = (1, \frac{1}{2})` gives `(1,\frac{1}{2})`. Of a chain of equations
    the last side counts; of an inequality all do, and one without a number stays as it is, `x > 3\text{ cm}` gives
    `x >3`. Numbers are integers, decimals, fractions of them, mixed numbers and powers of ten with or without a factor,
    each with a sign and a percent sign; and infinity.

    None if there is no number, or where more than one number stands where one should: `10.2 + 8.6`, `3 (4)`. A fraction
    in other terms than `terms` is no number either.

    `latex` is as math-verify normalizes it. Takes time linear in its length.
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
    r"""The terms in which an answer may give its fractions, where `latex` is an accepted one.

    As loosely as the accepted one does: any if there is a fraction of decimals in it (`\frac{1.5}{2}`) or one that is
    an integer, integers if there is another (`\frac{1}{2}`, `1/2`, `1:2`), and the lowest if there is none.
    """
    fractions = list(re.finditer(FRACTION, latex, re.VERBOSE))
    if not fractions:
        return Terms.LOWEST
    loose = any("." in fraction[0] or _is_whole(*_terms_of(fraction)) for fraction in fractions)
    return Terms.ANY if loose else Terms.INTEGERS


def has_quotient(latex: str) -> bool:
    r"""Whether a fraction stands in an expression that no terms but `Terms.ANY` allow: `\frac{84}{12} \pi`."""
    found = [token for token in TOKEN.finditer(latex) if token.lastgroup == "number"]
    return any(not _is_in(Terms.INTEGERS, token) and latex[token.end() : token.end() + 1] != "^" for token in found)


def works_out(latex: str) -> bool:
    r"""Whether arithmetic between numbers stands in front of the last equals sign: `6*8=48`, but not `f(2)=48`.

    Numbers with an operator or nothing between them, a number with an exponent or a factorial, or a quotient that is an
    integer (`80/4=20`). A number before a letter is a coefficient. Takes time linear in the text, as a parent needs it.
    """
    shapes = []
    for token in TOKEN.finditer(DECORATION.sub("", latex.rpartition("=")[0]).replace("dfrac", "frac")):
        if token.lastgroup == "number" and not _is_in(Terms.INTEGERS, token):
            return True
        if token.lastgroup != "space":
            shapes.append(SHAPES.get(token[0]) or SHAPES.get(str(token.lastgroup), token[0][0]))
    return bool(ARITHMETIC.search("".join(shapes)))


def _is_in(terms: Terms, number: re.Match[str]) -> bool:
    r"""Whether a number is no fraction, or one in these terms.

    The fraction of a mixed number is one of natural numbers and less than one in any terms, or `12\frac{23}{3}` adds
    up. A number by itself, `\frac{3}{3}`, is let through: so Math-Verify's own cases have it.
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
    """Numerator and denominator of a number, "" where it is no fraction."""
    return number["numerator"] or number["dividend"] or "", number["denominator"] or number["divisor"] or ""


def _is_whole(above: str, below: str) -> bool:
    """Whether a fraction of integers is an integer."""
    return int(below) != 0 and int(above) % int(below) == 0
