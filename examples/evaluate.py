"""Evaluate a model on your own file of problems, at several budgets, and look at single answers.

    python examples/evaluate.py        the miniature on 64 problems, half a minute on two CPU cores

`examples/problems.jsonl` has a line for each problem, with the columns `problem` and `answer`.
"""

import subprocess
from pathlib import Path

import pandas as pd

OUTPUT = Path("runs/examples/evaluate")

command = "e1 eval --model experiments/nano/base --dataset_name examples/problems.jsonl --enforce_eager true"
command += " --budgets 32+32 64+32 128+32 --methods separate truncation --samples 2"
# No instruction: the miniature knows no English. Without this option, problems of mathematics ask for a boxed answer.
subprocess.run([*command.split(), "--instruction", "", "--output", OUTPUT], check=True)

# Besides report.html, report.md and results.json, the folder has a table with a row for each answer.
answers = pd.read_parquet(OUTPUT / "samples.parquet")
right = answers.assign(right=answers["outcome"] == "correct")
print(right.pivot_table("right", index="thinking_budget", columns="method").round(2))
forced = answers[(answers["method"] == "separate") & (answers["thinking_end"] == "forced")].iloc[0]
print(f"question  {forced['prompt']}\nthinking  {forced['thinking']}\nforced    {forced['close']}")
print(f"solution  {forced['solution']}\noutcome   {forced['outcome']}; accepted: {', '.join(forced['answers'])}")
