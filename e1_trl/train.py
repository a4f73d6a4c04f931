"""The entry point: a recipe in, a checkpoint out.

    accelerate launch --config_file accelerate_configs/zero3.yaml -m e1_trl.train --config recipes/E1-Math-1.5B.yaml

Every field of the recipe can be overridden on the command line (`--learning_rate 5e-7`). Recipe, budget, data and
context length are checked before a model is loaded; what is wrong is said in one line.
"""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from datasets import Dataset
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase
from transformers.trainer_utils import get_last_checkpoint
from trl import ModelConfig, ScriptArguments, TrlParser, get_peft_config, get_quantization_config

from e1_trl.budget import Marker
from e1_trl.data import load_problems, to_prompts
from e1_trl.evaluation.benchmarks import load_benchmark
from e1_trl.evaluation.callback import BudgetEvaluation
from e1_trl.grading import Grader
from e1_trl.rewards import check_rewards, make_rewards
from e1_trl.trainer import E1Config, E1Trainer

MAX_GRADING_WORKERS = 8


@dataclass
class E1ScriptArguments(ScriptArguments):
    """Which problems to train on, and what is rewarded.

    `dataset_name` is a Hub id, a local JSONL or Parquet file, or a folder of files named after their split.
    """

    problem_column: str = field(default="problem", metadata={"help": "Column that holds the problem."})
    answer_column: str = field(default="answer", metadata={"help": "Column that holds the answer, or a list of them."})
    instruction: str = field(default="", metadata={"help": "Text added to every problem."})
    reward_funcs: list[str] = field(
        default_factory=lambda: ["accuracy"],
        metadata={"help": "Rewards by name (accuracy, format); `reward_weights` weighs them."},
    )
    eval_benchmark: str | None = field(
        default=None,
        metadata={"help": "Benchmark to evaluate on instead of the dataset's test split: aime2024, math500, …"},
    )
    local_benchmarks: Path | None = field(default=None, metadata={"help": "Folder that holds benchmarks as files."})
    grading_time_limit: float = field(
        default=5.0, metadata={"help": "Seconds after which grading an answer is killed."}
    )


def resume_from(training_args: E1Config) -> str | bool | None:
    """A checkpoint; `True` for the last one in `output_dir`, as in any Trainer. The parser knows only texts."""
    named = training_args.resume_from_checkpoint
    return {"true": True, "false": None}.get(str(named).lower(), named)


def prepare(
    script_args: E1ScriptArguments, training_args: E1Config, model_args: ModelConfig
) -> tuple[PreTrainedTokenizerBase, Dataset, Dataset | None]:
    """Check everything that can be checked without the model, and return tokenizer, training and evaluation prompts.

    Raises:
        ValueError: one line about what is wrong, where, and what would be right.
    """
    if not model_args.model_name_or_path or not script_args.dataset_name:
        raise ValueError("the recipe must name a model (model_name_or_path) and a dataset (dataset_name)")
    check_rewards(script_args.reward_funcs, training_args.reward_weights)
    if training_args.eval_budgets and (training_args.eval_steps or 1) % 1:
        raise ValueError(f"eval_steps is {training_args.eval_steps}; eval_budgets need a whole number of steps")
    if resume_from(training_args) is True and get_last_checkpoint(training_args.output_dir) is None:
        raise ValueError(f"there is no checkpoint in {training_args.output_dir} to resume from")
    hub_kwargs = {"revision": model_args.model_revision, "trust_remote_code": training_args.trust_remote_code}
    tokenizer = AutoTokenizer.from_pretrained(
        model_args.model_name_or_path, padding_side="left", truncation_side="left", **hub_kwargs
    )
    config = AutoConfig.from_pretrained(model_args.model_name_or_path, **hub_kwargs).get_text_config()
    marker = Marker.from_tokenizer(tokenizer, training_args.marker, training_args.forced_text)
    training_args.settle_lengths(marker, config.max_position_embeddings)

    def load(split: str) -> Dataset:
        return load_problems(
            script_args.dataset_name,
            split,
            script_args.dataset_config,
            script_args.problem_column,
            script_args.answer_column,
        )

    def prompts(problems: Dataset) -> Dataset:
        return to_prompts(
            problems,
            tokenizer,
            script_args.instruction,
            training_args.max_prompt_length,
            **(training_args.chat_template_kwargs or {}),
        )

    with training_args.main_process_first(desc="preparing the prompts"):
        train = prompts(load(script_args.dataset_train_split))
        if training_args.eval_strategy == "no" and not training_args.eval_budgets:
            return tokenizer, train, None
        if script_args.eval_benchmark is not None:
            return tokenizer, train, prompts(load_benchmark(script_args.eval_benchmark, script_args.local_benchmarks))
        return tokenizer, train, prompts(load(script_args.dataset_test_split))


def main() -> None:
    parser = TrlParser((E1ScriptArguments, E1Config, ModelConfig))
    try:
        script_args, training_args, model_args = parser.parse_args_and_config()
        tokenizer, train_dataset, eval_dataset = prepare(script_args, training_args, model_args)
    except (ValueError, OSError, yaml.YAMLError) as error:
        sys.exit(f"e1_trl.train: {' '.join(str(error).split())}")

    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
        **(training_args.model_init_kwargs or {}),
    }
    workers = max(1, min(MAX_GRADING_WORKERS, (os.cpu_count() or 1) // training_args.world_size))
    with Grader(script_args.grading_time_limit, workers) as grader:
        trainer = E1Trainer(
            model=model_args.model_name_or_path,
            reward_funcs=make_rewards(script_args.reward_funcs, grader),
            args=training_args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset if training_args.eval_strategy != "no" else None,
            processing_class=tokenizer,
            quantization_config=get_quantization_config(model_args),
            peft_config=get_peft_config(model_args),
        )
        if training_args.eval_budgets and eval_dataset is not None:
            budgets, steps = training_args.evaluation_budgets, int(training_args.eval_steps or 10)
            trainer.add_callback(BudgetEvaluation(trainer, eval_dataset, budgets, grader, steps))
        trainer.train(resume_from_checkpoint=resume_from(training_args))
    trainer.save_model()
    trainer.save_state()
    trainer.create_model_card()
    if training_args.push_to_hub:
        # The Hub refuses a model card that names a local file as its dataset.
        local = Path(script_args.dataset_name).exists()
        trainer.push_to_hub(dataset_name=None if local else script_args.dataset_name)


if __name__ == "__main__":
    main()
