r"""A box is right only if its answer is computed, whatever else makes it equal to the accepted one."""

import pytest
from graded import C, U, W, disagreeing, outcomes, patient

from e1_trl.answers.grade import Grader, Outcome

grader = pytest.fixture(scope="module")(patient)


SHEAR = r"\begin{pmatrix} 1 & x + y \\ 0 & 1 \end{pmatrix}"
# By verdict, what is boxed → the accepted answer. The names say what a policy could try instead of computing.
TRICKS = {
    "arithmetic": {
        U: r"""
            10.2 + 8.6 → 18.8 | 3*4 → 12 | 5 + 0 → 5 | -(-5) → 5 | 10.2 + 8.6 \text{ dollars} → 18.8 |
            $10.2 + $8.6 → 18.8 | 10.2 + 8.6 → \$18.80 | 20\% + 8\% → 28\% | 4\times 10^3 + 10^3 → 5 \times 10^{3} |
            5\times 10^{2+1} → 5000 | x = 2 + 3 → x = 5 | 1,000 + 500 → 1500
        """,
        W: r"10.2 + 8.7 → 18.8 | \text{about } 10.2 + 8.6 → 18.8",
    },
    "functions": {
        U: r"""
            2^{10} → 1024 | sqrt(16) → 4 | {5 \choose 2} → 10 | \sum_{i=1}^{4} i → 10 | \gcd(12, 18) → 6 |
            \max(3, 5) → 5 | \lfloor 5.3 \rfloor → 5
        """,
    },
    "divisions": {
        U: r"""
            \frac{84}{12} → 7 | 84:12 → 7 | 84 \div 12 → 7 | \frac{188}{10} → 18.8 | \frac{37.6}{2} → 18.8 |
            \frac{\frac{1}{2}}{3} → \frac{1}{6} | 2\frac{2}{4} → 2.5 | 0.5+0.25 → 1.5/2 |
            \frac{0.5+1}{2} → \frac{1.5}{2} | 1.5/2 → \frac{3}{4}
        """,
        C: r"""
            \frac{94}{5} → 18.8 | 3:4 → \frac{3}{4} | \frac{3}{3} → 1 | \frac{7}{1} → 7 | \frac{3}{4} → 1.5/2 |
            0.75 → \frac{1.5}{2} | \frac{6}{3} → \frac{4}{2}
        """,
    },
    "numbers": {
        C: r"""
            18.8 → 18.8 | 28\% → 28\% | 28 percent → 28\% | 12 \text{ dollars} → 12 | 5 hours → 5 | (5) → 5 |
            4.5 \times 10^{33} → 4.5e33 | 1010_2 → 1010 | 98 → \[ 98 \] | \[ 98 \] → 98 | \( x = 98 \) → 98
        """,
        W: r"4.6 \times 10^{33} → 4.5e33",
        U: r"\[ 90 + 8 \] → 98",
    },
    "equations": {
        C: r"x = 5 → 5 | x \approx 5 → 5 | x = 5 → x = 5",
        U: r"5 = 2 + 3 → 5 | 10.2 + 8.6 \approx 18.8 → 18.8 | 10.2 + 8.6 \approx 1 → 18.8",
        W: r"5 = 6 → 5 | 2 + 3 = 5 = 6 → 5 | x \le 5 → 5 | 4 < 5 < 6 → 5",
    },
    "several answers": {
        W: r"""
            3, 4, 5 → 4 | 3 \text{ or } 4 → 4 | 4 or 5 → 4 | 4; 5 → 4 | 4 \quad 5 → 4 | \{1, 2, 3, 4\} → 4 |
            4 \text{ perhaps } 5 \text{ perhaps} → 4 | [0, 10] → 5 | (4, 6) → 5 | \pm 4 → 4 | 4 → \pm 4 |
            \begin{pmatrix} 4 & 5 \end{pmatrix} → 4 | 4}\boxed{5 → 4 | 4} \text{ or } \boxed{5 → 4 |
            \{1,2,3\} \cap \{3,5\} → 3
        """,
        Outcome.UNPARSEABLE: r"\begin{cases} 4 \\ 5 \end{cases} → 4",
        U: r"4 \text{ apples and 5 pears} → 4",
    },
    "no answer": {
        W: r"""
            x → 5 | answer → 5 | \text{answer} → 5 | \text{She had 2 apples and got 3 more} → 5 |
            \text{She had } 2 \text{ and got } 3 → 5 | \text{the answer is 5} → 5 | a 5 b 6 → 5
        """,
    },
    "lists": {
        C: r"1, 2 → 1,2 | (0.5, 1) → (\frac{1}{2}, 1)",
        U: r"1, 4/2 → 1,2 | [0, 5 + 5) → [0,10) | (-\infty, 2 - 2) \cup (1, 2) → (-\infty,0)\cup(1,2)",
    },
    "expressions": {
        C: r"\frac{2\pi}{4} → \frac{\pi}{2}",
    },
    "what is left of an expression": {
        U: r"""
            \int_0^{2\pi} 1 dx → 2\pi | \int x dx → \frac{x^2}{2} | \sum_{i=1}^{2} \pi → 2\pi |
            \prod_{i=1}^{2} \pi → \pi^2 | \lim_{x \to 0} \pi → \pi | y = \frac{d}{dx} x^2 → y = 2x |
            \frac{d}{dx} x^2 = y → y = 2x | (3, \int_0^{\pi} 1 dx) → (3, \pi)
        """,
        C: r"""
            \int_0^{2\pi} 1 dx = 2\pi → 2\pi | A = \int_0^{2\pi} 1 dx = 2\pi → A = 2\pi |
            \int_0^1 f(x) dx → \int_0^1 f(x) dx |
            \sum_{n=0}^{\infty} \frac{x^n}{n!} → \sum_{n=0}^{\infty} \frac{x^n}{n!}
        """,
        W: r"\int_0^{2\pi} 1 dx = 5 → 2\pi",
    },
    "inequalities": {
        C: r"""
            x > 3 → x>3 | x \in (3, \infty) → x>3 | x \geqslant 0.5 → x \geq \frac{1}{2} | 1 < x < 3 → 1<x<3 |
            -x > -1 → x < 1
        """,
        U: r"""
            x > 1+2 → x>3 | (1 + 2, \infty) → x>3 | x \neq 1+2 → x \ne 3 | 0.25 + 0.25 \le x → x >= 0.5 |
            1 < x < 1+2 → 1<x<3 | f(x) > 1+2 → f(x) > 3 | x < -1 \text{ or } x > 2-1 → x>1 \text{ or } x<-1 |
            x > y + y → x > 2y | x > 2\pi - \pi → x > \pi
        """,
    },
    "what math-verify computes while it reads": {
        U: r"""
            \begin{vmatrix} 10.2 & -8.6 \\ 1 & 1 \end{vmatrix} → 18.8 |
            \begin{vmatrix} 27 & 0 \\ 0 & 14 \end{vmatrix} → 378 |
            (\begin{vmatrix} 100 & 1 \\ 1 & 1 \end{vmatrix}, 3) → (99, 3) |
            x > \begin{vmatrix} 100 & 1 \\ 1 & 1 \end{vmatrix} → x > 99 |
            \det\begin{pmatrix} 27 & 0 \\ 0 & 14 \end{pmatrix} → 378 |
            \operatorname{tr}\begin{pmatrix} 27 & 0 \\ 0 & 14 \end{pmatrix} → 41 |
            \begin{vmatrix} x & y & 1 \\ 0 & 1 & 1 \\ 1 & 3 & 1 \end{vmatrix} = 0 → y = 2x + 1 |
            \operatorname{trace}(\begin{pmatrix} x & 0 \\ 0 & y \end{pmatrix}) → x + y |
            2\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} → \begin{pmatrix} 2 & 4 \\ 6 & 8 \end{pmatrix} |
            \operatorname{lcm}(4, 6) → 12 | 12\frac{23}{3} → \frac{59}{3} | 100\frac{7}{2} → \frac{207}{2} |
            12 23/3 → \frac{59}{3} | \{1\} \cup \{2, 3\} → \{1, 2, 3\} | [0, 5] \cup [3, 10] → [0, 10] |
            \begin{pmatrix} 1 & x \\ 0 & 1 \end{pmatrix} \begin{pmatrix} 1 & y \\ 0 & 1 \end{pmatrix} → SHEAR |
            \begin{pmatrix} 1 & x \\ 0 & 1 \end{pmatrix} \xrightarrow{c_2 + y c_1} → SHEAR |
            \|(\begin{pmatrix} 1 \\ 1 \end{pmatrix})\| → \sqrt{2} |
            \operatorname{norm}(\begin{pmatrix} 1 \\ 1 \end{pmatrix}) → \sqrt{2} |
            x^2 - 1 = \begin{vmatrix} x & 1 \\ 1 & x \end{vmatrix} → x^2 - 1 | [0, 1] \cup [1, \pi] → [0, \pi] |
            \{x, y\} \cup \{z\} → \{x, y, z\}
        """,
        C: r"""
            \begin{vmatrix} a & b \\ c & d \end{vmatrix} → \begin{vmatrix} a & b \\ c & d \end{vmatrix} |
            19\frac{2}{3} → \frac{59}{3} | 19 2/3 → \frac{59}{3} | [0, 1] \cup (3, 10] → [0, 1] \cup (3, 10] |
            4343_6 → 4343_6 | 4343 → 4343_6 | SHEAR → SHEAR |
            \begin{vmatrix} x & 1 \\ 1 & x \end{vmatrix} = x^2 - 1 → x^2 - 1
        """,
        W: r"2\text{ }3 → 23 | 4343_7 → 4343_6",
    },
    "inequalities that are not solved": {
        U: r"""
            x^2 < 4 → (-2, 2) | e^x > 1 → (0, \infty) | x^2 \ge 4 → (-\infty, -2] \cup [2, \infty) |
            x^2 < 2 → (-\sqrt{2}, \sqrt{2})
        """,
        C: r"-2 < x < 2 → (-2, 2)",
    },
    "equations without a solution, which have the same ones": {
        W: r"""
            1 = 0 → f(1) = 0 | f(1) = 1 → f(1) = 0 | x^2 = -7 → r^2 + r + 1 = 0 | x^2 + 7 = 0 → x^2 + x + 1 = 0 |
            5 = 6 → 0.56 = 56\%
        """,
        C: r"f(1) = 0 → f(1) = 0 | x + x^2 = -1 → x^2 + x + 1 = 0",
    },
    "percentages": {
        C: r"""
            12.5\% → 12.5 | 12.5 → 12.5\% | 0.125 → 12.5\% | 42.0\% → 42 | 62.5 \text{ percent} → 62.5 |
            33\frac{1}{3}\% → 33\frac {1}{3}\% | 33\frac{1}{3} → 33\frac {1}{3}\% | \frac{100}{3}\% → 33\frac{1}{3}\% |
            \frac{4\sqrt{3} - 3}{13} \times 100 → \frac{4\sqrt{3} - 3}{13} \times 100\%
        """,
        W: r"1250 → 12.5\% | 12.6\% → 12.5",
        U: r"60 + 2.5\% → 62.5 | 60 + 2.5 → 62.5\%",
    },
    "spellings": {
        C: r"""
            \left[\begin{array}{cc} 1 & 2 \\ 3 & 4 \end{array}\right] → \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} |
            \begin{array}{rr} 1 & 2 \\ 3 & 4 \end{array} → \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} |
            \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} → \left(\begin{array}{cc} 1 & 2 \\ 3 & 4 \end{array}\right) |
            24e-32 → 24e - 32 | \frac{3e-1}{2} → \frac{3e - 1}{2} | \text{5 cm} → 5 | \text{\$}18.90 → 18.90 |
            90\degree → 90 | 120° → 120 | \approx 5 → 5 | \text{Answer: }5 → 5 | {\bf 5} → 5 | \color{red}5 → 5 |
            1\,000\,000 → 1000000 | 3 1/2 → 3.5 | 5½ → 5.5 | ５ → 5 | –5 → -5 | \text{32,348} → \$32,348 |
            \text{3:4} → 3:4 | \text{60°} → 60^\circ | 18~\text{cm} → 18 | 25\,\% → 25\% | 3\,\frac{1}{2} → 3.5 |
            3 + 4 i → 3 + 4i | 0.5 + 1.5i → \frac{1}{2} + \frac{3}{2}i | 3 + 4\mathrm{i} → 3 + 4i | \mathrm{e}^2 → e^2 |
            3:4:5 → 3 : 4 : 5 | a:b:c = 3:4:5 → 3:4:5 | 0.\overline{6} → \frac{2}{3} | \frac{202}{3} → 67.\overline{3} |
            1.2\overline{34} → \frac{611}{495} | (-∞, 2] → (-\infty, 2] | (0, 1) ∪ (2, 3) → (0, 1) \cup (2, 3) |
            \{x \mid x \le 2\} → (-\infty, 2] | \underline{18} → 18 | June 20 → \text{June 20} | \text{north} → north |
            x \ge 5 → [5, \infty) | [5, \infty) → x \ge 5
        """,
        U: r"""
            \left(\begin{array}{c} 1 \\ 3 + 1 \end{array}\right) → \begin{pmatrix} 1 \\ 4 \end{pmatrix} |
            \approx 2 + 3 → 5 | \text{Answer: }2 + 3 → 5 | \frac{60°}{2} → 30 | 3\,\frac{5}{4} → 4.25 |
            0.\overline{6} + 1 → \frac{5}{3} | \{x \mid x^2 < 4\} → (-2, 2) | x \ge 2 + 3 → [5, \infty)
        """,
        W: r"""
            0.2 → 2e - 1 | \text{5 + 3} → 8 | 5\,6 → 56 | 5\text{3} → 53 | 3:5:4 → 3:4:5 |
            0.\overline{5} → \frac{2}{3} | June 21 → \text{June 20}
        """,
    },
    "tiny numbers, which are equal to six decimals": {
        W: r"""
            0.0 → 0.0000001 | 0.0 → 1.6 \times 10^{-19} | 3.2 \times 10^{-20} → 6.6 \times 10^{-27} |
            10^{-27} → 10^{-20} | 0.000001 → 0.0000012 | 0.0 → \left(\frac{1}{2}\right)^{40} | 0.0 → e^{-30} |
            0.0 → \frac{9!}{9^{19}} | \frac{\pi}{10^{30}} → \frac{\pi}{10^{20}}
        """,
        C: r"""
            1.60 \times 10^{-19} → 1.6 \times 10^{-19} | 0.0000333 → \frac{1}{30000} | 0 → 0 |
            \frac{\pi}{10^{20}} → \frac{\pi}{10^{20}} | \frac{1}{2^{30}} → 2^{-30} | \frac{1}{12} → 0.0833333333333333
        """,
    },
}


@pytest.mark.parametrize("trick", TRICKS)
def test_the_box_must_hold_a_computed_answer(grader: Grader, trick: str) -> None:
    assert not disagreeing(grader, {verdict: text.replace("SHEAR", SHEAR) for verdict, text in TRICKS[trick].items()})


def test_any_accepted_answer_will_do(grader: Grader) -> None:
    accepted = [["7", "18.8", r"\frac{188}{10}"], ["1024", "2^{10}"], ["5", "2 + 3"]]
    solutions = [r"\boxed{\frac{376}{20}}", r"\boxed{32^{2}}", r"\boxed{4 + 1}"]
    assert outcomes(grader, *zip(solutions, accepted, strict=True)) == [C, C, C]
    assert outcomes(grader, (r"\boxed{10.2 + 8.6}", ["7", "18.8"])) == [U]
