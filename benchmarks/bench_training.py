"""An optimizer step of `E1Trainer` against one of TRL's own `GRPOTrainer`.

    make bench        (nothing else should run)

Each trainer has a process of its own, with its engine, and they take a step each in turns, in an order drawn anew for
each round, while the other one waits. Both have the same model, prompts, engine and sampling, and half of the nano
recipe's batch. No completion ends by itself: ours are forced out of 64 tokens of thinking and cut after 32 of solution,
TRL's are cut after 96 tokens. The reward looks at the tokens alone: what a grader takes would be the same for both.
"""

import os
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import torch
from accelerate.utils.other import get_free_port
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.engines import Counted
from benchmarks.results import arguments, in_turns, publish, ratio
from e1_trl.budget import Marker
from e1_trl.engines.weights import reload_weights
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems
from e1_trl.report.markdown import table
from e1_trl.training.config import E1Config
from e1_trl.training.trainer import E1Trainer

Name = Literal["e1", "grpo"]
FOLDER = Path("runs/bench")
MODEL, PROBLEMS = "experiments/nano/base", "runs/nano/data"
WARM, ROUNDS = 2, 50
THINKING, SOLUTION, PROMPT = 64, 32, 64  # tokens
BATCH, ACCUMULATION = 64, 4
ROLLOUTS = BATCH * ACCUMULATION


@dataclass(frozen=True)
class Step:
    """What one optimizer step took: seconds, tokens that vLLM sampled, and tokens in the loss."""

    wall_s: float
    sampled_tokens: int
    trained_tokens: int


class InTurns(TrainerCallback):
    """Waits before each step for its turn, and reports what the step took, from one beginning to the next."""

    def __init__(self, connection: Connection, counted: Counted):
        self.connection, self.counted = connection, counted
        self.began: float | None = None
        self.mean_length = 0.0

    def on_log(self, *state: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        # The lengths that TRL logs count what is trained on; it logs without them at the end.
        if logs and "train_runtime" not in logs:
            self.mean_length = logs["completions/mean_length"]

    def on_step_begin(self, *state: Any, **kwargs: Any) -> None:
        step = None
        if self.began is not None:
            seconds = time.perf_counter() - self.began
            step = Step(seconds, self.counted.sampled_tokens, round(self.mean_length * ROLLOUTS))
        self.connection.send(step)
        self.connection.recv()
        self.counted.reset()
        self.began = time.perf_counter()


def share_of_even(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward for a sampled token being an even number."""
    return [sum(token % 2 == 0 for token in ids) / len(ids) for ids in completion_ids]


def make(name: Name, output_dir: Path) -> GRPOTrainer:
    """One of the two trainers, with its engine."""
    os.environ["MASTER_PORT"] = str(get_free_port())
    on_cpu = not torch.cuda.is_available()
    rows = load_problems(PROBLEMS, "train", ProblemArguments(instruction="")).select_columns(["prompt"])
    marker = Marker.from_tokenizer(AutoTokenizer.from_pretrained(MODEL))
    alike: dict[str, Any] = {
        "output_dir": str(output_dir),
        "per_device_train_batch_size": BATCH,
        "gradient_accumulation_steps": ACCUMULATION,
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
        "vllm_max_model_length": PROMPT + THINKING + len(marker.forced_ids) + SOLUTION,
        "vllm_importance_sampling_mode": "token_truncate",
        "generation_kwargs": {"ignore_eos": True, "logit_bias": {marker.ids[0]: -100.0}},
        "save_strategy": "no",
        "report_to": "none",
        "logging_steps": 1,
        "seed": 42,
    }
    model = {"model": MODEL, "reward_funcs": share_of_even, "train_dataset": rows}
    if name == "e1":
        budget = {"thinking_budget": THINKING, "solution_budget": SOLUTION, "max_prompt_length": PROMPT}
        return E1Trainer(**model, args=E1Config(**budget, **alike))
    trainer = GRPOTrainer(**model, args=GRPOConfig(max_completion_length=THINKING + SOLUTION, **alike))
    if on_cpu:  # TRL's own way of bringing the weights there has no loader for vLLM's CPU kernels
        trainer.vllm_generation.sync_weights = lambda: reload_weights(trainer.vllm_generation)
    return trainer


def run(name: Name, connection: Connection) -> None:
    """Train until the other end of the connection is closed; what is printed goes into a file."""
    with (FOLDER / f"{name}.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    trainer = make(name, FOLDER / name)
    trainer.add_callback(InTurns(connection, Counted(trainer.vllm_generation.llm)))
    trainer.train()


def alternate() -> dict[Name, list[Step]]:
    """The steps of each trainer, a round after the other.

    Raises:
        SystemExit: a trainer has ended; names its log.
        ValueError: they sample or train on different numbers of tokens.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    context, connections = get_context("spawn"), dict[Name, Connection]()

    def answer(name: Name) -> Any:
        try:
            return connections[name].recv()
        except EOFError:
            sys.exit(f"benchmarks.bench_training: the trainer {name} has ended; see {FOLDER / name}.log")

    def step(name: Name, _: int) -> Step:
        connections[name].send(None)
        return answer(name)

    for name in get_args(Name):
        connections[name], far = context.Pipe()
        context.Process(target=run, args=(name, far), daemon=True).start()
        far.close()  # so that its end is noticed
        answer(name)  # one after the other: a start takes all cores
    steps = in_turns({name: partial(step, name) for name in connections}, WARM + ROUNDS, "optimizer steps")
    counts = {(step.sampled_tokens, step.trained_tokens) for each in steps.values() for step in each}
    if len(counts) > 1:
        raise ValueError(f"the steps differ in sampled and trained tokens: {sorted(counts)}; they must be the same")
    return {name: each[WARM:] for name, each in steps.items()}


def summary(steps: dict[Name, list[Step]]) -> str:
    """Both medians as a Markdown table, and the ratio of the steps."""
    e1, grpo = ([step.wall_s for step in each] for each in (steps["e1"], steps["grpo"]))
    ours, plain = median(e1), median(grpo)
    row = ("the step", f"{ours:.3f} s", f"{plain:.3f} s", f"{ours - plain:+.3f} s")
    content = table(("", "E1Trainer", "GRPOTrainer", "difference"), [row])
    return f"{content}\nRatio of the steps, in a round: {ratio(e1, grpo)}.\n"


def main() -> None:
    parsed = arguments("Measure an optimizer step against TRL's own.", "train_step.json", "train_step")
    steps = alternate()
    record = {name: [asdict(step) for step in each] for name, each in steps.items()}
    publish(parsed, {"rollouts": ROLLOUTS, "rounds": ROUNDS, "steps": record}, summary(steps))


if __name__ == "__main__":
    main()
