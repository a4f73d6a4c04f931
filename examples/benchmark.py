"""Evaluate on a benchmark of your own: where its problems lie, how they are read, and how they are sampled.

    python examples/benchmark.py        the miniature on 64 problems, half a minute on two CPU cores

`e1 eval --benchmark` takes the dotted path of a `Benchmark`. Unlike the options of `--dataset_name`, it can be shared
and gives every evaluation the same columns, number of samples and temperature.
"""

import subprocess

from e1_trl.problems.benchmarks import Benchmark

sums = Benchmark("examples/problems.jsonl", problem_column="problem", answer_column="answer", samples=2)

if __name__ == "__main__":  # the evaluation imports this file, too
    command = "e1 eval --model experiments/nano/base --benchmark examples.benchmark.sums --enforce_eager true"
    command += " --budgets 32+32 128+32 --methods separate"
    subprocess.run([*command.split(), "--instruction", "", "--output", "runs/examples/benchmark"], check=True)
