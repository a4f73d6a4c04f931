"""Hooks of mkdocs: the reference pages, written from the code at build time, and links to files outside docs/.

Imports only modules that are light, so that a build takes seconds. Nothing that is written here is committed.
"""

import argparse
import re
import sys
from contextlib import suppress
from dataclasses import MISSING, Field, fields
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from e1_trl.cli import COMMANDS  # noqa: E402
from e1_trl.training.arguments import BudgetedTraining  # noqa: E402
from e1_trl.training.recipe_arguments import RecipeArguments  # noqa: E402

EXAMPLES = [str(each.relative_to(ROOT)) for each in sorted((ROOT / "examples").rglob("*.py"))]
OUTSIDE = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)([^)#\s]+)(#[^)\s]*)?\)")
# Headings of the page of the Python API, and what stands under each.
API = {
    "Training": [
        "e1_trl.training.config.E1Config",
        "e1_trl.training.trainer.E1Trainer",
        "e1_trl.training.rewards.Accuracy",
        "e1_trl.training.groups.Group",
        "e1_trl.training.groups.GroupReward",
        "e1_trl.training.budgets.RolloutKey",
        "e1_trl.training.cards.write_cards",
    ],
    "Budgets and rollouts": [
        "e1_trl.budget.Budget",
        "e1_trl.budget.Marker",
        "e1_trl.budget.ThinkingClose",
        "e1_trl.rollout.Rollout",
        "e1_trl.rollout.Segment",
        "e1_trl.rollout.Stop",
        "e1_trl.rollout.Completion",
        "e1_trl.rollout.ThinkingEnd",
    ],
    "Answers": [
        "e1_trl.answers.kinds.AnswerType",
        "e1_trl.answers.grade.Grader",
        "e1_trl.answers.grade.Grade",
        "e1_trl.answers.grade.Outcome",
        "e1_trl.answers.mathematics.grader.MathematicsGrader",
    ],
    "Methods of evaluation": [
        "e1_trl.evaluation.methods.Method",
        "e1_trl.evaluation.methods.Question",
        "e1_trl.evaluation.methods.Setting",
        "e1_trl.tree.Tree",
        "e1_trl.tree.Phase",
    ],
    "Benchmarks": ["e1_trl.problems.benchmarks.Benchmark"],
    "Engines": [
        "e1_trl.engines.engine.Engine",
        "e1_trl.engines.engine.SamplingSettings",
        "e1_trl.engines.engine.run",
    ],
    "Files": ["e1_trl.checkpoints.budget_file.BudgetInfo"],
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {"cli": command_line(), "configuration": configuration(), "api": python_api(), "examples": examples()}
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links out of docs/ lead to the page of examples, or the repository, if its address is known."""
    depth = page.file.src_uri.count("/") + 1

    def outside(link: re.Match[str]) -> str:
        text, up, path, anchor = link.groups(default="")
        if up.count("../") < depth:
            return link[0]
        if path in EXAMPLES:
            return f"[{text}]({'../' * (depth - 1)}reference/examples.md#{path.replace('/', '').replace('.', '')})"
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"[{text}]({config.repo_url}/{kind}/main/{path}{anchor})" if config.repo_url else text

    return OUTSIDE.sub(outside, markdown)


def command_line() -> str:
    """The page of all commands: each one's usage, description and options, in their groups."""
    parts = [
        "# Command line\n\nWritten from `e1 COMMAND --help`. `--two-words` and `--two_words` are the same option.\n"
    ]
    for name, command in COMMANDS.items():
        parser = parser_of(command.module)
        parts.append(f"## e1 {name}\n\n```text\n{parser.format_usage()}```\n")
        parts.append(f"```text\n{parser.description.strip()}\n```\n")
        for group in parser._action_groups:
            rows = [option_row(action) for action in group._group_actions if action.help != argparse.SUPPRESS]
            if rows:
                parts.append(
                    f"**{group.title}**\n\n| option | what it does |\n| --- | --- |\n" + "\n".join(rows) + "\n"
                )
    return "\n".join(parts)


def parser_of(module: str) -> argparse.ArgumentParser:
    """The parser that prints a command's help."""
    found = []

    class HelpReached(Exception):  # noqa: N818
        """Ends the command in place of its help."""

    def keep(parser: argparse.ArgumentParser, *_: Any) -> None:
        found.append(parser)
        raise HelpReached

    with patch.object(argparse.ArgumentParser, "print_help", keep), suppress(HelpReached):
        import_module(module).main(["--help"])
    return found[0]


def option_row(action: argparse.Action) -> str:
    """A row of the table of options."""
    names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    value = f" {action.metavar}" if action.option_strings and isinstance(action.metavar, str) else ""
    return f"| {code(names + value)} | {cell(str(action.help).replace('%%', '%'))} |"


def configuration() -> str:
    """The page of a recipe's fields that TRL does not have, with types and defaults."""
    head = (
        "# Configuration fields\n\nFields of a recipe, and options of `e1 train`, that TRL does not have. All "
        "fields of TRL's [`GRPOConfig`](https://huggingface.co/docs/trl/grpo_trainer#trl.GRPOConfig) work as well, "
        "unless they contradict budgeted rollouts; `e1 train --help_all` lists them.\n"
    )
    return "\n".join([head, *section(BudgetedTraining, "E1Config"), *section(RecipeArguments, "The recipe")])


def section(record: type, title: str) -> list[str]:
    """The tables of a dataclass and of each class that it inherits from."""
    own = {each.name: each for each in fields(record)}
    parts = [f"## {title}\n"]
    for owner in record.__mro__:
        names = [name for name in vars(owner).get("__annotations__", ()) if name in own]
        if names:
            rows = (field_row(own.pop(name)) for name in names)
            heading = f"### {vars(owner).get('GROUP', owner.__name__)}\n"
            parts += [heading, "| field | default | what it does |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"]
    return parts


def field_row(each: "Field[Any]") -> str:
    """A row of the table of fields."""
    default = each.default
    if default is MISSING:
        default = None if each.default_factory is MISSING else each.default_factory()
    shown = (
        "" if default in (None, "", []) else code(str(default).lower() if isinstance(default, bool) else str(default))
    )
    return f"| {code(each.name)} | {shown} | {cell(each.metadata.get('help', ''))} |"


def python_api() -> str:
    """The page of the Python API, which mkdocstrings fills."""
    head = (
        "# Python API\n\n`from e1_trl import E1Config, E1Trainer` imports TRL; everything else stands in its module.\n"
    )
    parts = [f"## {title}\n\n" + "\n\n".join(f"::: {name}" for name in names) + "\n" for title, names in API.items()]
    return "\n".join([head, *parts])


def examples() -> str:
    """Write the page of all examples."""
    parts = ["# Examples\n\nPrograms in the repository's folder `examples`, which its tests run.\n"]
    return "\n".join([*parts, *(f"## {each}\n\n```python\n{(ROOT / each).read_text()}```\n" for each in EXAMPLES)])


def code(text: str) -> str:
    """Text as code inside a cell."""
    text = cell(text)
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def cell(text: str) -> str:
    """Text that cannot end a cell."""
    return " ".join(text.split()).replace("|", "\\|")
