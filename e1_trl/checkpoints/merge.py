"""`e1 merge`: merge a LoRA adapter that e1_trl has trained into its base, as a model with a card of its own."""

import shutil
from dataclasses import replace
from pathlib import Path

from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError, run_command, user_errors


def make_parser() -> CommandParser:
    """Make the parser of `e1 merge`."""
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


def merge(adapter: Path, output: Path, name: str | None = None) -> None:
    """Write the merged model, on the CPU and in the base's precision, with its tokenizer and its card.

    Raises:
        UserError: e1_trl has trained no adapter there, the output exists, or the base cannot be found.
    """
    if not (adapter / "adapter_config.json").is_file():
        raise UserError(f"{adapter} holds no adapter_config.json; name the output folder of a training with use_peft")
    if output.exists():
        raise UserError(f"{output} exists; name a new folder")
    # These take seconds to import, which `--help` should not wait for.
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from e1_trl.checkpoints import model_card
    from e1_trl.checkpoints.budget_file import FILE, BudgetInfo
    from e1_trl.provenance import FILE as PROVENANCE

    trained = BudgetInfo.read(adapter / FILE)
    origin = model_card.BaseModel.read(adapter)
    name_of_base = PeftConfig.from_pretrained(adapter).base_model_name_or_path
    # AutoPeftModelForCausalLM would add random embeddings where the tokenizer has more tokens than the base.
    with user_errors(f"the base of {adapter}", OSError):
        base = AutoModelForCausalLM.from_pretrained(name_of_base, revision=origin.commit, dtype="auto")
    PeftModel.from_pretrained(base, adapter).merge_and_unload().save_pretrained(output)
    AutoTokenizer.from_pretrained(adapter).save_pretrained(output)
    replace(trained, curve=()).write(output)
    (output / model_card.DETAILS).mkdir()
    for file in (model_card.ORIGIN, model_card.RECIPE, model_card.VERSIONS, PROVENANCE, "trainer_state.json"):
        if (adapter / file).exists():
            shutil.copy(adapter / file, output / file)
    model_card.write(output, name or str(output))


def main(argv: list[str] | None = None) -> None:
    """Run `e1 merge` with the words of `argv`, by default those of the command line."""
    arguments = make_parser().parse_args(argv)
    merge(arguments.adapter, arguments.output, arguments.name)
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    run_command("e1 merge", main)
