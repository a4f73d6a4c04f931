"""Train with a budget schedule of your own: the thinking budget shrinks, the faster the fewer steps are left.

    python examples/schedule.py        four steps of the miniature, a minute on two idle CPU cores

A recipe names the function by its dotted path, with the argument and options that it gets besides the rollout's key.
The largest number in the argument, a list or the values of a mapping, bounds what the function may return:

    thinking_budget: {examples.schedule.shrink: [96, 48], steps: 4}
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from e1_trl.training.budgets import RolloutKey

OUTPUT = Path("runs/examples/schedule")


def shrink(key: RolloutKey, values: Sequence[int], steps: int) -> int:
    """Return the thinking budget, in tokens: from the first value to the last on a quarter of an ellipse.

    `key` also has `problem` and `row`; `key.random()` is a generator, the same in every process and resumed run.
    """
    first, last = values
    done = min(key.step / steps, 1.0)
    return round(last + (first - last) * (1 - done**2) ** 0.5)


if __name__ == "__main__":  # the training imports this file, too
    shutil.rmtree(OUTPUT, ignore_errors=True)  # a folder that holds an earlier run is refused
    command = "e1 train --config nano --dataset_name examples/problems.jsonl --max_steps 4"
    command += f" --per_device_train_batch_size 32 --output_dir {OUTPUT} --thinking_budget"
    subprocess.run([*command.split(), "{examples.schedule.shrink: [96, 48], steps: 4}"], check=True)
    for step in json.loads((OUTPUT / "trainer_state.json").read_text())["log_history"]:
        if "loss" in step:
            print(f"step {step['step']}: {step['thinking/mean_tokens']:.0f} tokens of thinking on average")
