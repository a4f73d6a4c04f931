"""What a model card says about serving: commands and a program that run, at the budget that a model was trained at."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from e1_trl.checkpoints.budget_file import Trained
from e1_trl.checkpoints.checkpoint import served_rank
from e1_trl.checkpoints.origin import Origin

SERVER = (
    "python -m vllm.entrypoints.openai.api_server --model"  # `vllm serve` does not start where vLLM is built for CPUs
)
LONGEST = 16_384  # tokens that the program in the card asks for where there is no budget

SERVING = """\
## Serve it with a budget

It was trained at {budget} ([budget.json](budget.json)): up to {thinking} tokens of thinking; if they are used up,
`{forced}` is appended; then up to {solution} tokens of solution.

```bash
{serve}
```

Two requests give each part its budget:

```python
from openai import OpenAI
{imports}
client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
{prompt}


def sample(text, **options):
    extra = {{"add_special_tokens": False, "skip_special_tokens": False}}
    options = {{"temperature": 0.6, "extra_body": extra, **options}}
    return client.completions.create(model="{name}", prompt=text, **options).choices[0]


{think}
print(sample(prompt + thinking + close, max_tokens={solution_limit}).text)
```
"""
THINK = """\
thought = sample(prompt, max_tokens={limit}, stop={marker})
thinking, close = thought.text, {close}"""
CONVERSATION = """\
tokenizer = AutoTokenizer.from_pretrained("{name}"{revision})
messages = [{{"role": "user", "content": question}}]
prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False{template})"""
NATIVE = """\

vLLM also holds a budget of the thinking within one request, if it is served with

```bash
{serve} --reasoning-config {config}
```

and asked with `"thinking_token_budget": {thinking}, "max_tokens": {most}`. What the thinking leaves of these is then
the solution's, too.
"""


def serving(
    name: str, trained: Trained, origin: Origin, adapter: Mapping[str, Any] | None, revision: str | None = None
) -> str:
    """How to have the model answer with a budget, in commands that run."""
    budget, forced = trained.budget, trained.forced_text
    quoted = shlex.quote(name)
    serve = f"{SERVER} {quoted}" + (f" --revision {shlex.quote(revision)}" if revision and adapter is None else "")
    if adapter is not None:
        base, rank = shlex.quote(adapter["base_model_name_or_path"]), served_rank(adapter["r"])
        serve = f"{SERVER} {base} --enable-lora --max-lora-rank {rank} --lora-modules {quoted}={quoted}"
    marker, close = json.dumps(trained.marker), json.dumps(forced)
    if forced != trained.marker:
        close += f' if thought.finish_reason == "length" else {marker}'
    think = f'thinking, close = "", {json.dumps(forced)}'
    if budget.thinking != 0:
        think = THINK.format(limit=budget.thinking or LONGEST, marker=marker, close=close)
    question = "What is 17 * 23?" + (f" {origin.instruction}" if origin.instruction else "")
    arguments = "".join(f", {key}={value!r}" for key, value in origin.chat_template_kwargs.items())
    at = f", revision={revision!r}" if revision else ""
    asked = (
        CONVERSATION.format(name=name, revision=at, template=arguments) if origin.conversations else "prompt = question"
    )
    text = SERVING.format(
        name=name,
        budget=budget,
        thinking="any number of" if budget.thinking is None else f"{budget.thinking:,}",
        solution="any number of" if budget.solution is None else f"{budget.solution:,}",
        forced=forced if forced.isprintable() and "`" not in forced else json.dumps(forced),
        serve=serve,
        imports="from transformers import AutoTokenizer\n" if origin.conversations else "",
        prompt=f"question = {json.dumps(question, ensure_ascii=False)}\n{asked}",
        think=think,
        solution_limit=budget.solution or LONGEST,
    )
    most = budget.completion_tokens(trained.forced_tokens)
    if trained.marker != "</think>" or most is None:
        return text
    config = json.dumps({"reasoning_start_str": "<think>", "reasoning_end_str": forced})
    return text + NATIVE.format(serve=serve, config=shlex.quote(config), thinking=budget.thinking, most=most)
