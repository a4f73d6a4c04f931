"""An optimizer step of `E1Trainer` against one of TRL's own `GRPOTrainer`, and where the difference goes.

    make bench        (nothing else should run)

Each trainer has a process of its own, with its engine, and they take a step each in turns, in an order drawn anew for
each round, while the other one waits. What is equal between them, and what is not, stands in `benchmarks.stepped` and
in the counts of the rows.
"""

import random
import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean, median
from typing import Any, get_args

from tqdm import tqdm

from benchmarks.results import Results, arguments
from benchmarks.rows import TrainStep, median_interval
from benchmarks.stepped import ROLLOUTS, Name, Step, run

FOLDER = Path("runs/bench")
WARM, ROUNDS = 2, 50


def alternate(names: tuple[Name, ...]) -> dict[Name, list[Step]]:
    """The steps of each trainer, a round after the other.

    Raises:
        SystemExit: a trainer has ended; names its log.
        ValueError: they sample or train on different numbers of tokens.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    context = get_context("spawn")
    connections: dict[Name, Connection] = {}

    def answer(name: Name) -> Any:
        try:
            return connections[name].recv()
        except EOFError:
            sys.exit(f"benchmarks.bench_training: the trainer {name} has ended; see {FOLDER / name}.log")

    for name in names:
        connections[name], far = context.Pipe()
        context.Process(target=run, args=(name, FOLDER, far), daemon=True).start()
        far.close()  # so that its end is noticed
        answer(name)  # one after the other: a start takes all cores
    steps: dict[Name, list[Step]] = {name: [] for name in names}
    for turn in tqdm(range(WARM + ROUNDS), desc="optimizer steps", unit="round"):
        for name in random.Random(turn).sample(names, len(names)):
            connections[name].send(None)
            steps[name].append(answer(name))
        check(steps)
    return {name: of_name[WARM:] for name, of_name in steps.items()}


def summary(name: Name, steps: list[Step], plain: list[Step]) -> TrainStep:
    """The row of a trainer, beside plain TRL's steps of the same rounds."""
    walls = [step.wall_s for step in steps]
    ratios = [step.wall_s / other.wall_s for step, other in zip(steps, plain, strict=True)]

    low, high = median_interval(ratios)

    def mean(count: str) -> int:
        return round(fmean(getattr(step, count) for step in steps))

    return TrainStep(
        distribution="train_step",
        scheduler=name,
        rollouts=ROLLOUTS,
        rounds=len(steps),
        step_s=median(walls),
        step_s_low=min(walls),
        step_s_high=max(walls),
        step_ratio=median(ratios),
        step_ratio_low=min(ratios),
        step_ratio_high=max(ratios),
        step_ratio_from=low,
        step_ratio_to=high,
        phases_s={phase: median(step.phases_s[phase] for step in steps) for phase in steps[0].phases_s},
        cpu_s=median(step.cpu_s for step in steps),
        idle_cpu_s=max(step.idle_cpu_s for step in steps),
        engine_requests=mean("engine_requests"),
        engine_steps=mean("engine_steps"),
        block_size=steps[0].block_size,
        prefill_tokens=mean("prefill_tokens"),
        sampled_tokens=mean("sampled_tokens"),
        trained_tokens=mean("trained_tokens"),
    )


def check(steps: dict[Name, list[Step]]) -> None:
    """Every step of both trainers has sampled and trained on as many tokens.

    Raises:
        ValueError: one has not.
    """
    counts = {(step.sampled_tokens, step.trained_tokens) for of_name in steps.values() for step in of_name}
    if len(counts) > 1:
        raise ValueError(f"the steps differ in sampled and trained tokens: {sorted(counts)}; they must be the same")


def main() -> None:
    parsed = arguments("Measure an optimizer step against TRL's own.")
    results = Results.read(parsed.output)
    if results.has("train_step"):
        return
    steps = alternate(get_args(Name))
    rows = [summary(name, of_name, steps["grpo"]) for name, of_name in steps.items()]
    results.merged(rows).publish(parsed.output, parsed.document)


if __name__ == "__main__":
    main()
