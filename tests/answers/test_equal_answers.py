r"""An answer is right if it equals the accepted one, in whatever spelling, notation or form, and is computed as far.

Cases say what is boxed → the accepted answer, below their verdict and kind.
"""

import re
import time
from itertools import permutations

import pytest
from graded import C, U, W, outcomes, patient
from tables import read_table

from e1_trl.answers.grade import Grader
from e1_trl.answers.mathematics.spellings import differ_as_words, join_thousands, readable

grader = pytest.fixture(scope="module")(patient)

# The kinds say what a policy could try instead of computing.
TRICKS = r"""
arithmetic
    unevaluated: 10.2 + 8.6 → 18.8 | 3*4 → 12 | 5 + 0 → 5 | -(-5) → 5 | 10.2 + 8.6 \text{ dollars} → 18.8
        $10.2 + $8.6 → 18.8 | 10.2 + 8.6 → \$18.80 | 20\% + 8\% → 28\% | 4\times 10^3 + 10^3 → 5 \times 10^{3}
        5\times 10^{2+1} → 5000 | x = 2 + 3 → x = 5 | 1,000 + 500 → 1500
    wrong: 10.2 + 8.7 → 18.8 | \text{about } 10.2 + 8.6 → 18.8
functions
    unevaluated: 2^{10} → 1024 | sqrt(16) → 4 | {5 \choose 2} → 10 | \sum_{i=1}^{4} i → 10 | \gcd(12, 18) → 6
        \max(3, 5) → 5 | \lfloor 5.3 \rfloor → 5
divisions
    unevaluated: \frac{84}{12} → 7 | 84:12 → 7 | 84 \div 12 → 7 | \frac{188}{10} → 18.8 | \frac{37.6}{2} → 18.8
        \frac{\frac{1}{2}}{3} → \frac{1}{6} | 2\frac{2}{4} → 2.5 | 0.5+0.25 → 1.5/2 | \frac{0.5+1}{2} → \frac{1.5}{2}
        1.5/2 → \frac{3}{4}
    correct: \frac{94}{5} → 18.8 | 3:4 → \frac{3}{4} | \frac{3}{3} → 1 | \frac{7}{1} → 7 | \frac{3}{4} → 1.5/2
        0.75 → \frac{1.5}{2} | \frac{6}{3} → \frac{4}{2}
numbers
    correct: 18.80 → 18.8 | 28 \% → 28\% | 28 percent → 28\% | 12 \text{ dollars} → 12 | 5 hours → 5 | (5) → 5
        4.5 \times 10^{33} → 4.5e33 | 1010_2 → 1010 | 98 → \[ 98 \] | \[ 98 \] → 98 | \( x = 98 \) → 98
    wrong: 4.6 \times 10^{33} → 4.5e33
    unevaluated: \[ 90 + 8 \] → 98
equations
    correct: x = 5 → 5 | x \approx 5 → 5 | x=5 → x = 5
    unevaluated: 5 = 2 + 3 → 5 | 10.2 + 8.6 \approx 18.8 → 18.8 | 10.2 + 8.6 \approx 1 → 18.8
    wrong: 5 = 6 → 5 | 2 + 3 = 5 = 6 → 5 | x \le 5 → 5 | 4 < 5 < 6 → 5
several answers
    wrong: 3, 4, 5 → 4 | 3 \text{ or } 4 → 4 | 4 or 5 → 4 | 4; 5 → 4 | 4 \quad 5 → 4 | \{1, 2, 3, 4\} → 4
        4 \text{ perhaps } 5 \text{ perhaps} → 4 | [0, 10] → 5 | (4, 6) → 5 | \pm 4 → 4 | 4 → \pm 4
        \begin{pmatrix} 4 & 5 \end{pmatrix} → 4 | 4}\boxed{5 → 4 | 4} \text{ or } \boxed{5 → 4
        \{1,2,3\} \cap \{3,5\} → 3
    unparseable: \begin{cases} 4 \\ 5 \end{cases} → 4
    unevaluated: 4 \text{ apples and 5 pears} → 4
no answer
    wrong: x → 5 | answer → 5 | \text{answer} → 5 | \text{She had 2 apples and got 3 more} → 5
        \text{She had } 2 \text{ and got } 3 → 5 | \text{the answer is 5} → 5 | a 5 b 6 → 5
lists
    correct: 1, 2 → 1,2 | (0.5, 1) → (\frac{1}{2}, 1)
    unevaluated: 1, 4/2 → 1,2 | [0, 5 + 5) → [0,10) | (-\infty, 2 - 2) \cup (1, 2) → (-\infty,0)\cup(1,2)
expressions
    correct: \frac{2\pi}{4} → \frac{\pi}{2}
what is left of an expression
    unevaluated: \int_0^{2\pi} 1 dx → 2\pi | \int x dx → \frac{x^2}{2} | \sum_{i=1}^{2} \pi → 2\pi
        \prod_{i=1}^{2} \pi → \pi^2 | \lim_{x \to 0} \pi → \pi | y = \frac{d}{dx} x^2 → y = 2x
        \frac{d}{dx} x^2 = y → y = 2x | (3, \int_0^{\pi} 1 dx) → (3, \pi)
    correct: \int_0^{2\pi} 1 dx = 2\pi → 2\pi | A = \int_0^{2\pi} 1 dx = 2\pi → A = 2\pi
        \int_0^1 f(x) \, dx → \int_0^1 f(x) dx | \sum_{n=0}^\infty \frac{x^n}{n!} → \sum_{n=0}^{\infty} \frac{x^n}{n!}
    wrong: \int_0^{2\pi} 1 dx = 5 → 2\pi
inequalities
    correct: x > 3 → x>3 | x \in (3, \infty) → x>3 | x \geqslant 0.5 → x \geq \frac{1}{2} | 1 < x < 3 → 1<x<3
        -x > -1 → x < 1
    unevaluated: x > 1+2 → x>3 | (1 + 2, \infty) → x>3 | x \neq 1+2 → x \ne 3 | 0.25 + 0.25 \le x → x >= 0.5
        1 < x < 1+2 → 1<x<3 | f(x) > 1+2 → f(x) > 3 | x < -1 \text{ or } x > 2-1 → x>1 \text{ or } x<-1
        x > y + y → x > 2y | x > 2\pi - \pi → x > \pi
what math-verify computes while it reads
    unevaluated: \begin{vmatrix} 10.2 & -8.6 \\ 1 & 1 \end{vmatrix} → 18.8
        \begin{vmatrix} 27 & 0 \\ 0 & 14 \end{vmatrix} → 378
        (\begin{vmatrix} 100 & 1 \\ 1 & 1 \end{vmatrix}, 3) → (99, 3)
        x > \begin{vmatrix} 100 & 1 \\ 1 & 1 \end{vmatrix} → x > 99
        \det\begin{pmatrix} 27 & 0 \\ 0 & 14 \end{pmatrix} → 378
        \operatorname{tr}\begin{pmatrix} 27 & 0 \\ 0 & 14 \end{pmatrix} → 41
        \begin{vmatrix} x & y & 1 \\ 0 & 1 & 1 \\ 1 & 3 & 1 \end{vmatrix} = 0 → y = 2x + 1
        \operatorname{trace}(\begin{pmatrix} x & 0 \\ 0 & y \end{pmatrix}) → x + y
        2\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} → \begin{pmatrix} 2 & 4 \\ 6 & 8 \end{pmatrix}
        \operatorname{lcm}(4, 6) → 12 | 12\frac{23}{3} → \frac{59}{3} | 100\frac{7}{2} → \frac{207}{2}
        12 23/3 → \frac{59}{3} | \{1\} \cup \{2, 3\} → \{1, 2, 3\} | [0, 5] \cup [3, 10] → [0, 10]
        \begin{pmatrix} 1 & x \\ 0 & 1 \end{pmatrix} \begin{pmatrix} 1 & y \\ 0 & 1 \end{pmatrix} → SHEAR
        \begin{pmatrix} 1 & x \\ 0 & 1 \end{pmatrix} \xrightarrow{c_2 + y c_1} → SHEAR
        \|(\begin{pmatrix} 1 \\ 1 \end{pmatrix})\| → \sqrt{2}
        \operatorname{norm}(\begin{pmatrix} 1 \\ 1 \end{pmatrix}) → \sqrt{2}
        x^2 - 1 = \begin{vmatrix} x & 1 \\ 1 & x \end{vmatrix} → x^2 - 1 | [0, 1] \cup [1, \pi] → [0, \pi]
        \{x, y\} \cup \{z\} → \{x, y, z\}
    correct: \begin{vmatrix} a & b \\ c & d \end{vmatrix} → \begin{vmatrix} a & b \\ c & d \end{vmatrix}
        19\frac{2}{3} → \frac{59}{3} | 19 2/3 → \frac{59}{3} | [0,1] \cup (3,10] → [0, 1] \cup (3, 10]
        4343_{6} → 4343_6 | 4343 → 4343_6 | \begin{pmatrix} 1&x+y \\ 0&1 \end{pmatrix} → SHEAR
        \begin{vmatrix} x & 1 \\ 1 & x \end{vmatrix} = x^2 - 1 → x^2 - 1
    wrong: 2\text{ }3 → 23 | 4343_7 → 4343_6
inequalities that are not solved
    unevaluated: x^2 < 4 → (-2, 2) | e^x > 1 → (0, \infty) | x^2 \ge 4 → (-\infty, -2] \cup [2, \infty)
        x^2 < 2 → (-\sqrt{2}, \sqrt{2})
    correct: -2 < x < 2 → (-2, 2)
equations without a solution, which have the same ones
    wrong: 1 = 0 → f(1) = 0 | f(1) = 1 → f(1) = 0 | x^2 = -7 → r^2 + r + 1 = 0 | x^2 + 7 = 0 → x^2 + x + 1 = 0
        5 = 6 → 0.56 = 56\%
    correct: f(1)=0 → f(1) = 0 | x + x^2 = -1 → x^2 + x + 1 = 0
percentages
    correct: 12.5\% → 12.5 | 12.5 → 12.5\% | 0.125 → 12.5\% | 42.0\% → 42 | 62.5 \text{ percent} → 62.5
        33\frac{1}{3}\% → 33\frac {1}{3}\% | 33\frac{1}{3} → 33\frac {1}{3}\% | \frac{100}{3}\% → 33\frac{1}{3}\%
        \frac{4\sqrt{3} - 3}{13} \times 100 → \frac{4\sqrt{3} - 3}{13} \times 100\%
    wrong: 1250 → 12.5\% | 12.6\% → 12.5
    unevaluated: 60 + 2.5\% → 62.5 | 60 + 2.5 → 62.5\%
spellings
    correct: \left[\begin{array}{cc} 1 & 2 \\ 3 & 4 \end{array}\right] → \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}
        \begin{array}{rr} 1 & 2 \\ 3 & 4 \end{array} → \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}
        \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} → \left(\begin{array}{cc} 1 & 2 \\ 3 & 4 \end{array}\right)
        24e-32 → 24e - 32 | \frac{3e-1}{2} → \frac{3e - 1}{2} | \text{5 cm} → 5 | \text{\$}18.90 → 18.90
        90\degree → 90 | 120° → 120 | \approx 5 → 5 | \text{Answer: }5 → 5 | {\bf 5} → 5 | \color{red}5 → 5
        1\,000\,000 → 1000000 | 3 1/2 → 3.5 | 5½ → 5.5 | ５ → 5 | –5 → -5 | \text{32,348} → \$32,348 | \text{3:4} → 3:4
        \text{60°} → 60^\circ | 18~\text{cm} → 18 | 25\,\% → 25\% | 3\,\frac{1}{2} → 3.5 | 3 + 4 i → 3 + 4i
        0.5 + 1.5i → \frac{1}{2} + \frac{3}{2}i | 3 + 4\mathrm{i} → 3 + 4i | \mathrm{e}^2 → e^2 | 3:4:5 → 3 : 4 : 5
        a:b:c = 3:4:5 → 3:4:5 | 0.\overline{6} → \frac{2}{3} | \frac{202}{3} → 67.\overline{3}
        1.2\overline{34} → \frac{611}{495} | (-∞, 2] → (-\infty, 2] | (0, 1) ∪ (2, 3) → (0, 1) \cup (2, 3)
        \{x \mid x \le 2\} → (-\infty, 2] | \underline{18} → 18 | June 20 → \text{June 20} | \text{north} → north
        x \ge 5 → [5, \infty) | [5, \infty) → x \ge 5
    unevaluated: \left(\begin{array}{c} 1 \\ 3 + 1 \end{array}\right) → \begin{pmatrix} 1 \\ 4 \end{pmatrix}
        \approx 2 + 3 → 5 | \text{Answer: }2 + 3 → 5 | \frac{60°}{2} → 30 | 3\,\frac{5}{4} → 4.25
        0.\overline{6} + 1 → \frac{5}{3} | \{x \mid x^2 < 4\} → (-2, 2) | x \ge 2 + 3 → [5, \infty)
    wrong: 0.2 → 2e - 1 | \text{5 + 3} → 8 | 5\,6 → 56 | 5\text{3} → 53 | 3:5:4 → 3:4:5 | 0.\overline{5} → \frac{2}{3}
        June 21 → \text{June 20}
tiny numbers, which are equal to six decimals
    wrong: 0.0 → 0.0000001 | 0.0 → 1.6 \times 10^{-19} | 3.2 \times 10^{-20} → 6.6 \times 10^{-27} | 10^{-27} → 10^{-20}
        0.000001 → 0.0000012 | 0.0 → \left(\frac{1}{2}\right)^{40} | 0.0 → e^{-30} | 0.0 → \frac{9!}{9^{19}}
        \frac{\pi}{10^{30}} → \frac{\pi}{10^{20}}
    correct: 1.60 \times 10^{-19} → 1.6 \times 10^{-19} | 0.0000333 → \frac{1}{30000} | 0.0 → 0
        \frac\pi{10^{20}} → \frac{\pi}{10^{20}} | \frac{1}{2^{30}} → 2^{-30} | \frac{1}{12} → 0.0833333333333333
"""
SHEAR = r"\begin{pmatrix} 1 & x + y \\ 0 & 1 \end{pmatrix}"  # among them
# The accepted answer is an expression: algebra is free, arithmetic is not, numbers are exact.
EXPRESSIONS = r"""
spaces for the eye
    correct: \,6\pi\, → 6\pi | 6\pi\; → 6\pi | \;\frac12\sqrt3\,. → \frac{\sqrt3}{2} | 9.8\,\mathrm{m/s^2} → 9.8
        12\pi\text{ cm^2} → 12\pi | 36\,\mathrm{W\,m^{-2}} → 36 | 12 → 12\,\mathrm{cm^2} | 1 234 567 → 1234567
        \frac{3}{4}\mathrm{k\Omega} → \frac{3}{4} | 2\pi\text{ 元} → 2\pi | 36\ \mathrm{kg\cdot m/s^2} → 36
        2~500 → 2500 | €32 → 32 | \text{all real numbers} → \mathbb{R}
    wrong: \,7\pi\, → 6\pi | 2\pi \mathrm{e^2} → 2\pi | \frac{3}{4}\mathrm{n^2} → \frac{3}{4}
sums and products
    unevaluated: \frac{60}{360}\cdot\pi\cdot6^2 → 6\pi | \pi\cdot(-2)\cdot(-3) → 6\pi
        \frac{\pi}{2}+\frac{\pi}{3} → \frac{5\pi}{6} | 1/2+1/3+\sqrt2 → \frac56+\sqrt2 | \sqrt{8}+\sqrt{18} → 5\sqrt{2}
        \frac{5\cdot 4}{2}\pi → 10\pi | 6\pi + 0x → 6\pi | 6\pi\cdot\frac{x}{x} → 6\pi | 2\cdot3\pi \text{ cm} → 6\pi
    correct: 2\sqrt3 → 2\sqrt{3} | x+2-3\sqrt 2 → x - 3\sqrt{2} + 2 | \sqrt{2}+\sqrt{3} → \sqrt{3}+\sqrt{2}
quotients, powers and roots
    unevaluated: \frac{12\pi}{2} → 6\pi | \frac{1}{2}\cdot12\pi → 6\pi | \frac{\sqrt{3}}{4}\cdot 10^2 → 25\sqrt{3}
        50\%\cdot12\pi → 6\pi | x^{4/2} → x^2 | \sqrt[3]{8}\pi → 2\pi
        \sqrt{2^2+4^2-2\cdot2\cdot4\cos\frac{\pi}{3}} → 2\sqrt3 | \sqrt{3}\cdot\sqrt{12}\pi → 6\pi
        (\sqrt7-1)(\sqrt7+1)\pi → 6\pi | \sqrt{10}\cdot\sqrt{5} → 5\sqrt{2}
    correct: \sqrt{12} → 2\sqrt{3} | 3\cdot 10^5\pi → 300000\pi | 1.5e1\pi → 15\pi
        \sqrt{\frac{3}{4}} → \frac{\sqrt3}{2} | 10/2^n → \frac{10}{2^n} | 36 n → 36n
functions of numbers
    unevaluated: \lfloor3.7\rfloor\sqrt2 → 3\sqrt2 | 12\pi\cos\frac{\pi}{3} → 6\pi | 24\arctan(1) → 6\pi
        |{-6}|\pi → 6\pi | \arctan(1) → \frac{\pi}{4} | \pi\log_2 64 → 6\pi | \pi\ln e^6 → 6\pi | \pi e^{\ln 6} → 6\pi
        3!\pi → 6\pi | \pi\max(6,3) → 6\pi | \pi\gcd(12,18) → 6\pi | \pi\operatorname{lcm}(2,3) → 6\pi
        \pi\Gamma(4) → 6\pi | \pi\binom{4}{2} → 6\pi | \pi\dbinom{4}{2} → 6\pi | \pi\binom{\sqrt{16}}{2} → 6\pi
        \pi{4 \choose 2} → 6\pi | \pi\sum_{k=1}^3 k → 6\pi | \frac{5!}{3!}\pi → 20\pi | |1-\sqrt2| → \sqrt2-1
        x\lcm(2,3) → 6x
    correct: \ln 4 → 2\ln 2 | \log_2 5 → \frac{\ln 5}{\ln 2} | \arctan 2 → \arctan(2) | \frac{n(n-1)}{2} → \binom{n}{2}
        \binom{n}{2} → \frac{n(n-1)}{2} | \binom{5}{3} → \binom{5}{2} | \frac{100!}{50!50!} → \binom{100}{50}
        \lfloor n/2 \rfloor+1 → \left\lfloor\frac{n}{2}\right\rfloor + 1 | e^{16}-1 → -1+e^{16}
parts
    unevaluated: (17\cdot3-2,\sqrt2) → (49,\sqrt2) | \{1+2, \pi\} → \{3,\pi\} | (6/2, \pi) → (3,\pi)
        (3, \frac{2\pi}{2}) → (3,\pi) | [\log_2 8, \pi] → [3,\pi] | (\frac12, \frac42, \pi) → (\frac12, 2, \pi)
        (\frac12, \frac42) → (\frac12, 2) | (2^{10}, \sqrt{25}) → (2^{10}, 5) | x \in [1+2, \infty) → [3,\infty)
        1+2\le x\le 4\pi → [3, 4\pi] | \mathbb{R}\setminus\{3-2\} → (-\infty,1)\cup(1,\infty)
    correct: (2^{10},5) → (2^{10}, 5)
equations of expressions
    unevaluated: x=2\cdot3\pi → x=6\pi | x = 5\pi+\pi → x=6\pi | y = 2x + 1 + 2 → y = 2x+3
    correct: 6\pi = x → x = 6\pi | y-1 = 2(x+1) → y=2x+3
what the accepted answer leaves, too
    correct: \frac{1}{2}+\frac{1}{3} → \frac13+\frac12 | 9!/9^{19} → \frac{9!}{9^{19}}
        \cos\frac{\pi}{3}+\sqrt2 → \sqrt2+\cos\frac{\pi}{3}
        \frac{1}{6}+\frac{1}{3\cdot2^{201}} → \frac{2^{200}+1}{3 \cdot 2^{201}}
large powers, factorials and tiny differences
    wrong: \frac{1}{3 \cdot 2^{201}} → \frac{2^{200}+1}{3 \cdot 2^{201}}
        \frac{1}{6} → \frac{2^{200}+1}{3 \cdot 2^{201}}
        \frac{1}{3 \cdot 2^{2007}} → \frac{2^{2006}+1}{3 \cdot 2^{2007}} | 1 - \frac{1}{2^{100}} → 1 - \frac{1}{2^{101}}
        1 → 1 - \frac{1}{2^{100}} | 1 - 2^{-100} → 1 | 2^{200} → 2^{200}+1 | 100!+1 → 100!
        \frac{1}{100!} → \frac{2}{100!} | \sqrt{10^{100}+1} → 10^{50} | \sqrt{2}+\frac{1}{10^{40}} → \sqrt2
        \sqrt{10^{400}+1} → \sqrt{10^{400}+2} | x+\frac{1}{10^{20}} → x+\frac{1}{10^{21}}
        \pi x+\frac{1}{10^{20}} → \pi x | e^{-100}\pi → e^{-101}\pi
        (\frac{1}{2^{100}},\sqrt2) → (\frac{1}{2^{101}},\sqrt2) | x > \pi+10^{-30} → x > \pi
        [\frac{\pi}{2^{100}}, 1] → [\frac{\pi}{2^{101}}, 1] | x = \frac{\pi}{10^{30}} → x = \frac{\pi}{10^{20}}
        \begin{pmatrix} 2^{-100}\pi \\ x \end{pmatrix} → \begin{pmatrix} 2^{-101}\pi \\ x \end{pmatrix}
    correct: \frac{1+2^{200}}{3 \cdot 2^{201}} → \frac{2^{200}+1}{3 \cdot 2^{201}}
        1 - 2^{-100} → 1 - \frac{1}{2^{100}} | \frac{2^{100}-1}{2^{100}} → 1 - \frac{1}{2^{100}}
        \sqrt{4+2\sqrt3} → 1+\sqrt{3} | 3.14159265 → \pi | 25\%\pi → \frac{\pi}{4}
"""
SPELLINGS = r"""
names without a backslash
    correct: pi/2 → \dfrac{\pi}{2} | -2*pi → -2\pi | -1 + exp(16) → e^{16} - 1 | cos(x) → \cos x | sin x + 2 → 2+\sin(x)
        ln(2) → \ln 2
    wrong: pi/3 → \dfrac{\pi}{2} | exp(15) → e^{16}
    unevaluated: pi + pi → 2\pi | cos(pi/3)*pi → \frac{\pi}{2}
fractions without braces
    correct: \frac\pi2 → \frac{\pi}{2} | -\frac\pi{3} → -\frac{\pi}{3} | \frac1\pi → \frac{1}{\pi}
        (3, \dfrac\pi2) → \left( 3, \frac{\pi}{2} \right) | \frac{\pi}{2} → \frac\pi2
    wrong: \frac\pi3 → \frac{\pi}{2} | \frac2\pi → \frac{\pi}{2}
characters
    correct: 2√3 → 2\sqrt{3} | √{2} → \sqrt{2} | x² → x^2 | x³+1 → x^3+1 | xⁿ → x^n | 2·π → 2\pi | π/2 → \frac{\pi}{2}
        x ≤ 5 → x \le 5 | 2 ± √3 → 2 \pm \sqrt{3} | ℝ∖{1} → \mathbb{R}\setminus\{1\}
    unevaluated: 2×3 → 6 | √16 → 4 | 2³ → 8
    wrong: ±2 → 2 | ±2 → -2 | x² → x^3
units
    correct: 6 weeks → 6 | 6 cm^2 → 6 | 12 square feet → 12 | \frac{1}{2} hours → 0.5
    wrong: 6 weeks → 7 | 6 weeks or 7 weeks → 6 | 6 weeks and 3 days → 6
    unevaluated: 3 + 3 weeks → 6
congruences
    correct: 2\pmod5 → 2 | x \equiv 2 \pmod 5 → x \equiv 2 \pmod{5} | 2 \pmod{5} → x \equiv 2 \pmod{5}
        n \equiv 0,2 \pmod 6 → n \equiv 0,2(\bmod 6)
    wrong: 3 \pmod 5 → 2 | x \equiv 2 \pmod 7 → x \equiv 2 \pmod{5} | 2 → x \equiv 2 \pmod{5}
        n \equiv 1, 2 \pmod{4} → n = 1 \text{ or } n \equiv 2 \pmod{4}
    unevaluated: 1 + 1 \pmod 5 → 2
what a variable runs through
    correct: n = 3k, k \in \mathbb{Z} → n=3k | n=3k \text{ for } k \in \mathbb{Z} → n = 3k
        n=3k → n = 3k, k \in \mathbb{Z}
    wrong: n = 3k, k \in \mathbb{N} → n = 3k, k \in \mathbb{Z} | n = 2k, k \in \mathbb{Z} → n=3k
choices with text
    correct: \textbf{(B) } 7 → B | \textbf{(B)}\ 7 → \text{(B)} | (B) \frac{1}{2} → 0.5 | 7 → \text{(B) } 7
        B → \text{(B) } 7 | \text{(B) } \text{north} → north | \text{(B) Vitamin C} → B | \text{A. yes} → A
        \textbf{(G) } 7 → G | F. foo → F
    wrong: \textbf{(B) } 7 → C | \textbf{(B) } 7 → 8 | \textbf{(C) } 7 → \textbf{(B) } 7
        \textbf{(A)} \textbf{(B)} 7 → B | \text{(C) Vitamin B} → B
    unevaluated: \textbf{(B) } 3 + 4 → 7
unions written as inequalities
    correct: x\le-2\text{ or }x\ge3 → (-\infty,-2]\cup[3,\infty) | (-\infty,-2]\cup[3,\infty) → x\le-2\text{ or }x\ge3
        x<-\sqrt2, x>\sqrt2 → (-\infty,-\sqrt2)\cup(\sqrt2,\infty)
        \mathbb{R}\setminus\{1\} → (-\infty,1)\cup(1,\infty) | (-\infty,1)\cup(1,\infty) → \mathbb{R}\setminus\{1\}
        \mathbb{R} \backslash \{1\} → x \ne 1
    wrong: x\le-2\text{ or }x>3 → (-\infty,-2]\cup[3,\infty) | x>1 and x<3 → (-\infty,\infty)
        x<-2 or x>3 or x>5 → (-\infty,-2)\cup(3,\infty) | \mathbb{R}\setminus\{2\} → (-\infty,1)\cup(1,\infty)
    unevaluated: x<-2 or x>1+2 → (-\infty,-2)\cup(3,\infty) | x^2>4 → (-\infty,-2)\cup(2,\infty)
        x<-2 or 2x>6 → (-\infty,-2)\cup(3,\infty)
both signs
    correct: \frac{1\pm\sqrt5}{2} → \frac{1+\sqrt5}{2},\frac{1-\sqrt5}{2}
        x = \frac{1\pm\sqrt5}{2} → \frac{1+\sqrt5}{2},\frac{1-\sqrt5}{2}
        \frac{1+\sqrt5}{2},\frac{1-\sqrt5}{2} → \frac{1\pm\sqrt{5}}{2} | x = ±√3 → \pm\sqrt{3}
    wrong: \frac{1\pm\sqrt5}{2} → \frac{1+\sqrt5}{2} | \frac{1+\sqrt5}{2} → \frac{1\pm\sqrt5}{2} | \frac{10\pm 2}{2} → 6
    unevaluated: \frac{10\pm 2}{2} → 6,4
complex numbers
    correct: e^{i\pi/3} → \frac{1}{2}+\frac{\sqrt{3}}{2}i | 2e^{i\pi/3} → 1+i\sqrt{3}
    wrong: e^{i\pi/4} → \frac{1}{2}+\frac{\sqrt{3}}{2}i
    unevaluated: \cos\frac{\pi}{3}+i\sin\frac{\pi}{3} → \frac{1}{2}+\frac{\sqrt{3}}{2}i
"""
# What math-verify takes for equal though it differs, or for different though it is equal, in both directions.
TOLD_APART = r"""
letters and their capitals in the same places
    correct: 2N+1 → 2n+1 | 2n+1 → 2N+1 | R-r+N → R-r+n | \frac Rr → R/r | R/r → \frac Rr | (M+m)gh → Mgh+mgh
        Mgh+mgh → (m+M)gh | \sqrt{R(R-2r)} → \sqrt{R^2-2Rr} | A = a^2 → a^2 | a^2 → A = a^2 | A=a, B=b → a, b
        (A) a^2 → A | (A) a^2 → a^2 | (a) a^2 → (A) a^2 | (A) a^2 → (a) a^2 | \vec{A}+\vec{a} → \vec{a}+\vec{A}
        \left(\begin{array}{cc} R & r \end{array}\right) → \begin{pmatrix} R & r \end{pmatrix} | x' = 5 → x=5
        the line y=x → The line y=x | The ratio \frac{r}{2} → the ratio \frac{r}{2} | Bob → bob
texts that are no units
    correct: P(\text{even}) = \frac{1}{2} → \frac12 | V_{\text{max}} = \frac{5}{2} → 2.5 | \det A = 5 → 5
        \text{Area} = 5\pi \text{ cm}^2 → 5\pi | \text{Speed} = 5 \text{ m/s} → 5 | V_{\text{max}} = 5 \text{ V} → 5
        k_{\max} = 5 → 5 | n(A\cup B) = 5 → 5 | P(A \mid B) = \frac{1}{2} → \frac12 | 15\mbox{ cm}^2 → $15\mbox{ cm}^2$
        0.06 → $$0.06 \text{ yuan}$$ | $P(\text{even}) = \frac12$ → \$0.5 | \therefore x = 5 → 5 | 5 → 5 \text{ OR } 6
        6 → 5 \text{ OR } 6
    wrong: \sqrt{3}\text{; the answer is }\sqrt{2} → \sqrt{3} | \pi \text{ cm or } 2\pi \text{ cm} → \pi
        x+1 \text{ or maybe } x+2 \text{ (unsure)} → x+1 | E_1 = 4, E_2 = 5 → 5 | 7 → 5 \text{ OR } 6
    unevaluated: P(A \mid B) = 1-\frac12 → \frac12
a last letter that is a variable, and powers that are no transposes
    correct: 2 t → 2t | 50 → 50 cm | 20 → 20 seconds | (1+r)^T P → P(1+r)^T | 2^{T} → 2^T
    wrong: 2 → 2t | r → r s t | P(1+r) → P(1+r)^T | A → A^T
capitals and primes
    correct: \frac{R}{r} → R/r | A-a → A - a | n = 5 → N = 5 | 5 → N = 5 | c → C | R^2\pi → \pi R^2 | GMm → G M m
        r_1 + R_2 → R_2+r_1 | f'(x)=2x → 2x | y'=2y → y'-2y=0 | x^{\prime\prime}+x=0 → x''+x=0 | K → k = K
        5 meters → 5 Meters | \omega \Omega x → x\Omega\omega | \frac{2mMgh}{m+M} → \frac{2 M m g h}{M+m}
        GMmR/r → \frac{G M m R}{r} | E \exp(-t/(RC)) → E e^{-t/(RC)} | \frac{\mathrm{R}}{\mathrm{r}} → \frac{R}{r}
        2\mathit{R}r → 2Rr | \text{Bob} → Bob | \text{Aa} → Aa
    wrong: r/R → R/r | R - r → r - R | n(N-1) → N(n-1) | Gmm → GMm | x+2X → X+2x | y=2y → y'-2y=0 | 2ab+A → 2Ab+a
        x^{\prime}+x=0 → x''+x=0 | r_1 + R_2 → r_2+R_1 | \Omega-\omega → \omega-\Omega
variables that are named like units
    correct: \frac{\sqrt{3}}{2}s → \frac{s\sqrt{3}}{2} | \frac{v}{2}t → \frac{vt}{2} | x^2h → hx^2
        3n\text{ apples} → 3n | S=\sum_{k=1}^{n-1} k = \frac{n(n-1)}{2} → \frac{n(n-1)}{2} | 3 \mathrm{~m} → 3 m
        \sum_{k=0}^\infty x^k=\frac{1}{1-x} → \frac{1}{1-x} | $4x+1$\text{ cm} → 4x+1 | 2x \text{ cm}^2 → 2x
    wrong: \pi r^2h → \pi r^2 | \frac{a}{b}c → \frac{a}{b}
points whose coordinates have names
    correct: (1,2) → x=1, y=2 | (11,7) → p = 11, q = 7 | x=2,y=1 → (2,1) | (1,2) → y=2, x=1 | (1,2,3) → a=1,b=2,c=3
        2, 1 → a=1, b=2 | \begin{cases} x=2 \\ y=3 \end{cases} → x=2, y=3 | (7,11) → q = 7, p = 11
        (2,3) → \begin{cases} x=2 \\ y=3 \end{cases} | \begin{cases} x=2, \\ y=3 \end{cases} → (2,3) | m=2, b=3 → (2,3)
        \rho=2, \theta=3, \phi=1 → (2,3,1) | n=7, k=2 → (7,2) | r=3, h=5 → (3,5) | (x=2, y=3) → x=2, y=3
        x_0=\frac{25}{13}, M=10 → \left( \frac{25}{13}, 10 \right)
    wrong: (2,1) → x=1, y=2 | (7,11) → p = 11, q = 7 | y=1, x=2 → (1,2) | (1,3,2) → a=1,b=2,c=3 | [1,2] → x=1, y=2
        \begin{cases} x=3 \\ y=2 \end{cases} → (2,3)
words that change the number in front of them
    correct: 3\text{ times as many} → 3 | 3\text{ apples and pears} → 3 | 3\text{ cm} → 3
        3 \text{ or more} → 3\text{ or more} | 16\text{ squared units} → 16 | 125\text{ cubed meters} → 125
        0.5\text{ or half} → 0.5 | \frac12\text{ or one half} → \frac12 | 7\text{ not including zero} → 7
        \$5 \text{ and no cents} → 5 | 3\text{ plus tax} → 3
    wrong: 3\text{ or more} → 3 | 3\text{ squared} → 3 | 3\text{ factorial} → 3 | 3\text{ plus one} → 3 | 3 squared → 3
        3\text{ and a half} → 3 | \frac{3}{5}\text{ thirds} → \frac35
all real numbers
    correct: \mathbb{R} → (-\infty,\infty) | x\in\mathbb{R} → (-\infty, +\infty) | (-\infty,\infty) → \mathbb{R}
    wrong: \mathbb{R}\setminus\{0\} → (-\infty,\infty) | \mathbb{Q} → \mathbb{R} | (0,\infty) → (-\infty,\infty)
    unevaluated: \mathbb{R}\text{ without zero} → (-\infty,\infty) | x\in\mathbb{R}\text{ (positive)} → (-\infty,\infty)
ranges, lists and choices
    correct: x \in \{2,5\} → 2, 5 | (2,5) → 2<x<5 | \text{(D) Both A and B.} → D | \textbf{(D)}\ 37^\circ C. → D
        (B) P(A) = 3 → B | \langle 1,2\rangle → \langle 1, 2 \rangle | \langle 1,\frac12\rangle → \langle 1,0.5\rangle
        \lbrace 1,2\rbrace → \{1,2\} | 5=x → x=5 | -1=k → k=-1 | \text{A, C, D} → A, C, D
    wrong: 2<x<5 → x=2 \text{ or } x=5 | 5^\circ → 5\% | 5\% → 5^\circ | (B) or (C) → B | (B) is wrong, (C) is right → B
times of day, letters of choices, large numbers in words
    correct: 3:30\text{ p.m.} → 3:30 PM | \text{3:30 PM} → 3:30 PM | 9:45 → 9:45 a.m. | A) → A | \text{Option A} → A
        \text{Answer: B} → B | 2.5 \text{ million} → 2500000 | \$2.5 \text{ million} → \$2{,}500{,}000
        2500000 → 2.5 million
    wrong: 3:30 AM → 3:30 PM | 3:31 → 3:30 PM | \text{Option B} → A | 2.5 billion → 2500000
spellings of physics and economics
    correct: 1950 → 1950^\circ C | 1950^\circ\text{C} → 1950^\circ C | y' + ry = rx(t) → y^{\prime}+ry-rx(t)=0
        \text{MR} = \text{SRMC} → MR=SRMC | E_2, E_1 → E_1, E_2 | 2 E_0 → 2E_0 | \mathbf{\frac{1}{2}} → \frac12
        \mathbf{\sqrt{3}} → \sqrt3
    wrong: 1951 → 1950^\circ C | E_2 → E_1 | \text{MR} = \text{MC} → MR=SRMC
commas between thousands
    correct: x = 12,345 → 12345 | x = 12345 → 12,345 | 1,234\text{ cm} → 1234 | 1234 → 1,234\text{ cm}
        x > 1,000 → x>1000 | 0{,}125 → 0.125 | \{1,234\} → \{1, 234\} | 1,234 → 1, 234 | 100,200,300 → 100, 200, 300
        110, 143, 242 → 110,143,242
    wrong: (1,234) → 1234 | 1234 → (1,234) | [1,234] → 1234 | \{1,234\} → 1234 | 1234 → \{1,234\} | x = 12,346 → 12345
        1234 → 1, 234 | 0, 1 → 1,000 | (0, 5) → 5,000 | 345, 12 → 12,345 | x=12, y=345 → 12,345
    unevaluated: 1,234 + 5,000 → 6234 | x = 1,000 + 234 → 1,234
sets of numbers without braces
    correct: \mathbb R → \mathbb{R} | \mathbb{N} → \mathbb N | \mathbb R\setminus\{1\} → \mathbb{R}\setminus\{1\}
        n=3k, k \in \mathbb Z → n=3k, k \in \mathbb{Z}
    wrong: \mathbb N → \mathbb{Z} | n=3k, k \in \mathbb N → n=3k, k \in \mathbb{Z}
times of day are no ratios
    wrong: 6:40\text{ p.m.} → 3:20\text{ p.m.} | 3:20\text{ p.m.} → 6:40\text{ p.m.}
        3:20\text{ a.m.} → 3:20\text{ p.m.} | 2:05\text{ PM} → \text{4:10 P.M.}
    correct: 3:20\text{ p.m.} → 3:20 | 3:20 → 3:20\text{ p.m.} | 3:20 \text{ PM} → 3:20\text{ p.m.} | 2:4 → 1:2
        03:20\text{ (pm)} → 3:20\text{ p.m.} | 3:20 P.M. → 3:20 p.m. | 1:2 → 2:4 | \displaystyle 10:25 → 10:25
        3:20\text{ to }4:10\text{ p.m.} → 3:20\text{ p.m. to }4:10\text{ p.m.}
words of capitals are no products
    wrong: EBE → BEE | BEE → EBE | NYNYNY → NNNYYY | \text{YZY} → YYZ | HTH → HHT | XIX → XXI | (E,O,E) → (E,E,O)
    correct: \text{BEE} → BEE | \mathbf{BEE} → BEE | NNN YYY → NNNYYY | RC → CR | CR → RC | RLC → CRL | AAB → A^2B
        SAA → AAS | (E,E,O) → (E, E, O)
"""
KINDS = read_table(TRICKS.replace("SHEAR", SHEAR) + EXPRESSIONS + SPELLINGS + TOLD_APART)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_gets_its_verdict(grader: Grader, kind: str) -> None:
    expected = {case: verdict for verdict, cases in KINDS[kind].items() for case in cases}
    pairs = (case.split(" → ") for case in expected)
    found = outcomes(grader, *((rf"Thus \boxed{{{boxed}}}.", [accepted]) for boxed, accepted in pairs))
    assert dict(zip(expected, found, strict=True)) == expected


def test_any_accepted_answer_will_do(grader: Grader) -> None:
    accepted = [["7", "18.8", r"\frac{188}{10}"], ["1024", "2^{10}"], ["5", "2 + 3"]]
    solutions = [r"\boxed{\frac{376}{20}}", r"\boxed{32^{2}}", r"\boxed{4 + 1}"]
    assert outcomes(grader, *zip(solutions, accepted, strict=True)) == [C, C, C]
    assert outcomes(grader, (r"\boxed{10.2 + 8.6}", ["7", "18.8"])) == [U]


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
