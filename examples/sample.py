"""Sample from any model under a thinking and a solution budget, and print the three parts of the answer.

    python examples/sample.py                                        the miniature, half a minute on two CPU cores
    python examples/sample.py ORG/MODEL "What is 17 * 23?" 256+512   your own model and question

Where the thinking budget runs out, the close is forced: the engine never sampled it. Otherwise the model closed its
thinking within the budget, and the forced close is empty.
"""

import sys

from transformers import AutoConfig, AutoTokenizer

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.engines.engine import SamplingSettings, run
from e1_trl.engines.local import LocalEngine
from e1_trl.marker import Marker
from e1_trl.rollout import Rollout

model, question, tokens = sys.argv[1:] or ["experiments/nano/base", "a=7;b=a-2;c=b+2;d=c+6;d?", "32+32"]
budget = Budget.parse(tokens)
tokenizer = AutoTokenizer.from_pretrained(model)
marker = Marker.from_tokenizer(tokenizer)  # </think>
chat = [{"role": "user", "content": question}]
prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
longest = budget.completion_tokens(forced=ThinkingClose(marker, context=0).forced_after(budget.thinking))
if longest is None:  # the context is the only bound
    context = AutoConfig.from_pretrained(model).get_text_config().max_position_embeddings
else:
    context = len(prompt) + longest
close = ThinkingClose(marker, context)
engine = LocalEngine.start(model, marker, SamplingSettings(), options={"max_model_len": close.context})

rollouts = [Rollout(prompt, budget, close)]  # any number of them, each with a budget of its own
run(engine, rollouts)
for part, ids in zip(("thinking", "forced close", "answer"), rollouts[0].completion.parts, strict=True):
    print(f"{part}: {tokenizer.decode(ids)}")
