"""What has been sampled, on disk: Parquet shards that a killed run leaves whole, and what determined them.

    <folder>/run.json                      what determined the samples; a run with other settings is refused
    <folder>/segments/00-000017.parquet    sampled segments, written as they finish, each shard in one atomic step

A segment is stored with its place in its tree, so that the next run goes on where this one stopped, and a run with more
budgets, methods, samples or problems extends it. What is read off the trees (answers, grades) is derived, and written
by the report.
"""

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from e1_trl.evaluation.tree import Leg
from e1_trl.rollout import Stop

FORMAT = 1
SCHEMA = pa.schema(
    {
        "problem": pa.int32(),
        "sample": pa.int32(),
        "branch": pa.string(),
        "start": pa.int32(),
        "token_ids": pa.list_(pa.int32()),
        "stop": pa.string(),
    }
)
FLUSH_SECONDS = 1.0


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

    Args:
        folder: made if it is not there.
        manifest: everything that determines a sample; compared with that of the folder.
        rank: of this process among those that write to the folder at the same time.

    Attributes:
        damaged: shards that could not be read; they were put aside, and what they held will be sampled again.

    Raises:
        StoreError: the folder belongs to an evaluation with other settings, or cannot be written to.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any], rank: int = 0):
        self.folder = folder
        self.damaged: list[str] = []
        self._segments = folder / "segments"
        self._rank = rank
        self._unwritten: list[Leg] = []
        self._written_at = time.monotonic()
        try:
            self._segments.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make {self._segments}: {error.strerror}") from error
        self._check(json.loads(json.dumps({"format": FORMAT, **manifest})))
        # Those put aside as damaged keep their numbers.
        numbers = [int(file.name[3:9]) for file in self._segments.glob(f"{rank:02d}-*.parquet*")]
        self._next = max(numbers, default=-1) + 1

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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, StoreError):
            self.flush()

    def read(self) -> dict[tuple[int, int], list[Leg]]:
        """All stored legs by problem and sample, in order of their start.

        A shard that cannot be read is renamed to `*.damaged` and named in `damaged`.
        """
        legs: dict[tuple[int, int, str, int], Leg] = {}
        for file in sorted(self._segments.glob("*.parquet")):
            try:
                rows = pq.read_table(file, schema=SCHEMA, page_checksum_verification=True).to_pylist()
            except (OSError, pa.ArrowException) as error:
                file.rename(file.with_name(f"{file.name}.damaged"))
                self.damaged.append(f"{file}: {str(error).splitlines()[0]}")
                continue
            for row in rows:
                leg = Leg(**{**row, "stop": Stop[row["stop"]]})
                legs.setdefault((leg.problem, leg.sample, leg.branch, leg.start), leg)
        trees: dict[tuple[int, int], list[Leg]] = {}
        for leg in sorted(legs.values(), key=lambda leg: leg.start):
            trees.setdefault((leg.problem, leg.sample), []).append(leg)
        return trees

    def add(self, leg: Leg) -> None:
        """Keep a leg; it is on disk within a second of work."""
        self._unwritten.append(leg)
        if time.monotonic() - self._written_at >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is not yet written.

        Raises:
            StoreError: it could not be written, as on a full disk.
        """
        if self._unwritten:
            self._write(self._unwritten)
            self._unwritten = []
        self._written_at = time.monotonic()

    def compact(self) -> None:
        """Put all shards into one. Killed in between, it leaves legs twice, which reading does not mind."""
        shards = sorted(self._segments.glob("*.parquet"))
        if len(shards) > 1:
            self._write(leg for legs in self.read().values() for leg in legs)
            for shard in shards:
                shard.unlink(missing_ok=True)

    def _write(self, legs: Iterable[Leg]) -> None:
        rows = [{**asdict(leg), "stop": leg.stop.name} for leg in legs]
        file = self._segments / f"{self._rank:02d}-{self._next:06d}.parquet"
        write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file)
        self._next += 1
