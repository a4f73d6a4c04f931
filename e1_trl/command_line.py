"""Command lines: options in groups, their help, the records that hold their values, and the end of a failed command.

The fields of a dataclass are options: annotations give their types (`e1_trl.arguments`), metadata their help, and each
class's `GROUP` their heading. Imports nothing heavy: help is quick.
"""

import argparse
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from e1_trl.arguments import read_value
from e1_trl.errors import UserError, is_debugging, one_line, user_errors
from e1_trl.recipes import read_mapping

Record = TypeVar("Record")
OTHERS_WAIT = 30  # seconds that processes of higher rank wait for the first one to report
PLACEHOLDERS = {int: "N", float: "X", bool: "true|false", Path: "PATH"}


def run_command(name: str, command: Callable[[], None]) -> None:
    """Run a command; a `UserError` ends the process with one line, which begins with `name`, such as "e1 eval"."""
    try:
        command()
        sys.stdout.flush()
    except BrokenPipeError:
        lost = select.poll()
        lost.register(sys.stdout, 0)
        if not lost.poll(0):
            raise  # another pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python flushes it once more
        sys.exit(141)  # a shell's status for SIGPIPE: the reader has left, such as `head`
    except UserError as error:
        if is_debugging():
            raise
        if os.environ.get("LOCAL_RANK", "0") != "0":
            # All processes of a machine usually find the same mistake, and the first one reports it. The others wait
            # until the launcher stops them.
            time.sleep(OTHERS_WAIT)
        sys.exit(f"{name}: {one_line(error)}")
    except KeyboardInterrupt:
        sys.exit(130)  # a shell's status for Ctrl-C


def json_object(name: str, text: str) -> dict[str, Any]:
    with user_errors(f"{name} is {text!r}, which is not JSON", ValueError):
        value = json.loads(text)
    if not isinstance(value, dict):
        raise UserError(f"{name} is {text!r}; it must be a JSON object, such as '{{\"key\": 1}}'")
    return value


def describe_unknown(name: str, known: Iterable[str]) -> str:
    nearest = get_close_matches(name, known, 1)
    return f"{name} is unknown" + "".join(f"; did you mean {each}?" for each in nearest)


