"""Tells what memory a recipe takes, before anybody waits for a node.

    e1 plan E1-Math-1.5B --gpus 8 --gpu_memory 80 [--FIELD VALUE …]

From the dimensions of the model alone. Nothing here was ever compared with a GPU.
"""

import argparse
import sys
from collections.abc import Sequence

import yaml

from e1_trl.plan.memory import ENGINE_OVERHEAD, GB, memory
from e1_trl.plan.setup import DEFAULTS, Setup
from e1_trl.recipes import resource
from e1_trl.report.markdown import table

GIB = 2**30


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="e1 plan",
        usage="e1 plan RECIPE [--accelerate_config NAME] [--gpus N] [--gpu_memory GIB] [--FIELD VALUE …]",
        description="Memory of a recipe on one node of GPUs, from the model's dimensions alone.",
        allow_abbrev=False,
    )
    parser.add_argument("recipe", metavar="RECIPE", help="a file, or the name of one of our recipes")
    parser.add_argument("--accelerate_config", metavar="NAME", help="unset: the one that the recipe names")
    parser.add_argument("--gpus", type=int, metavar="N", help="unset: those of the Accelerate configuration")
    parser.add_argument("--gpu_memory", type=float, default=79.2, metavar="GIB", help="of one card (79.2: of 80 GB)")
    return parser


def overrides(words: Sequence[str]) -> dict[str, object]:
    """`--field value` pairs, the values as YAML reads them.

    Raises:
        ValueError: they are no pairs.
    """
    if len(words) % 2 or any(not word.startswith("--") for word in words[::2]):
        raise ValueError(f"fields of the recipe are overridden by pairs --FIELD VALUE, not {' '.join(words)}")
    return {name.removeprefix("--"): yaml.safe_load(value) for name, value in zip(words[::2], words[1::2], strict=True)}


def report(setup: Setup, card_bytes: int) -> str:
    """A table of memory, and the verdict."""
    taken = memory(setup, card_bytes)

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
    problems = "\n".join(f"- {problem}" for problem in taken.problems)
    verdict = f"It does not fit:\n{problems}" if problems else "It fits."
    return f"{table((f'one GPU: {title}', 'bytes'), rows)}\n{assumed}\n\n{verdict}\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the plan; the exit status is 1 if it does not fit, or cannot be made."""
    arguments, words = _parser().parse_known_args(sys.argv[1:] if argv is None else argv)
    try:
        recipe = yaml.safe_load(resource("recipes", arguments.recipe).read_text())
        if not isinstance(recipe, dict):
            raise ValueError(f"{arguments.recipe} is no recipe, which is a YAML file of lines `field: value`")
        given = overrides(words)
        if unknown := sorted(given.keys() - recipe.keys() - DEFAULTS.keys()):
            raise ValueError(f"{unknown[0]} is neither in the recipe nor a field that the plan reads")
        recipe |= given
        name = arguments.accelerate_config or recipe.get("accelerate_config")
        if name is None:
            raise ValueError("the recipe names no accelerate_config: name one")
        accelerate = yaml.safe_load(resource("accelerate_configs", name).read_text())
        setup = Setup.of(recipe, accelerate, arguments.gpus)
    except (ValueError, OSError, TypeError, KeyError, yaml.YAMLError) as error:
        sys.exit(f"e1 plan: {' '.join(str(error).split())}")
    card = int(arguments.gpu_memory * GIB)
    print(report(setup, card), end="")
    if memory(setup, card).problems:
        sys.exit(1)


if __name__ == "__main__":
    main()
