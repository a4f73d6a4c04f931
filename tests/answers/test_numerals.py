r"""The numbers of an answer, and the arithmetic in front of an equals sign."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e1_trl.answers.mathematics.numerals import Terms, only_numbers, works_out

# What is left of each: all of it, no number, or the text after the arrow.
KEPT = r"""
    18.8 | .5 | - 5 | \pm 5 | 1,000,000.5 | -\frac{1}{2} | 15/4 | 3:4 | 1.5/2 | \frac{.5}{2.25} | 2\frac{1}{2} |
    8.7 \times 10^{-8} | 10^5 | 28 \%
"""
NONE = r"(3)(4) | 1 2 | 84/12/7 | 1.5/2.5.5 | 1 + 2 < x < 4 | x > y | \frac{\pi}{2}, 1 + 1 | x |  | (5 | 5) | 5}{5"
LEFT = r"""
    5\text{ cm}^2 → 5 | 100^{\circ}\text{C} → 100 | 1010_2 → 1010 | x = 5 → 5 | f(1, 2) = 5 → 5 |
    10.2 + 8.6 = 18.8 → 18.8 | x = \frac{1}{3} \approx 0.33 → \frac{1}{3} | x \approx 5.1 → 5.1 | x = 1, x = 2 → 1, 2 |
    x \in [-2, 7) \cup (8, \infty) → [-2, 7)\cup (8, \infty) | x > 3\text{ cm} → x >3 | x > \sqrt{9} → x >{9} |
    \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} → \begin{pmatrix}1& 2\\ 3& 4\end{pmatrix} |
    1 \le x_1 \leqslant 3 → 1\le x_1 \leqslant3 | a = b, f(x) != 3, x = y < 0.5 → f(x) !=3,  y <0.5 |
    \{x^2 > 4\} → \{x^2 >4\} | \left( 3 < x \right) → (3< x \right) | \text{6 apples} → {6} | \sqrt{16} → {16} |
    5! → 5 | 2^{10} → 2 | (x, y) = (1, -\frac{1}{2}) → (1, -\frac{1}{2})
"""


def cases(text: str) -> list[str]:
    return re.split(r"\s*\|\s+", text.strip())


@pytest.mark.parametrize(
    ("latex", "numbers"),
    [
        *((latex, latex) for latex in cases(KEPT)),
        *((latex, None) for latex in cases(NONE)),
        *(case.split(" → ") for case in cases(LEFT)),
    ],
)
def test_the_numbers_of_an_answer(latex: str, numbers: str | None) -> None:
    assert only_numbers(latex) == numbers


WORKED = r"""
    6*8=48 | 80/4=20 | 100/4=25=20 | x=6*8=48 | \frac{80}{4}=20 | \dfrac{80}{4} = 20 | \frac{10+6}{2}=8 | 2^{10}=1024 |
    5!=120 | 10+6=16 | 6 \cdot 8 = 48 | 6\times8=48 | 6\text{ cm}\cdot 8\text{ cm}=48 | \$10.2+\$8.6=\$18.8 | 6(8)=48 |
    6 apples * 8 = 48 | (6)(8)=48 | 10-(-3)=13 | \left(3+4\right)\cdot 2=14 | 2x-3+4=y | 6 \div 2 = 3 | 1/2+1/3=5/6 |
    6⋅8=48 | 6•8=48 | 6∗8=48 | 6 x 8=48 | 6*8 \equiv 48 | \text{6*8}=48 | \mathrm{6*8}=48 | 6\ast8=48 | 6\,8=48 |
    40~+~8=48 | \tfrac{240}{5}=48 | \{6*8\}=48 | \sqrt{2304}=48 | \gcd(48, 96)=48 | \binom{10}{3} = 120 |
    24 + \sqrt{576} = 48 | 10.2 + 8.6 \approx 18.8 = 18.8 | 6*8 = x = 48 | a = 3 + 4, b = 5
"""
NOT_WORKED = r"""
    48 | 6*8 | x=48 | f(2)=48 | AB = 12 | 2x+3y=5 | x^2-4=0 | (x-2)^2+(y-3)^2=25 | x=\frac12=0.5 | x=3/4=0.75 |
    5-3x=y | y - 4 = 3(x-2) | 1010_2=10 | x_1+x_2=5 | P(X=2)=0.3 | 2\cdot3x=6x | a:b:c=3:4:5 | f(1,2)=5 | 10^3=1000 |
    3 \times 10^5 = 300000 | \sqrt{3}+4=y | \frac{x^2}{9}+\frac{y^2}{4}=1 | x \ge 5 | 48 = 6*8 | y=2x+1 | S_5 = 15 |
    A=\begin{pmatrix}1&2\\3&4\end{pmatrix}, B=\begin{pmatrix}0&1\\1&0\end{pmatrix} | \binom{2n}{n}=C | \gcd(6,n)=1 |
    f(2)=\max(2,a)=a | x=1\ \text{or}\ 2,\ y=3 | x=5\ 1/2, y=2 | \min(2,a)=1, b=3 |
    1\,000\text{ m}=1\text{ km} | \text{Area}=48 | \min(a, b) = 3 | x \equiv 3 | \text{Day 3} = 5 | c = 2\,x = 5
"""


def test_arithmetic_in_front_of_the_last_equals_sign_is_seen() -> None:
    assert [latex for latex in cases(WORKED) if not works_out(latex)] == []
    assert [latex for latex in cases(NOT_WORKED) if works_out(latex)] == []


NUMBERS = st.one_of(
    st.integers(0, 10**6).map(str),
    st.decimals(0, 1000, places=2).map(str),
    st.tuples(st.integers(1, 99), st.integers(1, 99)).map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
)
OPERATORS = st.sampled_from(
    ["+", "-", "*", "\u00f7", r"\cdot", r"\times", r"\div", "^{-1} +", "", "(", r"\text{ plus }", "=3+"]
)


@given(st.lists(NUMBERS, min_size=2, max_size=5), st.lists(OPERATORS, min_size=4, max_size=4))
def test_what_joins_numbers_to_another_number_is_no_number(numbers: list[str], operators: list[str]) -> None:
    joined = numbers[0] + "".join(
        f" {operator} {number}" for operator, number in zip(operators, numbers[1:], strict=False)
    )
    assert only_numbers(joined + ")" * joined.count("(")) is None


@given(NUMBERS)
def test_a_number_is_left_as_it_is_whatever_stands_around_it(number: str) -> None:
    for latex in (
        number,
        f"x = {number}",
        rf"{number} \text{{ cm}}^2",
        rf"\text{{about }} {number}",
        f"1 + 1 = {number}",
    ):
        assert only_numbers(latex) == number


@pytest.mark.parametrize(
    "latex",
    [
        "{" * 10**5 + "5" + "}" * 10**5,
        "- " * 10**5,
        "1" * 10**6,
        "1 " * 10**5,
        "-" + " " * 10**6 + "1" + " " * 10**6,
        "1:" * 10**5,
        "1." * 10**5,
        "1" * 10**5 + "." + "1" * 10**5 + "/",
        "x<1," * 10**5,
        r"\frac{1}{" * 10**5,
        r"\frac{" + "9" * 10**5 + "}{" + "3" * 10**5 + "}",
        r"1 \times " * 10**5,
    ],
)
def test_looking_for_numbers_takes_linear_time(latex: str) -> None:
    start = time.process_time()
    only_numbers(latex, Terms.LOWEST)
    works_out(latex)
    works_out(f"{latex}=1")
    assert time.process_time() - start < 20