class CommandParser(argparse.ArgumentParser):
    """Options of one command in groups, required ones first; errors are `UserError`s.

    `arguments` is the usage after the command's name; the fields of the `records` are options (see `add_record`).
    """

    help_option = "--help"  # lists all others

    def __init__(self, prog: str, arguments: str, description: str, *records: type):
        form = argparse.RawDescriptionHelpFormatter
        usage = f"{prog} {arguments}"
        super().__init__(prog, usage, description, formatter_class=form, add_help=False, allow_abbrev=False)
        self._titled = {"required": self.add_argument_group("required")}
        self._hints: dict[str, Any] = {}
        self.names = ["--help"]
        super().add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
        for record in records:
            self.add_record(record)

    def add_argument(  # type: ignore[override]
        self, *names: str, help: str, hint: Any = str, group: str = "options", shown: Any = None, **settings: Any
    ) -> argparse.Action:
        """Add an option or positional argument of the type `hint`; its help ends with its default, or `shown`."""
        group = "required" if names[0][0] != "-" or settings.get("required") else group
        if group not in self._titled:
            self._titled[group] = self.add_argument_group(group)
        if "action" in settings:
            hint = bool
        else:
            settings.setdefault("metavar", PLACEHOLDERS.get(_plain_type(hint), "TEXT"))
        help += _describe_default(help, settings.get("default") if shown is None else shown)
        action = self._titled[group].add_argument(*names, help=help.replace("%", "%%"), **settings)
        self._hints[action.dest] = hint
        self.names += names
        return action

    def add_record(self, record: type) -> None:
        """Add the fields of a dataclass: its own, then those of each class that it inherits from.

        A field's metadata may name the group that begins with this field; others stand under their class's `GROUP`.
        Names that were added earlier are left out.
        """
        hints = get_type_hints(record, include_extras=True)
        own = {each.name: each for each in fields(record) if each.init and f"--{each.name}" not in self.names}
        for name in (each for each in required_fields(record) if each in own):
            self._add_field(own.pop(name), hints[name], "required")
        for owner in record.__mro__:
            group = vars(owner).get("GROUP", owner.__name__)
            for name in (each for each in vars(owner).get("__annotations__", ()) if each in own):
                each = own.pop(name)
                group = each.metadata.get("group", group)
                self._add_field(each, hints[name], group)

    def _add_field(self, each: "Field[Any]", hint: Any, group: str) -> None:
        default = each.default if each.default_factory is MISSING else each.default_factory()
        settings: dict[str, Any] = {"default": argparse.SUPPRESS, "shown": default}
        if "metavar" in each.metadata:
            settings["metavar"] = each.metadata["metavar"]
        if _plain_type(hint) is bool:
            settings |= {"nargs": "?", "const": True}
        elif list in {get_origin(part) for part in (hint, *get_args(hint))}:
            settings["nargs"] = "+"
        help = each.metadata.get("help", "").replace("%%", "%")
        self.add_argument(f"--{each.name}", help=help, hint=hint, group=group, **settings)

    def error(self, message: str) -> Any:
        raise UserError(f"{message}; `{self.prog} {self.help_option}` lists the options")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse known options, with `--two-words` as `--two_words`; return them and the other words."""
        words = [self._normalize(word) for word in (sys.argv[1:] if args is None else args)]
        read, rest = super().parse_known_args(words, namespace)
        for name, value in vars(read).items():
            if value is not None:
                setattr(read, name, read_value(f"--{name}", value, self._hints[name]))
        return read, rest

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse a whole line; an unknown option is reported before a missing one."""
        words = list(sys.argv[1:] if args is None else args)
        for word in map(self._normalize, words):
            name = word.partition("=")[0]
            if name.startswith("--") and name != "--" and " " not in name and name not in self.names:
                self.error(describe_unknown(name, self.names))
        read, rest = self.parse_known_args(words, namespace)
        if rest:
            self.error(f"{rest[0]!r} belongs to no option")
        return read

    def _normalize(self, word: str) -> str:
        name, equals, value = word.partition("=")
        plain = name.replace("-", "_").replace("__", "--", 1)
        return f"{plain}{equals}{value}" if plain in self.names else word

    def read(self, record: type[Record], argv: Sequence[str] | None) -> Record:
        """Read a record from a command line, and from the YAML file that its option `--config` names, if any."""
        given = vars(self.parse_args(argv))
        if (file := given.pop("config", None)) is not None:
            hints = hints_of(record)
            # Null leaves a field at its default; an unknown field is an error even if it is null.
            entries = {
                name: value for name, value in read_mapping(file).items() if value is not None or name not in hints
            }
            given = {**read_entries(file, entries, hints), **given}
        if missing := [f"--{name}" for name in required_fields(record) if name not in given]:
            self.error(f"{' and '.join(missing)} must be given")
        return record(**given)


def names_in(words: Iterable[str]) -> list[str]:
    """Return the names of the options among the words of a command line, `--two-words` as `two_words`."""
    return [word.partition("=")[0][2:].replace("-", "_") for word in words if word.startswith("--")]


def required_fields(record: type) -> list[str]:
    return [each.name for each in fields(record) if each.default is MISSING and each.default_factory is MISSING]


def hints_of(*records: type) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for record in records:
        annotated = get_type_hints(record, include_extras=True)
        hints |= {each.name: annotated[each.name] for each in fields(record) if each.init}
    return hints


def read_entries(
    file: Path, entries: Mapping[str, Any], hints: Mapping[str, Any], whole: bool = True
) -> dict[str, Any]:
    """Read fields from a file's mapping; unknown ones are an error if it is read as a `whole`, else ignored."""
    if whole and (strange := entries.keys() - hints.keys()):
        raise UserError(f"{file}: {describe_unknown(min(map(str, strange)), hints)}")
    read = {}
    for name in (each for each in entries if each in hints):
        value = entries[name]
        text = json.dumps(value) if isinstance(value, dict) and hints[name] is str else value
        read[name] = read_value(f"{file}: {name}", text, hints[name])
    return read


def _plain_type(hint: Any) -> Any:
    """Return the innermost type of an annotation: that of a list's entries, without limits or null."""
    while parts := [part for part in get_args(hint) if part is not NoneType]:
        hint = parts[0]
    return hint


def _describe_default(help: str, default: Any) -> str:
    said = "default" in help.lower() or "unset" in help.lower()
    if said or default is False or default in (None, MISSING, argparse.SUPPRESS, "", [], "{}"):
        return ""
    if isinstance(default, list):
        return f" (default: {' '.join(map(str, default))})"
    return f" (default: {repr(default) if str(default).strip() != str(default) else default})"
