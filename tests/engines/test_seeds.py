"""What is drawn again and what is not, on two real vLLM servers that were started alike, as a restarted one is."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from accelerate import Accelerator
from conftest import BASE, SERVED_CONTEXT, free_port, options, serving
from transformers import AutoTokenizer

from e1_trl.budget import Budget, Close, Marker
from e1_trl.engines.colocated import ServedEngine
from e1_trl.engines.engine import Follow, Key, Requests, SamplingSettings
from e1_trl.engines.openai import ServedModel
from e1_trl.engines.server import ServerEngine
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.evaluate import evaluate
from e1_trl.evaluation.prepare import prepare
from e1_trl.rollout import Rollout

pytestmark = [pytest.mark.engine, pytest.mark.distributed]

IN_TURNS = 1  # request at a time, of which servers without seeds make the same


@pytest.fixture(scope="module")
def alike() -> Iterator[tuple[str, str]]:
    """The addresses of two servers."""
    with serving(free_port()) as (one, _), serving(free_port()) as (other, _):
        yield str(one.base_url), str(other.base_url)


class Spread:
    """Gives requests to one engine after the other, as a server does that has several."""

    def __init__(self, *engines: ServerEngine):
        self.engines = engines

    def serve(self, requests: Requests[Key], follow: Follow[Key]) -> None:
        each = list(requests)
        for place, engine in enumerate(self.engines):
            engine.serve(each[place :: len(self.engines)], follow)


@pytest.mark.slow
def test_the_rollouts_of_a_group_that_several_engines_share_are_no_copies(alike: tuple[str, str]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    close = Close(Marker.from_tokenizer(tokenizer), SERVED_CONTEXT)
    prompt_ids = tokenizer.encode("<|user|>a=7;b=a-2;c=b+2;d=c+6;d?<|assistant|><think>")

    def group(number: int, *servers: str) -> list[list[int]]:
        sampling = SamplingSettings(temperature=1.5)
        models = [ServedModel.connect(server, "nano", close, sampling, seed=42) for server in servers]
        engine = Spread(*(ServerEngine(model, IN_TURNS) for model in models))
        rollouts = [Rollout(prompt_ids, Budget(64, 32), close) for _ in range(8)]
        completions = ServedEngine(Accelerator(cpu=True), engine).complete(rollouts, (True, 0, number))  # type: ignore[arg-type]
        return [completion.token_ids.tolist() for completion in completions]

    first = group(1, *alike)
    assert len(set(map(tuple, first))) == 8
    assert group(1, alike[1]) == first
    assert sum(next_one == one for next_one, one in zip(group(2, *alike), first, strict=True)) < 2


@pytest.mark.slow
def test_what_an_evaluation_adds_after_its_server_was_restarted_is_no_copy_but_what_it_would_have_drawn(
    alike: tuple[str, str], nano_data: Path, tmp_path: Path
) -> None:
    def answers(name: str, server: str, samples: int, budgets: list[str], *more: object) -> pd.Series:
        asked = ["--base_url", server, "--served_model_name", "nano", "--max_model_length", SERVED_CONTEXT]
        asked += ["--methods", "separate", "--max_problems", 12, "--temperature", 1, "--samples", samples]
        evaluate(prepare(parse(options(nano_data, tmp_path / name, *asked, "--budgets", *budgets, *more))))
        table = pd.read_parquet(tmp_path / name / "samples.parquet")
        return table.set_index(["thinking_budget", "sample", "problem"])["token_ids"].map(tuple).sort_index()

    answers("grown", alike[0], 1, ["32+16"], "--concurrency", IN_TURNS)
    added = answers("grown", alike[1], 2, ["32+16"], "--concurrency", IN_TURNS)
    assert (added[32, 0] == added[32, 1]).mean() < 0.5
    grown = answers("grown", alike[0], 2, ["32+16", "64+16"])
    assert grown.equals(answers("at-once", alike[1], 2, ["32+16", "64+16"]))
    assert (grown == answers("other", alike[1], 2, ["32+16", "64+16"], "--seed", 1)).mean() < 0.5
