"""What has been sampled, on disk: Parquet shards that a killed run leaves whole, and what determined them.

    <folder>/run.json                      what determined the samples; a run with other settings is refused
    <folder>/cells.json                    which cells have been answered: what the table holds
    <folder>/segments/00-000017.parquet    sampled segments, written as they finish; a shard changes in one atomic step

A segment is stored with its place in its tree, so that the next run resumes where this one stopped, and a run with more
budgets, methods, samples or problems extends it. The table of answers is derived from segments and cells.
"""

import fcntl
import json
import logging
import queue
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from e1_trl.atomic import StoreError, write_atomically, write_table
from e1_trl.budget import Budget
from e1_trl.evaluation.manifest import Manifest
from e1_trl.evaluation.methods import Cell
from e1_trl.evaluation.plan import Asked
from e1_trl.rollout import Stop
from e1_trl.tree import Leg

logger = logging.getLogger(__name__)

SCHEMA = pa.schema(
    {
        "problem": pa.int32(),
        "sample": pa.int32(),
        "branch": pa.string(),
        "start": pa.int32(),
        "before": pa.string(),
        "token_ids": pa.list_(pa.int32()),
        "stop": pa.string(),
    }
)
KEY = ["problem", "sample", "branch", "start", "before"]
WRITE_SECONDS = 0.05  # between two writes: what a kill loses at most of finished work
# A shard takes no more legs or tokens than this before the next is begun, so that writing it stays a matter of
# milliseconds.
SHARD_LEGS = 64
SHARD_TOKENS = 20_000


