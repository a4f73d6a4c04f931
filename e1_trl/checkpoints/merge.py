"""Merges a LoRA adapter that e1_trl has trained into its base: a model that needs no PEFT, with a card of its own.

e1 merge runs/my-lora --output runs/my-model
"""

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError, run_command, user_errors


def make_parser() -> CommandParser:
    """The options of `e1 merge`."""
    made = CommandParser(
        "e1 merge",
        "ADAPTER --output FOLDER [--name NAME]",
        "Merge a LoRA adapter into its base, with a card of its own:\n\n  e1 merge runs/my-lora --output runs/my-model",
    )
    add = made.add_argument
    add("adapter", metavar="ADAPTER", hint=Path, help="Folder of an adapter that e1_trl has trained.")
    add("--output", metavar="FOLDER", hint=Path, required=True, help="Folder for the merged model, which must be new.")
    add("--name", help="Name of the model in its card, as ORG/NAME. Default: the folder.")
    return made


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line, `sys.argv` if `argv` is None."""
    return make_parser().parse_args(argv)


def merge(adapter: Path, output: Path, name: str | None = None) -> None:
    """Write the merged model, on the CPU and in the base's precision, with its tokenizer and its card.

    Raises:
        UserError: there is no adapter of e1_trl's making, or the output exists, or the base is not to be found.
        OSError: the disk is full.
    """
    if not adapter.is_dir():
        raise UserError(f"there is no folder {adapter}; name the output folder of a training with use_peft")
    if not (adapter / "adapter_config.json").is_file():
        raise UserError(f"{adapter} holds no adapter (no adapter_config.json); there is nothing to merge")
    if output.exists():
        raise UserError(f"{output} exists; name a new folder")
    # Libraries of seconds: not for reading the command line.
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from e1_trl.checkpoints import model_card
    from e1_trl.checkpoints.budget_file import FILE, BudgetInfo
    from e1_trl.checkpoints.origin import FILE as ORIGIN
    from e1_trl.checkpoints.origin import BaseModel
    from e1_trl.provenance import FILE as PROVENANCE

    trained, origin = BudgetInfo.read(adapter / FILE), BaseModel.read(adapter)
    config = PeftConfig.from_pretrained(adapter)
    # PEFT's own way from an adapter to its model adds random embeddings where the tokenizer knows more tokens.
    with user_errors(f"the base of {adapter}", OSError):
        base = AutoModelForCausalLM.from_pretrained(
            config.base_model_name_or_path, revision=origin.commit, dtype="auto"
        )
    PeftModel.from_pretrained(base, adapter).merge_and_unload().save_pretrained(output)
    AutoTokenizer.from_pretrained(adapter).save_pretrained(output)
    replace(trained, curve=()).write(output)
    (output / model_card.DETAILS).mkdir()
    for file in (ORIGIN, model_card.RECIPE, model_card.VERSIONS, PROVENANCE, "trainer_state.json"):
        if (adapter / file).exists():
            shutil.copy(adapter / file, output / file)
    model_card.write(output, name or str(output))


def main(argv: list[str] | None = None) -> None:
    """Merge the adapter that the arguments (unset: the command line's) name."""
    arguments = parse(argv)
    merge(arguments.adapter, arguments.output, arguments.name)
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    run_command("e1 merge", main)
