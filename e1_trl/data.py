"""Problems in, prompts out.

A problem is a text with a list of accepted answers, from the Hub or from local files. A prompt is what TRL's trainers
take: a conversation of one user message. Knows nothing about budgets or how answers are graded.
"""

import logging
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetGenerationError
from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

FORMATS = {".jsonl": "json", ".json": "json", ".jsonl.gz": "json", ".parquet": "parquet"}


def load_problems(
    name: str, split: str, config: str | None, problem_column: str, answer_column: str | tuple[str, ...]
) -> Dataset:
    """Problems with the columns `problem: str` and `answers: list[str]`, in the order of the source.

    Args:
        name: a local `.jsonl`, `.json`, `.jsonl.gz` or `.parquet` file, whose one split is "train"; a local folder
            with files named after splits; or an id on the Hub.
        split: the split to load; `datasets`' slices ("train[:100]") work too.
        config: the configuration of a dataset on the Hub that has several.
        problem_column: the column with the text of the problem.
        answer_column: the column with the answer: a string, a number, or a list of accepted ones; of several names,
            the first that the source has.

    Raises:
        FileNotFoundError: a local file does not exist.
        ValueError: there is no such split or column, no row, or a row that can not be read, or whose problem or answer
            is empty.
    """
    where = f"{name}, split {split}"
    suffix = next((suffix for suffix in FORMATS if name.endswith(suffix)), None)
    if suffix and not Path(name).is_file():
        raise FileNotFoundError(f"no file {name} (in {Path.cwd()}); give an existing file, a folder or a Hub id")
    try:
        if suffix:
            source = load_dataset(FORMATS[suffix], data_files=name, split=split)
        else:
            source = load_dataset(name, config, split=split)
    except (ValueError, DatasetGenerationError, StopIteration) as error:  # StopIteration: the file has no byte in it
        reason = str(error.__cause__ or error) or "no data"
        raise ValueError(f"{where}: {reason}; it must hold at least one row with a problem") from error
    if isinstance(answer_column, tuple):
        answer_column = next((name for name in answer_column if name in source.column_names), answer_column[-1])
    for column in (problem_column, answer_column):
        if column not in source.column_names:
            raise ValueError(f"{where}: no column {column!r}; the columns are {', '.join(source.column_names)}")
    return source.map(
        _to_problem,
        with_indices=True,
        remove_columns=source.column_names,
        fn_kwargs={"where": where, "problem_column": problem_column, "answer_column": answer_column},
        desc=f"Reading problems of {name}",
    )


def to_prompts(
    problems: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    instruction: str,
    max_prompt_length: int | None,
    **chat_template_kwargs: Any,
) -> Dataset:
    """Prompts with the columns `prompt` (one user message), `answers`, and `prompt_tokens` (length, in tokens).

    The length is that of the prompt as it is generated from: with the chat template and its generation prompt.

    Args:
        problems: what `load_problems` returns.
        tokenizer: the policy's, with its chat template.
        instruction: added to every problem after a space; "" adds nothing.
        max_prompt_length: longer prompts (in tokens) are dropped, with a warning that counts them; None keeps all.
        chat_template_kwargs: arguments of the chat template, such as `enable_thinking`.

    Raises:
        ValueError: the tokenizer has no chat template, or every prompt is too long.
    """
    if tokenizer.chat_template is None:
        raise ValueError(
            f"the tokenizer {tokenizer.name_or_path!r} has no chat template; use a chat model's, or set `chat_template`"
        )
    prompts = problems.map(
        _to_prompt,
        remove_columns=["problem"],
        fn_kwargs={"tokenizer": tokenizer, "instruction": instruction, "chat_template_kwargs": chat_template_kwargs},
        desc="Making prompts",
    )
    if max_prompt_length is None:
        return prompts
    kept = prompts.filter(
        _is_short,
        input_columns=["prompt_tokens"],
        fn_kwargs={"max_prompt_length": max_prompt_length},
        desc="Dropping long prompts",
    )
    if len(kept) == 0:
        raise ValueError(
            f"all {len(prompts)} prompts are longer than max_prompt_length = {max_prompt_length} tokens; "
            f"the shortest has {min(prompts['prompt_tokens'])}"
        )
    if len(kept) < len(prompts):
        logger.warning(
            "dropped %d of %d prompts: longer than max_prompt_length = %d tokens",
            len(prompts) - len(kept),
            len(prompts),
            max_prompt_length,
        )
    return kept


# Module functions with their settings in `fn_kwargs`, so that datasets can hash them and find its cache again.


def _to_problem(
    row: dict[str, Any], index: int, where: str, problem_column: str, answer_column: str
) -> dict[str, str | list[str]]:
    problem, answer = row[problem_column], row[answer_column]
    if not isinstance(problem, str) or not problem.strip():
        raise ValueError(f"{where}, row {index}, column {problem_column!r}: {problem!r}; a problem must be a text")
    answers = [_to_text(form) for form in (answer if isinstance(answer, list) else [answer])]
    if not answers or not all(answers):
        raise ValueError(
            f"{where}, row {index}, column {answer_column!r}: {answer!r}; "
            "an answer must be a text, a number, or a list of them, none of them empty"
        )
    return {"problem": problem, "answers": answers}


def _to_text(answer: Any) -> str:
    """An answer as text; "" for what can not be one."""
    if isinstance(answer, bool) or not isinstance(answer, (str, int, float)):
        return ""
    if isinstance(answer, float) and answer.is_integer():
        return str(int(answer))  # JSON readers make a whole column of integers float if one row is null or 0.5
    return str(answer).strip()


def _to_prompt(
    row: dict[str, Any], tokenizer: PreTrainedTokenizerBase, instruction: str, chat_template_kwargs: dict[str, Any]
) -> dict[str, Any]:
    content = f"{row['problem']} {instruction}" if instruction else row["problem"]
    prompt = [{"role": "user", "content": content}]
    tokens = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, tokenize=True, return_dict=True, **chat_template_kwargs
    )
    return {"prompt": prompt, "prompt_tokens": len(tokens["input_ids"])}


def _is_short(prompt_tokens: int, max_prompt_length: int) -> bool:
    return prompt_tokens <= max_prompt_length
