"""Gain of each part of a step without padding: a micro-batch scored and differentiated in each layout.

    python -m benchmarks.bench_scoring      (six minutes; nothing else should run)

Neither engine nor optimizer nor loss: a pass forward and one backward, in turns, of random tokens at the lengths that
`bench_training` imposes, after prompts of the miniature.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from trl.trainer.utils import add_fused_lm_head

from benchmarks.results import arguments, in_turns, publish, ratio
from benchmarks.workloads import WORKLOADS, Workload, prompts_of, with_lengths
from e1_trl.report.markdown import table
from e1_trl.training.scoring import PARTS_ON_CPU, scored

WARM = 2  # rounds that are not counted
ROUNDS = {"train_step_own": 30, "train_step_lognormal": 6}
HEADER = ("lengths", "real positions", "layout", "forward and backward", "to padded")


@dataclass(frozen=True)
class Rows:
    """A micro-batch: token ids and mask, (rows, tokens), and how many of the columns are completions."""

    ids: torch.Tensor
    mask: torch.Tensor
    kept: int

    @classmethod
    def draw(cls, prompts: torch.Tensor, completions: torch.Tensor, tokens: tuple[int, int], seed: int) -> "Rows":
        """Draw rows with so many tokens of prompts and completions, within a range, padded as TRL does."""
        kept = int(completions.max())
        columns = torch.arange(-int(prompts.max()), kept)
        mask = ((columns >= -prompts[:, None]) & (columns < completions[:, None])).int()
        ids = torch.randint(*tokens, mask.shape, generator=torch.Generator().manual_seed(seed))
        return cls(ids * mask, mask, kept)

    def all_through_the_head(self) -> "Rows":
        """The same with all tokens of a row but its first as the completion."""
        width = self.mask.shape[1]
        places = self.mask.argmax(1, keepdim=True) + torch.arange(width)
        moved = [each.gather(1, places.clamp(max=width - 1)) * (places < width) for each in (self.ids, self.mask)]
        return Rows(*moved, width - 1)


def rows_of(workload: Workload, turn: int) -> Rows:
    """A round's first micro-batch."""
    few = workload.batch // 8
    prompts = prompts_of(AutoTokenizer.from_pretrained(workload.model), few, turn * few)
    lengths = torch.tensor([len(each) for each in prompts]).repeat_interleave(8)
    return Rows.draw(lengths, torch.tensor(workload.lengths(turn)[: workload.batch]).sum(1), (3, 32), turn)


def padded(model: PreTrainedModel, rows: Rows) -> torch.Tensor:
    """As TRL computes them."""
    labels = rows.ids.masked_fill(rows.mask == 0, -100)
    labels[:, : -rows.kept] = -100
    logps: torch.Tensor = model(rows.ids, attention_mask=rows.mask, labels=labels, fused_lm_head=True).log_probs
    return logps


def unpadded(model: PreTrainedModel, parts: int, packed: bool, rows: Rows) -> torch.Tensor:
    """As `scored` computes them, of so many parts."""
    return scored(model, model.base_model, rows.ids, rows.mask, rows.kept, len(rows.ids), packed, parts)[0]


def measure(workload: Workload) -> tuple[float, dict[str, list[float]]]:
    """The share of real positions, and the seconds of each round in each layout."""
    model = AutoModelForCausalLM.from_pretrained(workload.model, dtype=torch.float32).train()
    add_fused_lm_head(model)
    batches = [rows_of(workload, turn) for turn in range(WARM + ROUNDS[workload.distribution])]
    full = [each.all_through_the_head() for each in batches]
    parts = PARTS_ON_CPU

    def seconds(compute: Callable[[Rows], torch.Tensor], given: list[Rows], turn: int) -> float:
        start = time.perf_counter()
        compute(given[turn]).sum().backward()
        model.zero_grad()
        return time.perf_counter() - start

    layouts: dict[str, tuple[Callable[[Rows], torch.Tensor], list[Rows]]] = {
        "padded": (partial(padded, model), batches),
        "from the first real token, no mask": (partial(unpadded, model, 1, False), full),
        f"and trimmed, in {parts} parts": (partial(unpadded, model, parts, False), full),
        "and only completions through the head": (partial(unpadded, model, parts, False), batches),
        "packed, for flash attention": (partial(unpadded, model, 1, True), batches),
    }
    runs = {name: partial(seconds, *layout) for name, layout in layouts.items()}
    found = in_turns(runs, len(batches), workload.distribution)
    real = sum(float(each.mask.float().mean()) for each in batches) / len(batches)
    return real, {name: each[WARM:] for name, each in found.items()}


def main() -> None:
    parsed = arguments("Measure what each part of a step without padding gives.", "scoring.json", "scoring")
    lines, record = [], {}
    for name in ROUNDS:
        real, found = measure(with_lengths(WORKLOADS[name]))
        for layout, seconds in found.items():
            lines.append((name, f"{real:.2f}", layout, f"{median(seconds):.3f} s", ratio(seconds, found["padded"])))
        record[name] = {"real_positions": real, "seconds": found}
    publish(parsed, {"distributions": record}, table(HEADER, lines))


if __name__ == "__main__":
    main()
