"""Prompts are composed in one place, and are what the chat template makes of them."""

import logging
from pathlib import Path

import pytest
from conftest import BASE, DATA
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from e1_trl.errors import UserError
from e1_trl.marker import Marker
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import compose, load_problems
from e1_trl.problems.prompts import MEASURED, drop_long, last_question, tokenize

pytestmark = pytest.mark.usefixtures("datasets_cache")

CLOSE = Marker("</think>", (), (), 0)
TEMPLATE = (
    "{% for message in messages %}user {{ message['content'] }} end{% endfor %}"
    "{% if add_generation_prompt %} assistant{% if thinking %} think{% endif %}{% endif %}"
)


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """One token for every run of letters, digits or punctuation."""
    words = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", chat_template=TEMPLATE)


def test_an_addition_follows_the_last_user_message_after_a_space() -> None:
    user, system, assistant = ({"role": role, "content": role} for role in ("user", "system", "assistant"))
    conversation = [system, user, assistant, user, assistant]
    assert compose(conversation, "") == conversation
    last = {"role": "user", "content": "user Box it."}
    assert compose(conversation, "Box it.") == [system, user, assistant, last, assistant]
    assert user["content"] == "user"


def test_a_text_is_composed_shown_and_tokenized_as_it_is(tokenizer: PreTrainedTokenizerFast) -> None:
    assert compose("1 + 1?", "Be quick.") == last_question("1 + 1? Be quick.") == "1 + 1? Be quick."
    user, assistant = ({"role": role, "content": role} for role in ("user", "assistant"))
    assert last_question(compose([user, assistant], "Box it.")) == "user Box it."
    tokenizer.chat_template = None
    assert tokenize(tokenizer, "one two", {"thinking": True}) == tokenizer("one two")["input_ids"]
    texts = Dataset.from_dict({"prompt": ["one", "one two three"]})
    assert drop_long(texts, tokenizer, 2, {}, CLOSE).to_list() == [{"prompt": "one", MEASURED: 1}]
    with pytest.raises(ValueError, match=r"^no user message in the conversation \[{'role': 'assistant'"):
        compose([assistant], "Box it.")


def test_long_prompts_are_dropped_and_counted_with_what_the_chat_template_adds(
    tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    asked = [[{"role": "user", "content": text}] for text in ("one", "one two", "one two three")]
    problems = Dataset.from_dict({"prompt": asked, "solution": [1, 2, 3]})
    with caplog.at_level(logging.WARNING, "e1_trl.problems.prompts"):
        assert drop_long(problems, tokenizer, 5, {}, CLOSE).to_list() == [
            {**row, MEASURED: length} for row, length in zip(problems.to_list()[:2], (4, 5), strict=True)
        ]
        assert drop_long(problems, tokenizer, 6, {}, CLOSE)[MEASURED][:] == [4, 5, 6]
        assert drop_long(problems, tokenizer, 9, {"thinking": True}, CLOSE)[MEASURED][:] == [5, 6, 7]
    assert caplog.messages == ["dropped 1 of 3 prompts: longer than max_prompt_length = 5 tokens"]
    with pytest.raises(
        ValueError, match=r"^all 3 prompts are longer than max_prompt_length = 3 tokens; the shortest has 4$"
    ):
        drop_long(problems, tokenizer, 3, {}, CLOSE)
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match=r"^the tokenizer .* has no chat template"):
        drop_long(problems, tokenizer, 9, {}, CLOSE)


def test_a_text_with_a_second_beginning_or_an_end_of_its_tokenizer_is_refused() -> None:
    path = DATA / "tokenizers" / "deepseek-r1-distill-qwen"
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    tokenizer = AutoTokenizer.from_pretrained(path)
    for text, said in (("{bos}Why?", "begins with .* twice"), ("Why?{eos}", "ends in")):
        text = text.format(bos=tokenizer.bos_token, eos=tokenizer.eos_token)
        with pytest.raises(UserError, match=f"^a prompt {said}"):
            drop_long(Dataset.from_dict({"prompt": [text]}), tokenizer, 99, {}, CLOSE)
    assert len(drop_long(Dataset.from_dict({"prompt": ["Why?"]}), tokenizer, 99, {}, CLOSE)) == 1


def test_prompts_are_measured_once_and_found_again(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"problem": "1 + 1?", "answer": "2"}\n')

    def measured() -> Dataset:
        problems = load_problems(str(file), "train", ProblemArguments())
        return drop_long(problems, AutoTokenizer.from_pretrained(BASE), 999, {"a": 1}, CLOSE)

    assert measured().cache_files == measured().cache_files != []
