"""How TRL starts its engine in the training processes, where it leaves something to chance."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from accelerate.utils.other import get_free_port
from trl.generation import vllm_generation


@contextmanager
def starting(revision: str | None, processes: int) -> Iterator[None]:
    """While TRL starts an engine: at the model's revision, and at a port that nobody else takes.

    TRL tells the engine the model's name alone. Weights are sent to it in any case; configuration, tokenizer and the
    tokens that end a sequence would be the newest.

    Args:
        revision: of the model on the Hub; None: the newest, or the engine is a server.
        processes: of the training.
    """
    if processes == 1:
        # Where the engine's group of one meets itself. TRL tries the same port first in every run, and would refuse
        # the later one of two that start together.
        os.environ.setdefault("MASTER_PORT", str(get_free_port()))
    if revision is None:
        yield
        return
    engine = vllm_generation.LLM
    vllm_generation.LLM = partial(engine, revision=revision, tokenizer_revision=revision)
    try:
        yield
    finally:
        vllm_generation.LLM = engine
