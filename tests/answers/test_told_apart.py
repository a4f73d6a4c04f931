r"""What math-verify takes for equal though it differs, or for different though it is equal, in both directions."""

import time

import pytest
from graded import C, U, W, disagreeing, patient

from e1_trl.answers.grade import Grader
from e1_trl.answers.mathematics.spellings import differ_as_words, join_thousands, readable

grader = pytest.fixture(scope="module")(patient)


# By verdict, what is boxed → the accepted answer.
CASES = {
    "letters and their capitals in the same places": {
        C: r"""
            2N+1 → 2n+1 | 2n+1 → 2N+1 | R-r+N → R-r+n | \frac Rr → R/r | R/r → \frac Rr | (M+m)gh → Mgh+mgh |
            Mgh+mgh → (m+M)gh | \sqrt{R(R-2r)} → \sqrt{R^2-2Rr} | A = a^2 → a^2 | a^2 → A = a^2 | A=a, B=b → a, b |
            (A) a^2 → A | (A) a^2 → a^2 | (a) a^2 → (A) a^2 | (A) a^2 → (a) a^2 | \vec{A}+\vec{a} → \vec{a}+\vec{A} |
            \left(\begin{array}{cc} R & r \end{array}\right) → \begin{pmatrix} R & r \end{pmatrix} | x' = 5 → x=5 |
            the line y=x → The line y=x | The ratio \frac{r}{2} → the ratio \frac{r}{2} | Bob → bob
        """,
    },
    "texts that are no units": {
        C: r"""
            P(\text{even}) = \frac{1}{2} → \frac12 | V_{\text{max}} = \frac{5}{2} → 2.5 | \det A = 5 → 5 |
            \text{Area} = 5\pi \text{ cm}^2 → 5\pi | \text{Speed} = 5 \text{ m/s} → 5 |
            V_{\text{max}} = 5 \text{ V} → 5 | k_{\max} = 5 → 5 | n(A\cup B) = 5 → 5 |
            P(A \mid B) = \frac{1}{2} → \frac12 | 15\mbox{ cm}^2 → $15\mbox{ cm}^2$ | 0.06 → $$0.06 \text{ yuan}$$ |
            $P(\text{even}) = \frac12$ → \$0.5 | \therefore x = 5 → 5 | 5 → 5 \text{ OR } 6 | 6 → 5 \text{ OR } 6
        """,
        W: r"""
            \sqrt{3}\text{; the answer is }\sqrt{2} → \sqrt{3} | \pi \text{ cm or } 2\pi \text{ cm} → \pi |
            x+1 \text{ or maybe } x+2 \text{ (unsure)} → x+1 | E_1 = 4, E_2 = 5 → 5 | 7 → 5 \text{ OR } 6
        """,
        U: r"P(A \mid B) = 1-\frac12 → \frac12",
    },
    "a last letter that is a variable, and powers that are no transposes": {
        C: r"2t → 2t | 50 → 50 cm | 20 → 20 seconds | (1+r)^T P → P(1+r)^T | 2^T → 2^T",
        W: r"2 → 2t | r → r s t | P(1+r) → P(1+r)^T | A → A^T",
    },
    "capitals and primes": {
        C: r"""
            \frac{R}{r} → R/r | A-a → A - a | n = 5 → N = 5 | 5 → N = 5 | c → C | \pi R^2 → \pi R^2 | GMm → G M m |
            r_1 + R_2 → R_2+r_1 | f'(x)=2x → 2x | y'=2y → y'-2y=0 | x^{\prime\prime}+x=0 → x''+x=0 | K → k = K |
            5 meters → 5 Meters | \omega \Omega x → x\Omega\omega | \frac{2mMgh}{m+M} → \frac{2 M m g h}{M+m} |
            GMmR/r → \frac{G M m R}{r} | E \exp(-t/(RC)) → E e^{-t/(RC)} | \frac{\mathrm{R}}{\mathrm{r}} → \frac{R}{r} |
            2\mathit{R}r → 2Rr | \text{Bob} → Bob | \text{Aa} → Aa
        """,
        W: r"""
            r/R → R/r | R - r → r - R | n(N-1) → N(n-1) | Gmm → GMm | x+2X → X+2x | y=2y → y'-2y=0 | 2ab+A → 2Ab+a |
            x^{\prime}+x=0 → x''+x=0 | r_1 + R_2 → r_2+R_1 | \Omega-\omega → \omega-\Omega
        """,
    },
    "variables that are named like units": {
        C: r"""
            \frac{\sqrt{3}}{2}s → \frac{s\sqrt{3}}{2} | \frac{v}{2}t → \frac{vt}{2} | x^2h → hx^2 |
            3n\text{ apples} → 3n | S=\sum_{k=1}^{n-1} k = \frac{n(n-1)}{2} → \frac{n(n-1)}{2} | 3 \mathrm{~m} → 3 m |
            \sum_{k=0}^\infty x^k=\frac{1}{1-x} → \frac{1}{1-x} | $4x+1$\text{ cm} → 4x+1 | 2x \text{ cm}^2 → 2x
        """,
        W: r"\pi r^2h → \pi r^2 | \frac{a}{b}c → \frac{a}{b}",
    },
    "points whose coordinates have names": {
        C: r"""
            (1,2) → x=1, y=2 | (11,7) → p = 11, q = 7 | x=2,y=1 → (2,1) | (1,2) → y=2, x=1 | (1,2,3) → a=1,b=2,c=3 |
            2, 1 → a=1, b=2 | \begin{cases} x=2 \\ y=3 \end{cases} → x=2, y=3 | (7,11) → q = 7, p = 11 |
            (2,3) → \begin{cases} x=2 \\ y=3 \end{cases} | \begin{cases} x=2, \\ y=3 \end{cases} → (2,3) |
            m=2, b=3 → (2,3) | \rho=2, \theta=3, \phi=1 → (2,3,1) | n=7, k=2 → (7,2) | r=3, h=5 → (3,5) |
            (x=2, y=3) → x=2, y=3 | x_0=\frac{25}{13}, M=10 → \left( \frac{25}{13}, 10 \right)
        """,
        W: r"""
            (2,1) → x=1, y=2 | (7,11) → p = 11, q = 7 | y=1, x=2 → (1,2) | (1,3,2) → a=1,b=2,c=3 |
            [1,2] → x=1, y=2 | \begin{cases} x=3 \\ y=2 \end{cases} → (2,3)
        """,
    },
    "words that change the number in front of them": {
        C: r"""
            3\text{ times as many} → 3 | 3\text{ apples and pears} → 3 | 3\text{ cm} → 3 |
            3\text{ or more} → 3\text{ or more} | 16\text{ squared units} → 16 | 125\text{ cubed meters} → 125 |
            0.5\text{ or half} → 0.5 | \frac12\text{ or one half} → \frac12 | 7\text{ not including zero} → 7 |
            \$5 \text{ and no cents} → 5 | 3\text{ plus tax} → 3
        """,
        W: r"""
            3\text{ or more} → 3 | 3\text{ squared} → 3 | 3\text{ factorial} → 3 | 3\text{ plus one} → 3 |
            3 squared → 3 | 3\text{ and a half} → 3 | \frac{3}{5}\text{ thirds} → \frac35
        """,
    },
    "all real numbers": {
        C: r"\mathbb{R} → (-\infty,\infty) | x\in\mathbb{R} → (-\infty, +\infty) | (-\infty,\infty) → \mathbb{R}",
        W: r"\mathbb{R}\setminus\{0\} → (-\infty,\infty) | \mathbb{Q} → \mathbb{R} | (0,\infty) → (-\infty,\infty)",
        U: r"\mathbb{R}\text{ without zero} → (-\infty,\infty) | x\in\mathbb{R}\text{ (positive)} → (-\infty,\infty)",
    },
    "ranges, lists and choices": {
        C: r"""
            x \in \{2,5\} → 2, 5 | (2,5) → 2<x<5 | \text{(D) Both A and B.} → D | \textbf{(D)}\ 37^\circ C. → D |
            (B) P(A) = 3 → B | \langle 1,2\rangle → \langle 1, 2 \rangle |
            \langle 1,\frac12\rangle → \langle 1,0.5\rangle | \lbrace 1,2\rbrace → \{1,2\} | 5=x → x=5 | -1=k → k=-1 |
            \text{A, C, D} → A, C, D
        """,
        W: r"""
            2<x<5 → x=2 \text{ or } x=5 | 5^\circ → 5\% | 5\% → 5^\circ | (B) or (C) → B |
            (B) is wrong, (C) is right → B
        """,
    },
    "times of day, letters of choices, large numbers in words": {
        C: r"""
            3:30\text{ p.m.} → 3:30 PM | \text{3:30 PM} → 3:30 PM | 9:45 → 9:45 a.m. | A) → A | \text{Option A} → A |
            \text{Answer: B} → B | 2.5 \text{ million} → 2500000 | \$2.5 \text{ million} → \$2{,}500{,}000 |
            2500000 → 2.5 million
        """,
        W: r"3:30 AM → 3:30 PM | 3:31 → 3:30 PM | \text{Option B} → A | 2.5 billion → 2500000",
    },
    "spellings of physics and economics": {
        C: r"""
            1950 → 1950^\circ C | 1950^\circ\text{C} → 1950^\circ C | y' + ry = rx(t) → y^{\prime}+ry-rx(t)=0 |
            \text{MR} = \text{SRMC} → MR=SRMC | E_2, E_1 → E_1, E_2 | 2E_0 → 2E_0 | \mathbf{\frac{1}{2}} → \frac12 |
            \mathbf{\sqrt{3}} → \sqrt3
        """,
        W: r"1951 → 1950^\circ C | E_2 → E_1 | \text{MR} = \text{MC} → MR=SRMC",
    },
    "commas between thousands": {
        C: r"""
            x = 12,345 → 12345 | x = 12345 → 12,345 | 1,234\text{ cm} → 1234 | 1234 → 1,234\text{ cm} |
            x > 1,000 → x>1000 | 0{,}125 → 0.125 | \{1,234\} → \{1, 234\} | 1,234 → 1, 234 | 
            100,200,300 → 100, 200, 300 | 110, 143, 242 → 110,143,242
        """,
        W: r"""
            (1,234) → 1234 | 1234 → (1,234) | [1,234] → 1234 | \{1,234\} → 1234 | 1234 → \{1,234\} |
            x = 12,346 → 12345 | 1234 → 1, 234 | 0, 1 → 1,000 | (0, 5) → 5,000 | 345, 12 → 12,345 | x=12, y=345 → 12,345
        """,
        U: r"1,234 + 5,000 → 6234 | x = 1,000 + 234 → 1,234",
    },
    "sets of numbers without braces": {
        C: r"""
            \mathbb R → \mathbb{R} | \mathbb{N} → \mathbb N | \mathbb R\setminus\{1\} → \mathbb{R}\setminus\{1\} |
            n=3k, k \in \mathbb Z → n=3k, k \in \mathbb{Z}
        """,
        W: r"\mathbb N → \mathbb{Z} | n=3k, k \in \mathbb N → n=3k, k \in \mathbb{Z}",
    },
    "times of day are no ratios": {
        W: r"""
            6:40\text{ p.m.} → 3:20\text{ p.m.} | 3:20\text{ p.m.} → 6:40\text{ p.m.} |
            3:20\text{ a.m.} → 3:20\text{ p.m.} | 2:05\text{ PM} → \text{4:10 P.M.}
        """,
        C: r"""
            3:20\text{ p.m.} → 3:20 | 3:20 → 3:20\text{ p.m.} | 3:20 \text{ PM} → 3:20\text{ p.m.} | 2:4 → 1:2 |
            03:20\text{ (pm)} → 3:20\text{ p.m.} | 3:20 p.m. → 3:20 p.m. | 1:2 → 2:4 | \displaystyle 10:25 → 10:25 |
            3:20\text{ to }4:10\text{ p.m.} → 3:20\text{ p.m. to }4:10\text{ p.m.}
        """,
    },
    "words of capitals are no products": {
        W: r"EBE → BEE | BEE → EBE | NYNYNY → NNNYYY | \text{YZY} → YYZ | HTH → HHT | XIX → XXI | (E,O,E) → (E,E,O)",
        C: r"""
            \text{BEE} → BEE | \mathbf{BEE} → BEE | NNN YYY → NNNYYY | RC → CR | CR → RC | RLC → CRL | AAB → A^2B |
            SAA → AAS | (E,E,O) → (E, E, O)
        """,
    },
}


@pytest.mark.parametrize("kind", CASES)
def test_notations_are_told_apart_only_where_they_differ(grader: Grader, kind: str) -> None:
    assert not disagreeing(grader, CASES[kind])


@pytest.mark.parametrize("part", ["1,234", ",123", "1{,}234", "3:20 ", "3:20 p", "A", r"\mathbb ", r"\text{", "Rr"])
def test_telling_notations_apart_takes_linear_time(part: str) -> None:
    text = part * (10**6 // len(part))
    start = time.process_time()
    differ_as_words(text, text[:-1])
    join_thousands(text)
    assert time.process_time() - start < 5


def test_a_system_of_many_lines_is_read_at_once() -> None:
    start = time.process_time()
    for end in (r"x + y = 2 \end{cases}", r"& \end{cases}", ""):
        readable(r"\begin{cases}" + "\n    a = 1 \\\\" * 400 + end)
        readable(r"\begin{cases}" + "    a = 1" * 400 + end)
    assert time.process_time() - start < 5
