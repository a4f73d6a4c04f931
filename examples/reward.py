"""Train with a reward of your own: besides the right answer, a solution that is nothing but its box is rewarded.

    python examples/reward.py        two steps of the miniature, a minute on two CPU cores

A recipe names the function by its dotted path, from the folder in which you start the training:

    reward_funcs: [accuracy, examples.reward.box_alone]
    reward_weights: [1.0, 0.2]
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

OUTPUT = Path("runs/examples/reward")


def box_alone(solution_text: list[str], **others: Any) -> list[float]:
    """Return 1.0 for each solution without a word around its box, else 0.0.

    `others` holds the columns of the dataset, and per completion `thinking_end`, `thinking_tokens`, `solution_tokens`
    and `solution_truncated`. A reward of `None` adds nothing; if all are `None`, the completion has no advantage.
    """
    return [float(re.fullmatch(r"\\boxed\{[^{}]*\}", text.strip()) is not None) for text in solution_text]


if __name__ == "__main__":  # the training imports this file, too
    shutil.rmtree(OUTPUT, ignore_errors=True)  # a folder that holds an earlier run is refused
    command = "e1 train --config nano --dataset_name examples/problems.jsonl --reward_funcs accuracy"
    command += " examples.reward.box_alone --reward_weights 1.0 0.2 --max_steps 2 --per_device_train_batch_size 32"
    subprocess.run([*command.split(), "--output_dir", OUTPUT], check=True)
    for step in json.loads((OUTPUT / "trainer_state.json").read_text())["log_history"]:
        if "loss" in step:
            print(f"step {step['step']}: {step['rewards/box_alone/mean']:.0%} of the solutions are a box alone")
