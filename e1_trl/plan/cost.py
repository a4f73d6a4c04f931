"""Time and price of a generation and of the training, by how rows are laid out. Nothing was ever measured on a GPU."""

from collections.abc import Mapping
from typing import Any

from e1_trl.plan.memory import Memory
from e1_trl.plan.setup import Setup
from e1_trl.report.markdown import table
from e1_trl.training.arguments import VARLEN

# Tokens of the mean prompt, as counted in DeepScaleR's problems of mathematics and DeepCoder's of programs.
MATHEMATICS, PROGRAMS = 101, 450
# Assumed, of an H100: bytes and operations per second that kernels reach, and seconds of a step of the engine besides.
READ, COMPUTED, STEP = 2.0e12, 4.0e14, 0.002
SENT = 3.0e11  # bytes per second between GPUs over NVLink, assumed; nothing of it hidden behind computing
AROUND = 3.0  # seconds, assumed: weights sent to the engine and compared, optimizer
USED = 0.7  # of its budget, by the mean completion, assumed; the longest takes it whole


def widths(setup: Setup, prompt: float) -> dict[str, tuple[float, float]]:
    """Positions of a row by layout: in the scoring passes, and in those that are learned from.

    Padded rows are as long as the longest of all, packed ones as themselves. Trimmed rows are as long as the longest of
    their pass, with lengths assumed to be spread evenly; of scoring passes, whose rows are sorted, that is themselves.
    """
    longest = prompt + setup.context - setup.prompt
    packed = prompt + USED * (setup.context - setup.prompt)
    trimmed = packed + (longest - packed) * (setup.batch - 1) / (setup.batch + 1)  # the longest of so many, on average
    return {"padded": (longest, longest), "trimmed": (packed, trimmed), "packed": (packed, packed)}


def seconds(taken: Memory, prompt: float, layout: str) -> float:
    """Of a generation and what is learned from it, once, with so many tokens in the mean prompt."""
    setup, model = taken.setup, taken.setup.architecture
    rows = setup.rollouts / setup.gpus
    widest, (mean, _) = widths(setup, prompt), widths(setup, prompt)["packed"]
    scored, learned = widest[layout]
    cache = rows * mean * model.kv_bytes  # of all sequences at once
    waves = max(1.0, cache / taken.engine_cache)
    step = STEP + (taken.engine_weights + cache / waves / 2) / READ  # half of a sequence is there, on average

    def forward(positions: float) -> float:
        attention = 2 * model.layers * model.heads * model.head * positions**2  # causal
        return 2 * (model.layers * model.layer + model.output_head) * positions + attention

    scorings = 1 + setup.reference  # of the policy that sampled, first
    learnings = 4 if setup.checkpointing else 3  # backward is two
    operations = rows * (scorings * forward(scored) + learnings * forward(learned))
    sent = 0.0
    if setup.zero == 3:  # each pass gathers the weights of the other GPUs, and so does each backward pass
        gathers = rows / setup.batch * (scorings + 2)
        sent = gathers * setup.dtype * model.parameters * (1 - 1 / setup.gpus)
    decoding = waves * (setup.context - setup.prompt) * step
    return decoding + operations / COMPUTED + sent / SENT + AROUND


def read_rows(setup: Setup, fields: Mapping[str, Any]) -> tuple[float, str]:
    """Tokens of the mean prompt, as in the paper's data, and the layout of rows that a recipe's fields ask for."""
    attention = fields["attn_implementation"] or ""
    layout = "packed" if attention == VARLEN or "flash" in attention else "trimmed"  # if the model allows it
    prompt = PROGRAMS if fields.get("grader") == "programs" else MATHEMATICS
    return min(setup.prompt, prompt), layout if fields["padding_free"] else "padded"


def report(taken: Memory, prompt: float | None, price: float, fields: Mapping[str, Any]) -> str:
    """A table of what a generation costs at a price of one GPU for an hour, what it assumes, and the whole training.

    `prompt` is the mean prompt's tokens, if not as in the paper's data; `fields` are the recipe's, with defaults.
    """
    setup = taken.setup
    usual, own = read_rows(setup, fields)
    prompt = prompt or usual
    took = seconds(taken, prompt, own)
    hours, learned = took * setup.gpus / 3600, widths(setup, prompt)[own][1]
    row = (own, f"{learned:,.0f}", f"{took:.0f} s", f"{hours:.3f}", f"{hours * price:.2f}")
    header = ("a generation", "positions a row", "time", "GPU-hours", f"at {price:.2f} an hour")
    training = ""
    if fields["max_steps"] > 0:
        generations = fields["max_steps"] / setup.steps
        whole = hours * generations
        training = (
            f"max_steps {fields['max_steps']:,} makes {generations:,.0f} generations: {whole:,.1f} GPU-hours, "
            f"{whole * price:,.2f} at {price:.2f} an hour, without validation.\n"
        )
    return (
        f"{table(header, [row])}\n{training}Calculated, with assumptions: prompts of {prompt:g} "
        f"tokens on average (--prompt_tokens); completions of {USED:.0%} of their budget; of an H100 "
        f"{READ / 1e12:g} TB/s, {COMPUTED / 1e12:g} TFLOP/s, {SENT / 1e9:g} GB/s between GPUs, {STEP * 1000:g} ms a "
        f"step of the engine, {AROUND:g} s around it.\n"
    )
