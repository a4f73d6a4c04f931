r"""Answers equal to the accepted one in another spelling, notation or form are right, as far as they are computed.

Two answers in a box are never right for both.
"""

import re
from itertools import permutations

import pytest
from graded import C, U, W, disagreeing, outcomes, patient

from e1_trl.answers.grade import Grader

grader = pytest.fixture(scope="module")(patient)


# By verdict, what is boxed → the accepted answer, an expression: algebra is free, arithmetic is not, numbers are exact.
EXPRESSIONS = {
    "spaces for the eye": {
        C: r"""
            \,6\pi\, → 6\pi | 6\pi\; → 6\pi | \;\frac12\sqrt3\,. → \frac{\sqrt3}{2} | 9.8\,\mathrm{m/s^2} → 9.8 |
            12\pi\text{ cm^2} → 12\pi | 36\,\mathrm{W\,m^{-2}} → 36 | 12 → 12\,\mathrm{cm^2} | 1 234 567 → 1234567 |
            \frac{3}{4}\mathrm{k\Omega} → \frac{3}{4} | 2\pi\text{ 元} → 2\pi |
            36\ \mathrm{kg\cdot m/s^2} → 36 | 2~500 → 2500 | €32 → 32 | \text{all real numbers} → \mathbb{R}
        """,
        W: r"\,7\pi\, → 6\pi | 2\pi \mathrm{e^2} → 2\pi | \frac{3}{4}\mathrm{n^2} → \frac{3}{4}",
    },
    "sums and products": {
        U: r"""
            \frac{60}{360}\cdot\pi\cdot6^2 → 6\pi | \pi\cdot(-2)\cdot(-3) → 6\pi |
            \frac{\pi}{2}+\frac{\pi}{3} → \frac{5\pi}{6} | 1/2+1/3+\sqrt2 → \frac56+\sqrt2 |
            \sqrt{8}+\sqrt{18} → 5\sqrt{2} | \frac{5\cdot 4}{2}\pi → 10\pi | 6\pi + 0x → 6\pi |
            6\pi\cdot\frac{x}{x} → 6\pi | 2\cdot3\pi \text{ cm} → 6\pi
        """,
        C: r"2\sqrt{3} → 2\sqrt{3} | x+2-3\sqrt 2 → x - 3\sqrt{2} + 2 | \sqrt{2}+\sqrt{3} → \sqrt{3}+\sqrt{2}",
    },
    "quotients, powers and roots": {
        U: r"""
            \frac{12\pi}{2} → 6\pi | \frac{1}{2}\cdot12\pi → 6\pi | \frac{\sqrt{3}}{4}\cdot 10^2 → 25\sqrt{3} |
            50\%\cdot12\pi → 6\pi | x^{4/2} → x^2 | \sqrt[3]{8}\pi → 2\pi |
            \sqrt{2^2+4^2-2\cdot2\cdot4\cos\frac{\pi}{3}} → 2\sqrt3 | \sqrt{3}\cdot\sqrt{12}\pi → 6\pi |
            (\sqrt7-1)(\sqrt7+1)\pi → 6\pi | \sqrt{10}\cdot\sqrt{5} → 5\sqrt{2}
        """,
        C: r"""
            \sqrt{12} → 2\sqrt{3} | 3\cdot 10^5\pi → 300000\pi | 1.5e1\pi → 15\pi |
            \sqrt{\frac{3}{4}} → \frac{\sqrt3}{2} | 10/2^n → \frac{10}{2^n} | 36n → 36n
        """,
    },
    "functions of numbers": {
        U: r"""
            \lfloor3.7\rfloor\sqrt2 → 3\sqrt2 | 12\pi\cos\frac{\pi}{3} → 6\pi | 24\arctan(1) → 6\pi | |{-6}|\pi → 6\pi |
            \arctan(1) → \frac{\pi}{4} | \pi\log_2 64 → 6\pi | \pi\ln e^6 → 6\pi | \pi e^{\ln 6} → 6\pi | 3!\pi → 6\pi |
            \pi\max(6,3) → 6\pi | \pi\gcd(12,18) → 6\pi | \pi\operatorname{lcm}(2,3) → 6\pi | \pi\Gamma(4) → 6\pi |
            \pi\binom{4}{2} → 6\pi | \pi\dbinom{4}{2} → 6\pi | \pi\binom{\sqrt{16}}{2} → 6\pi |
            \pi{4 \choose 2} → 6\pi | \pi\sum_{k=1}^3 k → 6\pi | \frac{5!}{3!}\pi → 20\pi | |1-\sqrt2| → \sqrt2-1 |
            x\lcm(2,3) → 6x
        """,
        C: r"""
            \ln 4 → 2\ln 2 | \log_2 5 → \frac{\ln 5}{\ln 2} | \arctan 2 → \arctan(2) | \frac{n(n-1)}{2} → \binom{n}{2} |
            \binom{n}{2} → \frac{n(n-1)}{2} | \binom{5}{3} → \binom{5}{2} | \frac{100!}{50!50!} → \binom{100}{50} |
            \lfloor n/2 \rfloor+1 → \left\lfloor\frac{n}{2}\right\rfloor + 1 | e^{16}-1 → -1+e^{16}
        """,
    },
    "parts": {
        U: r"""
            (17\cdot3-2,\sqrt2) → (49,\sqrt2) | \{1+2, \pi\} → \{3,\pi\} | (6/2, \pi) → (3,\pi) |
            (3, \frac{2\pi}{2}) → (3,\pi) | [\log_2 8, \pi] → [3,\pi] | (\frac12, \frac42, \pi) → (\frac12, 2, \pi) |
            (\frac12, \frac42) → (\frac12, 2) | (2^{10}, \sqrt{25}) → (2^{10}, 5) | x \in [1+2, \infty) → [3,\infty) |
            1+2\le x\le 4\pi → [3, 4\pi] | \mathbb{R}\setminus\{3-2\} → (-\infty,1)\cup(1,\infty)
        """,
        C: r"(2^{10}, 5) → (2^{10}, 5)",
    },
    "equations": {
        U: r"x=2\cdot3\pi → x=6\pi | x = 5\pi+\pi → x=6\pi | y = 2x + 1 + 2 → y = 2x+3",
        C: r"6\pi = x → x = 6\pi | y-1 = 2(x+1) → y=2x+3",
    },
    "what the accepted answer leaves, too": {
        C: r"""
            \frac{1}{2}+\frac{1}{3} → \frac13+\frac12 | \frac{9!}{9^{19}} → \frac{9!}{9^{19}} |
            \cos\frac{\pi}{3}+\sqrt2 → \sqrt2+\cos\frac{\pi}{3} |
            \frac{1}{6}+\frac{1}{3\cdot2^{201}} → \frac{2^{200}+1}{3 \cdot 2^{201}}
        """,
    },
    "large powers, factorials and tiny differences": {
        W: r"""
            \frac{1}{3 \cdot 2^{201}} → \frac{2^{200}+1}{3 \cdot 2^{201}} |
            \frac{1}{6} → \frac{2^{200}+1}{3 \cdot 2^{201}} |
            \frac{1}{3 \cdot 2^{2007}} → \frac{2^{2006}+1}{3 \cdot 2^{2007}} |
            1 - \frac{1}{2^{100}} → 1 - \frac{1}{2^{101}} | 1 → 1 - \frac{1}{2^{100}} | 1 - 2^{-100} → 1 |
            2^{200} → 2^{200}+1 | 100!+1 → 100! | \frac{1}{100!} → \frac{2}{100!} | \sqrt{10^{100}+1} → 10^{50} |
            \sqrt{2}+\frac{1}{10^{40}} → \sqrt2 | \sqrt{10^{400}+1} → \sqrt{10^{400}+2} |
            x+\frac{1}{10^{20}} → x+\frac{1}{10^{21}} | \pi x+\frac{1}{10^{20}} → \pi x | e^{-100}\pi → e^{-101}\pi |
            (\frac{1}{2^{100}},\sqrt2) → (\frac{1}{2^{101}},\sqrt2) | x > \pi+10^{-30} → x > \pi |
            [\frac{\pi}{2^{100}}, 1] → [\frac{\pi}{2^{101}}, 1] | x = \frac{\pi}{10^{30}} → x = \frac{\pi}{10^{20}} |
            \begin{pmatrix} 2^{-100}\pi \\ x \end{pmatrix} → \begin{pmatrix} 2^{-101}\pi \\ x \end{pmatrix}
        """,
        C: r"""
            \frac{1+2^{200}}{3 \cdot 2^{201}} → \frac{2^{200}+1}{3 \cdot 2^{201}} |
            1 - 2^{-100} → 1 - \frac{1}{2^{100}} | \frac{2^{100}-1}{2^{100}} → 1 - \frac{1}{2^{100}} |
            \sqrt{4+2\sqrt3} → 1+\sqrt{3} | 3.14159265 → \pi | 25\%\pi → \frac{\pi}{4}
        """,
    },
}
# By verdict, what is boxed → the accepted answer, spelled otherwise.
SPELLINGS = {
    "names without a backslash": {
        C: r"""
            pi/2 → \dfrac{\pi}{2} | -2*pi → -2\pi | -1 + exp(16) → e^{16} - 1 | cos(x) → \cos x |
            sin x + 2 → 2+\sin(x) | ln(2) → \ln 2
        """,
        W: r"pi/3 → \dfrac{\pi}{2} | exp(15) → e^{16}",
        U: r"pi + pi → 2\pi | cos(pi/3)*pi → \frac{\pi}{2}",
    },
    "characters": {
        C: r"""
            2√3 → 2\sqrt{3} | √{2} → \sqrt{2} | x² → x^2 | x³+1 → x^3+1 | xⁿ → x^n | 2·π → 2\pi | π/2 → \frac{\pi}{2} |
            x ≤ 5 → x \le 5 | 2 ± √3 → 2 \pm \sqrt{3} | ℝ∖{1} → \mathbb{R}\setminus\{1\}
        """,
        U: r"2×3 → 6 | √16 → 4 | 2³ → 8",
        W: r"±2 → 2 | ±2 → -2 | x² → x^3",
    },
    "units": {
        C: r"6 weeks → 6 | 6 cm^2 → 6 | 12 square feet → 12 | \frac{1}{2} hours → 0.5",
        W: r"6 weeks → 7 | 6 weeks or 7 weeks → 6 | 6 weeks and 3 days → 6",
        U: r"3 + 3 weeks → 6",
    },
    "congruences": {
        C: r"""
            2\pmod5 → 2 | x \equiv 2 \pmod 5 → x \equiv 2 \pmod{5} | 2 \pmod{5} → x \equiv 2 \pmod{5} |
            n \equiv 0,2 \pmod 6 → n \equiv 0,2(\bmod 6)
        """,
        W: r"""
            3 \pmod 5 → 2 | x \equiv 2 \pmod 7 → x \equiv 2 \pmod{5} | 2 → x \equiv 2 \pmod{5} |
            n \equiv 1, 2 \pmod{4} → n = 1 \text{ or } n \equiv 2 \pmod{4}
        """,
        U: r"1 + 1 \pmod 5 → 2",
    },
    "what a variable runs through": {
        C: r"""
            n = 3k, k \in \mathbb{Z} → n=3k | n=3k \text{ for } k \in \mathbb{Z} → n = 3k |
            n=3k → n = 3k, k \in \mathbb{Z}
        """,
        W: r"n = 3k, k \in \mathbb{N} → n = 3k, k \in \mathbb{Z} | n = 2k, k \in \mathbb{Z} → n=3k",
    },
    "choices with text": {
        C: r"""
            \textbf{(B) } 7 → B | \textbf{(B)}\ 7 → \text{(B)} | (B) \frac{1}{2} → 0.5 | 7 → \text{(B) } 7 |
            B → \text{(B) } 7 | \text{(B) } \text{north} → north | \text{(B) Vitamin C} → B | \text{A. yes} → A |
            \textbf{(G) } 7 → G | F. foo → F
        """,
        W: r"""
            \textbf{(B) } 7 → C | \textbf{(B) } 7 → 8 | \textbf{(C) } 7 → \textbf{(B) } 7 |
            \textbf{(A)} \textbf{(B)} 7 → B | \text{(C) Vitamin B} → B
        """,
        U: r"\textbf{(B) } 3 + 4 → 7",
    },
    "unions written as inequalities": {
        C: r"""
            x\le-2\text{ or }x\ge3 → (-\infty,-2]\cup[3,\infty) | (-\infty,-2]\cup[3,\infty) → x\le-2\text{ or }x\ge3 |
            x<-\sqrt2, x>\sqrt2 → (-\infty,-\sqrt2)\cup(\sqrt2,\infty) |
            \mathbb{R}\setminus\{1\} → (-\infty,1)\cup(1,\infty) |
            (-\infty,1)\cup(1,\infty) → \mathbb{R}\setminus\{1\} | \mathbb{R} \backslash \{1\} → x \ne 1
        """,
        W: r"""
            x\le-2\text{ or }x>3 → (-\infty,-2]\cup[3,\infty) | x>1 and x<3 → (-\infty,\infty) |
            x<-2 or x>3 or x>5 → (-\infty,-2)\cup(3,\infty) | \mathbb{R}\setminus\{2\} → (-\infty,1)\cup(1,\infty)
        """,
        U: r"""
            x<-2 or x>1+2 → (-\infty,-2)\cup(3,\infty) | x^2>4 → (-\infty,-2)\cup(2,\infty) |
            x<-2 or 2x>6 → (-\infty,-2)\cup(3,\infty)
        """,
    },
    "both signs": {
        C: r"""
            \frac{1\pm\sqrt5}{2} → \frac{1+\sqrt5}{2},\frac{1-\sqrt5}{2} |
            x = \frac{1\pm\sqrt5}{2} → \frac{1+\sqrt5}{2},\frac{1-\sqrt5}{2} |
            \frac{1+\sqrt5}{2},\frac{1-\sqrt5}{2} → \frac{1\pm\sqrt{5}}{2} | x = ±√3 → \pm\sqrt{3}
        """,
        W: r"""
            \frac{1\pm\sqrt5}{2} → \frac{1+\sqrt5}{2} | \frac{1+\sqrt5}{2} → \frac{1\pm\sqrt5}{2} |
            \frac{10\pm 2}{2} → 6
        """,
        U: r"\frac{10\pm 2}{2} → 6,4",
    },
    "complex numbers": {
        C: r"e^{i\pi/3} → \frac{1}{2}+\frac{\sqrt{3}}{2}i | 2e^{i\pi/3} → 1+i\sqrt{3}",
        W: r"e^{i\pi/4} → \frac{1}{2}+\frac{\sqrt{3}}{2}i",
        U: r"\cos\frac{\pi}{3}+i\sin\frac{\pi}{3} → \frac{1}{2}+\frac{\sqrt{3}}{2}i",
    },
}


