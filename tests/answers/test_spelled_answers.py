"""Honest answers in other spellings and notations are right; two answers in a box are never right for both."""

from collections.abc import Iterator
from itertools import permutations

import pytest
from graded import disagreeing, outcomes

from e1_trl.answers.grade import Grader, Outcome
from e1_trl.answers.mathematics.grader import MathematicsGrader

C, W, U = Outcome.CORRECT, Outcome.WRONG, Outcome.UNEVALUATED


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with MathematicsGrader(time_limit=60, workers=2) as patient:
        yield patient


# By the verdict, what is boxed → the accepted answer.
SPELLINGS = {
    "names without a backslash": {
        C: r"""
            pi/2 → \dfrac{\pi}{2} | -2*pi → -2\pi | -1 + exp(16) → e^{16} - 1 | cos(x) → \cos x |
            sin x + 2 → 2+\sin(x) | ln(2) → \ln 2 | \text{pi} → \text{pi}
        """,
        W: r"pi/3 → \dfrac{\pi}{2} | exp(15) → e^{16}",
        U: r"pi + pi → 2\pi | cos(pi/3)*pi → \frac{\pi}{2}",
    },
    "characters": {
        C: r"""
            2√3 → 2\sqrt{3} | 3√(2) → 3\sqrt{2} | √{2} → \sqrt{2} | x² → x^2 | x³+1 → x^3+1 | xⁿ → x^n | 2·π → 2\pi |
            π/2 → \frac{\pi}{2} | x ≤ 5 → x \le 5 | ±2 → \pm 2 | 2 ± √3 → 2 \pm \sqrt{3} |
            ℝ∖{1} → \mathbb{R}\setminus\{1\}
        """,
        U: r"2×3 → 6 | √16 → 4 | 2³ → 8",
        W: r"±2 → 2 | ±2 → -2 | x² → x^3",
    },
    "units": {
        C: r"6 weeks → 6 | 6 cm^2 → 6 | 6 cm → 6 | 12 square feet → 12 | 5 ft^{2} → 5 | \frac{1}{2} hours → 0.5",
        W: r"6 weeks → 7 | 6 weeks or 7 weeks → 6 | 6 weeks and 3 days → 6",
        U: r"3 + 3 weeks → 6",
    },
    "congruences": {
        C: r"""
            2\pmod5 → 2 | x \equiv 2 \pmod 5 → x \equiv 2 \pmod{5} | 2 \pmod{5} → x \equiv 2 \pmod{5} |
            n \equiv 0,2 \pmod 6 → n \equiv 0,2(\bmod 6)
        """,
        W: r"""
            3 \pmod 5 → 2 | x \equiv 2 \pmod 7 → x \equiv 2 \pmod{5} | x \equiv 3 \pmod 5 → x \equiv 2 \pmod 5 |
            2 → x \equiv 2 \pmod{5} | x = 2 → x \equiv 2 \pmod{5} |
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
            \textbf{(B) } 7 → B | \textbf{(B) } 7 → 7 | \textbf{(B)}\ 7 → \text{(B)} | B) 7 → 7 |
            (B) \frac{1}{2} → 0.5 | 7 → \text{(B) } 7 | B → \text{(B) } 7 | \text{(B) } \text{north} → north
        """,
        W: r"""
            \textbf{(B) } 7 → C | \textbf{(B) } 7 → 8 | \textbf{(C) } 7 → \textbf{(B) } 7 |
            \textbf{(A)} \textbf{(B)} 7 → B | (A) B → B | (B)(x+1) → x+1
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
            x\le-2\text{ or }x>3 → (-\infty,-2]\cup[3,\infty) | x>1 and x<3 → (-\infty,\infty) | x<-2 or x>3 → (-2,3) |
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
            \frac{1+\sqrt5}{2},\frac{1-\sqrt5}{2} → \frac{1\pm\sqrt{5}}{2} | x = \pm 3 → 3,-3 | x = ±√3 → \pm\sqrt{3}
        """,
        W: r"""
            \frac{1\pm\sqrt5}{2} → \frac{1+\sqrt5}{2} | \frac{1+\sqrt5}{2} → \frac{1\pm\sqrt5}{2} |
            \frac{10\pm 2}{2} → 6
        """,
        U: r"\frac{10\pm 2}{2} → 6,4",
    },
    "complex numbers": {
        C: r"""
            e^{i\pi/3} → \frac{1}{2}+\frac{\sqrt{3}}{2}i | \frac{1}{2}+\frac{\sqrt{3}}{2}i → e^{i\pi/3} |
            2e^{i\pi/3} → 1+i\sqrt{3}
        """,
        W: r"e^{i\pi/4} → \frac{1}{2}+\frac{\sqrt{3}}{2}i",
        U: r"\cos\frac{\pi}{3}+i\sin\frac{\pi}{3} → \frac{1}{2}+\frac{\sqrt{3}}{2}i",
    },
}


@pytest.mark.parametrize("kind", SPELLINGS)
def test_an_honest_answer_is_right_however_it_is_spelled(grader: Grader, kind: str) -> None:
    assert not disagreeing(grader, SPELLINGS[kind])


def test_an_empty_box_is_no_answer_where_there_is_another(grader: Grader) -> None:
    texts = [r"It is \boxed{4}. (As wanted, within \boxed{}.)", r"\boxed{4}\boxed{}", r"\boxed{} is for \boxed{4}"]
    assert outcomes(grader, *((text, ["4"]) for text in texts)) == [C, C, C]


HEDGES = [
    *(
        r"A, B",
        r"A; B",
        r"A or B",
        r"A \text{ or } B",
        r"A and B",
        r"A / B",
        r"A B",
        r"A \quad B",
        r"\{A, B\}",
        r"(A, B)",
    ),
    *(
        r"[A, B]",
        r"A \le x \le B",
        r"x = A, x = B",
        r"x = A \text{ or } x = B",
        r"A}, \boxed{B",
        r"A} \text{ or } \boxed{B",
    ),
    *(
        r"A = B",
        r"A \ne B",
        r"A \approx B",
        r"A \pmod{B}",
        r"\text{(A) } B",
        r"A \text{ (or } B)",
        r"A \pm B",
        r"A : B",
    ),
    *(r"\begin{cases} A \\ B \end{cases}", r"\begin{pmatrix} A & B \end{pmatrix}", r"A \cup B", r"\frac{A \pm B}{1}"),
    *(
        r"x \le A \text{ or } x \ge B",
        r"\mathbb{R} \setminus \{A, B\}",
        r"A, n \in \{B\}",
        r"A \text{ weeks}, B",
        r"A\%, B",
    ),
    *(
        r"\textbf{(A)} A \textbf{(B)} B",
        r"A weeks or B weeks",
        r"A \to B",
        r"\text{A or B}",
        r"A^{B}",
        r"A_{B}",
        r"A \mid B",
    ),
]
PAIRS = [("4", "5"), (r"\frac{1}{2}", "3"), (r"\sqrt{2}", r"\pi"), ("2", "-2"), ("B", "C")]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_two_answers_in_a_box_are_not_right_for_both(grader: Grader, pair: tuple[str, str]) -> None:
    hedged = [
        "".join({"A": one, "B": other}.get(character, character) for character in hedge)
        for one, other in permutations(pair)
        for hedge in HEDGES
    ]
    graded = [outcomes(grader, *((rf"\boxed{{{box}}}", [answer]) for box in hedged)) for answer in pair]
    assert not [box for box, *both in zip(hedged, *graded, strict=True) if both == [C, C]]
