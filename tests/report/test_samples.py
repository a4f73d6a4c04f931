"""The table of answers: what is written is read, and what is not ours is refused by name."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fabricated import cell, stored

from e1_trl.answers.grade import Grade, Grader, Outcome
from e1_trl.atomic import StoreError
from e1_trl.budget import Budget
from e1_trl.evaluation.methods import MIXED, Cell
from e1_trl.evaluation.sampling_plan import Goal
from e1_trl.evaluation.thinking import Thinking
from e1_trl.report import samples
from e1_trl.rollout import Stop


class LengthGrader(Grader):
    """Right is what is as long as an accepted answer; free text is read if there is no solution."""

    version = ""

    def __init__(self, version: str = "1"):
        self.graded: list[str] = []
        self.version = version

    def grade(
        self,
        solutions: Sequence[str],
        references: Sequence[Sequence[str]],
        free_text: Sequence[str | None] | None = None,
    ) -> list[Grade]:
        self.graded += solutions
        found = []
        for solution, accepted, free in zip(solutions, references, free_text or (), strict=True):
            if text := solution or free:
                right = len(text) in map(len, accepted)
                found.append(Grade(Outcome.CORRECT if right else Outcome.WRONG, text, unboxed=not solution))
            else:
                found.append(Grade(Outcome.UNBOXED, None))
        return found


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    table = pd.concat([cell([[True, False]], 16), cell([[True, False]], None, None)], ignore_index=True)
    table["answer"] = ["4", None, "4", None]
    samples.write(table, tmp_path)
    written = pq.read_schema(tmp_path / "samples.parquet")
    assert written.equals(samples.SCHEMA) and not written.metadata
    found = samples.read(tmp_path)
    assert found["token_ids"].map(list).tolist() == [[1, 2]] * 4
    assert found["thinking_budget"].tolist() == [16, 16, pd.NA, pd.NA]
    assert samples.texts(found["answer"]) == ["4", None, "4", None]
    pd.testing.assert_frame_equal(samples.read(tmp_path, samples.FIGURES), found[samples.FIGURES])


def test_a_table_without_a_column_or_with_a_hole_is_not_written(tmp_path: Path) -> None:
    table = cell([[True]], 16)
    with pytest.raises(KeyError, match="outcome"):
        samples.write(table.drop(columns="outcome"), tmp_path)
    with pytest.raises(ValueError, match="solution"):
        samples.write(table.assign(solution=None), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_absent_of_another_layout_or_damaged_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no .*evaluations/samples\.parquet; name the output of"):
        samples.read(tmp_path / "evaluations")
    for name in ("base", "e1"):
        stored(tmp_path / "evaluations" / name, cell([[True]], 16))
    with pytest.raises(StoreError, match=r"contains some; name them: \S+/evaluations/base \S+/evaluations/e1$"):
        samples.read(tmp_path / "evaluations")
    file = tmp_path / "samples.parquet"
    for older in (cell([[True]], 16).assign(correct=True), cell([[True]], 16).assign(problem="1")):
        pq.write_table(pa.Table.from_pandas(older), file)
        with pytest.raises(StoreError, match=r"by another version of e1_trl; .* sampling, or report on it with that"):
            samples.read(tmp_path)
    samples.write(cell([[True]] * 100, 16).assign(text=[str(hash(i)) * 40 for i in range(100)]), tmp_path)
    whole = file.read_bytes()
    quarter = len(whole) // 4
    for damaged in (whole[:-20], b"", whole[:quarter] + bytes([whole[quarter] ^ 0xFF]) + whole[quarter + 1 :]):
        file.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"cannot read .*samples\.parquet .*; delete it and run the evaluation"):
            samples.read(tmp_path)


def test_grading_fills_in_or_replaces_outcome_answer_and_whether_it_was_boxed() -> None:
    asked = cell([[False]] * 3, 16).assign(solution=["7", "", ""], free_text=[None, "42", None], unboxed=True)
    for table in (asked, asked.drop(columns=[field.name for field in samples.GRADED])):
        found = samples.grade(table, LengthGrader())
        assert found["outcome"].tolist() == ["correct", "wrong", "unboxed"]
        assert samples.texts(found["answer"]) == ["7", "42", None]
        assert found["unboxed"].tolist() == [False, True, False]


class Remembered(dict[str, Grade]):
    def grades(self, keys: Iterable[str]) -> dict[str, Grade]:
        return {key: self[key] for key in keys if key in self}

    def keep(self, grades: Mapping[str, Grade]) -> None:
        self.update(grades)


def test_an_answer_is_graded_once_as_long_as_answer_accepted_answers_and_grader_are_what_they_were() -> None:
    known, grader = Remembered(), LengthGrader()
    first = cell([[True, True]] * 2, 16).assign(solution=["a", "bb", "a", "a"])  # of the problems 0, 0, 1 and 1
    graded = samples.grade(first, grader, known=known)
    assert sorted(grader.graded) == ["a", "a", "bb"]
    pd.testing.assert_frame_equal(samples.grade(first, grader, known=known), graded)
    more = pd.concat([first, cell([[True, True]] * 2, 32).assign(solution=["a", "ccc", "a", "bb"])], ignore_index=True)
    assert samples.grade(more, grader, known=known)["answer"].tolist() == ["a", "bb", "a", "a", "a", "ccc", "a", "bb"]
    assert sorted(grader.graded[3:]) == ["bb", "ccc"]
    newer = LengthGrader("2")
    samples.grade(first, newer, known=known)
    assert sorted(newer.graded) == ["a", "a", "bb"]


def test_parts_make_the_same_answers_as_the_whole_and_are_graded_anew(tmp_path: Path) -> None:
    parts = [cell([[True]] * 3, 16), cell([[False]] * 2, 32)]
    samples.write(iter(parts), tmp_path)
    found = samples.read(tmp_path)
    samples.write(pd.concat(parts, ignore_index=True), tmp_path)
    pd.testing.assert_frame_equal(samples.read(tmp_path), found)
    samples.regrade(tmp_path, LengthGrader("2"))
    assert samples.read(tmp_path)["outcome"].tolist() == ["wrong"] * 5


def test_only_answers_on_one_benchmark_and_under_different_names_are_joined() -> None:
    one = cell([[True], [False]], 16)
    assert len(samples.join([one, one.assign(model="other")])) == 4
    with pytest.raises(ValueError, match="a report is on one benchmark, and these answers are of sums, products"):
        samples.join([one, one.assign(benchmark="products")])
    with pytest.raises(ValueError, match="a report is on one grader, and these answers are of mathematics, programs"):
        samples.join([one, cell([[True]], 32).assign(grader="programs")])
    with pytest.raises(ValueError, match="under the name 'm'"):
        samples.join([one, one])


def test_an_answer_without_thinking_is_a_thought_that_ended(tmp_path: Path) -> None:
    table = cell([[True]], None, None, method="unconstrained")
    stored(tmp_path, table.assign(thinking_end="none", thinking_tokens=0, forced_tokens=0, token_ids=[[4, 5, 6]]))
    (tmp_path / samples.FACTS).write_text("{}")
    thinking = Thinking.read(tmp_path, {})
    found = {place: (*each.token_ids, each.stop) for place, each in thinking.segments.items()}
    assert found == {(0, 0): (4, 5, 6, Stop.EOS)}
    thinking.check([Goal(Cell(MIXED, Budget(16, 8)), 1, 1)], [0])
