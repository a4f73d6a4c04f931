"""Clients as their users run them, unmodified, each a short program that is given the address of a proxy.

    python -m tests.serving.clients http://localhost:8100/v1 [FOLDER]

FOLDER is where clients are installed that are no part of the development environment: bin/python with LangChain,
LiteLLM, openai-agents, lm-eval and guidellm, and node_modules with `ai`; the variable E1_CLIENTS names it to the tests:

    python -m venv FOLDER && FOLDER/bin/pip install langchain-openai litellm openai-agents 'lm_eval[api]' guidellm
    npm install --prefix FOLDER ai @ai-sdk/openai @ai-sdk/openai-compatible zod
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

QUESTION = "a=7;b=a-2;c=b+2;d=c+6;d?"
SECONDS = 240

OPENAI = """
import sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1], api_key="none")
asked = {"model": "nano", "messages": [{"role": "user", "content": sys.argv[2]}]}
whole = client.chat.completions.create(**asked, reasoning_effort="minimal", max_completion_tokens=60, store=False)
assert whole.choices[0].thinking_end and whole.usage.completion_tokens <= 60, whole
parts = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
assert parts[-1].usage.completion_tokens_details.reasoning_tokens, parts[-1]
assert client.models.retrieve("nano@8+8").id == "nano@8+8"
assert client.completions.create(model="nano", prompt=["a=1;a?", "a=2;a?"], max_tokens=20).choices[1].text
"""

LANGCHAIN = """
import sys
from langchain_openai import ChatOpenAI, OpenAI
chat = ChatOpenAI(base_url=sys.argv[1], api_key="none", model="nano@20+16", reasoning_effort="high")
assert chat.invoke(sys.argv[2]).usage_metadata["output_token_details"]["reasoning"] == 20
assert list(chat.stream(sys.argv[2]))
assert len(OpenAI(base_url=sys.argv[1], api_key="none", model="nano").batch(["a=1;a?", "a=2;a?"])) == 2
"""

LITELLM = """
import sys
import litellm
asked = {"api_base": sys.argv[1], "api_key": "none", "messages": [{"role": "user", "content": sys.argv[2]}]}
whole = litellm.completion("hosted_vllm/nano", **asked, reasoning_effort="low", max_tokens=50)
assert whole.choices[0].message.reasoning_content and whole.usage.completion_tokens <= 50, whole
litellm.completion("hosted_vllm/nano", **asked, thinking={"type": "enabled", "budget_tokens": 1024})
assert list(litellm.completion("openai/nano@8+8", **asked, stream=True))
"""

AGENTS = """
import sys
from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI
set_tracing_disabled(True)
client = AsyncOpenAI(base_url=sys.argv[1], api_key="none")
agent = Agent(name="a", model=OpenAIChatCompletionsModel(model="nano", openai_client=client))
Runner.run_sync(agent, sys.argv[2])
"""

LM_EVAL = """
task: nano
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{problem}}"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, until: [";"]}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""

AI_SDK = """
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";
const [baseURL, prompt] = process.argv.slice(2);
const compatible = createOpenAICompatible({ name: "e1", baseURL });
const whole = await generateText({ model: compatible("nano@20+16"), prompt });
if (!whole.reasoningText) throw new Error(JSON.stringify(whole));
const content = [{ type: "text", text: prompt }];
const parts = streamText({ model: compatible("nano"), messages: [{ role: "user", content }] });
let thought = "";
for await (const part of parts.fullStream) if (part.type === "reasoning-delta") thought += part.text;
if (!thought) throw new Error("no reasoning in the stream");
const openai = createOpenAI({ baseURL, apiKey: "none" });
await generateText({ model: openai.chat("nano"), prompt, maxOutputTokens: 60 });
"""

# Bodies as these send them, read in their sources.
BODIES = {
    "Open WebUI 0.12": {
        "stream": True,
        "stream_options": {"include_usage": True},
        "metadata": {"chat_id": "c"},
        "tools": [
            {"type": "function", "function": {"name": "get_current_timestamp", "parameters": {"type": "object"}}}
        ],
    },
    "guidellm's and vLLM's load": {
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "ignore_eos": True,
        "max_completion_tokens": 64,
    },
    "aider --thinking-tokens": {"thinking": {"type": "enabled", "budget_tokens": 20}, "temperature": 0, "stream": True},
    "defaults spelled out": {
        "n": 1,
        "skip_special_tokens": True,
        "add_generation_prompt": True,
        "continue_final_message": False,
        "min_tokens": 0,
        "stop_token_ids": [],
        "bad_words": [],
        "functions": [],
        "function_call": "none",
        "length_penalty": 1,
        "vllm_xargs": {},
        "max_tokens": -1,
        "prompt_cache_key": "k",
        "verbosity": "low",
        "session_id": "s",
    },
}


