"""Time that a generation waits for its grades: programs graded while others are sampled, or after all of them.

    python -m benchmarks.bench_grading      (four minutes; nothing else should run)

The miniature of programs, a quarter of its batch, sampled and scored as a step does it; nothing is learned, so every
generation has the base's own lengths. Each program takes the imposed seconds longer to grade than its tests do, asleep,
as if its worker had a core of its own.
"""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.results import arguments, in_turns, publish, ratio, spread
from e1_trl.answers.grade import Grade, Grader
from e1_trl.answers.programs import grader as programs
from e1_trl.answers.programs.grader import ProgramGrader
from e1_trl.answers.programs.sandbox.process import Limits
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems
from e1_trl.report.markdown import table
from e1_trl.training.config import E1Config
from e1_trl.training.rewards import Accuracy
from e1_trl.training.trainer import E1Trainer
from experiments.nano_code.make_base import make_data

ROLLOUTS, GROUP = 128, 8
IMPOSED = (0.0, 0.2)  # seconds a program
WORKERS, ROUNDS = 8, 4
LIMITS = Limits(cpu=1.0, wall=14.0, memory=2**32, output=2**24)
WAITED = "seconds/waiting_for_grades"
HEADER = ("imposed", "waiting, beside", "waiting, after", "a generation, beside to after")


@dataclass(frozen=True)
class Generation:
    """Seconds that sampling, scoring and grading took, and those of them that were waited for grades."""

    wall_s: float
    waiting_s: float


class Imposed(programs._Boxes):
    """Boxes in which every program takes so many seconds longer."""

    seconds = 0.0

    def grade(self, source: str, name: str, limits: Limits) -> Grade:
        time.sleep(self.seconds)
        return super().grade(source, name, limits)


class After(ProgramGrader):
    """Begins when all has been sampled."""

    begin = Grader.begin


def make(folder: Path) -> E1Trainer:
    """The trainer of the miniature, with its engine."""
    make_data(folder, seed=17)
    args = E1Config(
        output_dir=str(folder / "run"),
        thinking_budget=64,
        solution_budget=104,
        max_prompt_length=96,
        per_device_train_batch_size=ROLLOUTS,
        num_generations=GROUP,
        temperature=1.0,
        model_init_kwargs={"dtype": "float32"},
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
    )
    problems = ProblemArguments(instruction="", grader="programs")
    rows = load_problems(str(folder / "data"), "train[:1024]", problems)
    trainer = E1Trainer("experiments/nano_code/base", Accuracy(ProgramGrader(LIMITS, WORKERS)), args, rows)
    trainer.current_gradient_accumulation_steps = 1  # as in a step
    trainer.model.train()
    return trainer


def generate(trainer: E1Trainer, grader: ProgramGrader, seconds: float, turn: int) -> Generation:
    """Sample, score and grade the rollouts of some problems, others in each round."""
    (accuracy,) = trainer.reward_funcs
    accuracy.grader, Imposed.seconds = grader, seconds
    first = turn * ROLLOUTS // GROUP
    rows = [dict(trainer.train_dataset[first + place // GROUP]) for place in range(ROLLOUTS)]
    trainer.state.global_step = turn  # from which follows what is drawn
    trainer._generations.clear()
    start = time.perf_counter()
    trainer._generate_and_score_completions(rows)
    return Generation(time.perf_counter() - start, trainer._metrics["train"][WAITED][-1])


def main() -> None:
    parsed = arguments("Measure how long a generation waits for its grades.", "grading.json", "grading")
    programs._Boxes = Imposed
    with TemporaryDirectory() as folder, ProgramGrader(LIMITS, WORKERS) as beside, After(LIMITS, WORKERS) as after:
        trainer = make(Path(folder))
        runs: dict[str, Callable[[int], Generation]] = {}
        for seconds in IMPOSED:
            runs[f"beside, {seconds}"] = partial(generate, trainer, beside, seconds)
            runs[f"after, {seconds}"] = partial(generate, trainer, after, seconds)
        found = {name: each[1:] for name, each in in_turns(runs, 1 + ROUNDS, "generations").items()}
    rows = []
    for seconds in IMPOSED:
        ours, others = found[f"beside, {seconds}"], found[f"after, {seconds}"]
        waiting = [spread([each.waiting_s for each in side]) for side in (ours, others)]
        rows.append((f"{seconds} s", *waiting, ratio([each.wall_s for each in ours], [each.wall_s for each in others])))
    whole = median(each.wall_s for each in found[f"after, {IMPOSED[0]}"])
    text = table(HEADER, rows) + (
        f"\nSeconds; {ROLLOUTS} programs a generation, {WORKERS} at a time, on {len(os.sched_getaffinity(0))} cores. "
        f"With nothing imposed, and graded after, a generation takes {whole:.1f} s.\n"
    )
    record = {name: [asdict(generation) for generation in each] for name, each in found.items()}
    publish(parsed, {"rollouts": ROLLOUTS, "workers": WORKERS, "generations": record}, text)


if __name__ == "__main__":
    main()
