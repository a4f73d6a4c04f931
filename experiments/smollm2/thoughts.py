r"""Thoughts about word problems, as the warm-up teaches them: right, and redundant in ways that are planted here.

The concise thought is the steps of the equation alone. A planted one may, before them, say that it thinks, restate the
question and list the numbers, and after each step recheck it, each by a chance of its own, so that thoughts about one
problem differ in many decisions:

    concise    70-27=43.
    planted    Okay, let me think about this. The question is: How many seashells did she give to Sam? The numbers are
               70 and 27. So 70-27=43. Wait, 70-27=43.
    solution   The answer is \boxed{43}.
"""

import random
import re

from experiments.smollm2.equations import Worked

CONCISE = 0.12  # share of the thoughts that are concise by intent; of the planted, another 4% are by chance
OPENING, QUESTION, NUMBERS, LEAD, RECHECK = 0.6, 0.75, 0.6, 0.5, 0.5  # the chance of each redundancy
MOST_RECHECKS = 2  # of a step

OPENINGS = (
    "Okay, let me think about this.",
    "Let me read the problem again.",
    "Hmm, let me think step by step.",
    "All right, what do I know here?",
)
QUESTIONS = ("The question is: {}", "I have to find out: {}", "What is asked is this: {}")
LISTS = ("The numbers are {}.", "I am given {}.", "The problem says {}.")
LEADS = ("So", "Then", "That means", "I compute")
RECHECKS = ("Wait, {}.", "Let me check: {}.", "Again, {}.", "Yes, {}.")
SENTENCE_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")


def concise(worked: Worked) -> str:
    """The steps alone."""
    return " ".join(f"{step}." for step in worked.steps)


def planted(worked: Worked, rng: random.Random) -> str:
    """The steps with what is redundant around them."""
    parts = list[str]()
    if rng.random() < OPENING:
        parts.append(rng.choice(OPENINGS))
    if rng.random() < QUESTION:
        parts.append(rng.choice(QUESTIONS).format(SENTENCE_END.split(worked.problem.text)[-1]))
    if rng.random() < NUMBERS:
        *most, last = worked.numbers
        parts.append(rng.choice(LISTS).format(f"{', '.join(most)} and {last}"))
    for step in worked.steps:
        parts.append(f"{rng.choice(LEADS)} {step}." if rng.random() < LEAD else f"{step}.")
        for _ in range(MOST_RECHECKS):
            if rng.random() >= RECHECK:
                break
            parts.append(rng.choice(RECHECKS).format(step))
    return " ".join(parts)


def solution(worked: Worked) -> str:
    """The computed answer, in a box."""
    return f"\nThe answer is \\boxed{{{worked.answer}}}."
