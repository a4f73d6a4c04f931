"""An optimizer step of `E1Trainer` against one of TRL's own `GRPOTrainer`.

    make bench        (nothing else should run)

Each trainer has a process of its own, with its engine, and they take a step each in turns, in an order drawn anew for
each round, while the other one waits. Both have the same model, prompts, engine, sampling and lengths, row by row. No
completion ends by itself: ours are forced out of their thinking and cut in their solution, TRL's are cut after as many
tokens. The reward looks at the tokens alone: what a grader takes would be the same for both.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import torch
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.engines import Counted
from benchmarks.results import arguments, in_turns, publish_rows, ratio
from benchmarks.workloads import FOLDER, PROBLEMS, PROMPT, TRAINED, WORKLOADS, Workload, with_lengths
from e1_trl.budget import Budget
from e1_trl.engines.weight_check import reload_weights
from e1_trl.marker import Marker
from e1_trl.ports import free_port
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems
from e1_trl.report.markdown import table
from e1_trl.training.budgets import Budgets, RolloutKey
from e1_trl.training.config import E1Config
from e1_trl.training.trainer import E1Trainer
from e1_trl.trl_internals import TrlEngine

Name = Literal["e1", "grpo"]
WARM = 2  # rounds that are not counted
PHASES = ("step", "scoring", "learning")
OWN = ("tokens per second", "memory", "step to TRL's", "scoring and learning to TRL's")
HEADER = ("lengths", "trainer", *PHASES, *OWN)


@dataclass(frozen=True)
class Step:
    """Cost of one optimizer step: seconds, of these within two phases, GB, and tokens sampled and in the loss.

    `scoring_s` is for the old policy's log-probabilities; `learning_s` is all that comes after a batch was prepared.
    """

    wall_s: float
    scoring_s: float
    learning_s: float
    peak_gb: float
    sampled_tokens: int
    trained_tokens: int


@dataclass(frozen=True)
class Imposed(Budgets):
    """Lengths to which the rows of a round are cut."""

    lengths: list[tuple[int, int]]

    def at(self, draw: RolloutKey) -> Budget:
        return Budget(*self.lengths[draw.row])


class InTurns(TrainerCallback):
    """Waits before each step for its turn, and reports what the step took, from one beginning to the next.

    Imposes the lengths of the turn on the trainer that it is made for.
    """

    def __init__(self, connection: Connection, trainer: GRPOTrainer, workload: Workload):
        self.connection, self.workload = connection, workload
        self.counted = Counted(trainer.vllm_generation.llm)
        self.began: float | None = None
        self.mean_length = 0.0
        self.lengths: list[tuple[int, int]] = []
        self.seconds = {"prepared": 0.0, "scored": 0.0}
        trainer._prepare_inputs = self.timed("prepared", trainer._prepare_inputs)
        score = trainer._get_per_token_logps_and_entropies
        scored = self.timed("scored", score)
        trainer._get_per_token_logps_and_entropies = lambda *given, **more: (
            score if torch.is_grad_enabled() else scored
        )(*given, **more)
        if isinstance(trainer, E1Trainer):
            trainer.budgets = Imposed(**vars(trainer.budgets), lengths=self.lengths)
        else:
            generate = trainer.vllm_generation.llm.generate
            trainer.vllm_generation.llm.generate = lambda prompts, sampling_params, **more: generate(
                prompts, [self.cut(sampling_params, sum(each)) for each in self.lengths], **more
            )

    @staticmethod
    def cut(sampling_params: Any, tokens: int) -> Any:
        cut = sampling_params.clone()
        cut.max_tokens = tokens
        return cut

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed_call(*given: Any, **more: Any) -> Any:
            began = time.perf_counter()
            result = call(*given, **more)
            self.seconds[name] += time.perf_counter() - began
            return result

        return timed_call

    def on_log(self, *state: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        # The lengths that TRL logs count what is trained on; it logs without them at the end.
        if logs and "train_runtime" not in logs:
            self.mean_length = logs["completions/mean_length"]

    def on_step_begin(self, *state: Any, **kwargs: Any) -> None:
        step = None
        if self.began is not None:
            wall, trained = time.perf_counter() - self.began, round(self.mean_length * self.workload.rollouts)
            learning = wall - self.seconds["prepared"]
            step = Step(wall, self.seconds["scored"], learning, peak_gb(), self.counted.sampled_tokens, trained)
        self.connection.send(step)
        self.lengths[:] = self.workload.lengths(self.connection.recv())
        self.counted.reset()
        self.seconds.update(prepared=0.0, scored=0.0)
        forget_peak()
        self.began = time.perf_counter()


def peak_gb() -> float:
    """The most memory of the GPU, or of this process without one, since it was forgotten; GB."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024 / 1e9


def forget_peak() -> None:
    """Measure the peak of memory anew."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")


def share_of_even(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward for a sampled token being an even number."""
    return [sum(token % 2 == 0 for token in ids) / len(ids) for ids in completion_ids]


