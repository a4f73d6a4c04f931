"""`e1 fetch`: downloads what a recipe loads from the Hub, for nodes without internet.

    e1 fetch --config E1-Math-1.5B

Runs on any machine that shares the Hub's cache with the node, as a login node does: it needs no GPU and loads no model.
"""

from collections.abc import Sequence
from pathlib import Path

from e1_trl.command_line import CommandParser, run_command
from e1_trl.errors import UserError, user_errors
from e1_trl.recipes import resource, shipped

FORMATS = ["*.pt", "*.pth", "*.gguf", "*.onnx*", "*.h5", "*.msgpack", "*.ot"]  # weights that a training does not load
PICKLED = "*.bin"
# The machine that fetches needs no GPU, and uploads nothing.
OVERRIDES = ("--use_cpu", "true", "--bf16", "false", "--fp16", "false", "--push_to_hub", "false")


def make_parser() -> CommandParser:
    made = CommandParser(
        "e1 fetch",
        "--config RECIPE [--FIELD VALUE …]",
        "Download the weights, data sets and benchmarks that `e1 train` loads from the Hub with this recipe and these\n"
        "fields. Then set HF_HUB_OFFLINE=1 on a node without internet that shares the cache.\n\n"
        "  e1 fetch --config E1-Math-1.5B",
    )
    recipe = f"Recipe: a file, or one of {', '.join(shipped('recipes'))}."
    made.add_argument("--config", metavar="RECIPE", required=True, help=recipe)
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Fetch for the recipe that `argv` (default: the command line) names, the cheap parts first."""
    parsed, words = make_parser().parse_known_args(argv)
    # Imported late: they take seconds.
    from huggingface_hub.constants import HF_HOME

    from e1_trl.training.config import ModelFacts
    from e1_trl.training.data import load
    from e1_trl.training.recipe_as_run import parse_recipe

    words = ["--config", str(resource("recipes", parsed.config)), *words, *OVERRIDES]
    script_args, args, model, mixture = parse_recipe(words, prog="e1 fetch")
    if not model.model_name_or_path:
        raise UserError("the recipe must name a model (model_name_or_path)")
    script_args.exclude = None  # the file may not be written yet
    args.model_init_kwargs = {"revision": model.model_revision}
    facts = ModelFacts.of(args, model.model_name_or_path)
    load(script_args, mixture, args, facts.tokenizer, rewards=[])
    fetch_model(model.model_name_or_path, model.model_revision)
    print(f"fetched into {HF_HOME}; on a node without internet: HF_HOME={HF_HOME} HF_HUB_OFFLINE=1 e1 train …")


def fetch_model(name: str, revision: str | None) -> None:
    """Download a model: its safetensors if it has any, else its pickled weights."""
    from huggingface_hub import snapshot_download

    if Path(name).is_dir():
        return
    with user_errors(f"the model {name}", OSError, ValueError):
        folder = snapshot_download(name, revision=revision, ignore_patterns=[*FORMATS, PICKLED])
        if not [*Path(folder).glob("*.safetensors")]:
            snapshot_download(name, revision=revision, ignore_patterns=FORMATS)


if __name__ == "__main__":
    run_command("e1 fetch", main)
