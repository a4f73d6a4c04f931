"""The table of answers: what is written is read, and what is not ours is refused by name."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fabricated import cell

from e1_trl.answers.grade import Grade, Outcome
from e1_trl.atomic import StoreError
from e1_trl.report import samples

GRADES = [field.name for field in samples.GRADED]


class LengthGrader:
    """Right is what is as long as an accepted answer; free text is read if there is no solution."""

    def __init__(self, version: str = "1"):
        self.version = version
        self.graded: list[str] = []

    def grade(
        self,
        solutions: Sequence[str],
        references: Sequence[Sequence[str]],
        free_text: Sequence[str | None] | None = None,
    ) -> list[Grade]:
        assert free_text is not None
        self.graded += solutions
        return [
            self._grade(solution or free, accepted, unboxed=not solution and free is not None)
            for solution, accepted, free in zip(solutions, references, free_text, strict=True)
        ]

    @staticmethod
    def _grade(text: str | None, accepted: Sequence[str], unboxed: bool) -> Grade:
        if not text:
            return Grade(Outcome.UNBOXED, None)
        right = any(len(text) == len(answer) for answer in accepted)
        return Grade(Outcome.CORRECT if right else Outcome.WRONG, text, unboxed)


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


def test_an_older_layout_is_refused_with_what_to_do(tmp_path: Path) -> None:
    table = cell([[True]], 16).rename(columns={"answer": "boxed"}).astype({"sample": "int64"}).assign(correct=True)
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "samples.parquet")
    with pytest.raises(StoreError) as refused:
        samples.read(tmp_path)
    message = str(refused.value)
    assert "missing: answer; unknown: boxed, correct; of another type:" in message and "sample" in message
    assert "samples nothing" in message and "\n" not in message


def test_a_damaged_table_is_named_with_what_to_do(tmp_path: Path) -> None:
    samples.write(cell([[True]] * 100, 16), tmp_path)
    file = tmp_path / "samples.parquet"
    for damaged in (file.read_bytes()[:-20], b""):
        file.write_bytes(damaged)
        with pytest.raises(
            StoreError, match=r"cannot read .*samples\.parquet .*; delete it and run the evaluation again"
        ):
            samples.read(tmp_path)
    whole = bytearray(cell_bytes(tmp_path))
    whole[len(whole) // 4] ^= 0xFF
    file.write_bytes(whole)
    with pytest.raises(StoreError, match="delete it"):
        samples.read(tmp_path)


def cell_bytes(folder: Path) -> bytes:
    samples.write(cell([[True]] * 100, 16).assign(text=[str(hash(i)) * 40 for i in range(100)]), folder)
    return (folder / "samples.parquet").read_bytes()


def test_an_evaluation_that_has_not_finished_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no .*samples\.parquet: run the evaluation into .* again"):
        samples.read(tmp_path)


def test_grading_fills_in_outcome_answer_and_whether_it_was_boxed(tmp_path: Path) -> None:
    table = cell([[True]] * 3, 16).drop(columns=GRADES)
    table["solution"], table["free_text"] = ["7", "", ""], [None, "42", None]
    samples.write(samples.grade(table, LengthGrader()), tmp_path)
    found = samples.read(tmp_path)
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
    again = samples.grade(first, grader, known=known)
    pd.testing.assert_frame_equal(again, graded)
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


def test_grading_anew_replaces_what_was_graded() -> None:
    graded = cell([[False]] * 2, 16).assign(solution="7", answer="old", unboxed=True)
    again = samples.grade(graded, LengthGrader())
    assert again["outcome"].tolist() == ["correct"] * 2 and again["answer"].tolist() == ["7"] * 2
    assert not again["unboxed"].any()


def test_only_answers_on_one_benchmark_and_under_different_names_are_joined() -> None:
    one = cell([[True], [False]], 16)
    assert len(samples.join([one, one.assign(model="other")])) == 4
    with pytest.raises(ValueError, match="of sums, products"):
        samples.join([one, one.assign(benchmark="products")])
    with pytest.raises(ValueError, match="under the name 'm'"):
        samples.join([one, one])