@dataclass(frozen=True)
class Client:
    """A client: the module or package that must be installed, and its program."""

    name: str
    needs: str
    program: str
    node: bool = False


CLIENTS = (
    Client("openai-python", "openai", OPENAI),
    Client("LangChain", "langchain_openai", LANGCHAIN),
    Client("LiteLLM", "litellm", LITELLM),
    Client("openai-agents", "agents", AGENTS),
    Client("AI SDK", "ai", AI_SDK, node=True),
)


class MissingError(Exception):
    """A client is not installed."""


def run(line: Sequence[object], folder: Path) -> str:
    """Run a program, and return its output.

    Raises:
        RuntimeError: it failed; with the end of its output.
    """
    environment = {**os.environ, "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [str(word) for word in line], cwd=folder, capture_output=True, text=True, env=environment, timeout=SECONDS
    )
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-3000:])
    return done.stdout + done.stderr


def find_python(folder: Path | None, module: str) -> str:
    """Find a Python that has a module."""
    for python in (sys.executable, *([str(folder / "bin" / "python")] if folder else [])):
        if (
            Path(python).exists()
            and subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0
        ):
            return python
    raise MissingError(f"{module} is not installed")


def try_client(client: Client, url: str, folder: Path | None) -> None:
    """Run a client's program.

    Raises:
        MissingError: it is not installed.
        RuntimeError: it failed.
    """
    if not client.node:
        python = find_python(folder, client.needs)
        with TemporaryDirectory() as name:
            run([python, "-c", client.program, url, QUESTION], Path(name))
        return
    if folder is None or shutil.which("node") is None or not (folder / "node_modules" / client.needs).exists():
        raise MissingError(f"{client.needs} is not installed")
    program = folder / "program.mjs"
    program.write_text(client.program)
    run(["node", program, url, QUESTION], folder)


def try_lm_eval(url: str, folder: Path | None) -> None:
    """Run lm-eval on two problems; raise as `try_client` does."""
    python = find_python(folder, "lm_eval")
    with TemporaryDirectory() as name:
        place = Path(name)
        (place / "nano.yaml").write_text(LM_EVAL)
        rows = [{"problem": QUESTION, "answer": "x"}, {"problem": "a=1;a?", "answer": "x"}]
        (place / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        model = f"model=nano,base_url={url}/chat/completions,num_concurrent=2,tokenizer_backend=none"
        words = ["--model", "local-chat-completions", "--include_path", ".", "--tasks", "nano", "--apply_chat_template"]
        run([python, "-m", "lm_eval", "run", *words, "--model_args", model], place)


def try_guidellm(url: str, folder: Path | None) -> None:
    """Run guidellm for four requests; raise as `try_client` does."""
    find_python(folder, "guidellm")
    assert folder is not None
    with TemporaryDirectory() as name:
        place = Path(name)
        (place / "data.jsonl").write_text(f"{json.dumps({'prompt': QUESTION})}\n" * 4)
        words = ["--backend", f"kind=openai_http,target={url.removesuffix('/v1')},model=nano"]
        words += ["--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=4", "--disable-console"]
        words += ["--data", "kind=json_file,path=data.jsonl", "--output", "kind=json,path=report.json"]
        run([folder / "bin" / "guidellm", "run", *words], place)
        report = json.loads((place / "report.json").read_text())
    totals = report["benchmarks"][0]["metrics"]["request_totals"]
    if totals["successful"] != 4:
        raise RuntimeError(str(totals))


def try_body(name: str, url: str) -> None:
    """Send the body of a client; raise `RuntimeError` if it fails."""
    body = {"model": "nano", "messages": [{"role": "user", "content": QUESTION}], **BODIES[name]}
    answer = httpx.post(f"{url}/chat/completions", json=body, timeout=SECONDS)
    if answer.status_code != 200 or '"thinking_end"' not in answer.text or '"error"' in answer.text:
        raise RuntimeError(f"{name}: {answer.status_code} {answer.text[-500:]}")


def main(url: str, folder: Path | None) -> None:
    """Try all clients, and print a line for each."""
    tries = {client.name: lambda client=client: try_client(client, url, folder) for client in CLIENTS}
    tries |= {"lm-eval": lambda: try_lm_eval(url, folder), "guidellm": lambda: try_guidellm(url, folder)}
    tries |= {f"body of {name}": lambda name=name: try_body(name, url) for name in BODIES}
    for name, attempt in tries.items():
        try:
            attempt()
            print(f"{name}: ran", flush=True)
        except MissingError as error:
            print(f"{name}: skipped, {error}", flush=True)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{name}: FAILED\n{error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if sys.argv[2:] else None)
