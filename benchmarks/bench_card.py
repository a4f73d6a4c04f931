"""Micro-batches of a 1.5B model on a GPU: layouts, passes and output heads, and their memory against the plan's.

    python -m benchmarks.bench_card      (two minutes; needs a GPU of 80 GB, and nothing of the Hub)

Neither engine nor optimizer: a pass forward and one backward of the one-GPU recipe's micro-batch, in turns, of random
tokens through random weights. Lengths are like those of a model that thinks longer than its budget: most thoughts are
cut at 1,024 tokens, solutions are lognormal around 300, and prompts around 90.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from trl.trainer.utils import add_fused_lm_head, selective_log_softmax

from benchmarks import bench_scoring
from benchmarks.bench_scoring import Rows
from benchmarks.results import arguments, in_turns, publish, ratio
from e1_trl.plan.architecture import KNOWN
from e1_trl.plan.estimate import GB, activations
from e1_trl.plan.setup import Launch, Setup
from e1_trl.report.markdown import table
from e1_trl.training.arguments import VARLEN
from e1_trl.training.scoring import scored

RECIPE, MODEL = "E1-Math-1.5B-1GPU", "agentica-org/DeepScaleR-1.5B-Preview"
WARM, ROUNDS = 1, 5
SEED = 42
PADDED = "padded, as TRL"
WEIGHTS = {"fp32, computed in bf16": torch.float32, "bf16": torch.bfloat16}
HEADER = ("weights", "layout", "forward and backward", "to padded", "to trimmed", "peak above weights and gradients")
HEADER += ("log-probabilities off padded", "gradient off padded")
PLAN_HEADER = ("weights", "layout", "measured", "planned", "measured to planned")


Score = Callable[[PreTrainedModel, Rows], torch.Tensor]


def rows_of(setup: Setup, turn: int, longest: bool = False) -> Rows:
    """Draw the lengths of a round's rows, or take the longest that the recipe allows for."""
    chance, most = np.random.default_rng(turn), (setup.prompt, 1024, 1024)
    drawn = np.ceil(chance.lognormal(np.log([[90, 2500, 300]] * setup.batch), [0.4, 0.8, 0.7])).astype(int)
    lengths = np.tile(most, (setup.batch, 1)) if longest else np.clip(drawn, 1, most)
    prompts, thinking, solutions = torch.from_numpy(lengths).T
    rows = Rows.draw(prompts, thinking + 1 + solutions, (1000, 100_000), turn)
    return Rows(rows.ids.cuda(), rows.mask.cuda(), rows.kept)


def padded(model: PreTrainedModel, rows: Rows) -> torch.Tensor:
    """Score rows as TRL does."""
    model.set_attn_implementation("sdpa")
    return bench_scoring.padded(model, rows)[:, -rows.kept :]


def unpadded(parts: int, packed: bool, model: PreTrainedModel, rows: Rows) -> torch.Tensor:
    """Score rows in so many passes, packed or trimmed."""
    model.set_attn_implementation(VARLEN if packed else "sdpa")
    return bench_scoring.unpadded(model, parts, packed, rows)


def whole_logits(model: PreTrainedModel, rows: Rows) -> torch.Tensor:
    """Score trimmed rows in one pass, but by the logits of all completions at once in place of the fused head."""
    model.set_attn_implementation("sdpa")

    def score(input_ids: torch.Tensor, shift_labels: torch.Tensor, fused_lm_head: bool) -> SimpleNamespace:
        logits = model(input_ids, use_cache=False).logits
        return SimpleNamespace(log_probs=selective_log_softmax(logits, shift_labels), entropy=None)

    return scored(score, model.base_model, rows.ids, rows.mask, rows.kept, len(rows.ids), packed=False)[0]


LAYOUTS: dict[str, Score] = {
    PADDED: padded,
    "trimmed, one pass": partial(unpadded, 1, False),
    "trimmed, two passes": partial(unpadded, 2, False),
    "trimmed, four passes": partial(unpadded, 4, False),
    "trimmed, all logits at once": whole_logits,
    "packed, PyTorch's flash kernel": partial(unpadded, 1, True),
}


def make(setup: Setup, dtype: torch.dtype) -> PreTrainedModel:
    """A random model of the recipe's dimensions on the GPU, that computes activations again."""
    torch.manual_seed(SEED)
    config = AutoConfig.for_model(**KNOWN[MODEL])
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).train()
    if setup.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    add_fused_lm_head(model)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)  # there all the time, as they are while micro-batches are accumulated
    return model