def make(name: Name, workload: Workload, output_dir: Path) -> GRPOTrainer:
    """One of the two trainers, with its engine."""
    os.environ["MASTER_PORT"] = str(free_port())
    on_cpu = not torch.cuda.is_available()
    rows = load_problems(PROBLEMS, "train", ProblemArguments(instruction="")).select_columns(["prompt"])
    marker = Marker.from_tokenizer(AutoTokenizer.from_pretrained(workload.model))
    completion = workload.thinking + workload.solution
    alike: dict[str, Any] = {
        "output_dir": str(output_dir),
        "per_device_train_batch_size": workload.batch,
        "gradient_accumulation_steps": workload.accumulation,
        "num_generations": 8,
        "max_steps": 10_000,  # it is ended from outside
        "learning_rate": 1e-6,  # the model of the last round is that of the first
        "lr_scheduler_type": "constant",
        "beta": 0.0,
        "temperature": 1.0,
        "loss_type": "dapo",
        "gradient_checkpointing": False,
        "bf16": False,
        "use_cpu": on_cpu,
        "model_init_kwargs": {"dtype": "float32"},
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_max_model_length": PROMPT + completion + len(marker.forced_ids),
        "vllm_importance_sampling_mode": "token_truncate",
        "generation_kwargs": {"ignore_eos": True, "logit_bias": {marker.ids[0]: -100.0}},
        "save_strategy": "no",
        "report_to": "none",
        "logging_steps": 1,
        "seed": 42,
    }
    model = {"model": workload.model, "reward_funcs": share_of_even, "train_dataset": rows}
    if name == "e1":
        budget = {"thinking_budget": workload.thinking, "solution_budget": workload.solution}
        return E1Trainer(**model, args=E1Config(max_prompt_length=PROMPT, **budget, **alike))
    trainer = GRPOTrainer(**model, args=GRPOConfig(max_completion_length=completion, **alike))
    if on_cpu:  # TRL's own way of bringing the weights there has no loader for vLLM's CPU kernels
        (vllm := TrlEngine(trainer.vllm_generation)).replace_sync(lambda: reload_weights(vllm))
    return trainer


def run(name: Name, workload: Workload, connection: Connection) -> None:
    """Train until the other end of the connection is closed; what is printed goes into a file."""
    with (FOLDER / f"{name}.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    trainer = make(name, workload, FOLDER / name)
    trainer.add_callback(InTurns(connection, trainer, workload))
    trainer.train()


def alternate(workload: Workload) -> dict[Name, list[Step]]:
    """The steps of each trainer, a round after the other.

    Raises:
        SystemExit: a trainer has ended; names its log.
        ValueError: they sample or train on different numbers of tokens.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    context, connections = get_context("spawn"), dict[Name, Connection]()
    workload = with_lengths(workload)

    def answer(name: Name) -> Any:
        try:
            return connections[name].recv()
        except EOFError:
            sys.exit(f"benchmarks.bench_training: the trainer {name} has ended; see {FOLDER / name}.log")

    def step(name: Name, turn: int) -> Step:
        connections[name].send(turn)
        return answer(name)

    processes = []
    for name in get_args(Name):
        connections[name], far = context.Pipe()
        processes.append(context.Process(target=run, args=(name, workload, far), daemon=True))
        processes[-1].start()
        far.close()  # so that its end is noticed
        answer(name)  # one after the other: a start takes all cores
    turns = {name: partial(step, name) for name in connections}
    steps = in_turns(turns, WARM + workload.rounds, workload.distribution)
    for process in processes:
        process.kill()
    for ours, theirs in zip(*steps.values(), strict=True):
        counts = {(step.sampled_tokens, step.trained_tokens) for step in (ours, theirs)}
        if len(counts) > 1:
            raise ValueError(f"the steps differ in sampled and trained tokens: {sorted(counts)}; they must be the same")
    return {name: each[WARM:] for name, each in steps.items()}


def row(distribution: str, name: Name, steps: dict[Name, list[Step]]) -> dict[str, Any]:
    """Summarize one trainer's steps: medians, and ratios to TRL's steps of the same rounds with their ranges."""
    own = steps[name]

    def to_trls(seconds: Callable[[Step], float]) -> str:
        return ratio([seconds(each) for each in own], [seconds(each) for each in steps["grpo"]])

    return {
        "distribution": distribution,
        "scheduler": name,
        "rounds": len(own),
        "step_s": median(each.wall_s for each in own),
        "scoring_s": median(each.scoring_s for each in own),
        "learning_s": median(each.learning_s for each in own),
        "trained_tokens_per_s": median(each.trained_tokens / each.wall_s for each in own),
        "peak_gb": max(each.peak_gb for each in own),
        "step_ratio": to_trls(lambda each: each.wall_s),
        "scoring_and_learning_ratio": to_trls(lambda each: each.scoring_s + each.learning_s),
        "steps": [asdict(each) for each in own],
    }


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """All rows as a Markdown table."""
    lines = [
        (
            each["distribution"],
            each["scheduler"],
            *(f"{each[f'{phase}_s']:.3f} s" for phase in PHASES),
            f"{each['trained_tokens_per_s']:,.0f}",
            f"{each['peak_gb']:.2f} GB",
            each["step_ratio"],
            each["scoring_and_learning_ratio"],
        )
        for each in rows
    ]
    return table(HEADER, lines)


def main() -> None:
    parsed = arguments("Measure an optimizer step against TRL's own.", "bench.json", "train_step")
    rows = []
    for distribution, workload in WORKLOADS.items():
        if workload.model == str(TRAINED) and not TRAINED.exists():
            print(
                f"benchmarks.bench_training: {distribution} needs {TRAINED}, which `make train` makes; it is left out"
            )
            continue
        steps = alternate(workload)
        rows += [{"rollouts": workload.rollouts, **row(distribution, name, steps)} for name in steps]
        publish_rows(parsed, "distribution", rows, summary(rows))  # each takes up to half an hour


if __name__ == "__main__":
    main()