class Store:
    """The segments of one evaluation. A context manager: what is not yet written is written at its end.

    A thread of its own writes, so that sampling does not wait for the disk, nor a finished segment for the next one.

    Args:
        folder: made if it is not there.
        manifest: everything that determines a sample; compared with that of the folder.
        rank: of this process among those that write to the folder at the same time.
        exclusive: refuse to enter while another process has entered, exclusively too.

    Attributes:
        damaged: shards that could not be read; they were put aside, and what they held will be sampled again.

    Raises:
        StoreError: the folder belongs to an evaluation with other settings, is in use, or cannot be written to.
    """

    def __init__(self, folder: Path, manifest: Manifest, rank: int = 0, exclusive: bool = False):
        self.folder = folder
        self.damaged: list[str] = []
        self._segments = folder / "segments"
        self._manifest = manifest
        self._rank = rank
        self._exclusive = exclusive
        self._in_use: IO[str] | None = None
        self._added: queue.SimpleQueue[Leg] = queue.SimpleQueue()
        self._shard: list[Leg] = []
        self._shard_file: Path | None = None
        self._changed = False  # since it was last written
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None
        self._closing = threading.Event()
        self._failure: StoreError | None = None
        try:
            self._segments.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make {self._segments}: {error.strerror}") from error

    def _check(self) -> None:
        file, ours = self.folder / "run.json", self._manifest.as_json()
        if not file.exists() or (self._exclusive and not any(self._segments.iterdir())):
            write_atomically(file, lambda path: path.write_text(json.dumps(ours, indent=1) + "\n"))
            return
        try:
            theirs = json.loads(file.read_text())
        except ValueError as error:
            raise StoreError(f"{file} is damaged ({error}); name another folder, or repair it") from error
        for name in {**ours, **theirs}:  # the format first
            if theirs.get(name) != ours.get(name):
                raise StoreError(
                    f"{self.folder} holds an evaluation with {name} = {theirs.get(name)!r}, this one has "
                    f"{ours.get(name)!r}; name another folder"
                )

    def read_cells(self) -> list[Asked]:
        """The cells that have been answered, in the order of the table."""
        file = self.folder / "cells.json"
        if not file.exists():
            return []
        try:
            return [
                Asked(
                    cell=Cell(entry["method"], Budget(**entry["budget"])),
                    problems=entry["problems"],
                    samples=entry["samples"],
                    commit=entry["commit"],
                )
                for entry in json.loads(file.read_text())
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{file} is damaged ({error}); delete it, and ask for all cells again") from error

    def write_cells(self, asked: Sequence[Asked]) -> None:
        """Remember which cells have been answered."""
        entries = [
            {
                "method": item.cell.method,
                "budget": asdict(item.cell.budget),
                "problems": item.problems,
                "samples": item.samples,
                "commit": item.commit,
            }
            for item in asked
        ]
        write_atomically(self.folder / "cells.json", lambda path: path.write_text(json.dumps(entries, indent=1) + "\n"))

    def __enter__(self) -> "Store":
        if self._exclusive:
            self._lock_folder()
        self._check()
        return self

    def _lock_folder(self) -> None:
        file = self.folder / ".in_use"
        try:
            self._in_use = file.open("w")
        except OSError as error:
            raise StoreError(f"cannot write {file}: {error.strerror}") from error
        try:
            fcntl.flock(self._in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(
                f"another process evaluates into {self.folder}; wait for it, or name another folder"
            ) from error
        except OSError as error:  # ENOLCK, ENOSYS: some network file systems
            logger.warning("%s cannot be locked (%s): let no other process evaluate into it", self.folder, error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._closing.set()
            self._writer.join()
        if not isinstance(error, StoreError):
            self.flush()
        if self._in_use is not None:
            self._in_use.close()

    def read(self) -> dict[tuple[int, int], list[Leg]]:
        """All stored legs by problem and sample, in order of their start.

        A shard that cannot be read is renamed to `*.damaged` and named in `damaged`.
        """
        trees: dict[tuple[int, int], list[Leg]] = {}
        for row in self._read_table().sort_by("start").to_pylist():
            leg = Leg(**{**row, "stop": Stop[row["stop"]]})
            trees.setdefault((leg.problem, leg.sample), []).append(leg)
        return trees

    def _read_table(self) -> pa.Table:
        """All shards that can be read, without the legs that are there twice."""
        parts = [SCHEMA.empty_table()]
        for file in sorted(self._segments.glob("*.parquet")):
            try:
                parts.append(pq.read_table(file, schema=SCHEMA, page_checksum_verification=True))
            except (OSError, pa.ArrowException) as error:
                self._put_aside(file)
                self.damaged.append(f"{file}: {str(error).splitlines()[0]}")
        table = pa.concat_tables(parts)
        return table.filter(~table.select(KEY).to_pandas().duplicated().to_numpy())

    def _put_aside(self, file: Path) -> None:
        try:
            file.rename(file.with_name(f"{file.name}.damaged"))
        except OSError as error:
            raise StoreError(f"{file} is damaged, and cannot be renamed: {error.strerror}") from error

    def add(self, leg: Leg) -> None:
        """Keep a leg; it is on disk a moment (`WRITE_SECONDS`) later.

        Raises:
            StoreError: an earlier one could not be written, as on a full disk.
        """
        if self._failure is not None:
            raise self._failure
        self._added.put(leg)
        if self._writer is None:  # only now: an engine that forks has started
            self._writer = threading.Thread(target=self._keep_writing, daemon=True)
            self._writer.start()

    def _keep_writing(self) -> None:
        while not self._closing.wait(WRITE_SECONDS):
            try:
                self.flush()
            except StoreError as error:
                self._failure = error
                return

    def flush(self) -> None:
        """Write what is not yet written.

        Raises:
            StoreError: it could not be written, as on a full disk.
        """
        with self._lock:
            while not self._added.empty():
                self._shard.append(self._added.get())
                self._changed = True
            if not self._changed:
                return
            self._shard_file = self._shard_file or self._new_file()
            self._write(self._shard, self._shard_file)
            self._changed = False
            if len(self._shard) >= SHARD_LEGS or sum(len(leg.token_ids) for leg in self._shard) >= SHARD_TOKENS:
                self._shard, self._shard_file = [], None

    def compact(self) -> None:
        """Put all shards into one. Killed in between, it leaves legs twice, which reading does not mind."""
        self.flush()
        shards = sorted(self._segments.glob("*.parquet"))
        if len(shards) > 1:
            write_table(self._read_table(), self._new_file())
            self._shard, self._shard_file = [], None
            for shard in shards:
                shard.unlink(missing_ok=True)

    def _new_file(self) -> Path:
        # Looked up each time, since the processes of a data-parallel run write meanwhile. Those put aside as damaged
        # keep their numbers.
        numbers = [int(file.name[3:9]) for file in self._segments.glob(f"{self._rank:02d}-*.parquet*")]
        return self._segments / f"{self._rank:02d}-{max(numbers, default=-1) + 1:06d}.parquet"

    @staticmethod
    def _write(legs: Iterable[Leg], file: Path) -> None:
        rows = [{**vars(leg), "stop": leg.stop.name} for leg in legs]
        write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file)
