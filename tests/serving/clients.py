"""Clients as their users run them, unmodified, each a short program that is given the address of a proxy.

Those that are no part of the development environment are looked for in the folder that E1_CLIENTS names:

    python -m venv FOLDER && FOLDER/bin/pip install langchain-openai litellm openai-agents 'lm_eval[api]' guidellm
    npm install --prefix FOLDER ai @ai-sdk/openai @ai-sdk/openai-compatible zod
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

FOLDER = Path(os.environ.get("E1_CLIENTS", "/nowhere"))
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


# Programs by the module that must be installed.
CLIENTS = {"openai": OPENAI, "langchain_openai": LANGCHAIN, "litellm": LITELLM, "agents": AGENTS}


def skip(name: str) -> NoReturn:
    pytest.skip(f"{name} is not installed: see tests/serving/clients.py")


def run(line: Sequence[object], folder: Path) -> None:
    """Run a program; fail with the end of its output."""
    environment = {**os.environ, "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [str(word) for word in line], cwd=folder, capture_output=True, text=True, env=environment, timeout=SECONDS
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def find_python(module: str) -> str:
    """Find a Python that has a module, or skip the test."""
    for python in (sys.executable, FOLDER / "bin" / "python"):
        finds = [str(python), "-c", f"import {module}"]
        if Path(python).exists() and subprocess.run(finds, capture_output=True).returncode == 0:
            return str(python)
    skip(module)


def try_ai_sdk(url: str, folder: Path) -> None:
    """Run the program of the AI SDK, beside its packages."""
    if shutil.which("node") is None or not (FOLDER / "node_modules" / "ai").exists():
        skip("ai")
    program = FOLDER / "program.mjs"
    program.write_text(AI_SDK)
    run(["node", program, url, QUESTION], FOLDER)


def try_lm_eval(url: str, folder: Path) -> None:
    """Run lm-eval on two problems."""
    python = find_python("lm_eval")
    (folder / "nano.yaml").write_text(LM_EVAL)
    rows = [{"problem": QUESTION, "answer": "x"}, {"problem": "a=1;a?", "answer": "x"}]
    (folder / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    model = f"model=nano,base_url={url}/chat/completions,num_concurrent=2,tokenizer_backend=none"
    words = ["--model", "local-chat-completions", "--include_path", ".", "--tasks", "nano", "--apply_chat_template"]
    run([python, "-m", "lm_eval", "run", *words, "--model_args", model], folder)


def try_guidellm(url: str, folder: Path) -> None:
    """Run guidellm for four requests."""
    find_python("guidellm")
    (folder / "data.jsonl").write_text(f"{json.dumps({'prompt': QUESTION})}\n" * 4)
    words = ["--backend", f"kind=openai_http,target={url.removesuffix('/v1')},model=nano"]
    words += ["--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=4", "--disable-console"]
    words += ["--data", "kind=json_file,path=data.jsonl", "--output", "kind=json,path=report.json"]
    run([FOLDER / "bin" / "guidellm", "run", *words], folder)
    report = json.loads((folder / "report.json").read_text())
    totals = report["benchmarks"][0]["metrics"]["request_totals"]
    assert totals["successful"] == 4, totals
