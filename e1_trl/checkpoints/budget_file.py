"""The file `budget.json` beside a trained model's weights: budgets and texts to sample the model with."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

from e1_trl.atomic import write_atomically
from e1_trl.budget import Budget
from e1_trl.errors import UserError, user_errors
from e1_trl.marker import Marker

FILE = "budget.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Point:
    """Measured accuracy of one method at one budget on one benchmark, with its 95% interval.

    Budgets (`None`: unlimited) and `mean_tokens` are in tokens.
    """

    benchmark: str
    method: str
    thinking_budget: int | None
    solution_budget: int | None
    problems: int
    samples: int
    accuracy: float
    ci_low: float
    ci_high: float
    mean_tokens: float
    forced_ratio: float
    eos_ratio: float

    @property
    def budget(self) -> Budget:
        return Budget(self.thinking_budget, self.solution_budget)


@dataclass(frozen=True)
class Effort:
    """Meaning of a value of `reasoning_effort`, such as `low`: a budget, and arguments of the chat template, if any."""

    budget: Budget
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, content: str | Mapping[str, Any]) -> "Effort":
        """Read "256+1024", or {"budget": "256+1024", "chat_template_kwargs": {...}}."""
        if isinstance(content, str):
            return cls(Budget.parse(content))
        told = content.get("chat_template_kwargs", {})
        if not isinstance(told, dict) or content.keys() - {"budget", "chat_template_kwargs"}:
            raise UserError(f"effort {content!r} may hold only budget, and chat_template_kwargs as a JSON object")
        return cls(Budget.parse(content["budget"]), told)

    def as_json(self) -> str | dict[str, Any]:
        """Return the budget as text if there are no template arguments, else the form with both."""
        told = {"chat_template_kwargs": dict(self.chat_template_kwargs)}
        return {"budget": str(self.budget), **told} if self.chat_template_kwargs else str(self.budget)


@dataclass(frozen=True)
class BudgetInfo:
    """Trained budget of a model, and its accuracy at every budget that it was evaluated at.

    Attributes:
        marker: text that ends the thinking.
        forced_text: text that is appended when the thinking budget runs out.
        forced_tokens: length of the forced text in tokens.
        budget: of the training.
        curve: measurements; empty before the first evaluation.
        efforts: meanings of the values of `reasoning_effort` in serving, which may be added by hand.
    """

    marker: str
    forced_text: str
    forced_tokens: int
    budget: Budget
    curve: tuple[Point, ...] = ()
    efforts: Mapping[str, Effort] = field(default_factory=dict)

    @classmethod
    def of(cls, marker: Marker, forced_text: str | None, budget: Budget) -> "BudgetInfo":
        """Describe a model trained at `budget` and not evaluated yet; the marker is the default forced text."""
        return cls(marker.text, marker.text if forced_text is None else forced_text, len(marker.forced_ids), budget)

    @property
    def budgets(self) -> list[Budget]:
        """Default budgets of an evaluation: those of the curve or, if empty, the trained one without its total."""
        return list(dict.fromkeys(point.budget for point in self.curve)) or [replace(self.budget, total=None)]

    def write(self, folder: Path) -> None:
        content = {**asdict(self), "efforts": {name: effort.as_json() for name, effort in self.efforts.items()}}
        write_atomically(folder / FILE, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")

    @classmethod
    def read(cls, file: Path) -> "BudgetInfo":
        """Read a file that `write` made; its efforts may have been added by hand.

        Raises:
            UserError: the file is missing, or its content is not valid.
        """
        if not file.exists():
            raise UserError(f"there is no {file}, which a training with e1_trl writes")
        try:
            content = json.loads(file.read_text())
            texts = (content["marker"], content["forced_text"], content["forced_tokens"])
            curve = tuple(Point(**point) for point in content["curve"])
            efforts = {name: Effort.read(each) for name, each in content.get("efforts", {}).items()}
            return cls(*texts, Budget(**content["budget"]), curve, efforts)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{file} cannot be read as the budgets of a trained model: {error!r}") from error

    @classmethod
    def find(cls, model: str, revision: str | None = None) -> "BudgetInfo | None":
        """Read the file of a model in a folder or on the Hub, if it has one; raise as `read` and `find_file` do."""
        file = find_file(model, FILE, revision)
        return None if file is None else cls.read(file)


def find_file(model: str, name: str, revision: str | None) -> Path | None:
    """Return the path of a file of a model in a folder or on the Hub; None if it has no such file.

    A checkpoint of a training also has the files of its run. Offline, a file that is not in the cache counts as
    missing, with a warning.
    """
    if (folder := Path(model)).is_dir():
        is_checkpoint = folder.name.startswith("checkpoint-") and (folder.parent / FILE).is_file()
        places = (folder, folder.parent) if is_checkpoint else (folder,)
        return next((place / name for place in places if (place / name).is_file()), None)
    with user_errors(f"{model} is not a folder; its {name} cannot be read from the Hub", OSError, HFValidationError):
        try:
            return Path(hf_hub_download(model, name, revision=revision))
        except LocalEntryNotFoundError:
            logger.warning("%s of %s is not in the cache, and the Hub cannot be asked; counted as missing", name, model)
        except EntryNotFoundError:
            pass
    return None
