"""A trainer in a process of its own that takes one optimizer step each time it is told to: ours, or TRL's.

Both have the same model, prompts, engine and sampling, and half of the nano recipe's batch. No completion ends by
itself: ours are forced out of 64 tokens of thinking and cut after 32 of solution, TRL's are cut after 96 tokens. The
reward looks at the tokens alone: what a grader takes would be the same for both.
"""

import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate.utils.other import get_free_port
from transformers import AutoTokenizer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from benchmarks.counted import Counted, prefill_tokens
from benchmarks.phases import Phases
from e1_trl.budget import Marker
from e1_trl.engines.weights import reload_weights
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems
from e1_trl.training.config import E1Config
from e1_trl.training.trainer import E1Trainer

Name = Literal["e1", "grpo"]
MODEL, PROBLEMS = "experiments/nano/base", "runs/nano/data"
THINKING, SOLUTION, PROMPT = 64, 32, 64  # tokens
BATCH, ACCUMULATION = 64, 4
ROLLOUTS = BATCH * ACCUMULATION


@dataclass(frozen=True)
class Step:
    """What one optimizer step took; the names are those of `TrainStep`."""

    wall_s: float
    phases_s: dict[str, float]
    cpu_s: float
    idle_cpu_s: float  # while it waited to be told
    engine_requests: int
    engine_steps: int
    block_size: int
    prefill_tokens: int
    sampled_tokens: int
    trained_tokens: int


class Told(TrainerCallback):
    """Waits before each step to be told to take it, and reports what it took.

    A step goes from one beginning to the next, so that logging and the next batch of prompts are part of it. Whoever
    waits sleeps; what its process does all the same is reported.
    """

    def __init__(self, connection: Connection, counted: Counted, phases: Phases):
        self.connection = connection
        self.counted = counted
        self.phases = phases
        self.began: tuple[float, float] | None = None
        self.idle_cpu_s = 0.0
        self.logs: dict[str, float] = {}

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        self.logs = logs or {}

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.connection.send(None if self.began is None else self.step(*self.began))
        waiting = time.process_time()
        self.connection.recv()
        self.idle_cpu_s = time.process_time() - waiting
        self.counted.reset()
        self.phases.take(0.0)
        self.began = time.perf_counter(), time.process_time()

    def step(self, wall: float, cpu: float) -> Step:
        """The step that began at these readings of the two clocks."""
        wall_s = time.perf_counter() - wall
        finished = self.counted.finished
        return Step(
            wall_s=wall_s,
            phases_s=self.phases.take(wall_s),
            cpu_s=time.process_time() - cpu,
            idle_cpu_s=self.idle_cpu_s,
            engine_requests=len(finished),
            engine_steps=self.counted.steps,
            block_size=self.counted.block_size,
            prefill_tokens=prefill_tokens(finished),
            sampled_tokens=self.counted.sampled_tokens,
            # The lengths that TRL logs count what is trained on.
            trained_tokens=round(self.logs["completions/mean_length"] * ROLLOUTS),
        )


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
        args = E1Config(
            thinking_budget=THINKING,
            solution_budget=SOLUTION,
            max_prompt_length=PROMPT,
            **alike,
        )
        return E1Trainer(**model, args=args)
    trainer = GRPOTrainer(**model, args=GRPOConfig(max_completion_length=THINKING + SOLUTION, **alike))
    if on_cpu:  # TRL's own way of bringing the weights there has no loader for vLLM's CPU kernels
        trainer.vllm_generation.sync_weights = lambda: reload_weights(trainer.vllm_generation)
    return trainer


def run(name: Name, folder: Path, connection: Connection) -> None:
    """Train until the other end of the connection is closed; what is printed goes into a file of the folder."""
    with (folder / f"{name}.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    phases = Phases()
    trainer = make(name, folder / name)
    trainer.add_callback(Told(connection, Counted(trainer.vllm_generation.llm), phases))
    trainer.train()
