"""Samples on disk: an SQLite database, which a killed run leaves whole, and the facts that determined them.

    <folder>/run.json           what determined the samples; a run with other settings is refused
    <folder>/segments.sqlite    sampled segments as they finish, each with its place in its tree; reached goals (method,
                                budget, problems, samples); grades that the next run need not make again

The next run resumes where this one stopped, and a run with more budgets, methods, samples or problems extends it. The
table of answers is derived from both files. Facts are compared by name, and a missing one counts as null: a folder
from before an option was added can be resumed while that option is unset.
"""

import hashlib
import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from e1_trl.answers.grade import PASSING, Grade, Outcome
from e1_trl.atomic import StoreError, locked, make_folder, write_atomically
from e1_trl.budget import Budget
from e1_trl.evaluation.methods import Cell
from e1_trl.evaluation.sampling_plan import Goal
from e1_trl.report.samples import FACTS
from e1_trl.rollout import Stop
from e1_trl.tree import StoredSegment

FILE = "segments.sqlite"
FORMAT = 4  # of the folder; an older one is refused
TABLES = """
CREATE TABLE IF NOT EXISTS legs (
    problem, sample, branch, start, before, stop, token_ids,
    PRIMARY KEY (problem, sample, branch, start, before)
);
CREATE TABLE IF NOT EXISTS cells (method, budget, problems, samples, made_by);
CREATE TABLE IF NOT EXISTS grades (key PRIMARY KEY, grade) WITHOUT ROWID;
"""
SYNC_PAGES = 64  # of 4 KiB between syncs; a crash of the node may lose them, a kill of the process does not


class Store:
    """Segments of one evaluation, the goals that they reach, and grades. Made by `open`."""

    def __init__(self, folder: Path, facts: dict[str, Any], database: sqlite3.Connection):
        self._folder = folder
        self._facts = facts
        self._database = database

    @classmethod
    @contextmanager
    def open(cls, folder: Path, facts: Mapping[str, Any]) -> Iterator["Store"]:
        """Open the store in a folder, which is made if there is none, and locked against other processes.

        Raises:
            StoreError: the folder belongs to an evaluation with other settings, is in use or damaged, or cannot be
                written to, now or later.
        """
        file = folder / FILE
        ours = json.loads(json.dumps({"format": FORMAT, **facts}))
        make_folder(folder)
        try:
            with locked(folder):
                _compare(folder, ours)
                with closing(sqlite3.connect(file, isolation_level="IMMEDIATE")) as database:
                    # A kill loses nothing that is written; a crash of the node loses what is not yet synced.
                    database.execute("PRAGMA journal_mode = WAL")
                    database.execute("PRAGMA synchronous = NORMAL")
                    database.execute(f"PRAGMA wal_autocheckpoint = {SYNC_PAGES}")
                    database.executescript(TABLES)
                    yield cls(folder, ours, database)
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"cannot use {file}: {error}; what was written before is safe, run again to resume; SQLite needs a "
                "file system with room and with locks, which some network file systems lack; if the file is damaged, "
                "`sqlite3 FILE .recover` shows what can be read, and without it everything is sampled again"
            ) from error

    def bind(self) -> None:
        """Write the facts, before the first sample: from now on, other facts are refused in this folder."""
        if not (file := self._folder / FACTS).exists():
            if self.count():
                raise StoreError(f"{self._folder} has lost {FACTS}, which says how it was sampled; name another folder")
            write_atomically(file, json.dumps(self._facts, indent=1) + "\n")

    def add(self, segments: Iterable[StoredSegment]) -> None:
        """Store all segments or none; a continued one replaces its shorter version. A kill loses none after that."""
        query = "INSERT OR REPLACE INTO legs VALUES (:problem, :sample, :branch, :start, :before, :stop, :token_ids)"
        rows = [{**vars(one), "stop": one.stop.name, "token_ids": array("i", one.token_ids)} for one in segments]
        with self._database:
            self._database.executemany(query, rows)

    def segments(self, problem: int, sample: int) -> list[StoredSegment]:
        query = "SELECT branch, start, before, token_ids, stop FROM legs WHERE problem = ? AND sample = ?"
        rows = self._database.execute(f"{query} ORDER BY start", (problem, sample))
        return [
            StoredSegment(problem, sample, branch, start, before, array("i", ids), Stop[stop])
            for branch, start, before, ids, stop in rows
        ]

    def count(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM legs").fetchone()[0])

    def tokens(self) -> int:
        bytes_ = self._database.execute("SELECT coalesce(sum(length(token_ids)), 0) FROM legs").fetchone()[0]
        return int(bytes_) // array("i").itemsize

    def goals(self) -> list[Goal]:
        """Return the goals that have been reached, in the order of the table of answers."""
        rows = self._database.execute("SELECT method, budget, problems, samples, made_by FROM cells ORDER BY rowid")
        return [Goal(Cell(method, Budget.parse(budget)), *others) for method, budget, *others in rows]

    def reach(self, goals: Sequence[Goal]) -> None:
        rows = [(goal.cell.method, str(goal.cell.budget), goal.problems, goal.samples, goal.commit) for goal in goals]
        with self._database:
            self._database.execute("DELETE FROM cells")
            self._database.executemany("INSERT INTO cells VALUES (?, ?, ?, ?, ?)", rows)
        # Sync before the table of answers is written, so that no answer in a report is sampled again after a crash.
        self._database.execute("PRAGMA wal_checkpoint")

    def grades(self, keys: Iterable[str]) -> dict[str, Grade]:
        query = "SELECT key, grade FROM grades WHERE key IN (SELECT value FROM json_each(?))"
        rows = self._database.execute(query, (json.dumps(list(keys)),))
        found = {key: json.loads(grade) for key, grade in rows}
        return {key: Grade(**{**grade, "outcome": Outcome(grade["outcome"])}) for key, grade in found.items()}

    def keep(self, grades: Mapping[str, Grade]) -> None:
        """Remember grades, except those with an outcome of `PASSING`: these answers are graded again."""
        given = [(key, grade) for key, grade in grades.items() if grade.outcome not in PASSING]
        rows = [(key, json.dumps(asdict(grade))) for key, grade in given]
        with self._database:
            self._database.executemany("INSERT OR REPLACE INTO grades VALUES (?, ?)", rows)


def read_facts(folder: Path) -> dict[str, Any]:
    """Read the facts that determined the samples in a folder; there are none until sampling begins."""
    file = folder / FACTS
    return dict(json.loads(file.read_text())) if file.exists() else {}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compare(folder: Path, ours: Mapping[str, Any]) -> None:
    """Check that the samples in the folder, if any, were sampled with these facts."""
    if not (theirs := read_facts(folder)):
        return
    for name in {**ours, **theirs}:  # the format first
        if theirs.get(name) != ours.get(name):
            raise StoreError(
                f"{folder} holds an evaluation with {name} = {theirs.get(name)!r}, this one has {ours.get(name)!r}; "
                "name another folder"
            )
