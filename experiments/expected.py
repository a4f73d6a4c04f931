"""Trial of expected answers: does a miniature learn faster from the probability of its reference answers?

    rows        8 rollouts a problem, each with a budget of its own: a thought, and an answer that is sampled and graded
    forks       4 thoughts a problem, each cut at 4 budgets of the problem's, and answered there by sampling
    expected    the same cuts, where nothing is sampled: the reward is the probability of the reference answer; only at
                the largest budget is an answer sampled, too, lest the model forgets how a solution looks

python -m experiments.expected --miniature first_zero --estimator expected --learning-rate 1e-4 [--noise 256]
"""

import argparse
import json
import random
import shutil
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from e1_trl.answers.grade import Outcome
from e1_trl.checkout import check_committed
from e1_trl.command_line import run_command
from e1_trl.provenance import Provenance
from e1_trl.report import samples
from experiments.pretraining import SEED
from experiments.systems.commands import evaluate
from experiments.systems.document import NOISE, TRIAL
from experiments.systems.measure import FORCED_CLOSE, FREE
from experiments.systems.miniatures import MINIATURES, Miniature

SHAPES = {"rows": (8, 1), "forks": (4, 4), "expected": (4, 4)}  # thoughts x cuts of each
LEAST, MOST, SOLUTION = 9, 144, 8  # tokens: the smallest and the largest thinking budget of a training, and an answer
BATCH, WARMUP, TOGETHER = 16, 5, 128  # problems of a step, steps, rows sampled together
SCORED, LEAST_SPREAD, UNTRAINED = 32, 0.1, nan  # rows scored together
Ids = list[int]
Problem = tuple[Ids, Ids]  # a prompt that opens the thinking, and the reference solution, a box and the end
Floats = list[float]
Row = tuple[Ids, Floats]  # a sequence, and the weight of each token's log-probability


class Cut(NamedTuple):
    """A thought within a budget, and the close that is forced after it, if any; nothing is answered after an end."""

    prompt: Ids
    reference: Ids
    thinking: Ids
    forced: Ids
    answered: bool

    def make_row(self, answer: Ids, thinking_weight: float = UNTRAINED, answer_weight: float = UNTRAINED) -> Row:
        """Train the thinking and an answer by a weight each, but neither the prompt nor a forced close."""
        weights = [UNTRAINED] * len(self.prompt) + [thinking_weight] * len(self.thinking)
        weights += [UNTRAINED] * len(self.forced) + [answer_weight] * len(answer)
        return self.prompt + self.thinking + self.forced + answer, weights


def stratify(place: float, cuts: int) -> list[int]:
    """Divide the budgets, by their logarithms, into equal parts, and return the one at the same place of each."""
    return [round(LEAST * (MOST / LEAST) ** ((cut + place) / cuts)) for cut in range(cuts)]


def is_right(solution: Ids, reference: Ids) -> bool:
    """Return whether the last box of a solution is that of the reference."""
    boxes = [at for at, token in enumerate(solution) if token == reference[0]]
    return bool(boxes) and solution[boxes[-1] :][: len(reference) - 1] == reference[:-1]


def make_batches(rows: list[Ids], size: int) -> list[Ids]:
    """Group the places of rows of similar lengths."""
    order = sorted(range(len(rows)), key=lambda at: len(rows[at]))
    return [order[start : start + size] for start in range(0, len(order), size)]


