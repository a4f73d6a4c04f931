r"""Any output of a policy gets a grade, and only an answer is right."""

import pickle
import time
from collections.abc import Iterator

import pytest
from graded import C, U, W, outcomes, patient

from e1_trl.answers.grade import Grade, Grader, Outcome
from e1_trl.answers.mathematics.boxes import boxed_answer
from e1_trl.answers.mathematics.grader import MathematicsGrader

HUGE_POWER = "9^{9^{9^{9}}}"


grader = pytest.fixture(scope="module")(patient)


@pytest.fixture
def strict_grader() -> Iterator[MathematicsGrader]:
    """Yield a grader for answers that must run into its limit."""
    with MathematicsGrader(time_limit=1, workers=1) as strict:
        yield strict


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\fbox{42}", "42"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"first \boxed{1}, but no: \boxed{2}", "2"),
        (r"$\boxed{2}$ and $\boxed{3}$", "2, 3"),
        (r"\boxed{2}, \boxed{3} \text{ or } \boxed{4}", "2, 3, 4"),
        (r"\boxed{2}, that is \boxed{2}", "2"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{}", ""),
        (r"\boxed{4}, as wanted within \boxed{}", "4"),
        (r"\boxed{} is for \boxed{4}", "4"),
        ("42", None),
        (r"42 \boxed", None),
        (r"\boxed{4", None),
        (r"\boxed{42}, more precisely \boxed{42.0", None),
    ],
)
def test_the_answer_is_in_the_last_box(text: str, answer: str | None) -> None:
    assert boxed_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{" * 150_000,
        "".join(rf"\boxed{{{n}}}," for n in range(100_000)),
        "{" * 10**6,
        r"\boxed{1}" + " and" * 10**5,
    ],
)
def test_looking_for_the_box_takes_linear_time(text: str) -> None:
    start = time.process_time()
    boxed_answer(text)
    assert time.process_time() - start < 20


# By the outcome, what was written and what is accepted.
ENDS = {
    C: [
        (r"\boxed{25}", ["025"]),
        (r"\boxed{025}", ["25"]),
        (r"\boxed{0.5}", [r"$\frac{1}{2}$"]),
        (r"\boxed{42}", [r"\boxed{42}"]),
        (r"\boxed{3} and \boxed{2}", ["2, 3"]),
    ],
    W: [(r"\boxed{24}", ["25"]), (r"\boxed{\text{Carla}}", [r"\text{Evelyn}"])],
    Outcome.UNPARSEABLE: [(r"\boxed{}", ["1"]), (r"\boxed{((((}", ["1"])],
    Outcome.UNBOXED: [(r"\boxed{\frac{1}{}", ["1"]), ("25", ["25"]), ("", ["25"])],
}


def test_outcomes_say_what_is_wrong_with_an_answer(grader: Grader) -> None:
    found = {outcome: outcomes(grader, *graded) for outcome, graded in ENDS.items()}
    assert found == {outcome: [outcome] * len(graded) for outcome, graded in ENDS.items()}


def test_a_grade_carries_the_answer_that_was_read(grader: Grader) -> None:
    right, wrong, none = grader.grade([r"so $\boxed{ 1.0 }$", r"\boxed{2}", "1"], [["1"]] * 3)
    assert right == Grade(Outcome.CORRECT, "1.0")
    assert wrong == Grade(Outcome.WRONG, "2")
    assert none == Grade(Outcome.UNBOXED, None)
    assert [right.correct, wrong.correct, none.correct] == [True, False, False]


def test_answers_vote_by_a_value_that_does_not_depend_on_their_spelling(grader: Grader) -> None:
    spelled = [
        (r"\frac{1}{2}", r"\dfrac{1}{2}", "0.5", ".50", "1/2", r"x = \frac{1}{2}"),
        (r"(0.5, 3)", r"\left(\frac{1}{2}, 3\right)"),
        ("x + 1", "1+x"),
        (r"\{1, 2\}", "2,1"),
        ("5", r"5\text{ cm}", "5.0"),
        (r"\text{blue}",),
        (r"\binom{20000}{10000}",),  # more digits than Python writes
    ]
    flat = [rf"\boxed{{{text}}}" for spellings in spelled for text in spellings]
    values = iter(grade.value or grade.answer for grade in grader.grade(flat, [["7"]] * len(flat)))
    found = [{next(values) for _ in spellings} for spellings in spelled]
    assert [len(values) for values in found] == [1] * len(spelled)
    assert len(set.union(*found)) == len(spelled)


