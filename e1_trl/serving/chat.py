"""`e1 chat`: talk to a model in a terminal, with a budget that can be changed between two questions.

The thinking is dim, and a forced close is marked. `/budget 64+256` changes the budget, `/clear` clears the
conversation, Ctrl-C ends an answer, and Ctrl-D the chat.
"""

import asyncio
import os
import readline  # noqa: F401 (gives the input arrows and a history)
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from rich.console import Console

from e1_trl.budget import Budget
from e1_trl.command_line import CommandParser
from e1_trl.engines.engine import CPU_CACHE
from e1_trl.errors import UserError
from e1_trl.ports import free_port
from e1_trl.processes import handle_ends
from e1_trl.serving.model import Model, ModelArguments, read_model
from e1_trl.serving.response import ask

# Control characters, which a terminal would obey if a model wrote them.
CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
NOTE = "italic cyan"


@contextmanager
def start_server(arguments: ModelArguments, options: Sequence[str]) -> Iterator[str]:
    """Start a vLLM server of the model with further options, and yield its address; its errors go to the terminal."""
    from torch.cuda import is_available

    presets, _, config = read_model(arguments)  # raises in front of half a minute of starting
    Console().print("starting vLLM; half a minute for a small model, minutes for a large one", style="dim")
    port = free_port()
    line = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", arguments.model]
    line += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", presets.name, "--language-model-only"]
    line += ["--uvicorn-log-level", "error", "--reasoning-config", config]
    line += [] if is_available() else ["--enforce-eager"]  # starts faster
    line += ["--revision", arguments.revision] if arguments.revision else []
    line += [*(["--trust-remote-code"] if arguments.trust_remote_code else []), *options]
    # On a CPU vLLM would take nearly all memory for its cache, and refuse to start where that is not free.
    quiet = {"VLLM_CPU_KVCACHE_SPACE": str(CPU_CACHE // 2**30), "VLLM_LOGGING_LEVEL": "ERROR"}
    environment = {**quiet, **os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    handle_ends(lambda *_: sys.exit(1))  # which would end this process without the server
    # In a session of its own, since Ctrl-C ends an answer, and not the server.
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, env=environment, start_new_session=True)
    try:
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", port)):
                if process.poll() is not None:
                    raise UserError("the server did not start; its first error says why")
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


class Chat:
    """A conversation with a model, printed to a console."""

    def __init__(self, model: Model, console: Console):
        self._model = model
        self._console = console
        self._budget = model.presets.default
        self._messages: list[dict[str, str]] = []

    async def say(self, line: str) -> None:
        """Obey a command, or answer a question."""
        command, _, rest = line.strip().partition(" ")
        try:
            if command == "/clear":
                self._messages = []
            elif command == "/budget":
                self._budget = Budget.parse(rest.strip())
            elif command.startswith("/"):
                self._print(f"/budget 256+256 changes the budget {self._budget}, /clear; Ctrl-D ends\n", NOTE)
            elif command:
                await self._answer(line)
        except UserError as error:
            self._print(f"{error}\n", NOTE)

    async def _answer(self, question: str) -> None:
        messages = [*self._messages, {"role": "user", "content": question}]
        asked = {"model": f"{self._model.presets.name}@{self._budget}", "messages": messages, "stream": True}
        solution = ""
        end: str | None = None  # of the thinking
        async with ask(self._model, asked, "chat/completions") as answer:
            async for event in answer.read():
                (part,) = event["choices"]
                self._print(part["delta"].get("reasoning") or "", "dim")
                if end is None and (end := part.get("thinking_end")):
                    self._print(f" ‖{self._model.close.marker.text}‖\n" if end == "forced" else "\n", "bold yellow")
                solution += part["delta"].get("content") or ""
                self._print(part["delta"].get("content") or "")
        self._messages = [*messages, {"role": "assistant", "content": solution}]
        thinking, _, solved = answer.parts
        cut = ", truncated" if part["finish_reason"] == "length" else ""
        self._print(f"\n{end}, {thinking} + {solved} tokens{cut} of {self._budget}\n", NOTE)

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(text.translate(CONTROL), style=style, end="", markup=False, highlight=False, soft_wrap=True)


def make_parser() -> CommandParser:
    """Make the parser of `e1 chat`."""
    return CommandParser(
        "e1 chat",
        "--model MODEL [OPTIONS] [-- OPTIONS OF VLLM]",
        "Talk to a model in the terminal, with a budget that can be changed between questions. Without --upstream, a\n"
        "vLLM server of the model is started for as long as the chat lasts, with the options after --:\n\n"
        "  e1 chat --model runs/my-model --budget 256+256 -- --max-model-len 8192",
        ModelArguments,
    )


def main(argv: Sequence[str]) -> None:
    """Chat until the input ends."""
    console = Console(emoji=False)  # `:x:` is the model's
    words = list(argv)
    own = words.index("--") if "--" in words else len(words)
    arguments = make_parser().read(ModelArguments, words[:own])
    with ExitStack() as stack:
        if arguments.upstream is None:
            arguments.upstream = stack.enter_context(start_server(arguments, words[own + 1 :]))
        elif words[own:]:
            raise UserError(f"{words[own]} begins options of a vLLM that is started, and --upstream names one")
        runner = stack.enter_context(asyncio.Runner())
        model = runner.run(Model.connect(arguments))
        chat = Chat(model, console)
        while True:
            try:
                runner.run(chat.say(console.input("[bold]> [/bold]")))
            except KeyboardInterrupt:
                console.print()
            except EOFError:
                return runner.run(model.upstream.close())
