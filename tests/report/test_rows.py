"""Rows, differences and lines of answers made up for them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fabricated import CONDITIONS, cell, right

from e1_trl.answers.grade import PROGRAM_FAULTS, Outcome
from e1_trl.answers.mathematics.grader import MathematicsGrader
from e1_trl.report import samples
from e1_trl.report.differences import Alike, Difference, between, differences
from e1_trl.report.rows import Measured, Row, lines, summarize
from e1_trl.report.tables import accuracies, areas, outcomes, paired, several_samples
from e1_trl.rollout import ThinkingEnd


def row_of(table: pd.DataFrame) -> Row:
    measured, *_ = summarize(table)
    return measured.row


def measured(*cells: pd.DataFrame) -> list[Measured]:
    return summarize(pd.concat(cells))


def differing(*cells: pd.DataFrame) -> list[Difference]:
    return differences(measured(*cells))


@pytest.mark.parametrize("grader", ["mathematics", "programs"])
def test_every_outcome_and_end_has_its_share_and_they_add_up_to_one(grader: str) -> None:
    rng = np.random.default_rng(0)
    own = (Outcome.CORRECT, Outcome.WRONG, *PROGRAM_FAULTS) if grader == "programs" else Outcome
    outcomes, ends = [outcome.value for outcome in own], [end.value for end in ThinkingEnd]
    for _ in range(20):
        table = cell(right(3, 40), 16).assign(grader=grader)
        table["outcome"], table["thinking_end"] = rng.choice(outcomes, 40), rng.choice(ends, 40)
        table["truncated"] = rng.random(40) < 0.5
        row = row_of(table)
        shares = [row.accuracy, row.wrong, row.unevaluated, row.unparseable, row.unanswered, *row.faults.values()]
        assert sum(shares) == pytest.approx(1)
        ratios = [getattr(row, f"{end}_ratio") for end in ends]
        assert sum(ratios) == pytest.approx(1) and row.prompt_ratio == (table["thinking_end"] == "prompt").mean()
        assert row.accuracy == (table["outcome"] == "correct").mean()
        assert row.wrong == (table["outcome"] == "wrong").mean()
        assert row.unevaluated == (table["outcome"] == "unevaluated").mean()
        ended = table["truncated"] | table["thinking_end"].isin(["eos", "total"])
        assert row.unanswered == (table["outcome"].isin(["unboxed", "no_program"]) & ended).mean()
        if grader == "programs":
            assert set(row.faults) == {fault.value for fault in PROGRAM_FAULTS}
            assert row.unparseable == 0 and row.maj_at_k is None
            assert row.ungraded == (table["outcome"] == "ungraded").mean()
        else:
            assert row.ungraded == table["outcome"].isin(["ungraded", "timed_out", "crashed"]).mean()


def test_what_was_worked_out_in_the_box_is_counted_of_mathematics_alone() -> None:
    table = cell(right(3, 4), 16).assign(answer=["6*8=48", "x=48", None, "80/4=20"])
    assert row_of(table).worked_in_box == 0.5
    by_method = {each.row.method: each.row for each in measured(table.assign(method="s1", unboxed=[True, False] * 2))}
    assert (by_method["s1"].worked_in_box, by_method["s1, boxes only"].worked_in_box) == (0.25, 0.25)
    (shown,) = outcomes([row_of(table)]).rows
    assert shown[-3] == "50.0%" and outcomes([row_of(table)]).header[-3] == "worked in the box"
    assert row_of(table.assign(grader="programs")).worked_in_box == 0


def test_a_row_says_what_its_answers_took_and_what_bounds_them() -> None:
    table = cell(right(1, 2), 16, thinking_tokens=10).assign(forced_tokens=[0, 7], asked_problems=3)
    table.loc[0, ["thinking_end", "solution_tokens", "unboxed"]] = ["closed", 6, True]
    row = row_of(table)
    assert (row.mean_thinking_tokens, row.mean_solution_tokens, row.mean_tokens) == (10, 5, 15)
    assert (row.mean_forced_tokens, row.left_out, row.response_limit) == (3.5, 1, None)
    assert (row.accuracy_closed, row.accuracy_forced, row.unboxed) == (1, 0, 0.5)
    assert (row.seed, row.commit, str(row.budget)) == (7, "abc", "16+8")
    limited = table.assign(conditions=replace(CONDITIONS, response=32768).as_text())
    assert row_of(limited).response_limit is None, "its budget is the limit"
    assert row_of(limited.assign(thinking_budget=pd.NA, solution_budget=pd.NA)).response_limit == 32768


def test_pass_at_k_is_given_at_powers_of_two_up_to_all_samples() -> None:
    row = row_of(cell((np.arange(2 * 6).reshape(2, 6) % 5 == 0).tolist(), 16))
    assert list(row.pass_at_k) == ["1", "2", "4", "6"]
    assert row.pass_at_k["1"] == pytest.approx(row.accuracy) and row.pass_at_k["6"] == 1


def test_the_majority_is_of_values_whatever_their_spelling_and_nothing_has_no_vote() -> None:
    table = cell([[True, False, False], [True, False, False]], 16)
    assert row_of(table).maj_at_k == 0
    assert row_of(table.assign(value=["4", None, None] * 2)).maj_at_k == 1
    solutions = [rf"\boxed{{{text}}}" for text in (r"\frac{1}{2}", "0.5", r"\dfrac{1}{2}", "2", "2", "2", "2.0")]
    votes = cell([[False] * 7] * 2, 16).assign(solution=solutions * 2)
    with MathematicsGrader(time_limit=60, workers=1) as grader:
        graded = [samples.grade(votes.assign(answers=[[right]] * 14), grader) for right in ("0.5", "2", "7")]
    assert graded[0]["answer"].tolist()[:2] == [r"\frac{1}{2}", "0.5"], "what is read stands as it was written"
    assert [row_of(table).accuracy for table in graded] == pytest.approx([3 / 7, 4 / 7, 0])
    assert [row_of(table).maj_at_k for table in graded] == [0, 1, 0]
    unread = [rf"\boxed{{{text}}}" for text in ("0.5", "", "", "", "(", "(", "(")]
    with MathematicsGrader(time_limit=60, workers=1) as grader:
        table = samples.grade(votes.assign(solution=unread * 2, answers=[["0.5"]] * 14), grader)
    assert row_of(table).maj_at_k == 1, "what cannot be read has no vote"
    closer = graded[0][graded[0]["sample"] != 6]
    assert row_of(closer).maj_at_k == 0.5, "three spellings of one half against three of two"


def test_a_line_does_not_depend_on_the_order_of_budgets_of_one_total() -> None:
    parts = [cell(right(n, 10), t, s) for n, t, s in ((2, 8, 8), (3, 10, 14), (9, 4, 20), (9, 20, 12))]
    found = [lines(measured(*order)) for order in (parts, [parts[0], parts[2], parts[1], parts[3]])]
    assert found[0] == found[1]
    (line,) = lines(measured(parts[0], cell(right(6, 10), 12, 12), parts[3]))
    assert found[0][0].area == pytest.approx(line.area) and line.solution_budget is None


def test_a_line_names_what_differs_among_its_rows() -> None:
    parts = [cell(right(n, 10), budget) for n, budget in ((2, 8), (3, 16), (9, 32))]
    regraded = parts[2].assign(graded_by="another version")
    (line,) = lines(measured(*parts[:2], regraded))
    assert line.unlike == ("graded_by",) and areas([line]).rows[0][-1] == "graded_by"
    assert "not alike" not in areas(lines(measured(*parts))).header


def test_rows_of_other_solution_budgets_are_lines_of_their_own() -> None:
    grid = ((2, 28), (4, 60), (6, 124))
    wide = [cell(right(ones, 10), budget, 32) for ones, budget in grid]
    narrow = [cell(right(ones - 2, 10), budget, 8) for ones, budget in grid]
    cut = cell(right(5, 10), 60, 32, method="truncation", thinking_tokens=92)
    (line,) = lines(measured(*wide))
    found = lines(measured(*narrow, *wide))
    assert [each.solution_budget for each in found] == [8, 32]
    assert found[1] == replace(line, solution_budget=32) and line.solution_budget is None
    table = areas(found)
    assert [row[2] for row in table.rows] == ["8", "32"] and table.header[2] == "solution budget"
    longer = lines(measured(*wide, *(each.assign(model="n") for each in (*wide, cell(right(8, 10), 1024, 32)))))
    assert [row[2] for row in areas(longer).rows] == ["60 to 156", "60 to 1056"], "other budgets are told apart"
    both = ((16, 16), (32, 32), (64, 64), (128, 64))  # no grid
    (merged,) = lines(measured(*(cell(right(4, 10), *budget) for budget in both)))
    assert merged.totals == (32, 192) and areas([merged]).rows[0][2] == "40.0%"
    alone, among = (differing(*rows, cut) for rows in (wide, [*narrow, *wide]))
    assert alone == among and [each.alike for each in alone] == ["budget", "tokens used"]


def test_what_was_read_without_a_box_has_a_row_that_does_not_count_it() -> None:
    separate = cell(right(3, 10), 16)
    lax = cell(right(6, 10), 16, method="s1").assign(unboxed=[False] * 4 + [True] * 6)
    rows = {each.row.method: each.row for each in measured(separate, lax)}
    assert list(rows) == ["separate", "s1", "s1, boxes only"]
    assert (rows["s1"].accuracy, rows["s1"].unboxed, rows["s1"].maj_at_k) == (0.6, 0.6, 0.6)
    strict = rows["s1, boxes only"]
    assert (strict.accuracy, strict.unboxed, strict.unparseable, strict.wrong) == (0.4, 0, 0.6, 0)
    strictly = {each.method: each.difference for each in differing(separate, lax) if each.alike is Alike.BUDGET}
    assert strictly == pytest.approx({"s1": 0.3, "s1, boxes only": 0.1})
    votes = cell([[True, False, False]], 16, method="s1").assign(unboxed=[False, True, True], value=["4", "5", "5"])
    assert [each.row.maj_at_k for each in measured(votes)] == [0, 1], "what is not in a box has no vote there"
    # At every budget of the method, and of every model, so that lines can be compared.
    boxed = [cell(right(6, 10), 64, method="s1", model=model) for model in ("m", "other")]
    names = [(each.row.model, each.row.method, each.row.thinking_budget) for each in measured(lax, *boxed)]
    strict = [(model, budget) for model, method, budget in names if method == "s1, boxes only"]
    assert strict == [("m", 16), ("m", 64), ("other", 64)]


def test_rows_stand_in_the_order_asked_and_their_answers_may_not() -> None:
    cells = [cell(right(1, 3, 2), 64), cell(right(2, 3, 2), 16), cell(right(3, 3, 2), None, None)]
    ordered, shuffled = measured(*cells), measured(*(part.sample(frac=1, random_state=0) for part in cells))
    assert [str(each.row.budget) for each in shuffled] == ["64+8", "16+8", "unlimited"]
    assert [each.row for each in shuffled] == [each.row for each in ordered]
    assert all(each.asked == ordered[0].asked for each in shuffled)


def test_methods_are_compared_at_the_same_budget_and_at_the_same_tokens() -> None:
    separate = [cell(right(4, 10), 96), cell(right(8, 10), 396).assign(commit="new")]  # 100 and 400 tokens in all
    budget, tokens = differing(*separate, cell(right(6, 10), 96, method="truncation", thinking_tokens=196))
    assert budget.alike is Alike.BUDGET and budget.difference == pytest.approx(0.2)
    assert (budget.mean_tokens, budget.minus_mean_tokens) == (200, 100)
    assert tokens.alike is Alike.TOKENS and tokens.difference == pytest.approx(0.0)
    assert (tokens.mean_tokens, tokens.minus_mean_tokens) == (200, 200)
    assert tokens.minus_method == "separate" and tokens.ci_low < 0 < tokens.ci_high
    assert (budget.unlike, tokens.unlike) == ((), ("commit",)), "of the whole line"


def test_models_are_compared_by_the_same_method_and_name_what_else_was_not_alike() -> None:
    a, b, c = (cell(right(i, 10), 16, model=model) for i, model in enumerate("abc"))
    c = c.assign(conditions=replace(CONDITIONS, temperature=1.0, instruction="Think.").as_text())
    c, other = c.assign(graded_by="other"), cell(right(9, 10), 32, model="b")
    found = differing(a, b.assign(commit="new"), c, other)
    assert [(each.model, each.minus_model) for each in found] == [("b", "a"), ("c", "a"), ("c", "b")]
    assert [each.difference for each in found] == pytest.approx([0.1, 0.2, 0.1])
    otherwise = ("instruction", "temperature", "graded_by")
    both = ("instruction", "temperature", "commit", "graded_by")
    assert [each.unlike for each in found] == [("commit",), otherwise, both]


def test_a_mixed_model_is_compared_with_separate_budgeting_of_both() -> None:
    mixed = cell(right(7, 10), 16, model="a → b", method="mixed")
    found = measured(cell(right(2, 10), 16, model="a"), cell(right(9, 10), 16, model="b"), mixed)
    (to_a,), (to_b,) = between(found, "a → b", "a"), between(found, "a → b", "b")
    assert to_a.minus_method == to_b.minus_method == "separate"
    assert (to_a.difference, to_b.difference) == (pytest.approx(0.5), pytest.approx(-0.2))
    (first,) = between(found, "b", "a → b")  # where the mixed one is named first
    assert (first.minus_method, first.difference) == ("mixed", pytest.approx(0.2))


def test_only_answers_to_the_same_problems_are_paired() -> None:
    one = cell(right(1, 2), 16)
    same, other = one.assign(model="same"), one.assign(model="other", problem=one["problem"] + 1)
    reworded = one.assign(model="reworded", answers=[["7"], ["8"]])
    found = differing(one, same, other, reworded, cell(right(1, 2, 2), 16, model="twice"))
    assert [each.model for each in found] == ["same"]
    assert differing(one, other.assign(model="m", method="truncation")) == []


def test_a_line_needs_three_limited_budgets_and_a_fit_three_numbers_of_tokens() -> None:
    parts = [cell(right(right_ones, 10), budget) for right_ones, budget in ((2, 28), (4, 60), (6, 124))]
    unlimited = cell(right(10, 10), None, None)
    (line,) = lines(measured(*parts, unlimited))
    assert line.fit is not None and line.fit.per_doubling == pytest.approx(0.2)
    # From 36 to 68 tokens 0.3 on average, and to 132 tokens 0.5, over log2 of 68 / 36 and of 132 / 68.
    assert line.area == pytest.approx((0.3 * 0.91754 + 0.5 * 0.95694) / 1.87447, abs=1e-5)
    assert line.ci_low < line.area < line.ci_high
    assert lines(measured(parts[1], unlimited, parts[0], parts[2])) == [line]
    other = parts[2].assign(problem=parts[2]["problem"] + 1)
    assert lines(measured(*parts[:2], other)) == []
    for few in (parts[:2], [parts[0], cell(right(4, 10), 12, 24), parts[1]]):  # the second has the total of the first
        assert lines(measured(*few)) == []
    (unfit,) = lines(measured(*(cell(right(i, 10), 32 * i, thinking_tokens=45) for i in (1, 2, 3))))
    assert unfit.fit is None


def test_each_number_stands_under_its_heading() -> None:
    table = cell([[True, False, False, False], [False] * 4], 16, thinking_tokens=10).assign(solution_tokens=6)
    table.loc[0, "thinking_end"] = "closed"
    row = row_of(table)
    accuracy, outcome, several = accuracies([row]), outcomes([row]), several_samples([row])
    assert accuracy.header[5:] == ["tokens", "thinking", "solution", "forced tokens", "forced", "eos", "truncated"]
    assert accuracy.rows[0][5:] == ["16.0", "10.0", "6.0", "1.0", "88%", "0%", "0%"]
    assert (outcome.header[-2:], outcome.rows[0][-2:]) == (["right if forced", "right if closed"], ["0.0%", "100.0%"])
    assert several.header[3:] == ["k", "pass@2", "pass@4", "maj@k"]
    assert several.rows[0][3:] == ["4", "25.0%", "50.0%", "0.0%"]
    separate = [cell(right(4, 10), 96), cell(right(8, 10), 396)]
    found, _ = differing(*separate, cell(right(6, 10), 96, method="truncation", thinking_tokens=196))
    difference = paired([found])
    assert difference.header[:6] == ["of", "minus", "budget", "tokens", "minus", "difference"]
    assert difference.rows[0][:6] == ["m, truncation", "m, separate", "96+8", "200.0", "100.0", "+20.0"]
    (line,) = lines(measured(*(cell(right(ones, 10), budget) for ones, budget in ((2, 28), (4, 60), (6, 124)))))
    area = areas([line])
    assert area.header[2:5] == ["area", "95% interval", "per doubling"]
    assert area.rows[0][2:5] == ["40.2%", f"{line.ci_low:.1%} – {line.ci_high:.1%}", "+20.0"]