FREE_TEXT = [
    ("42", "42", "42", C),
    ("**42**", "42", "42", C),
    ("42 meters\n\nLet me check: 6 * 7 = 43", "42", "42", C),
    ("The answer is 42.", "42", "42", C),
    (r"\(42\)", "42", "42", C),
    (r"$x = \frac{1}{2}$", "0.5", r"x = \frac{1}{2}", C),
    ("1,000", "1000", "1,000", C),
    ("For $n=4$, the answer is $12$", "12", "12", C),
    ("$x=3$. Thus, the answer is $12$.", "12", "12", C),
    ("41", "42", "41", W),
    ("40 + 2", "42", "40 + 2", U),
    ("$2^{10}$", "1024", "2^{10}", U),
    # All of it, as a box would hold it.
    (" 2\\sqrt{3}", r"2\sqrt{3}", r"2\sqrt{3}", C),
    ("(3, 4)", "(3,4)", "(3, 4)", C),
    (PAIR := r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", PAIR, PAIR, C),
    ("1 and 2", "1,2", "1 and 2", C),
    ("Yes.", r"\text{Yes}", "Yes", C),
    ("(B)", "B", "(B)", C),
    (r"\$18", "18", "18", C),
    ("42 or 43", "42", "42 or 43", W),
    ("6 - 5i", "6", "6 - 5i", W),
    ("1, -2", "1", "1, -2", W),
    ("7 < x < 9", "7", "7 < x < 9", W),
]


def test_an_answer_is_read_without_a_box_where_that_is_asked_for(grader: Grader) -> None:
    texts = [text for text, *_ in FREE_TEXT]
    grades = grader.grade(["no box here"] * len(texts), [[gold] for _, gold, *_ in FREE_TEXT], texts)
    assert grades == [Grade(outcome, answer, unboxed=True) for *_, answer, outcome in FREE_TEXT]


def test_a_box_comes_before_free_text_and_free_text_may_hold_nothing(grader: Grader) -> None:
    free_text = ["42", "I do not know", "", None]
    grades = grader.grade([r"\boxed{41}", "", "", ""], [["42"]] * 4, free_text)
    assert grades == [Grade(Outcome.WRONG, "41"), *[Grade(Outcome.UNBOXED, None)] * 3]


@pytest.mark.slow
def test_free_text_is_hostile_too(strict_grader: MathematicsGrader) -> None:
    hostile = [f"${HUGE_POWER}$", "9" * 10**6 + "!", "$" + "{" * 10**5 + "$", "1+" * 10**6]
    grades = strict_grader.grade([""] * 4, [["1"]] * 4, hostile)
    assert grades[0] == Grade(Outcome.TIMED_OUT, None)
    assert not any(grade.correct for grade in grades)


def test_hostile_answers_are_killed_and_the_next_ones_graded(strict_grader: MathematicsGrader) -> None:
    hostile = [rf"\boxed{{{HUGE_POWER}}}", rf"\boxed{{1 = {HUGE_POWER}}}"]
    grades = strict_grader.grade(hostile, [["1"]] * 2)
    assert grades == [Grade(Outcome.TIMED_OUT, HUGE_POWER), Grade(Outcome.TIMED_OUT, f"1 = {HUGE_POWER}")]
    strict_grader.processes.time_limit = 60
    assert outcomes(strict_grader, (r"\boxed{1}", ["1"]), (r"\boxed{2}", ["1"])) == [C, W]


def test_a_hostile_answer_that_a_group_repeats_is_run_once(
    strict_grader: MathematicsGrader, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[object]()
    begin = strict_grader.processes._begin
    monkeypatch.setattr(strict_grader.processes, "_begin", lambda task: begun.append(task) or begin(task))
    group = [(rf"In my {attempt}th try I found \boxed{{{HUGE_POWER}}}", ["1"]) for attempt in range(16)]
    assert outcomes(strict_grader, *group) == [Outcome.TIMED_OUT] * 16
    assert len(begun) == 1


@pytest.mark.parametrize(
    "content",
    [
        "{" * 100_000 + "}" * 100_000,
        "(" * 100_000 + ")" * 100_000,
        r"\frac{1}{" * 20_000 + "1" + "}" * 20_000,
        "1+" * 500_000 + "1",
    ],
    ids=["braces", "parentheses", "fractions", "sum"],
)
def test_monstrous_boxes_are_wrong_within_the_limit(strict_grader: MathematicsGrader, content: str) -> None:
    (grade,) = strict_grader.grade([rf"\boxed{{{content}}}"], [["2"]])
    assert not grade.correct
    assert grade.outcome in (Outcome.TIMED_OUT, Outcome.CRASHED, Outcome.UNPARSEABLE)


def test_a_number_too_long_to_convert_beside_the_answer_is_no_error(grader: Grader) -> None:
    long = "9" * 5000
    assert outcomes(grader, (rf"\boxed{{5 \text{{ or so }} \frac{{{long}}}{{3}} \text{{ or so}}}}", ["5"])) == [
        Outcome.UNPARSEABLE
    ]


def test_a_grader_starts_again_pickled_without_its_processes_or_closed(grader: MathematicsGrader) -> None:
    grader.grade([r"\boxed{1}"], [["1"]])
    copy = pickle.loads(pickle.dumps(grader))
    grader.close()
    assert copy.processes.time_limit == 60
    for each in (grader, copy):
        with each:
            assert outcomes(each, (r"\boxed{1}", ["1"])) == [C]
