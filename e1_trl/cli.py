"""Console script `e1`: imports the module of a command and calls it with the rest of the line."""

import sys
from collections import namedtuple
from importlib import import_module
from typing import Any

import e1_trl
from e1_trl.command_line import run_command
from e1_trl.errors import INSTALL, UserError
from e1_trl.logs import route_logs

Command = namedtuple("Command", ["module", "help"])  # `main(argv)` of the module runs the command
COMMANDS = {
    "train": Command("e1_trl.training.launch", "train a recipe: e1 train --config E1-Math-1.5B"),
    "plan": Command("e1_trl.plan.command", "estimate the memory and time that a recipe takes on a node"),
    "fetch": Command("e1_trl.training.fetch", "download what a recipe loads, for nodes without internet"),
    "smoke": Command("e1_trl.plan.smoke.command", "try a recipe in short runs on a node, and report on one page"),
    "validate": Command("e1_trl.training.validate", "run a dataset's reference programs on its tests"),
    "eval": Command("e1_trl.evaluation.command", "evaluate models at several budgets, in this process or at a server"),
    "report": Command("e1_trl.report.command", "make a report with tables and pictures of finished evaluations"),
    "serve": Command("e1_trl.serving.app", "run an OpenAI-compatible proxy with budgets in front of vLLM"),
    "chat": Command("e1_trl.serving.chat", "chat with a model in a terminal, with a budget"),
    "card": Command("e1_trl.report.card", "add measured results to a model's card, and upload the card"),
}


def main(argv: list[str] | None = None) -> None:
    """Run the command that `argv` (default: the command line) names."""
    if argv is None:
        route_logs()
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        commands = "\n".join(f"  {name:8} {command.help}" for name, command in COMMANDS.items())
        further = "`e1 COMMAND --help` lists the options of a command, `e1 --version` prints the version."
        print(f"usage: e1 COMMAND [OPTIONS]\n\n{commands}\n\n{further}")
        return
    if name == "--version":
        print(f"e1_trl {e1_trl.__version__}")
        return
    if name not in COMMANDS:
        sys.exit(f"e1: there is no command {name!r}, only {', '.join(COMMANDS)}")
    run_command(f"e1 {name}", lambda: _load(name).main(rest))


def _load(name: str) -> Any:
    try:
        return import_module(COMMANDS[name].module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == __package__:
            raise
        raise UserError(f"{error.name} is not installed; {INSTALL} brings it") from error


if __name__ == "__main__":
    main()
