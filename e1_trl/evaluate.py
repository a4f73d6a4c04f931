"""Evaluates one model at a list of budgets on one dataset: accuracy with its interval, tokens, forced closes.

    python -m e1_trl.evaluate --model runs/nano/e1 --dataset_name runs/nano/data --budgets 32+32 64+32 unlimited \\
        --output runs/nano/e1.json

Every problem is answered once per budget, by the same two-phase rollout that training uses. The rows are written as
JSON; `e1_trl.report` draws them.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean

from datasets import Dataset
from rich.console import Console
from scipy.stats import binomtest
from tqdm import tqdm
from transformers import AutoConfig, AutoTokenizer
from trl import TrlParser

from e1_trl.budget import Budget, Marker
from e1_trl.data import load_problems, to_prompts
from e1_trl.grading import Grader
from e1_trl.report import Row, commit, table
from e1_trl.rollout import Completion, Rollout, ThinkingEnd


@dataclass
class EvaluationArguments:
    """What to evaluate, on what, and how."""

    model: str = field(metadata={"help": "Checkpoint folder or Hub id."})
    dataset_name: str = field(metadata={"help": "Hub id, JSONL or Parquet file, or folder of files named by split."})
    budgets: list[str] = field(metadata={"help": "Budgets as `thinking+solution` in tokens, or `unlimited`."})
    output: Path = field(metadata={"help": "JSON file that the rows are written to."})
    name: str | None = field(default=None, metadata={"help": "Name of the model in the rows; unset: `model`."})
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of the dataset."})
    dataset_split: str = field(default="test", metadata={"help": "Split of the dataset."})
    problem_column: str = field(default="problem", metadata={"help": "Column that holds the problem."})
    answer_column: str = field(default="answer", metadata={"help": "Column that holds the answer, or a list of them."})
    instruction: str = field(default="", metadata={"help": "Text added to every problem."})
    max_problems: int | None = field(default=None, metadata={"help": "Evaluate on the first problems only."})
    max_prompt_length: int = field(default=1024, metadata={"help": "Longest prompt in tokens; longer are dropped."})
    marker: str = field(default="</think>", metadata={"help": "The text that ends the thinking."})
    forced_text: str | None = field(default=None, metadata={"help": "What a forced close appends; unset: the marker."})
    temperature: float = field(default=0.6, metadata={"help": "Sampling temperature; 0 is greedy."})
    top_p: float = field(default=1.0, metadata={"help": "Nucleus sampling."})
    seed: int = field(default=0, metadata={"help": "Seed of the sampling."})
    max_model_length: int | None = field(default=None, metadata={"help": "Context in tokens; unset: the model's."})
    max_num_seqs: int = field(default=256, metadata={"help": "Sequences that the engine runs at a time."})
    tensor_parallel_size: int = field(default=1, metadata={"help": "GPUs that share the model."})
    gpu_memory_utilization: float = field(default=0.9, metadata={"help": "Share of GPU memory for the engine."})
    grading_time_limit: float = field(default=5.0, metadata={"help": "Seconds after which grading is killed."})


def summarize(name: str, budget: Budget, completions: Sequence[Completion], correct: Sequence[bool], seed: int) -> Row:
    """One row: the accuracy with its 95% Wilson interval, and means over completions, in tokens."""
    interval = binomtest(sum(correct), len(correct)).proportion_ci(method="wilson")
    return Row(
        model=name,
        method="unconstrained" if budget == Budget(None, None) else "separate",
        thinking_budget=budget.thinking,
        solution_budget=budget.solution,
        problems=len(correct),
        accuracy=fmean(correct),
        ci_low=interval.low,
        ci_high=interval.high,
        mean_tokens=fmean(c.thinking_tokens + c.solution_tokens for c in completions),
        mean_thinking_tokens=fmean(c.thinking_tokens for c in completions),
        mean_solution_tokens=fmean(c.solution_tokens for c in completions),
        forced_ratio=fmean(c.thinking_end is ThinkingEnd.FORCED for c in completions),
        seed=seed,
        commit=commit(),
    )


def prepare(arguments: EvaluationArguments) -> tuple[list[Budget], Dataset, Marker, int]:
    """Check all that can be checked without the model: budgets, prompts, marker and context length in tokens.

    Raises:
        ValueError: one line about what is wrong.
    """
    budgets = [Budget.parse(text) for text in arguments.budgets]
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    marker = Marker.from_tokenizer(tokenizer, arguments.marker, arguments.forced_text)
    problems = load_problems(
        arguments.dataset_name,
        arguments.dataset_split,
        arguments.dataset_config,
        arguments.problem_column,
        arguments.answer_column,
    )
    if arguments.max_problems is not None:
        problems = problems.select(range(min(arguments.max_problems, len(problems))))
    prompts = to_prompts(problems, tokenizer, arguments.instruction, arguments.max_prompt_length)
    config = AutoConfig.from_pretrained(arguments.model).get_text_config()
    context = arguments.max_model_length or config.max_position_embeddings
    for budget in budgets:
        budget.thinking_limit(max(prompts["prompt_tokens"]), len(marker.forced_ids), context)
    return budgets, prompts, marker, context


def main() -> None:
    try:
        (arguments,) = TrlParser(EvaluationArguments).parse_args_and_config()
        budgets, prompts, marker, context = prepare(arguments)
    except (ValueError, OSError) as error:
        sys.exit(f"e1_trl.evaluate: {error}")

    # The scheduler steps an engine in its own process. Set before vLLM is imported, which takes seconds; everything
    # above has been checked by now.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM

    from e1_trl.engine import stream

    llm = LLM(
        arguments.model,
        max_model_len=context,
        max_num_seqs=arguments.max_num_seqs,
        tensor_parallel_size=arguments.tensor_parallel_size,
        gpu_memory_utilization=arguments.gpu_memory_utilization,
        seed=arguments.seed,
    )
    tokenizer = llm.get_tokenizer()
    prompt_ids = [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
        for prompt in prompts["prompt"]
    ]
    sampling = {"temperature": arguments.temperature, "top_p": arguments.top_p}
    rows: list[Row] = []
    with Grader(arguments.grading_time_limit, workers=1) as grader:
        for budget in (progress := tqdm(budgets, unit="budget")):
            progress.set_description(str(budget))
            rollouts = [Rollout(ids, budget, marker, context) for ids in prompt_ids]
            stream(llm, rollouts, marker, sampling)
            completions = [rollout.completion for rollout in rollouts]
            solutions = tokenizer.batch_decode([c.solution_ids for c in completions], skip_special_tokens=True)
            grades = grader.grade(solutions, prompts["answers"])
            correct = [grade.correct for grade in grades]
            rows.append(summarize(arguments.name or arguments.model, budget, completions, correct, arguments.seed))
            # Written after every budget, so that an interrupted evaluation keeps what it has.
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    Console().print(table(rows))


if __name__ == "__main__":
    main()
