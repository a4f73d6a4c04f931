"""Where a trained model comes from: the file `e1/origin.json` beside it, which its card is written from."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml
from huggingface_hub import ModelCard

from e1_trl.atomic import write_atomically
from e1_trl.checkpoints.budget_file import find_file
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.errors import UserError

FILE = "e1/origin.json"
LICENSE = ("license", "license_name", "license_link")


@dataclass(frozen=True)
class BaseModel:
    """What a model was trained from, and on.

    Attributes:
        base: Hub id of the model it was trained from, or a folder, or what a model in memory calls itself.
        commit: of the base on the Hub; None of a folder.
        license: what the base's own card says of it, as the card's metadata have it; never guessed.
        datasets: those that are on the Hub.
        conversations: whether prompts were conversations, for the tokenizer's chat template, or texts.
        instruction: what followed every problem, after a space.
        chat_template_kwargs: arguments of the chat template.
    """

    base: str
    commit: str | None
    license: Mapping[str, Any] = field(default_factory=dict)
    datasets: tuple[str, ...] = ()
    conversations: bool = True
    instruction: str = ""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, base: str, revision: str | None) -> Self:
        """The origin of what is trained from the base in a folder, on the Hub, or neither, as one made in memory."""
        try:
            commit = None if Path(base).is_dir() else Checkpoint(base, revision).fingerprint()
            return cls(base, commit, license_of(base, revision))
        except UserError:  # a model made in memory has any name
            return cls(base, None)

    @property
    def hub_base(self) -> str | None:
        return self.base if self.commit is not None else None

    def write(self, folder: Path) -> None:
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        write_atomically(folder / FILE, lambda path: path.write_text(text))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What `write` left in the folder of a model; a ValueError where it left nothing."""
        if not (folder / FILE).exists():
            raise UserError(f"there is no {folder / FILE}, which a training with e1_trl writes")
        content = json.loads((folder / FILE).read_text())
        return cls(**{**content, "datasets": tuple(content["datasets"])})


def license_of(model: str, revision: str | None) -> dict[str, str]:
    """What the card of a model says of its license: nothing if there is none, or its metadata cannot be read."""
    if (file := find_file(model, "README.md", revision)) is None:
        return {}
    try:
        data = ModelCard.load(file).data
    except (ValueError, yaml.YAMLError):
        return {}
    return {key: str(value) for key in LICENSE if (value := data.get(key))}
