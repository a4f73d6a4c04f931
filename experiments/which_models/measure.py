"""Measure what each template does to the thinking, and the miniature's answers in its words at three budgets."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.engines.engine import SamplingSettings, run
from e1_trl.evaluation.store import digest
from e1_trl.marker import PromptState
from e1_trl.rollout import Completion, Rollout, ThinkingEnd
from experiments.pretraining import CONTEXT
from experiments.which_models.miniature import example
from experiments.which_models.templates import Rendering

BUDGETS = {"loose": Budget(64, 16), "tight": Budget(8, 16), "none": Budget(0, 16)}
QUESTIONS = 32
TEMPERATURE = 0.5


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


def describe(rendering: Rendering, tokenizer: PreTrainedTokenizerBase, answers: dict[str, Shares]) -> Row:
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


def measure(found: Sequence[Rendering], base: Path) -> list[Row]:
    """Answer questions in the words of each template at each budget, through one engine."""
    from e1_trl.engines.local import LocalEngine

    tokenizer = AutoTokenizer.from_pretrained(base)
    options = {"max_model_len": CONTEXT, "enforce_eager": True, "seed": 0}
    engine = LocalEngine.start(
        str(base), found[0].marker(tokenizer), SamplingSettings(temperature=TEMPERATURE), options=options
    )
    rng = random.Random(1)
    asked = [example(rng) for _ in range(QUESTIONS)]
    answers = [answer for *_, answer in asked]
    shares: dict[Rendering, dict[str, Shares]] = {each: {} for each in found}
    thinking = [each for each in found if each.thinks(tokenizer) or each.state(tokenizer) is not PromptState.NOTHING]
    markers = {each: each.marker(tokenizer) for each in thinking}
    for marker in dict.fromkeys(markers.values()):  # prompts of one marker are answered together
        engine.marker = marker
        close = ThinkingClose(marker, CONTEXT)
        rollouts: dict[tuple[Rendering, str], list[Rollout]] = {}
        for each in (each for each in thinking if markers[each] == marker):
            prompts = [each.prompt_ids(tokenizer, question) for question, *_ in asked]
            for name, budget in BUDGETS.items():
                rollouts[each, name] = [Rollout(prompt, budget, close) for prompt in prompts]
        run(engine, [*itertools.chain.from_iterable(rollouts.values())])
        for (each, name), ended in rollouts.items():
            completions = [rollout.completion for rollout in ended]
            texts = [tokenizer.decode(completion.graded_ids) for completion in completions]
            shares[each][name] = Shares.of(completions, texts, answers)
    return [describe(each, tokenizer, shares[each]) for each in found]
