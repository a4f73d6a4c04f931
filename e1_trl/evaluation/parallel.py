"""Several engines for one evaluation: processes with a part of the problems and of the GPUs each, and one store."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from threading import RLock, Thread

from tqdm import tqdm

from e1_trl.atomic import StoreError
from e1_trl.engines.engine import EngineError
from e1_trl.evaluation.forest import Forest
from e1_trl.evaluation.grow import grow, is_grown
from e1_trl.evaluation.manifest import Manifest
from e1_trl.evaluation.model import Weights
from e1_trl.evaluation.store import Store


def grow_in_parallel(forest: Forest, manifest: Manifest, model: Weights) -> None:
    """Start `data_parallel_size` processes, and wait for all.

    Raises:
        EngineError: one of them failed; the others were stopped.
    """
    count, size = model.arguments.data_parallel_size, model.arguments.tensor_parallel_size
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if devices == [""]:
        devices = list(map(str, range(count * size)))
    context, processes, connections = get_context("spawn"), [], []
    # Ctrl-C is for this process, which ends the others: they ignore it until they have left its group.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for rank in range(count):
            ours, theirs = context.Pipe()
            work = (theirs, rank, devices[rank * size : (rank + 1) * size])
            process = context.Process(target=_grow_part, args=work)
            process.start()
            theirs.close()
            processes.append(process)
            connections.append(ours)
        signal.signal(signal.SIGINT, handler)
        for rank, ours in enumerate(connections):
            try:
                ours.send((replace(forest, problems=forest.problems[rank::count]), manifest, model))
            except OSError as error:
                raise EngineError(f"engine {rank} of {count} ended before it was told what to do") from error
        running = processes
        while running:
            wait([process.sentinel for process in running])
            running = [process for process in processes if process.is_alive()]
            for rank, process in enumerate(processes):
                if process.exitcode:
                    raise EngineError(f"engine {rank} of {count} failed")
    finally:
        signal.signal(signal.SIGINT, handler)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        print(file=sys.stderr)  # below their bars


def _grow_part(connection: Connection, rank: int, devices: Sequence[str]) -> None:
    """In a process of its own: sample what is missing, or say in one line what is wrong."""
    os.setpgrp()  # away from the terminal, for vLLM's own processes do not ignore Ctrl-C
    Thread(target=_end_with_parent, daemon=True).start()
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)  # before anything looks for GPUs
    forest, manifest, model = connection.recv()
    tqdm.set_lock(RLock())  # its own is for several processes, and one that is stopped would leave it behind
    try:
        with Store.open(model.arguments.folder, asdict(manifest)) as store:
            if not is_grown(forest, store):
                grow(forest, store, model.start(forest.close, rank, store.count()))
    except (StoreError, RuntimeError, ValueError, OSError) as failure:
        sys.exit(f"e1 eval, engine {rank}: {' '.join(str(failure).split())}")


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
