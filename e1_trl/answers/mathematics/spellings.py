"""Rewrites answers that math-verify would parse wrongly or not at all. Runs in a process that can be killed."""

import itertools
import re
import unicodedata
from collections import Counter
from fractions import Fraction

E_NOTATION = re.compile(r"(?<=[0-9])[eE]([-+]?[0-9]+)(?![0-9.])")  # math-verify takes the e for Euler's number
COMMANDS = {"∞": "infty", "∪": "cup", "∩": "cap", "∖": "setminus", "∈": "in", "±": "pm", "×": "times", "÷": "div"}
COMMANDS |= {"·": "cdot", "≤": "le", "≥": "ge", "≠": "ne", "π": "pi"}
CHARACTERS = str.maketrans("０１２３４５６７８９．－＋％–−", "0123456789.-+%--") | {
    ord(character): rf"\{command} " for character, command in COMMANDS.items()
}
LONE = "alpha|beta|gamma|delta|theta|lambda|mu|omega|phi|pi|rho|sigma|tau"  # that stand alone above or below a line
RAISED = re.compile("[⁰¹²³⁴-⁹⁻ⁿ]+")
VULGAR_FRACTION = re.compile("[¼-¾⅐-⅞]")
REPEATING = re.compile(r"([0-9]{0,15})\.([0-9]{0,15})\\(?:overline|bar|dot)\s*\{\s*([0-9]{1,15})\s*\}")
TEXT = r"\\(?:text|mbox|math)(?:rm|bf|it|normal)?\s*\{"
POWER = r"\^\s*(?:-?[0-9]|\{\s*-?[0-9]\s*\})"
UNIT = "|".join(f"(?<={end})" for end in ("m", "s", "g", "K", "ft", "in", "yd", "mi", "pc"))  # `m/s^2`, not `n^2`
WORDS = rf"{TEXT}(?!\s*(?:and|or)\s*\}})(?:(?:{UNIT}){POWER}|[^{{}}0-9])*+\}}(?:\s*{POWER})?"
UNITS = re.compile(  # after a number, at the end or in front of another answer
    rf"(?:(?<=[0-9}}])|(?<=\\pi)|(?<=\\circ))\s*(?:\\[,;: ]\s*)?{WORDS}(?:\s*(?:/|\\cdot|\\times|\\[,;: ])?\s*{WORDS})*"
    r"(?=\s*(?:$|[,;]|\\text\s*\{\s*(?:and|or)\s*\}))"
)
LAST_WORDS = re.compile(
    rf"(?<=[a-zA-Z0-9)}}$])(?:\s|\\[,;: ])*{WORDS}(?:\s*(?:/|\\cdot|\\times|\\[,;: ])?\s*{WORDS})*$"
)
# Behind a number and at the end, where math-verify drops them, though they change it: `3\text{ squared}`.
COUNT = "(?:a|an|one|two|three|four|five|six|seven|eight|nine|ten)"
CHANGING = re.compile(
    rf"(?<=[0-9}}])(?:\s|\\[,;: ])*(?:{TEXT}|\s)\s*(?:squared|cubed|factorial|halves|thirds"
    rf"|or\s+(?:more|less|fewer|greater|higher|lower|above|below)|(?:plus|minus)\s+{COUNT}"
    rf"|and\s+(?:{COUNT}\s+)?(?:half|halves|thirds?|quarters?|fourths?|fifths?|sixths?|eighths?|tenths?))[\s}}$.]*$"
)
CASES = re.compile(  # values that solve a system, and no function
    r"\\begin\s*\{cases\}((?:\s*+[a-zA-Z](?:_\{?\w+\}?)?\s*=(?:(?!\\end|\\\\)[^&=])++(?:\\\\|(?=\\end)))+)\s*+\\end\s*\{cases\}"
)
ONE_WORD = re.compile(r"[^\\]*\\[a-z]+\s*\{(?:[^{}]|\{[^{}]*\})*\}")
# Applied in this order.
SPELLINGS = [
    (re.compile(pattern), written)
    for pattern, written in (
        (r"^\s*(\$\$?)([^$]*)(?<!\\)\1\s*$", r"\2"),
        (r"^\s*[€£](?=\s*[0-9])", ""),
        (r"^\s*(?:\\text\s*\{\s*)?[Aa]ll\s+real\s+numbers\s*\}?[\s.]*$", r"\\mathbb{R}"),
        (r"\\mathbb\s*([A-Z])", r"\\mathbb{\1}"),
        (r"(?<![a-zA-Z\\])E\s*(?=_)", r"\\Upsilon "),  # of energy `E_1`, which math-verify takes for Euler's number
        (r"(?<=[a-zA-Z0-9)])\^\s*(?:T|\{\s*T\s*\})", r"^{t}"),  # it drops a power `T` as a transpose
        (rf"{TEXT}\s*([A-Z]{{2,}})\s*\}}(?=\s*=)|(?<==)(\s*){TEXT}\s*([A-Z]{{2,}})\s*\}}(?=\s*$)", r"\1\2\3"),
        # Names without a backslash, except inside words and text.
        (
            r"(?<![a-zA-Z\\])(?<!\\text\{)(?<!\\mathrm\{)(?<!name\{)(pi|exp|sin|cos|tan|ln|log)(?![a-zA-Z])",
            r"\\\1 ",
        ),
        (r"√\s*(?=\{)", r"\\sqrt"),
        (r"√\s*(?:\(([^()]*)\)|([0-9.]+|[a-zA-Z]))", r"\\sqrt{\1\2}"),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\\langle(?![a-zA-Z])", "("),
        (r"\\rangle(?![a-zA-Z])", ")"),
        (r"^\s*\\text\s*\{\s*([A-Z](?:\s*,\s*[A-Z])+)\s*\}\s*$", r"\1"),
        (r"^\s*(-?[0-9.]+)\s*=\s*([a-zA-Z])\s*$", r"\2=\1"),
        (r"\\backslash(?![a-zA-Z])", r"\\setminus "),
        (r"(?<!\\)~(?!=)", " "),
        (r"[ \t\r\n]+", " "),  # runs of spaces cost math-verify quadratic time
        (r"^ ?([1-9][0-9]{0,2}) ([0-9]{3})(?: ([0-9]{3}))?(?: ([0-9]{3}))? ?$", r"\1\2\3\4"),
        (r"(?<!\\)\\[\[\]()]", " "),  # a box is in math mode already: `\[ 98 \]`
        (r"\\begin\s*\{array\}\s*(?:\[[a-z]\]\s*)?\{[^{}]*\}", r"\\begin{matrix}"),
        (r"\\end\s*\{array\}", r"\\end{matrix}"),
        (r"(?<=[0-9])(?:\\[,!;: ]|[\u2009\u202f])(?=[0-9]{3}(?![0-9]))", ""),  # between thousands
        (r"(?<=[0-9])\\[,;: ]\s*(?=\\?%|\\[dtc]?frac)", ""),
        (r"\\(?:bf|rm|it|displaystyle)(?![a-zA-Z])|\\(?:text)?color\s*\{[a-z]+\}", " "),
        (r"\\(?:boldsymbol|bm|underline|mathbf)\s*(?=\{\s*[-+.0-9\\])", ""),
        (r"\\(?:mathrm|operatorname)\s*\{\s*([ei])\s*\}", r" \1 "),
        (r"(?<=[0-9])i(?![a-zA-Z])", " i"),  # math-verify takes the i of `4 i`, not of `4i`, for the imaginary unit
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset"),
        (r"\\text\s*\{\s*((?:\\?\$)?\s*[0-9][0-9.,:]*)\s*\}", r" \1 "),
        (r"\\text\s*\{\s*((?:\\?\$)?\s*[0-9][0-9.,]*)\s*((?:\\?%)?[^{}0-9+*/^\\=-]*)\}", r" \1 \\text{ \2}"),
        (r"\^\s*\{\s*(?:°|\\degree(?![a-zA-Z]))\s*\}|(?:\^\s*)?(?:°|\\degree(?![a-zA-Z]))", r"^{\\circ}"),
        (r"(\^\s*\{?\s*\\circ\s*\}?)\s*(?:\\[ ,;]\s*)?[CFK]\s*$", r"\1"),
        (r"\^\s*\{?\s*\\prime\s*\\prime\s*\}?", "''"),
        (r"\^\s*(?:\{\s*\\prime\s*\}|\\prime(?![a-zA-Z]))", "'"),
        (r"\\text\s*\{\s*\\?\$\s*\}", ""),
        (r"\\text\s*\{\s*\}", r" \\quad "),  # `2\text{ }3` is not 23
        (r"^\s*\\text\s*\{\s*(?:[Tt]he )?(?:[Ff]inal )?[Aa]nswer(?: is)?:?\s*\}(?=\s*\S)", ""),
        (r"^\s*(?:\\approx(?![a-zA-Z])|≈)", ""),
        (r"(?<![0-9./}])([0-9]+)\s+([0-9]+)\s*/\s*([0-9]+)(?![0-9.])", r"\1\\frac{\2}{\3}"),
        (rf"(\\[dtc]?frac)\s*(\\(?:{LONE}))(?![a-zA-Z])", r"\1{\2}"),  # `\frac\pi2`
        (rf"(\\[dtc]?frac\s*(?:[0-9]|\{{[^{{}}]*\}}))\s*(\\(?:{LONE}))(?![a-zA-Z])", r"\1{\2}"),
        (r"(?<!\\)[.,;]\s*$", ""),
        (r"^(?:\\[,;:! ]|\s)+|(?<![,;:! ])(?:\\[,;:! ]\s*){1,9}$|\\\s*$", ""),  # spaces for the eye
        # `6 weeks`, `6 cm^2`
        (
            r"(?<=[0-9}])\s+((?!percent|infinity)[a-zA-Z]{4,}|(?:[ckm]m|ft|in)(?=\s*\^))(\s*\^\s*\{?[23]\}?)?\s*$",
            r"\\text{ \1}\2",
        ),
        (r"^(?:[^=]*=)?[\s$]*([0-9]+)\s*:\s*([0-9]+)\s*:\s*([0-9]+)[\s$]*$", r"(\1, \2, \3)"),  # a ratio
        (
            r"^\s*(?:\\left)?\\\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\\mid|[|:])(.*?)(?:\\right)?\\\}\s*$",
            r"\1",
        ),
    )
]


# Additions after an answer: `2 \pmod{5}`, `n = 3k, k \in \mathbb{Z}`.
MODULUS = re.compile(
    r"\\pmod\s*\{?\s*([^{}]+?)\s*\}?\s*$|\(\s*(?:\\[bp]?mod|mod)(?![a-z])\s*\{?\s*([^{}()]+?)\s*\}?\s*\)\s*$"
)
DOMAIN = re.compile(
    r"(?:[,;(]|\\q?quad|\\text\s*\{[^{}]*\})[\s,]*([a-zA-Z](?:\s*,\s*[a-zA-Z])*\s*\\in\s*\\mathbb\s*\{?[NZQR]\}?[^,;=(){}]{0,9})\)?\s*$"
)
RELATION = re.compile(r"=|\\equiv(?![a-zA-Z])")
CHOICE = re.compile(
    r"^\s*(?:\\(?:text|math)(?:bf|rm|it)?\s*\{\s*\(?([A-J])(?:[).:]\s*\}|\}\s*[).:])|\(?([A-J])[).:]\s)\s*(\S.*)$",
    re.DOTALL,
)
CHOICES = re.compile(r"(?<![a-zA-Z(])\(?[A-J](?:\)(?![a-zA-Z0-9])|[.:]\s+\S)")
LETTER = re.compile(r"^\W*(?:(?:text|math)(?:bf|rm|it)?\W*)?([A-J])\W*$")
WRAPPED = re.compile(r"^\s*\\(?:text|math)(?:bf|rm|it)?\s*\{([^{}]*)\}\s*$")
THOUSANDS = re.compile(r"(?<![0-9.,])(?<!\{,\})[1-9][0-9]{0,2}(?:(?:,|\{,\})[0-9]{3})++(?!,?[0-9])")
BRACKET = re.compile(r"[(\[]|\\(?:\{|lbrace|langle)")
TIME = re.compile(r"(?<![0-9:.])0?([0-9]{1,2})\s*:\s*([0-9]{2})[^0-9]{0,20}?(?<![a-z])([ap])\.?\s?m(?![a-z])")
CLOCK = re.compile(r"0?([0-9]{1,2}):([0-9]{2})\(?(?:([ap])\.?m\.?)?\)?\.?")
GREEK = r"\\(?:gamma|delta|theta|lambda|xi|pi|sigma|upsilon|phi|psi|omega)(?![a-z])"
# A letter with its primes (group 1). Texts, other commands and words are matched first, so that their letters are none.
SYMBOL = re.compile(
    rf"\\(?:text|mbox|math|operatorname)[a-z]*\s*\{{[^{{}}]*\}}|(?!{GREEK})\\[a-z]+|[a-z]{{4,}}|((?:\\[a-z]+|[a-z])'*)",
    re.IGNORECASE,
)
STYLED = re.compile(r"\\(?:text|mbox|math)(?:rm|it|bf|sf)?\s*\{\s*([a-zA-Z]{1,2})\s*\}")  # letters in another type
UNUSED = "qzyxuwkjpvnsr"
MARKUP = re.compile(r"\\(?:text|math)[a-z]*|[\s{}$.]")
PLUS_MINUS = re.compile(r"\\pm(?![a-zA-Z])")
MOST_SIGNS = 3


def readable(text: str) -> str:
    """Rewrite an answer so that math-verify can parse it."""
    text = DOMAIN.sub("", _respelled(text))
    if len(RELATION.findall(text)) < 2:
        text = RELATION.sub("=", MODULUS.sub("", text))
    return E_NOTATION.sub(r" \\times 10^{\1}", text)


def _respelled(text: str) -> str:
    text = VULGAR_FRACTION.sub(_spelled_fraction, text.translate(CHARACTERS))
    text = RAISED.sub(lambda raised: f"^{{{unicodedata.normalize('NFKC', raised[0])}}}", text)
    text = REPEATING.sub(_repeating_fraction, text)
    text = CASES.sub(lambda system: re.sub(r"\s*[,;]?\s*\\\\", ", ", system[1]), text)
    for pattern, written in SPELLINGS:
        text = pattern.sub(written, text)
    return text


def find_additions(text: str) -> tuple[list[str], list[str]]:
    r"""Return the modulus after an answer, as in `2 \pmod{5}`, and the domain, as in `n = 3k, k \in \mathbb{Z}`."""
    text = _respelled(text)
    return ["".join(found) for found in MODULUS.findall(text)], ["".join(x.split()) for x in DOMAIN.findall(text)]


def differ_as_words(text: str, reference: str) -> bool:
    r"""Return whether times of day (`3:20\text{ p.m.}`) or words differ that math-verify takes for ratios and products.

    So do words that change the number in front of them. A word is capitals with a repetition, such as `BEE`; `RC` may
    be a product. Read backwards it may mean the same.
    """
    if CHANGING.search(text) and not CHANGING.search(reference):
        return True
    found, times = (set(TIME.findall(answer.lower())) for answer in (text, reference))
    given, word = (MARKUP.sub("", answer) for answer in (text, reference))
    are_words = all(re.fullmatch("[A-Z]{3,}", each) and len(set(each)) < len(each) for each in (given, word))
    return not (times <= found or found <= times) or (are_words and given not in (word, word[::-1]))


def rename_symbols(text: str, reference: str) -> tuple[str, str] | None:
    """Give each symbol of the accepted answer that math-verify takes for another, as `R` for `r`, a letter of its own.

    Returns the answer and the accepted one with these letters; None if the accepted one has no such symbols.
    """
    texts = [STYLED.sub(r" \1 ", _respelled(each)) for each in (text, reference)]
    kinds = Counter(symbol.rstrip("'").lower() for symbol in set(SYMBOL.findall(texts[1])))
    symbols = {*SYMBOL.findall(texts[1])} - {"e", "i"}  # which are numbers
    confused = sorted(symbol for symbol in symbols if kinds[symbol.rstrip("'").lower()] > 1)
    taken = {letter.lower() for each in texts for letter in each}
    names = dict(zip(confused, (letter for letter in UNUSED if letter not in taken), strict=False))
    if not names:
        return None
    single = "".join({symbol for each in texts for symbol in SYMBOL.findall(each) if len(symbol) == 1})
    if single:  # `Mmgh` is a product of symbols that stand alone elsewhere, and no word
        product = rf"(?<![a-zA-Z\\])[{single}]{{4,}}(?![a-zA-Z])"
        texts = [re.sub(product, lambda found: " ".join(found[0]), each) for each in texts]
    text, reference = (SYMBOL.sub(lambda symbol: names.get(symbol[1], symbol[0]), each) for each in texts)
    return text, reference


def join_thousands(text: str) -> str:
    """Drop commas between thousands, except in an answer with brackets, where they may separate elements."""
    return text if BRACKET.search(text) else THOUSANDS.sub(lambda number: re.sub("[{},]", "", number[0]), text)


def split_choice(text: str) -> tuple[str, str] | None:
    r"""Split `\textbf{(B) } 7` into the letter of a choice and its text; None if an answer starts otherwise."""
    found = CHOICE.search(WRAPPED.sub(r"\1", text))
    if found and not CHOICES.search(found[3]):  # `(B) or (C)` is no choice
        return found[1] or found[2], found[3]
    return None


def read_letter(text: str) -> str | None:
    """Return the letter if the answer is nothing but the letter of a choice."""
    found = LETTER.search(text)
    return found[1] if found else None


def write_both_signs(latex: str) -> str:
    r"""Replace an answer with `\pm` by the list of answers with either sign."""
    pieces = PLUS_MINUS.split(latex)
    if not 1 < len(pieces) <= MOST_SIGNS + 1:
        return latex
    chosen = itertools.product("+-", repeat=len(pieces) - 1)
    return ", ".join("".join(itertools.chain(*zip(pieces, (*signs, ""), strict=True))) for signs in chosen)


def _spelled_fraction(fraction: re.Match[str]) -> str:
    above, below = unicodedata.normalize("NFKC", fraction[0]).split("⁄")
    return rf"\frac{{{above}}}{{{below}}}"


def _repeating_fraction(decimal: re.Match[str]) -> str:
    whole, fixed, repeated = decimal.groups()
    above = int(whole + fixed + repeated) - int(f"0{whole}{fixed}")
    value = Fraction(above, 10 ** len(fixed) * (10 ** len(repeated) - 1))
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def keep_text(latex: str) -> str:
    """Drop units, and keep math-verify from dropping, as a unit, all from the first text on to a brace at the end.

    Answers with times of day stay as they are: `differ_as_words` compares these.
    """
    if re.search("[0-9]:[0-9]{2}", latex):
        return latex
    kept = UNITS.sub("", latex)
    return kept + r"\," if re.search(TEXT, kept) and not ONE_WORD.fullmatch(kept) else kept


def time_of(text: str) -> tuple[str, str, str] | None:
    r"""Return hour, minutes, and `a` or `p` (empty where it is not said) of an answer that is a time of day."""
    found = CLOCK.fullmatch(re.sub(r"\\(?:text|math)[a-z]*|\\[!,;: ]|[\s{}$]", "", text).lower())
    return found and (found[1], found[2], found[3] or "")


def words(text: str) -> str | None:
    r"""Return a normal form of an answer of words and dates only, such as `\text{June 20}`; else None."""
    plain = re.sub(r"\\(?:text[a-z]*|mathrm|mbox)\s*\{([^{}\\]*)\}", r"\1", text)
    plain = plain.replace("$", "").strip(" .").casefold()
    return " ".join(plain.split()) if re.fullmatch(r"(?=.*[a-z]{2})[a-z0-9 ,'’-]*", plain) else None