@dataclass
class Policy:
    """A model that thinks and answers; the token `close` ends a thought, and `end` a solution."""

    model: Any
    close: int
    end: int

    @torch.inference_mode()
    def sample(self, prompts: list[Ids], limits: list[int], stops: list[int]) -> list[Ids]:
        """Sample after each prompt up to the first of `stops`, and at most so many tokens."""
        found: list[Ids] = [[] for _ in prompts]
        asked = sorted((at for at, limit in enumerate(limits) if limit > 0), key=lambda at: limits[at])
        for start in range(0, len(asked), TOGETHER):
            rows = asked[start : start + TOGETHER]
            width = max(len(prompts[at]) for at in rows)
            missing = [width - len(prompts[at]) for at in rows]
            ids = torch.tensor([[self.end] * left + prompts[at] for at, left in zip(rows, missing, strict=True)])
            mask = (torch.arange(width) >= torch.tensor(missing)[:, None]).long()
            chosen = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
            ends = {"max_new_tokens": limits[rows[-1]], "eos_token_id": stops, "pad_token_id": self.end}
            sampled = self.model.generate(ids, attention_mask=mask, **chosen, **ends)[:, width:].tolist()
            for at, tokens in zip(rows, sampled, strict=True):
                last = next((i for i, token in enumerate(tokens) if token in stops), len(tokens))
                found[at] = tokens[: min(last + 1, limits[at])]
        return found

    def cut(self, problem: Problem, thought: Ids, budget: int) -> Cut:
        """Cut a thought at a budget, and force the close unless the thought has ended by then."""
        last = thought[:budget][-1]
        return Cut(*problem, thought[:budget], [self.close] * (last not in (self.close, self.end)), last != self.end)

    def answer(self, cuts: list[Cut], limits: list[int]) -> list[Ids]:
        """Sample an answer to each cut that can have one."""
        limits = [limit * cut.answered for cut, limit in zip(cuts, limits, strict=True)]
        return self.sample([cut.make_row([])[0] for cut in cuts], limits, [self.end])

    def score(self, rows: list[Ids]) -> torch.Tensor:
        """Return the log-probability of each token but the first, which has 0; right of a row's end is padding."""
        ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)  # unseen by a causal model
        logprobs = self.model(ids[:, :-1], use_cache=False).logits.log_softmax(-1)
        return pad(logprobs.gather(2, ids[:, 1:, None])[..., 0], (1, 0))

    @torch.inference_mode()
    def find_chances(self, cuts: list[Cut]) -> list[float]:
        """Return the probability of the reference after each cut; 0 where no answer follows."""
        rows = [cut.make_row(cut.reference)[0] for cut in cuts]
        scores = [own for at in range(0, len(rows), SCORED) for own in self.score(rows[at : at + SCORED])]
        every = zip(cuts, rows, scores, strict=True)
        return [float(own[: len(row)][-len(cut.reference) :].sum().exp()) * cut.answered for cut, row, own in every]

    def add_gradient(self, rows: list[Row], divisor: float) -> None:
        """Add the gradient of the loss: the negative sum of the weighted log-probabilities, over a divisor."""
        summed: dict[tuple[int, ...], torch.Tensor] = {}
        for ids, own in rows:  # a thought that closed before several cuts is computed once
            summed[tuple(ids)] = summed.get(tuple(ids), 0) + torch.tensor(own).nan_to_num(nan=0.0)
        distinct = [list(ids) for ids, own in summed.items() if own.any()]
        for batch in make_batches(distinct, SCORED):
            weights = pad_sequence([summed[tuple(distinct[at])] for at in batch], batch_first=True)
            (-(weights * self.score([distinct[at] for at in batch])).sum() / divisor).backward()


def weigh(cuts: list[Cut], answers: list[Ids], rewards: Floats, chances: Floats, shape: tuple[int, int]) -> list[Row]:
    """Make rows of cuts, in a shape of thoughts x cuts a problem; there are `chances` if answers are expected.

    A chance's own gradient is that of the reference, weighted by the chance; a sampled answer is compared with it.
    """
    values = torch.tensor(chances or rewards, dtype=torch.float64).view(-1, *shape)
    mean = values.mean(1, keepdim=True).expand_as(values)
    spread = (mean * (1 - mean)).clamp(min=LEAST_SPREAD**2).sqrt() if chances else torch.ones_like(mean)
    advantages, divisors = ((values - mean) / spread).flatten().tolist(), spread.flatten().tolist()
    if not chances:
        return [cut.make_row(answer, own, own) for cut, answer, own in zip(cuts, answers, advantages, strict=True)]
    rows = []
    for at, (cut, answer) in enumerate(zip(cuts, answers, strict=True)):
        rows.append(cut.make_row(cut.reference * cut.answered, advantages[at], chances[at] / divisors[at]))
        if answer:
            rows.append(cut.make_row(answer, answer_weight=(rewards[at] - chances[at]) / divisors[at]))
    return rows


def sample_rows(policy: Policy, problems: list[Problem], estimator: str) -> tuple[list[Row], int]:
    """Sample for problems; return their rows, and the number of tokens; a closed thought is answered once."""
    thoughts, size = SHAPES[estimator]
    owners = [problem for problem in problems for _ in range(thoughts)]
    places = [[random.random() for _ in range(thoughts)] for _ in problems]
    budgets = [stratify(own[0] if size > 1 else place, size) for own in places for place in own]
    stops = [policy.close, policy.end]
    sampled = policy.sample([prompt for prompt, _ in owners], [own[-1] for own in budgets], stops)
    every = zip(owners, sampled, budgets, strict=True)
    cuts = [policy.cut(owner, thought, budget) for owner, thought, own in every for budget in own]
    copied = [at % size > 0 and cut.thinking == cuts[at - 1].thinking for at, cut in enumerate(cuts)]
    expected = estimator == "expected"
    asked = [at % size == size - 1 if expected else not copy for at, copy in enumerate(copied)]
    answers = policy.answer(cuts, [SOLUTION * each for each in asked])
    tokens = sum(map(len, sampled + answers))
    for at, copy in enumerate(copied):
        answers[at] = answers[at - 1] if copy and not expected else answers[at]
    rewards = [float(is_right(answer, cut.reference)) for answer, cut in zip(answers, cuts, strict=True)]
    chances = policy.find_chances(cuts) if expected else []
    return weigh(cuts, answers, rewards, chances, (thoughts, size)), tokens


