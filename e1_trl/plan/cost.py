"""Time and price of a generation and of the training, by how rows are laid out. Nothing was ever measured on a GPU.

Pure arithmetic, but for the lengths of prompts, which are counted where dataset and tokenizer are at hand.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from e1_trl.budget import PROMPT
from e1_trl.plan.memory import Memory
from e1_trl.report.markdown import table

COUNTED = 2000  # prompts, drawn from all
# Assumed, of an H100: bytes and operations per second that kernels reach, and seconds of a step of the engine besides.
READ, COMPUTED, STEP = 2.0e12, 4.0e14, 0.002
AROUND = 3.0  # seconds, assumed: weights sent to the engine and compared, optimizer, gathers
USED = 0.7  # of its budget, by the mean completion, assumed; the longest takes it whole


def prompt_lengths(fields: Mapping[str, Any]) -> list[int]:
    """Lengths in tokens of some of a recipe's prompts that are not too long; from files and the cache alone.

    Raises:
        Exception: dataset or tokenizer are not there, or cannot be read; tokenizers and datasets raise any.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # before these are imported
    from transformers import AutoTokenizer

    from e1_trl.answers.kinds import kind_of
    from e1_trl.problems.arguments import ProblemArguments
    from e1_trl.problems.load import load_source, make_problems
    from e1_trl.problems.prompts import tokenize

    tokenizer = AutoTokenizer.from_pretrained(fields["model_name_or_path"], local_files_only=True)
    one = {
        "path": fields.get("dataset_name"),
        "name": fields.get("dataset_config"),
        "split": fields.get("dataset_train_split", "train"),
    }
    named = fields.get("datasets") or [one]  # by TRL's names
    sources = [load_source(str(each["path"]), each.get("split", "train"), each.get("name")) for each in named]
    names = ("grader", "problem_column", "instruction", "program_prompt")
    arguments = ProblemArguments(**{name: fields[name] for name in names if name in fields}, max_unusable=1.0)
    answers = {*kind_of(arguments.grader).columns, fields.get("answer_column")}  # tests may be many megabytes
    lengths: list[int] = []
    for source in sources:
        part = min(len(source), -(-COUNTED * len(source) // sum(map(len, sources))))
        drawn = source.shuffle(seed=0).select(range(part)).remove_columns([*answers & set(source.column_names)])
        prompts = make_problems(drawn, "the recipe's dataset", arguments, need_answers=False)["prompt"]
        lengths += [len(tokenize(tokenizer, prompt, fields.get("chat_template_kwargs") or {})) for prompt in prompts]
    return [length for length in lengths if length <= (fields["max_prompt_length"] or PROMPT)]


def widths(taken: Memory, lengths: Sequence[int]) -> tuple[float, dict[str, float]]:
    """Estimate tokens of the mean prompt, and positions of a row by layout.

    Padded rows are as long as the longest of their process, packed ones as themselves. Trimmed rows are as long as the
    longest of their micro-batch, with lengths assumed to be spread evenly; the scoring passes, whose rows are sorted,
    take less than that.

    Args:
        taken: the plan.
        lengths: of prompts, in tokens; without any, all have the longest that is allowed.
    """
    setup, ordered = taken.setup, sorted(lengths or [taken.setup.prompt])
    count, drawn = len(ordered), max(1, setup.rollouts // setup.gpus // setup.group)
    longest = sum(each * ((i + 1) ** drawn - i**drawn) for i, each in enumerate(ordered)) / count**drawn
    mean, completion = sum(ordered) / count, setup.context - setup.prompt
    padded = longest + completion
    packed = mean + USED * completion
    trimmed = packed + (padded - packed) * (setup.batch - 1) / (setup.batch + 1)  # the longest of so many, on average
    return mean, {"padded": padded, "trimmed": trimmed, "packed": packed}


def choose_layout(fields: Mapping[str, Any]) -> str:
    """The layout of rows that a recipe's fields ask for; a model's own reasons against it are not known here."""
    if not fields["padding_free"]:
        return "padded"
    return "packed" if "flash" in (fields["attn_implementation"] or "") else "trimmed"


def seconds(taken: Memory, positions: float, packed: float) -> float:
    """Of a generation and what is learned from it, once, with so many positions a row in the trainer's passes."""
    setup, model = taken.setup, taken.setup.architecture
    rows = setup.rollouts / setup.gpus
    waves = max(1.0, taken.cache_needed / taken.engine_cache)
    cache = rows / waves * packed / 2 * model.kv_bytes  # half of a sequence is there, on average
    step = STEP + (taken.engine_weights + cache) / READ
    passes = 1 + setup.reference + (4 if setup.checkpointing else 3)  # backward is two, and old scores are one
    attention = 2 * model.layers * model.hidden * positions**2  # causal
    forward = 2 * (model.layers * model.layer + model.output_head) * positions + attention
    return waves * (setup.context - setup.prompt) * step + rows * passes * forward / COMPUTED + AROUND


def report(taken: Memory, lengths: Sequence[int], price: float, fields: Mapping[str, Any]) -> str:
    """A table of what a generation costs at a price of one GPU for an hour, what it assumes, and the whole training.

    `fields` are the recipe's, with defaults (`plan.setup.read_fields`).
    """
    mean, positions = widths(taken, lengths)
    own = choose_layout(fields)
    hours = {
        name: seconds(taken, width, positions["packed"]) * taken.setup.gpus / 3600 for name, width in positions.items()
    }
    rows = []
    for name in dict.fromkeys((own, "packed")):
        took = hours[name] * 3600 / taken.setup.gpus
        title = f"{name}, as in this recipe" if name == own else f"{name}, with flash attention"
        rows.append(
            (title, f"{positions[name]:,.0f}", f"{took:.0f} s", f"{hours[name]:.3f}", f"{hours[name] * price:.2f}")
        )
    header = ("a generation", "positions a row", "time", "GPU-hours", f"at {price:.2f} an hour")
    assumed = "the longest that may be, as none that fits could be counted from files or the cache"
    training = ""
    if fields["max_steps"] > 0:
        generations = fields["max_steps"] / taken.setup.steps
        whole = hours[own] * generations
        training = (
            f"max_steps {fields['max_steps']:,} makes {generations:,.0f} generations: {whole:,.1f} GPU-hours, "
            f"{whole * price:,.2f} at {price:.2f} an hour, without validation.\n"
        )
    return (
        f"{table(header, rows)}\n{training}Prompts have {mean:,.0f} tokens on average: "
        f"{f'counted, {len(lengths):,} of them' if lengths else assumed}. Calculated at speeds that are assumed of an "
        f"H100, and never measured: {READ / 1e12:g} TB/s, {COMPUTED / 1e12:g} TFLOP/s, {STEP * 1000:g} ms a step of "
        f"the engine, {AROUND:g} s around it. The mean completion is assumed to take {USED:.0%} of its budget.\n"
    )
