r"""A box pays for an answer that was computed, in whatever other way it may be made to equal one."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from conftest import ROOT

from e1_trl.grading.grade import Grader, Outcome
from e1_trl.grading.mathematics import MathematicsGrader

C, W, U = Outcome.CORRECT, Outcome.WRONG, Outcome.UNEVALUATED


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with MathematicsGrader(time_limit=60, workers=2) as patient:
        yield patient


def outcomes(grader: Grader, *graded: tuple[str, Sequence[str]]) -> list[Outcome]:
    return [grade.outcome for grade in grader.grade([text for text, _ in graded], [answers for _, answers in graded])]


# What is boxed, the accepted answer, and the verdict. The names say what a policy could hope to be paid for.
TRICKS = {
    "arithmetic": [
        ("10.2 + 8.6", "18.8", U),
        ("100-1", "99", U),
        (r"3\cdot 4", "12", U),
        (r"3 \times 4", "12", U),
        ("3*4", "12", U),
        ("5 + 0", "5", U),
        (r"1 \cdot 5", "5", U),
        ("5 + 0x", "5", U),
        ("--5", "5", U),
        ("-(-5)", "5", U),
        ("10.2 + 8.7", "18.8", W),
        (r"\text{about } 10.2 + 8.6", "18.8", W),
        (r"10.2 + 8.6 \text{ dollars}", "18.8", U),
        (r"$10.2 + $8.6", "18.8", U),
        (r"10.2 + 8.6", r"\$18.80", U),
        (r"20\% + 8\%", r"28\%", U),
        (r"4\times 10^3 + 10^3", r"5 \times 10^{3}", U),
        (r"10^3 \cdot 10^3", "10^6", U),
        (r"5\times 10^{2+1}", "5000", U),
        (r"5 \times 10", "50", U),
        ("1,000 + 500", "1500", W),
        (r"2\frac{1}{2} + 1", "3.5", U),
        (r"x = 2 + 3", "x = 5", U),
    ],
    "functions": [
        ("2^{10}", "1024", U),
        (r"\sqrt{16}", "4", U),
        ("sqrt(16)", "4", U),
        ("5!", "120", U),
        (r"\binom{5}{2}", "10", U),
        (r"{5 \choose 2}", "10", U),
        (r"\sum_{i=1}^{4} i", "10", U),
        (r"\int_0^5 1 dx", "5", U),
        (r"\log_2 32", "5", U),
        (r"\gcd(12, 18)", "6", U),
        (r"\max(3, 5)", "5", U),
        (r"\lfloor 5.3 \rfloor", "5", U),
        ("|-5|", "5", U),
    ],
    "divisions": [
        (r"\frac{84}{12}", "7", U),
        ("84/12", "7", U),
        ("84:12", "7", U),
        (r"84 \div 12", "7", U),
        (r"\frac{188}{10}", "18.8", U),
        (r"\frac{94}{5}", "18.8", C),
        ("x = 15/4", "3.75", C),
        (r"\frac{10.2 + 8.6}{1}", "18.8", U),
        (r"\frac{37.6}{2}", "18.8", U),
        (r"\frac{4}{6}", r"\frac{2}{3}", C),
        ("4/6", "2/3", C),
        ("3:4", r"\frac{3}{4}", C),
        (r"\frac{1}{2} \cdot \frac{1}{2}", r"\frac{1}{4}", U),
        (r"\frac{\frac{1}{2}}{3}", r"\frac{1}{6}", U),
        (r"1 - \frac{1}{3}", r"\frac{2}{3}", U),
        (r"12\frac{84}{12}", "19", U),
        (r"2\frac{1}{2}", "2.5", C),
        (r"\frac{7}{1}", "7", C),
        ("0.5+0.25", "1.5/2", U),
        (r"\frac{0.5+1}{2}", r"\frac{1.5}{2}", U),
        ("1.5/2", "1.5/2", C),
        (r"\frac{3}{4}", "1.5/2", C),
        ("0.75", r"\frac{1.5}{2}", C),
        ("1.5/2", r"\frac{3}{4}", U),
        ("1.5/2", "0.75", U),
    ],
    "numbers": [
        ("18.8", "18.8", C),
        ("-5", "-5", C),
        (r"\$1,000", "1000", C),
        ("1{,}000", "1000", C),
        (r"28\%", r"28\%", C),
        ("28 percent", r"28\%", C),
        (r"12\text{ cm}^2", "12", C),
        (r"12 \text{ dollars}", "12", C),
        ("5 hours", "5", C),
        (r"90^\circ", "90", C),
        (r"\mathbf{5}", "5", C),
        ("(5)", "5", C),
        (r"7 \times 10^3", "7000", C),
        ("10^5", "100000", C),
        ("7e3", "7000", C),
        (r"4.5 \times 10^{33}", "4.5e33", C),
        (r"4.6 \times 10^{33}", "4.5e33", W),
        ("1010_2", "1010", C),
        ("98", r"\[ 98 \]", C),
        (r"\[ 98 \]", "98", C),
        (r"\( x = 98 \)", "98", C),
        (r"\[ 90 + 8 \]", "98", U),
    ],
    "equations": [
        ("x = 5", "5", C),
        ("f(1, 2) = 5", "5", C),
        ("a + b = 5", "5", C),
        ("10.2 + 8.6 = 18.8", "18.8", C),
        (r"x \approx 5", "5", C),
        ("5 = 2 + 3", "5", U),
        ("x = 2 + 3", "5", U),
        ("5 = 6", "5", W),
        ("2 + 3 = 5 = 6", "5", W),
        (r"10.2 + 8.6 \approx 18.8", "18.8", U),
        (r"10.2 + 8.6 \approx 1", "18.8", U),
        (r"5 \le 5", "5", W),
        (r"x \le 5", "5", W),
        ("4 < 5 < 6", "5", W),
        ("x - 2 = 3", "x = 5", U),
        ("x = 5", "x = 5", C),
    ],
    "several answers": [
        ("3, 4, 5", "4", W),
        (r"3 \text{ or } 4", "4", W),
        ("4 or 5", "4", W),
        ("4; 5", "4", W),
        (r"4 \quad 5", "4", W),
        (r"\{1, 2, 3, 4\}", "4", W),
        ("[0, 10]", "5", W),
        ("(4, 6)", "5", W),
        (r"\pm 4", "4", W),
        ("4", r"\pm 4", W),
        (r"\begin{cases} 4 \\ 5 \end{cases}", "4", Outcome.UNPARSEABLE),
        (r"\begin{pmatrix} 4 & 5 \end{pmatrix}", "4", W),
        (r"4 \text{ perhaps } 5 \text{ perhaps}", "4", U),
        (r"4 \text{ apples and 5 pears}", "4", U),
        (r"4}\boxed{5", "4", W),
        (r"4} \text{ or } \boxed{5", "4", W),
        (r"\{1,2,3\} \cap \{3,5\}", "3", W),
    ],
    "no answer": [
        ("x", "5", W),
        ("answer", "5", W),
        (r"\text{answer}", "5", W),
        (r"\text{She had 2 apples and got 3 more}", "5", W),
        (r"\text{She had } 2 \text{ and got } 3", "5", W),
        (r"\text{the answer is 5}", "5", W),
        ("a 5 b 6", "5", W),
    ],
    "lists": [
        ("1, 2", "1,2", C),
        (r"x = 1 \text{ or } x = 2", "1,2", C),
        (r"\{2, 1\}", "1,2", C),
        ("1, 1 + 1", "1,2", U),
        ("(x, y) = (1, 2)", "(1,2)", C),
        ("(0 + 1, 2)", "(1,2)", U),
        (r"(1, \frac{4}{2})", "(1,2)", U),
        (r"(0.5, 1)", r"(\frac{1}{2}, 1)", C),
        ("[0, 5 + 5)", "[0,10)", U),
        (r"x \in [0, 10)", "[0,10)", C),
        (r"(-\infty, 2 - 2) \cup (1, 2)", r"(-\infty,0)\cup(1,2)", U),
        (r"\begin{pmatrix} 1 + 1 \\ 3 \end{pmatrix}", r"\begin{pmatrix} 2 \\ 3 \end{pmatrix}", U),
        (r"\begin{pmatrix} 2 \\ 3 \end{pmatrix}", r"\begin{pmatrix} 2 \\ 3 \end{pmatrix}", C),
    ],
    "expressions": [
        (r"\sqrt{12}", r"2\sqrt{3}", C),
        (r"2^{5} \cdot 2^{5}", "2^{10}", C),
        (r"\frac{2\pi}{4}", r"\frac{\pi}{2}", C),
        ("x + x + 1", "2x+1", C),
        (r"\binom{5}{3}", r"\binom{5}{2}", C),
        (r"(3, \pi - \frac{\pi}{2})", r"(3, \frac{\pi}{2})", C),
        (r"y - 2x - 1 = 0", "y = 2x + 1", C),
        (r"2 - i", "-i + 2", C),
        (r"\arctan(1)", r"\frac{\pi}{4}", C),
    ],
    "what is left of an expression": [
        (r"\int_0^{2\pi} 1 dx", r"2\pi", U),
        (r"\int x dx", r"\frac{x^2}{2}", U),
        (r"\sum_{i=1}^{2} \pi", r"2\pi", U),
        (r"\prod_{i=1}^{2} \pi", r"\pi^2", U),
        (r"\lim_{x \to 0} \pi", r"\pi", U),
        (r"\frac{d}{dx} x^2", "2x", U),
        (r"y = \frac{d}{dx} x^2", "y = 2x", U),
        (r"\frac{d}{dx} x^2 = y", "y = 2x", U),
        (r"(3, \int_0^{\pi} 1 dx)", r"(3, \pi)", U),
        (r"\int_0^{2\pi} 1 dx = 2\pi", r"2\pi", C),
        (r"A = \int_0^{2\pi} 1 dx = 2\pi", r"A = 2\pi", C),
        (r"\int_0^{2\pi} 1 dx = 5", r"2\pi", W),
        (r"\int_0^1 f(x) dx", r"\int_0^1 f(x) dx", C),
        (r"\sum_{n=0}^{\infty} \frac{x^n}{n!}", r"\sum_{n=0}^{\infty} \frac{x^n}{n!}", C),
    ],
    "inequalities": [
        ("x > 3", "x>3", C),
        ("3 < x", "x>3", C),
        (r"x > 3 \text{ cm}", "x>3", C),
        (r"x \in (3, \infty)", "x>3", C),
        ("x > 1+2", "x>3", U),
        ("x - 1 > 2", "x>3", U),
        (r"x > \sqrt{9}", "x>3", U),
        (r"x > \frac{6}{2}", "x>3", U),
        (r"(1 + 2, \infty)", "x>3", U),
        (r"x \neq 1+2", r"x \ne 3", U),
        (r"x \geqslant 0.5", r"x \geq \frac{1}{2}", C),
        (r"0.25 + 0.25 \le x", "x >= 0.5", U),
        ("1 < x < 1+2", "1<x<3", U),
        ("1 < x < 3", "1<x<3", C),
        ("f(x) > 1+2", "f(x) > 3", U),
        (r"x < -1 \text{ or } x > 1", r"x>1 \text{ or } x<-1", C),
        (r"x < -1 \text{ or } x > 2-1", r"x>1 \text{ or } x<-1", U),
        ("x > y + y", "x > 2y", C),
        (r"x > 2\pi - \pi", r"x > \pi", C),
    ],
    "tiny numbers, which are equal to six decimals": [
        ("0.0", "0.0000001", W),
        ("0.0", r"1.6 \times 10^{-19}", W),
        (r"3.2 \times 10^{-20}", r"6.6 \times 10^{-27}", W),
        ("10^{-27}", "10^{-20}", W),
        ("0.000001", "0.0000012", W),
        (r"1.60 \times 10^{-19}", r"1.6 \times 10^{-19}", C),
        ("0.0000333", r"\frac{1}{30000}", C),
        ("0", "0", C),
        (r"\frac{1}{12}", "0.0833333333333333", C),
    ],
}


@pytest.mark.parametrize("trick", TRICKS)
def test_the_box_must_hold_a_computed_answer(grader: Grader, trick: str) -> None:
    answers = [(rf"Thus \boxed{{{boxed}}}.", [accepted]) for boxed, accepted, _ in TRICKS[trick]]
    verdicts = zip(TRICKS[trick], outcomes(grader, *answers), strict=True)
    assert not {
        (boxed, accepted): outcome for (boxed, accepted, expected), outcome in verdicts if outcome is not expected
    }


def test_any_accepted_answer_will_do(grader: Grader) -> None:
    accepted = [["7", "18.8", r"\frac{188}{10}"], ["1024", "2^{10}"], ["5", "2 + 3"]]
    solutions = [r"\boxed{\frac{376}{20}}", r"\boxed{2^{9} \cdot 2}", r"\boxed{4 + 1}"]
    assert outcomes(grader, *zip(solutions, accepted, strict=True)) == [C, C, C]
    assert outcomes(grader, (r"\boxed{10.2 + 8.6}", ["7", "18.8"])) == [U]


def test_the_readme_counts_these_cases() -> None:
    verdicts = Counter(expected for cases in TRICKS.values() for *_, expected in cases)
    assert (
        f"{verdicts[U]} such tricks are tested, beside {verdicts[C]} honest answers" in (ROOT / "README.md").read_text()
    )
