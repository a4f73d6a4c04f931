"""Problems come from files as they are found; prompts are what the chat template makes of them."""

import gzip
import json
import logging
import re
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from e1_trl.data import load_problems, to_prompts

SHARED = Path(__file__).parents[2] / "shared" / "data"
ROWS = [
    {"problem": "What is 1 + 1?", "answer": "2", "source": "us"},
    {"problem": "What is 2 + 2?", "answer": " 4 ", "source": "us"},
]
TEMPLATE = (
    "{% for message in messages %}user {{ message['content'] }} end{% endfor %}"
    "{% if add_generation_prompt %} assistant{% if thinking %} think{% endif %}{% endif %}"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """One token for every run of letters, digits or punctuation."""
    words = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", chat_template=TEMPLATE)


@pytest.fixture
def problems() -> Dataset:
    texts = ["one", "one two", "one two three"]
    return Dataset.from_dict({"problem": texts, "answers": [["1"], ["2"], ["3", "three"]]})


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def load(name: str, split: str = "train") -> Dataset:
    return load_problems(name, split, None, "problem", "answer")


def test_every_kind_of_file_gives_the_same_problems(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "test.jsonl", ROWS)
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in ROWS)
    Dataset.from_list(ROWS).to_parquet(tmp_path / "rows.parquet")
    loaded = [
        load(write(tmp_path / "rows.jsonl", ROWS)),
        *(load(str(tmp_path / name)) for name in ("rows.json", "rows.jsonl.gz", "rows.parquet")),
        load(str(tmp_path / "folder"), "test"),
    ]
    for problems in loaded:
        assert problems.column_names == ["problem", "answers"]
        assert problems.to_list() == [
            {"problem": "What is 1 + 1?", "answers": ["2"]},
            {"problem": "What is 2 + 2?", "answers": ["4"]},
        ]


@pytest.mark.parametrize(
    ("answers", "accepted"),
    [
        (["2", "025"], [["2"], ["025"]]),
        ([2, 25], [["2"], ["25"]]),
        ([0.5, 2], [["0.5"], ["2"]]),
        ([["2", "two"], ["3"]], [["2", "two"], ["3"]]),
        ([[2, 3], [4]], [["2", "3"], ["4"]]),
    ],
)
def test_answers_may_be_texts_numbers_or_lists(tmp_path: Path, answers: list[Any], accepted: list[list[str]]) -> None:
    file = write(tmp_path / "rows.jsonl", [{"problem": "?", "answer": answer} for answer in answers])
    assert load(file)["answers"][:] == accepted


def test_any_columns_may_hold_them(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [{"answers": "not this", "question": "1 + 1?", "final": 2}])
    problems = load_problems(file, "train", None, "question", "final")
    assert problems.to_list() == [{"problem": "1 + 1?", "answers": ["2"]}]


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=rf"^no file {re.escape(str(tmp_path))}/none.jsonl"):
        load(str(tmp_path / "none.jsonl"))


def test_missing_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", ROWS)
    with pytest.raises(
        ValueError, match=r"split train: no column 'question'; the columns are problem, answer, source$"
    ):
        load_problems(file, "train", None, "question", "answer")


@pytest.mark.parametrize("content", ["", "\n", '{"problem": "1 +'])
def test_file_without_rows_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "rows.jsonl").write_text(content)
    with pytest.raises(ValueError, match=r"rows.jsonl, split train: .*; it must hold at least one row"):
        load(str(tmp_path / "rows.jsonl"))


def test_unknown_split_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rows.jsonl, split test: .*\['train'\]"):
        load(write(tmp_path / "rows.jsonl", ROWS), "test")


@pytest.mark.parametrize("problem", ["", "  ", None])
def test_empty_problem_is_named_by_row_and_column(tmp_path: Path, problem: str | None) -> None:
    file = write(tmp_path / "rows.jsonl", [*ROWS, {"problem": problem, "answer": "2", "source": "us"}])
    with pytest.raises(
        ValueError, match=r"rows.jsonl, split train, row 2, column 'problem': .*; a problem must be a text"
    ):
        load(file)


