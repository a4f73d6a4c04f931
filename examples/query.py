"""Query a model with both budgets through the OpenAI client: whole, streamed, and with the budget in the model's name.

Start vLLM and the proxy in two other terminals first; they take half a minute on two CPU cores, the queries a second:

    VLLM_ENABLE_V1_MULTIPROCESSING=1 python -m vllm.entrypoints.openai.api_server --model experiments/nano/base \
        --dtype float32 --max-model-len 256 --enforce-eager --no-enable-chunked-prefill --port 8000 \
        --reasoning-config '{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}'
    e1 serve --upstream http://localhost:8000/v1 --model experiments/nano/base --budget 64+32
    python examples/query.py [http://localhost:8100/v1]
"""

import sys

from openai import OpenAI

client = OpenAI(base_url=sys.argv[1] if sys.argv[1:] else "http://localhost:8100/v1", api_key="none")
name = client.models.list().data[0].id
messages = [{"role": "user", "content": "a=7;b=a-2;c=b+2;d=c+6;d?"}]

for thinking in (0, 20, 150):  # fields that OpenAI's API has not go into extra_body
    budget = {"thinking_budget": thinking, "solution_budget": 32}
    answer = client.chat.completions.create(model=name, messages=messages, temperature=0, extra_body=budget)
    choice = answer.choices[0]
    print(f"{thinking}+32: thinking {choice.thinking_end}, answer {choice.message.content}")
    print(f"    {getattr(choice.message, 'reasoning_content', None)}")  # which OpenAI's API has not
    print(f"    {answer.usage.completion_tokens_details.reasoning_tokens} tokens of thinking")

# A client that can send no fields of its own names the budget with the model.
for chunk in client.chat.completions.create(model=f"{name}@64+32", messages=messages, stream=True):
    delta = chunk.choices[0].delta
    print(getattr(delta, "reasoning_content", None) or delta.content or "", end="", flush=True)
print()