def measure(policy: Policy, miniature: Miniature) -> dict[str, Any]:
    """Evaluate on the validation split, as systems are: return the mean accuracy over budgets, and without one."""
    with TemporaryDirectory() as folder:
        model = shutil.copytree(miniature.base, Path(folder, "model"))
        policy.model.save_pretrained(model)
        words = ("--dataset_split", "validation", "--methods", FORCED_CLOSE, FREE)
        table = samples.read(evaluate(miniature, model, Path(folder, "found"), *words))
    right = table["outcome"] == Outcome.CORRECT
    forced, free = table["method"] == FORCED_CLOSE, table["method"] == FREE
    budgets = right[forced].groupby(table["thinking_budget"]).mean()
    return {
        "mean_accuracy": float(budgets.mean()),
        "unconstrained": float(right[free].mean()),
        "budgets": {int(budget): float(share) for budget, share in budgets.items()},
        "thinking_tokens": float(table["thinking_tokens"][free].mean()),
        "empty": int((table["thinking_tokens"][free] == 1).sum()),  # closed at once
    }


def train(policy: Policy, problems: list[Problem], miniature: Miniature, arguments: argparse.Namespace) -> None:
    """Train on so many generated tokens, and append what is measured to a file."""
    optimizer = torch.optim.AdamW(policy.model.parameters(), arguments.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / WARMUP))
    marks = [share * arguments.tokens for share in (1 / 4, 1 / 2, 1)]
    progress = tqdm(total=arguments.tokens, unit=" tokens")
    while marks:
        rows, sampled = sample_rows(policy, random.sample(problems, BATCH), arguments.estimator)
        policy.add_gradient(rows, sum(not isnan(weight) for _, weights in rows for weight in weights))
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        progress.update(sampled)
        if progress.n >= marks[0]:
            marks = [mark for mark in marks if mark > progress.n]
            append(arguments, {"tokens": progress.n} | measure(policy, miniature))


def append(arguments: argparse.Namespace, found: dict[str, Any]) -> None:
    """Append a row of what was found to the output, after how and when."""
    names = ["miniature", "estimator", "seed", *(() if arguments.noise else ("learning_rate",))]
    here = Provenance.here([arguments.seed])
    said = {name: getattr(arguments, name) for name in names} | {"commit": here.commit, "date": here.date} | found
    with arguments.output.open("a") as file:
        file.write(json.dumps(said) + "\n")


def measure_noise(policy: Policy, problems: list[Problem], estimator: str) -> dict[str, float]:
    """Return the variance of a gradient that is averaged over 1,000 generated tokens, over its squared mean."""
    parameters = [*policy.model.parameters()]
    total, squares, tokens = torch.zeros(1), 0.0, 0
    for problem in tqdm(problems):
        rows, sampled = sample_rows(policy, [problem], estimator)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        policy.add_gradient(rows, 1.0)
        own = torch.cat([parameter.grad.flatten() for parameter in parameters]).double()
        total, squares, tokens = total + own, squares + float(own @ own), tokens + sampled
    count = len(problems)
    mean = float((total**2).sum()) / count**2
    variance = (squares - count * mean) / (count - 1)
    noise = variance / (mean - variance / count) * tokens / count / 1000
    return {"tokens_a_problem": tokens / count, "noise_per_1000_tokens": noise}


def run() -> None:
    """Train as the command line says, or measure the noise of an estimator's gradient before any training."""
    parser = argparse.ArgumentParser(prog="experiments.expected")
    parser.add_argument("--miniature", choices=MINIATURES, required=True)
    parser.add_argument("--estimator", choices=SHAPES, required=True)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--tokens", type=int, default=200_000, help="generated ones")
    parser.add_argument("--noise", type=int, help="train nothing; problems on which the gradient's noise is measured")
    arguments = parser.parse_args()
    arguments.output = NOISE if arguments.noise else TRIAL
    check_committed(arguments.output)
    miniature = MINIATURES[arguments.miniature]
    miniature.make_data(miniature.data, SEED)
    tokenizer = AutoTokenizer.from_pretrained(miniature.base)
    model = AutoModelForCausalLM.from_pretrained(miniature.base, dtype=torch.float32).eval()
    ids = tokenizer.convert_tokens_to_ids(["</think>", "<|end|>"])
    set_seed(arguments.seed)
    problems = []
    for row in map(json.loads, (miniature.data / "data" / "train.jsonl").read_text().splitlines()):
        prompt = tokenizer.encode(f"<|user|>{row['problem']}<|assistant|><think>")
        problems.append((prompt, tokenizer.encode(f"\\boxed{{{row['answer']}}}<|end|>")))
    if not arguments.noise:
        return train(Policy(model, *ids), problems, miniature, arguments)
    found = measure_noise(Policy(model, *ids), problems[: arguments.noise], arguments.estimator)
    append(arguments, {"problems": arguments.noise} | found)


if __name__ == "__main__":
    run_command("experiments.expected", run)