@pytest.mark.parametrize("answer", ["", "  ", None])
def test_empty_answer_is_named_by_row_and_column(tmp_path: Path, answer: str | None) -> None:
    file = write(tmp_path / "rows.jsonl", [*ROWS, {"problem": "?", "answer": answer, "source": "us"}])
    with pytest.raises(ValueError, match=r"rows.jsonl, split train, row 2, column 'answer': .*; an answer must be"):
        load(file)


@pytest.mark.parametrize("answer", [[], ["1", ""], ["1", None]])
def test_empty_accepted_answer_is_named_by_row_and_column(tmp_path: Path, answer: list[str | None]) -> None:
    file = write(tmp_path / "rows.jsonl", [{"problem": "?", "answer": ["1"]}, {"problem": "?", "answer": answer}])
    with pytest.raises(ValueError, match="row 1, column 'answer'"):
        load(file)


def test_prompts_are_one_user_message(problems: Dataset, tokenizer: PreTrainedTokenizerFast) -> None:
    prompts = to_prompts(problems, tokenizer, "Box it.", None)
    assert set(prompts.column_names) == {"prompt", "answers", "prompt_tokens"}
    assert prompts[2] == {
        "prompt": [{"role": "user", "content": "one two three Box it."}],
        "answers": ["3", "three"],
        "prompt_tokens": 9,  # user one two three Box it . end assistant
    }


def test_no_instruction_adds_nothing(problems: Dataset, tokenizer: PreTrainedTokenizerFast) -> None:
    assert to_prompts(problems, tokenizer, "", None)[0]["prompt"][0]["content"] == "one"


def test_lengths_count_what_the_chat_template_adds(problems: Dataset, tokenizer: PreTrainedTokenizerFast) -> None:
    assert to_prompts(problems, tokenizer, "", None)["prompt_tokens"][:] == [4, 5, 6]
    assert to_prompts(problems, tokenizer, "", None, thinking=True)["prompt_tokens"][:] == [5, 6, 7]


def test_long_prompts_are_dropped_and_counted(
    problems: Dataset, tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "e1_trl.data"):
        assert to_prompts(problems, tokenizer, "", 5)["prompt_tokens"][:] == [4, 5]
        assert to_prompts(problems, tokenizer, "", 6)["prompt_tokens"][:] == [4, 5, 6]
    assert caplog.messages == ["dropped 1 of 3 prompts: longer than max_prompt_length = 5 tokens"]


def test_dropping_every_prompt_is_an_error(problems: Dataset, tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(
        ValueError, match=r"^all 3 prompts are longer than max_prompt_length = 3 tokens; the shortest has 4$"
    ):
        to_prompts(problems, tokenizer, "", 3)


def test_tokenizer_must_have_a_chat_template(problems: Dataset, tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match=r"^the tokenizer .* has no chat template"):
        to_prompts(problems, tokenizer, "", None)


@pytest.mark.parametrize(
    ("file", "count", "answer_column"), [("aime2024", 30, "answer"), ("minerva272", 272, "answers")]
)
def test_real_problems_load(file: str, count: int, answer_column: str) -> None:
    path = SHARED / "math_eval" / f"{file}.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    assert len(load_problems(str(path), "train", None, "problem", answer_column)) == count


def test_long_real_prompts_are_measured_with_a_real_tokenizer() -> None:
    path, tokenizer_path = SHARED / "math_eval" / "aime2024.jsonl", SHARED / "tokenizers" / "qwen3"
    if not path.exists() or not tokenizer_path.exists():
        pytest.skip(f"{path} or {tokenizer_path} is not on this machine")
    qwen = PreTrainedTokenizerFast.from_pretrained(tokenizer_path)
    prompts = to_prompts(load(str(path)), qwen, "", None)
    ids = qwen(qwen.apply_chat_template(prompts[0]["prompt"], add_generation_prompt=True, tokenize=False))["input_ids"]
    assert prompts[0]["prompt_tokens"] == len(ids)
