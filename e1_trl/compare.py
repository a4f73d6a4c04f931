"""`e1 compare`: several models, each evaluated by `e1 eval` into a folder of its own, then one report on all of them.

Knows nothing about evaluating or reporting. Each evaluation has a process of its own, for an engine does not give its
memory back. Stopped at any moment, the same command resumes.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from e1_trl.evaluation.arguments import slug


@dataclass(frozen=True)
class Model:
    """A checkpoint folder or Hub id, and the revision of the latter."""

    path: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Model":
        """From `MODEL` or `MODEL@REVISION`; a folder is taken as it is called."""
        if Path(text).exists():
            return cls(os.path.normpath(text))
        path, _, revision = text.partition("@")
        return cls(path, revision or None)

    def __str__(self) -> str:
        return self.path if self.revision is None else f"{self.path}@{self.revision}"

    @property
    def folder(self) -> str:
        """The name of its folder, the same for no two models that are compared."""
        return slug(self.path, self.revision)

    @property
    def arguments(self) -> list[str]:
        """What `e1 eval` is told of it."""
        revision = [] if self.revision is None else ["--revision", self.revision]
        return ["--model", self.path, "--name", str(self), *revision]


def parse(argv: list[str] | None = None) -> tuple[list[Model], Path, list[str]]:
    """The models, the folder for all, and the arguments that each `e1 eval` shares.

    Raises:
        SystemExit: two models have one name, or an argument is one model's own (argparse says so).
    """
    parser = argparse.ArgumentParser(
        prog="e1 compare",
        usage="e1 compare --models MODEL MODEL ... --output FOLDER [options of e1 eval]",
        description="Evaluate several models alike, and report them together. "
        "Every other option goes to `e1 eval`; see `e1 eval --help`.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--models",
        nargs="+",
        type=Model.parse,
        required=True,
        help="checkpoint folders or Hub ids, as MODEL[@REVISION]",
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the report, and for a folder per model")
    options, shared = parser.parse_known_args(argv)
    folders = [model.folder for model in options.models]
    if len(set(folders)) < len(folders):
        parser.error(f"two of the models have one name: {' '.join(map(str, options.models))}")
    for argument in shared:
        if argument.partition("=")[0] in ("--model", "--name", "--revision"):
            parser.error(f"{argument} is one model's own; name all of them as --models MODEL[@REVISION] ...")
    return options.models, options.output, shared


def main(argv: list[str] | None = None) -> None:
    models, output, shared = parse(argv)
    folders = [str(output / model.folder) for model in models]
    for model, folder in zip(models, folders, strict=True):
        print(f"==> evaluating {model}, {folder}", flush=True)
        line = [sys.executable, "-m", "e1_trl.cli", "eval", *model.arguments, "--output", folder, *shared]
        if subprocess.run(line, check=False).returncode:
            sys.exit(f"e1 compare: the evaluation of {model} failed; the same command resumes")
    import_module("e1_trl.report.__main__").main([*folders, "--output", str(output)])
