"""Tells what memory and time a recipe takes, before anybody waits for a node.

    e1 plan E1-Math-1.5B --gpus 8 --gpu_memory 80 --price 2.50 [--FIELD VALUE …]

From the model's dimensions, and prompts if they are at hand. Nothing here was ever compared with a GPU.
"""

import argparse
import contextlib
import math
import sys
from collections.abc import Sequence

from e1_trl.errors import UserError
from e1_trl.plan import cost
from e1_trl.plan.memory import ENGINE_OVERHEAD, GB, Memory, memory
from e1_trl.plan.setup import DEFAULTS, ERRORS, Launch
from e1_trl.report.markdown import table

GIB = 2**30
ROUNDS_AWAY = (
    "weights of 16 bits without DeepSpeed have no fp32 masters, and small steps round away in them; set dtype to "
    "float32, or launch with DeepSpeed (--accelerate_config zero2)"
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="e1 plan",
        usage="e1 plan RECIPE [--accelerate_config NAME] [--gpus N] [--gpu_memory GIB] [--price N] [--FIELD VALUE …]",
        description="Memory and time of a recipe on one node of GPUs, calculated.",
        allow_abbrev=False,
    )
    parser.add_argument("recipe", metavar="RECIPE", help="a file, or the name of one of our recipes")
    parser.add_argument("--accelerate_config", metavar="NAME", help="unset: the one that the recipe names")
    parser.add_argument("--gpus", type=int, metavar="N", help="unset: those of the Accelerate configuration")
    parser.add_argument("--gpu_memory", type=float, default=79.2, metavar="GIB", help="of one card (79.2: of 80 GB)")
    parser.add_argument("--price", type=float, default=2.5, metavar="N", help="of one GPU for an hour (2.50)")
    return parser


def report(taken: Memory) -> str:
    """A table of memory with what it assumes, and the verdict."""
    setup = taken.setup

    def gb(bytes_: float) -> str:
        return f"{bytes_ / GB:.1f} GB"

    engine = [
        ("vLLM's share, awake", f"{gb(taken.engine)}, of it weights {gb(taken.engine_weights)}"),
        ("vLLM's cache", f"{gb(taken.engine_cache)}; all sequences at once take {gb(taken.cache_needed)}"),
    ]
    rows = [
        ("weights, gradients", gb(taken.weights + taken.gradients)),
        ("optimizer", f"0.0 GB ({gb(taken.host)} of host memory)" if setup.offload else gb(taken.optimizer)),
        ("reference", gb(taken.reference)),
        ("activations of a micro-batch", gb(taken.activations)),
        ("CUDA, NCCL, buckets (assumed)" if setup.gpus > 1 else "CUDA (assumed)", gb(taken.overhead)),
        *([("vLLM's share", "none: it has GPUs of its own, which are not planned for")] if setup.served else engine),
        ("peak of generation", gb(taken.generation)),
        ("peak of training", gb(taken.training)),
        ("card", gb(taken.card)),
    ]
    adapter = "" if setup.adapter is None else f" and an adapter of {setup.adapter / 1e6:.0f} M"
    kind = f"ZeRO-{setup.zero}" if setup.zero else "DistributedDataParallel"
    title = f"{setup.architecture.parameters / 1e9:.2f} B parameters{adapter}, {setup.gpus} GPUs, {kind}"
    assumed = (
        "Calculated, and never measured on a GPU: every sequence takes its whole budget; "
        f"{gb(ENGINE_OVERHEAD)} of vLLM's share go to activations and graphs."
    )
    problems = "".join(f"\n- {problem}" for problem in taken.problems)
    verdict = f"It does not fit:{problems}" if problems else "It fits."
    if setup.rounds_away:
        verdict = f"It would learn next to nothing: {ROUNDS_AWAY}.\n{verdict}"
    return f"{table((f'one GPU: {title}', 'bytes'), rows)}\n{assumed}\n\n{verdict}\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the plan; the exit status is 1 if it does not fit or learn, or cannot be made."""
    arguments, words = _parser().parse_known_args(argv)
    try:
        launch = Launch.read(arguments.recipe, arguments.accelerate_config, arguments.gpus, words)
        if unknown := sorted(launch.given.keys() - launch.recipe_fields.keys() - DEFAULTS.keys()):
            raise UserError(f"{unknown[0]} is neither in the recipe nor a field that the plan reads")
        if not 0 <= arguments.price < math.inf:
            raise UserError(f"--price is {arguments.price}; it must be 0 or more")
        taken = memory(launch.setup, int(arguments.gpu_memory * GIB))
    except ERRORS as error:
        sys.exit(f"e1 plan: {' '.join(str(error).split())}")
    print(report(taken), end="")
    if taken.engine_cache > 0 and not taken.setup.served:
        lengths: list[int] = []
        with contextlib.suppress(Exception):  # of whatever kind: the plan goes without
            lengths = cost.prompt_lengths({**DEFAULTS, **launch.recipe_fields, **launch.given})
        print(f"\n{cost.report(taken, lengths, arguments.price)}", end="")
    if taken.problems or taken.setup.rounds_away:
        sys.exit(1)


if __name__ == "__main__":
    main()
