"""Evaluate with a method of your own: where the budget runs out, an unfinished step is dropped before the close.

    python examples/method.py        the miniature on 64 problems, half a minute on two CPU cores

`e1 eval` takes the dotted path of a `Method` among its methods. A method is a coroutine over the tree of one sample: it
asks the tree for segments after a prefix, and methods that ask for the same prefix share what was sampled. So this
method and `separate` share one thinking.
"""

import subprocess
from dataclasses import replace

from e1_trl.budget import Budget
from e1_trl.evaluation.methods import Method, Question, Setting, separate
from e1_trl.rollout import Completion, Stop
from e1_trl.tree import Coroutine, Phase, Tree


def answer(tree: Tree, question: Question, setting: Setting) -> Coroutine[Completion]:
    """Think up to the budget, drop what follows the last semicolon if the budget ended it, and answer."""
    limit = question.budget.thinking_limit(len(question.prompt_ids), setting.close)
    thinking = yield from tree.sample(question.prompt_ids, Phase.THINKING, limit)
    ids = list(thinking.token_ids)
    while thinking.stop is Stop.LENGTH and ids and ";" not in setting.decode(ids[-1:]):
        ids.pop()
    # With exactly this budget `separate` forces the close, or takes the model's own, and samples the solution.
    budget = Budget(len(ids), question.budget.solution)
    return (yield from separate(tree, replace(question, budget=budget), setting))


whole_steps = Method(answer)

if __name__ == "__main__":  # the evaluation imports this file, too
    command = "e1 eval --model experiments/nano/base --dataset_name examples/problems.jsonl --enforce_eager true"
    command += " --budgets 32+32 64+32 128+32 --methods separate examples.method.whole_steps --samples 2"
    subprocess.run([*command.split(), "--instruction", "", "--output", "runs/examples/method"], check=True)
