"""`e1 plan`: estimates the memory and time of a recipe without any GPU.

The estimate follows from the model's dimensions and a few assumed constants; docs/gpu.md compares it with one GPU.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from e1_trl.arguments import Count, Positive
from e1_trl.command_line import CommandParser, describe_unknown
from e1_trl.errors import UserError
from e1_trl.plan import estimate
from e1_trl.plan.estimate import Memory, gb, memory
from e1_trl.plan.setup import DEFAULTS, Launch, launch_parser
from e1_trl.plan.verdict import remedy
from e1_trl.report.markdown import table
from e1_trl.training.arguments import ROUNDS_AWAY
from e1_trl.training.launch import check_batch

GIB = 2**30


def make_parser() -> CommandParser:
    """Make the parser of `e1 plan`; pairs that override fields of the recipe follow its options."""
    about = "Estimate memory and time of a recipe on one node of GPUs, and say whether it fits (exit status 1 if not)."
    made = launch_parser("e1 plan", about, "E1-Math-1.5B --gpus 4 --per_device_train_batch_size 8")
    add = made.add_argument
    add("--gpus", hint=Count, help="GPUs of the node. Default: the Accelerate configuration's processes.")
    memory = "GiB of each GPU. Default: the recipe's `gpu_memory`, else 79.2, as on a card of 80 GB."
    add("--gpu_memory", hint=Positive, metavar="GIB", help=memory)
    prompt = f"Mean tokens of a prompt. Default: {estimate.MATHEMATICS}; {estimate.PROGRAMS} for programs."
    add("--prompt_tokens", hint=Positive, help=prompt)
    return made


def report(taken: Memory) -> str:
    """Format the table of memory, its assumptions and the verdict."""
    setup = taken.setup
    disk = f"{gb(taken.disk)}: {setup.checkpoints} checkpoints of {gb(taken.checkpoint)} at once (save_total_limit)"
    asleep = ", asleep while the model learns" * setup.sleep
    share = f"{gb(taken.engine)}, of which weights {gb(taken.engine_weights)}"
    cache = f"{gb(max(0, taken.engine_cache))}; all sequences at once need {gb(taken.cache_needed)}"
    engine = [(f"vLLM's share{asleep}", share), ("vLLM's cache", cache)]
    rows = [
        ("weights, gradients", gb(taken.weights + taken.gradients)),
        ("optimizer", f"0.0 GB ({gb(taken.host)} of host memory)" if setup.offload else gb(taken.optimizer)),
        ("reference", gb(taken.reference)),
        ("activations of a micro-batch" + ", checkpointed" * setup.checkpointing, gb(taken.activations)),
        ("CUDA, NCCL, buckets (assumed)" if setup.gpus > 1 else "CUDA (assumed)", gb(taken.overhead)),
        *([("vLLM's share", "none: vLLM has GPUs of its own, which are not planned for")] if setup.served else engine),
        ("peak of generation", gb(taken.generation)),
        ("peak of training", gb(taken.training)),
        ("card", f"{gb(taken.card)} ({taken.card / GIB:.1f} GiB)"),
        ("disk, for all GPUs", f"{disk}, and {gb(taken.model)} at the end"),
    ]
    adapter = "" if setup.adapter is None else f" and an adapter of {setup.adapter / 1e6:.0f} M"
    kind = f"ZeRO-{setup.zero}" if setup.zero else "DistributedDataParallel"
    title = f"{setup.architecture.parameters / 1e9:.2f} B parameters{adapter}, {setup.gpus} GPUs, {kind}"
    graphs = f"{gb(estimate.ENGINE_OVERHEAD)} of vLLM's share go to activations and graphs."
    assumed = f"Calculated: every sequence takes its whole budget; {' '.join([graphs, *setup.architecture.notes])}"
    verdict = "It fits."
    if taken.problems:
        verdict = "\n- ".join([f"It does not fit; {remedy(setup, taken.card)}:", *taken.problems])
    if setup.rounds_away:
        verdict = f"It would learn next to nothing: {ROUNDS_AWAY}.\n{verdict}"
    return f"{table((f'one GPU: {title}', 'bytes'), rows)}\n{assumed}\n\n{verdict}\n"


def report_time(taken: Memory, prompt: float | None, fields: Mapping[str, Any]) -> str:
    """Format the time of a generation and of the whole training; `prompt` replaces the usual mean prompt."""
    setup = taken.setup
    usual, own = estimate.read_rows(setup, fields)
    prompt = prompt or usual
    took = estimate.seconds(taken, prompt, own)
    hours = took * setup.gpus / 3600
    _, learned = estimate.widths(setup, prompt)[own]
    row = (own, f"{learned:,.0f}", f"{took:.0f} s", f"{hours:.3f}")
    header = ("a generation", "positions a row", "time", "GPU-hours")
    training = ""
    if fields["max_steps"] > 0:
        generations = fields["max_steps"] / setup.steps
        whole = hours * generations
        training = (
            f"max_steps {fields['max_steps']:,} makes {generations:,.0f} generations: {whole:,.1f} GPU-hours, "
            "without validation.\n"
        )
    return (
        f"{table(header, [row])}\n{training}Calculated, with assumptions: prompts of {prompt:g} "
        f"tokens on average (--prompt_tokens); {estimate.ASSUMED}.\n"
    )


def main(argv: Sequence[str]) -> None:
    """Print the plan; the exit status is 1 if the training would not fit or not learn, or cannot be planned."""
    arguments, words = make_parser().parse_known_args(argv)
    launch = Launch.read(arguments.recipe, arguments.accelerate_config, arguments.gpus, words)
    if strange := sorted(launch.given.keys() - launch.recipe_fields.keys() - DEFAULTS.keys()):
        near = describe_unknown(strange[0], [*launch.recipe_fields, *DEFAULTS])
        raise UserError(f"{near} (neither in the recipe nor read by the plan)")
    if launch.accelerate.get("use_cpu"):
        raise UserError(
            f"{launch.accelerate_config} trains on CPUs; a plan needs a configuration for GPUs (--accelerate_config)"
        )
    taken = memory(launch.setup, int((arguments.gpu_memory or launch.fields["gpu_memory"]) * GIB))
    print(report(taken), end="")
    if taken.engine_cache > 0 and not taken.setup.served:
        print(f"\n{report_time(taken, arguments.prompt_tokens, launch.fields)}", end="")
    try:
        check_batch({**launch.recipe_fields, **launch.given}, taken.setup.gpus, launch.given)
    except UserError as error:
        print(f"\nPlanned with another batch, which e1 train refuses: {error}; e1 plan calls --num_processes --gpus.")
    if taken.problems or taken.setup.rounds_away:
        sys.exit(1)
