"""Budgets at which thoughts could have stopped, with numbers worked out by hand."""

from dataclasses import replace

import pandas as pd
from fabricated import CONDITIONS, cell

from e1_trl.report.samples import join
from e1_trl.report.stopping import Stopping, stopping
from e1_trl.report.tables import needs, rules
from e1_trl.rollout import ThinkingEnd

BUDGETS = (8, 16, 32)
R = "right"
# Answers and thinking tokens of four thoughts at each budget; the last closes naturally after 12 tokens.
ANSWERS = (("x", "x", R), (R, R, R), (None, R, "z"), ("w", R, R))
THINKING = ((8, 16, 32), (8, 16, 32), (8, 16, 32), (8, 12, 12))


def thoughts() -> pd.DataFrame:
    tables = []
    for at, budget in enumerate(BUDGETS):
        answers = [own[at] for own in ANSWERS]
        table = cell([[answer == R] for answer in answers], budget).assign(
            value=answers,
            thinking_tokens=[own[at] for own in THINKING],
            truncated=[at == 0, False, False, False],
            closes_again=[False, False, at == 0, False],
        )
        table.loc[3, "thinking_end"] = (ThinkingEnd.FORCED if at == 0 else ThinkingEnd.CLOSED).value
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def reached(found: Stopping) -> dict[str, tuple[float, float, float]]:
    return {rule.name: (rule.accuracy, rule.mean_thinking_tokens, rule.mean_tokens) for rule in found.rules}


def test_each_thought_is_first_right_somewhere_and_may_be_wrong_again() -> None:
    (found,) = stopping(thoughts(), votes=True)
    assert found.budgets == ["8+8", "16+8", "32+8"] and found.thoughts == 4
    assert found.first_right == [0.25, 0.5, 0.25]
    assert found.tokens_beyond == [24, 8, 0]
    assert found.wrong_again == [0, 0, 0.25]
    assert found.escape_ratio == [0.5, 0, 0]
    assert needs([found]).markdown.splitlines() == [
        "| model | thoughts | budget | first right | tokens beyond | wrong again | escape |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| m | 4 | 8+8 | 25.0% | 24.0 | 0.0% | 50.0% |",
        "| m | 4 | 16+8 | 50.0% | 8.0 | 0.0% | 0.0% |",
        "| m | 4 | 32+8 | 25.0% | 0.0 | 25.0% | 0.0% |",
    ]


def test_rules_pay_for_every_solution_and_are_compared_with_the_largest_budget_by_thought() -> None:
    (found,) = stopping(thoughts(), votes=True)
    assert reached(found) == {
        "largest budget": (0.75, 27, 31),
        "oracle": (1, 17, 21),
        "agreement of 1": (0.5, 19, 28),
        "agreement of 2": (0.75, 27, 38),
    }
    table = rules([found])
    assert table.header[-2:] == ["tokens", "thinking"]
    assert [row[-2:] for row in table.rows] == [["31.0", "27.0"], ["21.0", "17.0"], ["28.0", "19.0"], ["38.0", "27.0"]]
    low, high = found.rules[0].ci_low, found.rules[0].ci_high
    assert 0 < low < 0.75 < high <= 1
    largest, oracle, agreement, _ = [rule.over_largest for rule in found.rules]
    assert largest is None and oracle is not None and agreement is not None
    assert (oracle.difference, agreement.difference) == (0.25, -0.25)
    assert oracle.ci_low < 0.25 < oracle.ci_high


def test_solutions_that_go_on_after_a_natural_close_too_are_no_escape() -> None:
    table = thoughts()
    table.loc[(table["problem"] == 3) & (table["thinking_budget"] == 32), "truncated"] = True
    (found,) = stopping(table, votes=True)
    assert found.escape_ratio == [-0.5, -1, -1]
    table.loc[table["thinking_budget"] > 8, "thinking_end"] = "forced"
    (found,) = stopping(table.assign(thinking_tokens=table["thinking_budget"]), votes=True)
    assert found.escape_ratio == [0.5, 0, 0.25]


def test_thoughts_that_were_answered_at_every_budget_count_and_solution_budgets_stay_apart() -> None:
    table = thoughts()
    table = table[(table["problem"] < 2) | (table["thinking_budget"] < 32)]  # two were not asked at the last
    (found,) = stopping(table, votes=True)
    assert found.first_right == [0.5, 0, 0.5] and reached(found)["oracle"] == (1, 20, 24)
    other = thoughts().assign(solution_budget=pd.array([99] * 12, dtype="Int64"))
    both = stopping(pd.concat([thoughts(), other], ignore_index=True), votes=True)
    assert [each.budgets[0] for each in both] == ["8+8", "8+99"] and both[0].rules == both[1].rules


def test_an_answer_without_thinking_is_no_thought_that_could_have_stopped() -> None:
    table = thoughts()
    table.loc[(table["problem"] == 3) & (table["thinking_budget"] == 32), ["thinking_end", "thinking_tokens"]] = (
        "none",
        0,
    )
    (found,) = stopping(table, votes=True)
    assert found.thoughts == 3 and found.tokens_beyond == [24, 16, 0]
    # The thoughts of samples: two of one problem, and one of the other, which answered its second at once.
    (found,) = stopping(table.assign(problem=table["problem"] // 2, sample=table["problem"] % 2), votes=True)
    assert found.thoughts == 3 and reached(found)["largest budget"] == (0.5, 32, 36)


def test_samples_of_a_problem_are_not_problems() -> None:
    table = pd.concat([thoughts().assign(problem=0, sample=thoughts()["problem"])], ignore_index=True)
    (found,) = stopping(table, votes=True)
    assert found.rules[0].accuracy == 0.75
    assert found.rules[0].ci_low < stopping(thoughts(), votes=True)[0].rules[0].ci_low


def test_an_empty_answer_agrees_with_no_right_one() -> None:
    table = thoughts()
    table.loc[(table["problem"] == 0) & (table["thinking_budget"] < 32), "value"] = ["", "y"]
    table.loc[(table["problem"] == 1) & (table["thinking_budget"] == 8), ["value", "outcome"]] = ["", "unparseable"]
    (found,) = stopping(table, votes=True)
    assert reached(found)["agreement of 1"][:2] == (0.75, (32 + 32 + 32 + 12) / 4)


def test_thoughts_sampled_for_each_budget_or_answered_at_one_say_nothing() -> None:
    (found,) = stopping(thoughts(), votes=False)
    assert [rule.name for rule in found.rules] == ["largest budget", "oracle"], "no agreement"
    for budgets in ((8, 8), (None, None)):
        assert not stopping(cell([[True], [False]], *budgets), votes=True)
    table = thoughts()
    table.loc[(table["problem"] == 3) & (table["thinking_budget"] == 32), "thinking_tokens"] = 9  # was closed after 12
    assert not stopping(table, votes=True)
    own = replace(CONDITIONS, independent=True).as_text()
    assert not stopping(thoughts().assign(thinking_end="forced", conditions=own), votes=True)
    apart = thoughts()
    assert not stopping(apart[(apart["problem"] < 2) == (apart["thinking_budget"] == 8)], votes=True)


def test_evaluations_that_are_reported_together_share_no_thoughts() -> None:
    small, middle, large = (cell([[True], [False]], budget) for budget in BUDGETS)
    assert not stopping(join([small, middle.assign(seed=8)]), votes=True)
    (found,) = stopping(join([pd.concat([small, middle]), large]), votes=True)
    assert found.budgets == ["8+8", "16+8"]
