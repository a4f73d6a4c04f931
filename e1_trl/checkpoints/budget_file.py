"""The file `budget.json` beside a trained model's weights, from which whoever samples takes budgets and texts."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HFValidationError

from e1_trl.atomic import write_atomically
from e1_trl.budget import Budget, Marker
from e1_trl.errors import UserError, user_errors

FILE = "budget.json"
FORMAT = 1


@dataclass(frozen=True)
class Point:
    """What was measured of one method at one budget on one benchmark. Budgets and `mean_tokens` in tokens.

    `thinking_budget` and `solution_budget` are `None` where they are unlimited, and `ci_low` and `ci_high` bound the
    95% interval of the accuracy.
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
    eos_ratio: float | None = None  # unknown of what earlier versions measured

    @property
    def budget(self) -> Budget:
        return Budget(self.thinking_budget, self.solution_budget)


@dataclass(frozen=True)
class BudgetInfo:
    """How a model was trained to be sampled from, and what it does then.

    Attributes:
        marker: the text that ends the thinking.
        forced_text: what is appended when the thinking budget runs out.
        forced_tokens: how many tokens that is.
        budget: of the training.
        curve: what was measured, if it was.
        efforts: the budgets that `reasoning_effort` names when it is served; in the file as "low": "256+1024".
    """

    marker: str
    forced_text: str
    forced_tokens: int
    budget: Budget
    curve: tuple[Point, ...] = ()
    efforts: Mapping[str, Budget] = field(default_factory=dict)

    @classmethod
    def of(cls, marker: Marker, forced_text: str | None, budget: Budget) -> "BudgetInfo":
        """A model that was trained at this budget and is not evaluated; without a forced text that is the marker."""
        return cls(marker.text, marker.text if forced_text is None else forced_text, len(marker.forced_ids), budget)

    @property
    def budgets(self) -> list[Budget]:
        """The budgets to evaluate at: those of the curve, or that of the training without its total."""
        return list(dict.fromkeys(point.budget for point in self.curve)) or [replace(self.budget, total=None)]

    def write(self, folder: Path) -> None:
        content = {"format": FORMAT, **asdict(self)}
        if self.budget.total is None:  # which earlier versions do not know
            del content["budget"]["total"]
        content["efforts"] = {name: str(budget) for name, budget in self.efforts.items()}
        if not self.efforts:
            del content["efforts"]
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(folder / FILE, lambda path: path.write_text(text))

    @classmethod
    def read(cls, file: Path) -> "BudgetInfo":
        """What `write` left; a ValueError where there is no such file."""
        try:
            content = json.loads(file.read_text())
            curve = tuple(Point(**point) for point in content["curve"])
            budget = Budget(**content["budget"])
            efforts = {name: Budget.parse(text) for name, text in content.get("efforts", {}).items()}
            found = cls(content["marker"], content["forced_text"], content["forced_tokens"], budget, curve, efforts)
            kinds = [type(value) for value in (found.marker, found.forced_text, found.forced_tokens)]
            if content["format"] != FORMAT or kinds != [str, str, int]:
                raise UserError(f"format {content['format']!r}, not {FORMAT}, or no texts and number of tokens")
            _ = found.budgets  # raises where one of them is none
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{file} does not say a model's budgets as e1_trl writes them: {error!r}") from error
        return found

    @classmethod
    def find(cls, model: str, revision: str | None = None) -> "BudgetInfo | None":
        """What the model of a folder or Hub id says of itself, if anything; raises what `read` and `find_file` do."""
        file = find_file(model, FILE, revision)
        return None if file is None else cls.read(file)


def find_file(model: str, name: str, revision: str | None) -> Path | None:
    """A file of a model in a folder or on the Hub, if it has one.

    Raises:
        UserError: the Hub has no such model or revision, or cannot be reached.
    """
    if Path(model).is_dir():
        return Path(model, name) if Path(model, name).is_file() else None
    with user_errors(f"{model} is no folder, and its {name} cannot be read from the Hub", OSError, HFValidationError):
        try:
            return Path(hf_hub_download(model, name, revision=revision))
        except EntryNotFoundError:  # also where there is no Hub, and it is not in the cache
            return None
