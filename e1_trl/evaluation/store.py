"""What has been sampled, on disk: Parquet shards that a killed run leaves whole, and what determined them.

    <folder>/run.json                      what determined the samples; a run with other settings is refused
    <folder>/segments/00-000017.parquet    sampled segments, written as they finish; a shard changes in one atomic step

A segment is stored with its place in its tree, so that the next run goes on where this one stopped, and a run with more
budgets, methods, samples or problems extends it. What is read off the trees (answers, grades) is derived, and written
by the report.
"""

import fcntl
import json
import os
import queue
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from e1_trl.evaluation.tree import Leg
from e1_trl.rollout import Stop

FORMAT = 2
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


class StoreError(Exception):
    """The result folder cannot be used or written to; one line that says why."""


def write_atomically(file: Path, write: Any) -> None:
    """Let `write(temporary_path)` write a file that then takes its place in one step, or not at all.

    Raises:
        StoreError: it could not be written, as on a full disk.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        write(temporary)
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(
            f"cannot write {file}: {error.strerror or error}; what was written before is safe, run again to go on"
        ) from error


def write_table(table: pa.Table, file: Path) -> None:
    write_atomically(file, lambda path: pq.write_table(table, path, compression="zstd", write_page_checksum=True))


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

    def __init__(self, folder: Path, manifest: dict[str, Any], rank: int = 0, exclusive: bool = False):
        self.folder = folder
        self.damaged: list[str] = []
        self._segments = folder / "segments"
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
        self._check(json.loads(json.dumps({"format": FORMAT, **manifest})))

    def _check(self, manifest: dict[str, Any]) -> None:
        file = self.folder / "run.json"
        if not file.exists():
            write_atomically(file, lambda path: path.write_text(json.dumps(manifest, indent=1) + "\n"))
            return
        try:
            there = json.loads(file.read_text())
        except ValueError as error:
            raise StoreError(f"{file} is damaged ({error}); name another folder, or repair it") from error
        for name in {**there, **manifest}:
            if there.get(name) != manifest.get(name):
                raise StoreError(
                    f"{self.folder} holds an evaluation with {name} = {there.get(name)!r}, this one has "
                    f"{manifest.get(name)!r}; name another folder"
                )

    def __enter__(self) -> "Store":
        if self._exclusive:
            self._in_use = (self.folder / ".in_use").open("w")
            try:
                fcntl.flock(self._in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreError(
                    f"another process evaluates into {self.folder}; wait for it, or name another folder"
                ) from error
        return self

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
                file.rename(file.with_name(f"{file.name}.damaged"))
                self.damaged.append(f"{file}: {str(error).splitlines()[0]}")
        table = pa.concat_tables(parts)
        return table.filter(~table.select(KEY).to_pandas().duplicated().to_numpy())

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
