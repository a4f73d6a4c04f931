"""Workloads of the optimizer steps of a benchmark: a model, the rows of a step, and their lengths."""

from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM
from vllm import LLM

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.engines.engine import SamplingSettings, run
from e1_trl.engines.local import LocalEngine
from e1_trl.marker import Marker
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems
from e1_trl.problems.prompts import tokenize
from e1_trl.rollout import Rollout

FOLDER = Path("runs/bench")
BASE, PROBLEMS = "experiments/nano/base", "runs/nano/data"
RANDOM = FOLDER / "random"  # the model of lognormal lengths
PROMPT = 64  # tokens
MEDIANS, SIGMA = (256, 128), 1.0  # tokens of thinking and solution; lognormal, independent of each other


@dataclass(frozen=True)
class Workload:
    """Size of the steps: tokens, rows of a micro-batch, micro-batches, rounds.

    Attributes:
        measured: lengths of thinking and solution to draw from, in tokens; none if they are computed.
    """

    distribution: str
    model: str = BASE
    thinking: int = 64
    solution: int = 32
    batch: int = 64
    accumulation: int = 4
    rounds: int = 50
    measured: tuple[tuple[int, int], ...] = ()

    @property
    def rollouts(self) -> int:
        return self.batch * self.accumulation

    def lengths(self, turn: int) -> list[tuple[int, int]]:
        """Return tokens of thinking and of solution of each rollout of a round."""
        chance, most = np.random.default_rng(turn), (self.thinking, self.solution)
        drawn = np.tile(most, (self.rollouts, 1))
        if self.measured:
            drawn = chance.choice(np.array(self.measured), self.rollouts)
        if self.distribution == "train_step_lognormal":
            drawn = np.ceil(chance.lognormal(np.log([MEDIANS] * self.rollouts), SIGMA)).astype(int)
        return [(int(one), int(other)) for one, other in np.clip(drawn, 1, most)]


TRAINED = Path("runs/nano/e1")  # by `make train`
LONG = {"thinking": 1024, "solution": 1024, "batch": 16, "rounds": 10}
WORKLOADS = {
    "train_step": Workload("train_step"),
    "train_step_own": Workload("train_step_own"),
    "train_step_trained": Workload("train_step_trained", model=str(TRAINED)),
    "train_step_lognormal": Workload("train_step_lognormal", model=str(RANDOM), **LONG),
}
OWN = {"train_step_own", "train_step_trained"}  # lengths are the model's own


def prompts_of(tokenizer: PreTrainedTokenizerBase, number: int, first: int = 0) -> list[list[int]]:
    """Tokenize prompts of the miniature's training split."""
    prompts = load_problems(PROBLEMS, "train", ProblemArguments(instruction=""))["prompt"]
    return [tokenize(tokenizer, prompt, {}) for prompt in prompts[first : first + number]]


def make_random() -> None:
    """Write a random model of four layers and 4,096 tokens, the first of which are the nano base's."""
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.add_tokens([f"t{number}" for number in range(4096 - len(tokenizer))])
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "vocab_size": 4096}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 4096}
    tokens = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, **tokens)).save_pretrained(RANDOM)
    tokenizer.save_pretrained(RANDOM)


def with_lengths(workload: Workload) -> Workload:
    """The same with the model that it needs, and the lengths of its rollouts, where they are a model's own."""
    if workload.model == str(RANDOM):
        make_random()
    if workload.distribution not in OWN:
        return workload
    context = get_context("spawn")  # an engine of its own, which is gone afterwards
    near, far = context.Pipe()
    process = context.Process(target=measure_own, args=(workload, far))
    process.start()
    far.close()
    measured = tuple(near.recv())
    process.join()
    return replace(workload, measured=measured)


def measure_own(workload: Workload, connection: Connection) -> None:
    """Send the model's own lengths of thinking and solution under the budget, of a generation; in tokens."""
    tokenizer = AutoTokenizer.from_pretrained(workload.model)
    marker = Marker.from_tokenizer(tokenizer)
    budget, llm = Budget(workload.thinking, workload.solution), LLM(workload.model, dtype="float32", seed=0)
    close = ThinkingClose(marker, PROMPT + workload.thinking + workload.solution + len(marker.forced_ids))
    rollouts = [Rollout(prompt, budget, close) for prompt in prompts_of(tokenizer, workload.rollouts)]
    run(LocalEngine(llm, marker, SamplingSettings(temperature=1.0)), rollouts)
    connection.send([(each.completion.thinking_tokens, each.completion.solution_tokens) for each in rollouts])
