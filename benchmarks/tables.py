"""The rows as the Markdown sections of docs/benchmark.md."""

from collections.abc import Sequence
from statistics import median

from benchmarks.rows import FirstStep, Row, Scheduled, TrainStep
from e1_trl.report.markdown import table

SCHEDULED = (
    "distribution",
    "forced",
    "scheduler",
    "tokens",
    "wall",
    "to streaming",
    "engine steps",
    "to clairvoyant",
    "phase-2 prefill per sequence",
)
STEPPED = ("", "E1Trainer", "GRPOTrainer", "difference")
STARTED = ("vLLM's compiled code", "problems made", "base evaluated", "first optimizer step")
TARGETS = ("aimed at", "found", "")


def sections(rows: Sequence[Row]) -> dict[str, str]:
    """Every section by its name; of what was not measured the header alone."""
    scheduled = [row for row in rows if isinstance(row, Scheduled)]
    pair = {row.scheduler: row for row in rows if isinstance(row, TrainStep)}
    starts = [row for row in rows if isinstance(row, FirstStep)]
    return {
        "bench": table(SCHEDULED, map(_scheduled, scheduled)),
        "train_step": table(STEPPED, _stepped(pair["e1"], pair["grpo"]) if pair else []),
        "first_step": table(STARTED, map(_started, starts)),
        "targets": table(TARGETS, [*_steps_aimed_at(scheduled), *(_step_aimed_at(pair["e1"]) if pair else [])]),
    }


def _scheduled(row: Scheduled) -> tuple[str, ...]:
    return (
        row.distribution,
        f"{row.forced_ratio:.0%}",
        row.scheduler,
        f"{row.generated_tokens:.0f}",
        f"{row.wall_s:.2f} s ({row.wall_s_low:.2f} to {row.wall_s_high:.2f})",
        f"{row.wall_ratio:.2f} ({row.wall_ratio_low:.2f} to {row.wall_ratio_high:.2f})",
        f"{row.engine_steps:.0f}",
        f"{row.engine_steps / row.clairvoyant_steps:.2f}",
        f"{row.phase2_prefill_tokens / row.sequences:.1f}",
    )


def _stepped(e1: TrainStep, grpo: TrainStep) -> list[tuple[str, ...]]:
    seconds = [("the step", e1.step_s, grpo.step_s)]
    seconds += [(phase, e1.phases_s[phase], grpo.phases_s[phase]) for phase in e1.phases_s]
    seconds += [("CPU time of the step", e1.cpu_s, grpo.cpu_s)]
    seconds += [("CPU time in a step of the other, at most", e1.idle_cpu_s, grpo.idle_cpu_s)]
    counts = [
        ("requests to vLLM", e1.engine_requests, grpo.engine_requests),
        ("engine steps", e1.engine_steps, grpo.engine_steps),
        ("tokens of a cache block", e1.block_size, grpo.block_size),
        ("prompt tokens computed", e1.prefill_tokens, grpo.prefill_tokens),
        ("sampled tokens", e1.sampled_tokens, grpo.sampled_tokens),
        ("trained tokens", e1.trained_tokens, grpo.trained_tokens),
    ]
    return [
        *((name, f"{ours:.3f} s", f"{theirs:.3f} s", f"{ours - theirs:+.3f} s") for name, ours, theirs in seconds),
        *((name, f"{ours:,}", f"{theirs:,}", f"{ours - theirs:+,}") for name, ours, theirs in counts),
    ]


def _started(row: FirstStep) -> tuple[str, ...]:
    every = (row.problems_s, row.evaluated_s, row.first_step_s)
    return row.cache, *(f"{median(seconds):.0f} s ({_range(seconds)})" for seconds in every)


def _range(seconds: Sequence[float]) -> str:
    return f"{min(seconds):.0f} to {max(seconds):.0f}" if len(seconds) > 1 else "once"


def _steps_aimed_at(rows: Sequence[Scheduled]) -> list[tuple[str, str, str]]:
    by_name = {(row.distribution, row.scheduler): row for row in rows}
    found = []
    for distribution in dict.fromkeys(row.distribution for row in rows):
        ours, barrier, call = (by_name[distribution, name] for name in ("streaming", "barrier", "single_call"))
        clairvoyant, fewer = ours.engine_steps / ours.clairvoyant_steps, barrier.engine_steps / ours.engine_steps
        prefill, wall = ours.phase2_prefill_tokens / ours.sequences, 1 / call.wall_ratio
        if distribution in ("mixed", "natural"):
            text = f"{distribution}: engine steps at most 1.10 times those of the clairvoyant schedule"
            found.append((text, f"{clairvoyant:.2f}", _met(round(clairvoyant, 2) <= 1.1)))
        least = 1.3 if distribution == "mixed" else 1.0
        text = f"{distribution}: the barrier takes at least {least} times the engine steps"
        found.append((text, f"{fewer:.2f}", _met(round(fewer, 2) >= least)))
        text = f"{distribution}: by the clock the barrier takes longer"
        ratio = f"{barrier.wall_ratio:.2f} ({barrier.wall_ratio_low:.2f} to {barrier.wall_ratio_high:.2f})"
        found.append((text, ratio, "shown" if barrier.wall_ratio_low > 1 else "not shown"))
        text = f"{distribution}: under one block of {ours.block_size} tokens of prefill recomputed per sequence"
        found.append((text, f"{prefill:.1f}", _met(prefill < ours.block_size)))
        text = f"{distribution}: wall time within 1.05 times that of a single call"
        found.append((text, f"{wall:.2f}", _met(wall <= 1.05)))
    return found


def _step_aimed_at(e1: TrainStep) -> list[tuple[str, str, str]]:
    low, high = e1.step_ratio_from, e1.step_ratio_to
    found = (
        f"{e1.step_ratio:.3f}; 95% interval {low:.3f} to {high:.3f}; rounds from {e1.step_ratio_low:.2f} to "
        f"{e1.step_ratio_high:.2f}"
    )
    state = "met" if high <= 1.02 else "missed" if low > 1.02 else "not decided: the interval holds 1.02"
    return [("an optimizer step at most 1.02 times TRL's", found, state)]


def _met(condition: bool) -> str:
    return "met" if condition else "missed"