@pytest.mark.parametrize("kind", [*EXPRESSIONS, *SPELLINGS])
def test_an_answer_gets_its_verdict_in_any_spelling_or_form(grader: Grader, kind: str) -> None:
    assert not disagreeing(grader, (EXPRESSIONS | SPELLINGS)[kind])


def test_what_sympy_stumbles_over_is_no_error(grader: Grader) -> None:
    floor = r"2^{2015}+\left\lfloor\left(\frac{3}{2}\right)^{2015}\right\rfloor-2"  # PrecisionExhausted, as a text
    assert outcomes(grader, (rf"\boxed{{{floor}}}", [floor]), (rf"\boxed{{{floor}}}", ["2"])) == [C, W]


HEDGES = r"""
    A, B | A; B | A or B | A \text{ or } B | A and B | A / B | A B | A \quad B | \{A, B\} | (A, B) | [A, B] |
    A \le x \le B | x = A, x = B | x = A \text{ or } x = B | A}, \boxed{B | A} \text{ or } \boxed{B | A = B |
    A \ne B | A \approx B | A \pmod{B} | \text{(A) } B | A \text{ (or } B) | A \pm B | A : B |
    \begin{cases} A \\ B \end{cases} | \begin{pmatrix} A & B \end{pmatrix} | A \cup B | \frac{A \pm B}{1} |
    x \le A \text{ or } x \ge B | \mathbb{R} \setminus \{A, B\} | A, n \in \{B\} | A \text{ weeks}, B | A\%, B |
    \textbf{(A)} A \textbf{(B)} B | A weeks or B weeks | A \to B | \text{A or B} | A^{B} | A_{B} | A \mid B
"""
PAIRS = [("4", "5"), (r"\frac{1}{2}", "3"), (r"\sqrt{2}", r"\pi"), ("2", "-2"), ("B", "C")]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_two_answers_in_a_box_are_not_right_for_both(grader: Grader, pair: tuple[str, str]) -> None:
    hedged = [
        "".join({"A": one, "B": other}.get(character, character) for character in hedge)
        for one, other in permutations(pair)
        for hedge in re.split(r"\s+\|\s+", HEDGES.strip())
    ]
    graded = [outcomes(grader, *((rf"\boxed{{{box}}}", [answer]) for box in hedged)) for answer in pair]
    assert not [box for box, *both in zip(hedged, *graded, strict=True) if both == [C, C]]