@contextmanager
def peak_above() -> Iterator[dict[str, float]]:
    """Fill in the most bytes that were allocated within, above those at its beginning."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    found, before = dict[str, float](), torch.cuda.memory_allocated()
    yield found
    found["allocated"] = torch.cuda.max_memory_allocated() - before
    found["reserved"] = torch.cuda.max_memory_reserved() - before


def step(model: PreTrainedModel, score: Score, rows: Rows) -> tuple[float, torch.Tensor]:
    """Score rows and add to the gradients; returns seconds and the log-probabilities, (rows, kept)."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16, enabled=model.dtype == torch.float32):
        logps = score(model, rows)
    (logps * rows.mask[:, -rows.kept :]).sum().div(1000).backward()
    torch.cuda.synchronize()
    return time.perf_counter() - began, logps.detach()


def gradients(model: PreTrainedModel) -> torch.Tensor:
    """Take the gradients as one vector, in bf16, and begin again."""
    found = torch.cat([each.grad.flatten().bfloat16() for each in model.parameters()])
    for each in model.parameters():
        each.grad.zero_()
    return found


def measure(setup: Setup, dtype: torch.dtype) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Measure each layout with weights of a dtype, and its memory at the longest rows beside the plan's."""
    model = make(setup, dtype)
    taken: dict[str, dict[str, Any]] = {}
    given, longest = rows_of(setup, 0), rows_of(setup, 0, longest=True)
    real = given.mask[:, -given.kept :].bool()
    against: tuple[torch.Tensor, torch.Tensor] | None = None
    planned, plans = activations(replace(setup, dtype=dtype.itemsize)), list[dict[str, Any]]()
    for name, score in LAYOUTS.items():
        try:
            gradients(model)
            with peak_above() as most:
                logps = step(model, score, given)[1]
            found = gradients(model)
            against = against or (logps, found)
            off = (logps - against[0])[real].abs().mean().item()
            turned = ((found - against[1]).norm(dtype=torch.float32) / against[1].norm(dtype=torch.float32)).item()
            taken[name] = {"peak_gb": most["allocated"] / GB, "nats_off": off, "gradient_off": turned}
            del found, logps
            with peak_above() as most:
                step(model, score, longest)
            plans.append({"layout": name, "planned_gb": planned / GB, **{k: v / GB for k, v in most.items()}})
        except torch.OutOfMemoryError as error:
            plans.append({"layout": name, "planned_gb": planned / GB, "error": str(error)[:200]})
    against = None
    batches = [rows_of(setup, turn) for turn in range(WARM + ROUNDS)]
    runs = {name: (lambda turn, score=LAYOUTS[name]: step(model, score, batches[turn])[0]) for name in taken}
    for name, seconds in in_turns(runs, len(batches), str(dtype)).items():
        taken[name]["seconds"] = seconds[WARM:]
    return [{"layout": name, **values} for name, values in taken.items()], plans


def tables(record: Mapping[str, Any]) -> str:
    """Both tables of a record, and what they were measured on."""
    rows, plans = [], []
    for weights in WEIGHTS:
        layouts, longest = record[weights]["layouts"], record[weights]["longest"]
        for each in layouts:
            seconds = each["seconds"]
            off = (f"{each['nats_off']:.3f} nats", f"{each['gradient_off']:.1%}")
            values = (f"{median(seconds):.2f} s", *(ratio(seconds, layouts[at]["seconds"]) for at in (0, 1)))
            rows.append((weights, each["layout"], *values, f"{each['peak_gb']:.1f} GB", *off))
        for each in longest:
            values = ("out of memory", f"{each['planned_gb']:.1f} GB", "")
            if "allocated" in each:
                to_planned = f"{each['allocated'] / each['planned_gb']:.2f}"
                values = (f"{each['allocated']:.1f} GB", values[1], to_planned)
            plans.append((weights, each["layout"], *values))
    rounds = len(record[next(iter(WEIGHTS))]["layouts"][0]["seconds"])
    made = f"{record['card']}; {record['rows']} rows of up to {record['context']:,} tokens; medians and ranges"
    longest_rows = "The longest rows that the recipe allows for, and the plan:"
    return f"{made} of {rounds} rounds.\n\n{table(HEADER, rows)}\n{longest_rows}\n\n{table(PLAN_HEADER, plans)}"


def main() -> None:
    parsed = arguments("Measure micro-batches of a 1.5B model on a GPU.", "card.json", "card")
    setup = Launch.read(RECIPE, None, None, []).setup
    card = torch.cuda.get_device_properties(0)
    about = {"card": card.name, "bytes": card.total_memory, "rows": setup.batch, "context": setup.context}
    record: dict[str, Any] = dict(about)
    for weights, dtype in WEIGHTS.items():
        layouts, longest = measure(setup, dtype)
        record[weights] = {"layouts": layouts, "longest": longest}
        gc.collect()
        torch.cuda.empty_cache()
    publish(parsed, record, tables(record))


if __name__ == "__main__":
    main()
