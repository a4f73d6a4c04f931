"""The end of the thinking in models of today: what their chat templates open and close, by token ids."""

from dataclasses import replace
from typing import Any

import pytest
from conftest import DATA
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.errors import UserError
from e1_trl.evaluation.model import marker_of
from e1_trl.marker import OPENERS, Marker, PromptState, find_marker
from e1_trl.problems.prompts import drop_long, explain_unthinking, tokenize
from e1_trl.rollout import Rollout, Segment, Stop, ThinkingEnd
from experiments.which_models.templates import make_bytes_tokenizer, read_template, stored_templates

OPENED, CLOSED, NOTHING = PromptState
THINK = "</think>"
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"
OFF: dict[str, Any] = {"enable_thinking": False}
ON: dict[str, Any] = {"enable_thinking": True}
QUESTION = [{"role": "user", "content": "What is 1 + 1?"}]
# Templates by their marker, and the state of a prompt by default, with thinking turned off, and turned on.
GROUPS = {
    (THINK, OPENED, OPENED, OPENED): ["deepseek_r1_distill", "deepseekv3", "olmo3 think, ours"],
    (THINK, OPENED, CLOSED, OPENED): [
        *("nemotron_3_5_lightning", "nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra"),
        *("qwen3_5_think", "qwen3_6", "qwen3_8"),
    ],
    (THINK, CLOSED, CLOSED, OPENED): ["qwen3_5_nothink"],
    (THINK, NOTHING, CLOSED, NOTHING): ["glm4moe", "qwen3", "smollm3, ours"],
    (THINK, NOTHING, NOTHING, NOTHING): ["lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl"],
    ("<channel|>", NOTHING, NOTHING, NOTHING): ["diffusion_gemma", "gemma4", *(f"gemma4_v{n}" for n in range(2, 6))],
    (FINAL, NOTHING, NOTHING, NOTHING): ["gptoss"],
    ("<|eom|><|start|>assistant to=user<|message|>", NOTHING, NOTHING, NOTHING): ["muse_glimmer"],
}
THINKING = {name: expected for expected, names in GROUPS.items() for name in names}
WITHOUT = set(stored_templates()) - THINKING.keys()  # of models that do not think


def family(name: str, *added: str) -> tuple[PreTrainedTokenizerFast, Marker]:
    """Make a tokenizer of bytes and `added` texts with a stored template, and the marker that it names."""
    tokenizer = make_bytes_tokenizer(read_template(name), added)
    return tokenizer, Marker.from_tokenizer(tokenizer)


@pytest.mark.parametrize("name", THINKING)
def test_each_stored_template_names_its_marker_and_tells_what_its_prompt_did(name: str) -> None:
    wanted, *states = THINKING[name]
    for added in ((), (wanted, OPENERS[wanted])):  # markers of several tokens, and of one
        tokenizer, marker = family(name, *added)
        assert (marker.text, marker.opener) == (wanted, OPENERS[wanted])
        assert len(marker.ids) == (1 if added else len(wanted.encode()))
        prompts = [tokenize(tokenizer, QUESTION, kwargs) for kwargs in ({}, OFF, ON)]
        assert [marker.state_of(prompt) for prompt in prompts] == states
        for prompt, state in zip(prompts, states, strict=True):
            _begins_as_its_prompt_says(prompt, marker, state)


def _begins_as_its_prompt_says(prompt: list[int], marker: Marker, state: PromptState) -> None:
    """Check the first request at a budget of 9 + 5 and of 0 + 5, and what is forced."""
    close = ThinkingClose(marker, len(prompt) + 200)
    thinks = Rollout(prompt, Budget(9, 5), close)
    answers = Rollout(prompt, Budget(0, 5), close)
    assert thinks.request is not None and answers.request is not None
    forced = {OPENED: marker.forced_ids, NOTHING: marker.empty_ids, CLOSED: ()}[state]
    assert answers.request.prompt_ids == [*prompt, *forced] and not answers.request.stop_at_marker
    if state is CLOSED:
        assert thinks.request == answers.request and thinks.thinking_end is ThinkingEnd.PROMPT
        assert thinks.request.max_tokens == 5
    else:
        assert thinks.request.stop_at_marker and thinks.request.max_tokens == 9
    answers.receive(Segment([1], Stop.EOS, [0.0]))
    completion = answers.completion
    assert completion.graded_ids == [1] and completion.thinking_tokens == 0
    assert completion.forced_tokens == completion.close_tokens == len(forced)


def test_a_question_that_names_the_opener_opens_nothing() -> None:
    tokenizer, marker = family("qwen3", THINK, "<think>", "<|im_end|>")
    asked = [
        {"role": "system", "content": "Think inside <think> tags."},
        {"role": "user", "content": "What is <think>?"},
    ]
    prompt = tokenize(tokenizer, asked, {})
    assert marker.state_of(prompt) is NOTHING
    assert marker.state_of([*prompt, *tokenizer.encode("<think>\nOkay, ", add_special_tokens=False)]) is OPENED


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_a_template_of_a_model_that_does_not_think_leaves_the_marker_to_the_vocabulary_or_the_user(name: str) -> None:
    with pytest.raises(UserError, match=r"name no known end of the thinking .*set `marker`.*may be one of </thought>"):
        find_marker(make_bytes_tokenizer(read_template(name), ["</thought>"]))
    assert find_marker(make_bytes_tokenizer(read_template(name), ["[/THINK]", THINK])) == THINK
    marker = Marker.from_tokenizer(make_bytes_tokenizer(read_template(name)), "</thought>")
    assert marker.opener == "<thought>" and len(marker.ids) == 10


def test_a_system_prompt_may_close_the_thinking_of_one_conversation() -> None:
    tokenizer, marker = family("smollm3, ours")
    quiet = [{"role": "system", "content": "/no_think"}, *QUESTION]
    assert marker.state_of(tokenize(tokenizer, quiet, {})) is CLOSED
    with pytest.raises(UserError, match=r"closed the thinking, of 'What is 1 .*it ends in "):
        drop_long(Dataset.from_dict({"prompt": [QUESTION, quiet]}), tokenizer, 9999, {}, marker)


def test_an_evaluation_takes_the_usual_marker_of_a_model_that_names_none(caplog: pytest.LogCaptureFixture) -> None:
    assert marker_of(make_bytes_tokenizer(read_template("llama3_1"))) == THINK
    assert [text.endswith("used for now: '</think>'") for text in caplog.messages] == [True]


def test_an_empty_thinking_is_forced_as_the_template_writes_it() -> None:
    """Qwen3 was trained on an empty thinking with a blank line in it, GLM on one with nothing in it."""
    texts = {"qwen3": "<think>\n\n", "glm4moe": "<think>", "nemotron_3_nano": "<think>", "gptoss": OPENERS[FINAL]}
    for name, written in texts.items():
        tokenizer, marker = family(name)
        assert tokenizer.decode(list(marker.opener_ids)) == OPENERS[marker.text]
        assert tokenizer.decode(list(marker.empty_ids)) == written + marker.text
    close = ThinkingClose(marker, 1000)
    assert close.forced_after(0) == len(marker.empty_ids) and close.forced_after(1) == len(marker.ids)


INSTRUCTED = (
    "<|system|>Write <think> {thought} </think> {answer}.<|end|>"
    "{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}<|assistant|>"
)


def test_markers_in_a_system_prompt_are_no_empty_thinking() -> None:
    tokenizer = make_bytes_tokenizer(INSTRUCTED)
    marker = Marker.from_tokenizer(tokenizer)
    assert tokenizer.decode(list(marker.empty_ids)) == "<think></think>"


def test_an_opener_is_forced_only_where_it_is_known_and_closed() -> None:
    tokenizer, thinks = family("qwen3")
    openers = {"</reasoning>": "<reasoning>", "[/THOUGHT]": "[THOUGHT]", "Answer/Solution:": "", "</s>": "", "###": ""}
    assert {text: Marker.from_tokenizer(tokenizer, text).opener for text in openers} == openers
    marker = Marker.from_tokenizer(tokenizer, forced_text="Final Answer:")
    assert marker.empty_ids == () and ThinkingClose(marker, 99).forced_after(0) == len(marker.forced_ids)
    unlimited = ThinkingClose(thinks, 50 + len(THINK) + 5)
    rollout = Rollout([1] * 50, Budget(None, 5), unlimited)  # without room for any thought
    assert rollout.request is not None and len(rollout.request.prompt_ids) + 5 == unlimited.context


def test_a_closed_prompt_needs_room_for_its_solution_alone() -> None:
    tokenizer, marker = family("qwen3")
    prompt = tokenize(tokenizer, QUESTION, OFF)
    rollout = Rollout(prompt, Budget(100, 5), ThinkingClose(marker, len(prompt) + 5))
    assert rollout.request is not None and rollout.request.max_tokens == 5
    with pytest.raises(UserError, match="does not fit"):
        Rollout(prompt, Budget(100, 6), ThinkingClose(marker, len(prompt) + 5))


def test_advice_survives_templates_that_refuse_its_arguments_and_is_not_given_where_thinking_is_open() -> None:
    refuses = "{% if thinking is defined %}{{ raise_exception('no') }}{% endif %}{{ messages[0]['content'] }}</think>"
    tokenizer = make_bytes_tokenizer(refuses)
    said = explain_unthinking(tokenizer, Marker.from_tokenizer(tokenizer), QUESTION, {})
    assert said is not None and said.endswith("</think>'")
    adds = "{% if enable_thinking %}Think well.{% endif %}{{ messages[0]['content'] }}<think>"
    tokenizer = make_bytes_tokenizer(adds)
    assert explain_unthinking(tokenizer, Marker.from_tokenizer(tokenizer, THINK), QUESTION, {}) is None


def test_a_question_about_markers_closes_nothing() -> None:
    tokenizer, marker = family("qwen3", THINK, "<think>")
    for question in ("Why <think>", "What is </think>", "<think>\n\n</think>\n\n"):
        prompt = tokenize(tokenizer, [{"role": "user", "content": question}], {})
        assert marker.state_of(prompt) is not CLOSED
    assert marker.state_of(tokenizer("A text that ends in </think> \n")["input_ids"]) is CLOSED
    begun = tokenizer("Why? <think>\nOkay," + " so" * 99)["input_ids"]  # which vLLM counts as thinking, too
    assert marker.state_of(begun) is OPENED and marker.state_of(begun[:4]) is NOTHING


def test_an_opener_that_is_merged_with_a_blank_in_front_of_it_is_found() -> None:
    path = DATA / "tokenizers" / "deepseek-r1-distill-qwen"
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    tokenizer = AutoTokenizer.from_pretrained(path)
    parts = [tokenizer.encode(text, add_special_tokens=False) for text in ("Assistant: <", "think", ">")]
    marker = replace(
        Marker.from_tokenizer(tokenizer), opener_ids=(*tokenizer.encode("<th", add_special_tokens=False), 1)
    )
    assert marker.state_of([each for part in parts for each in part]) is OPENED


@pytest.mark.parametrize("name", ["qwen3_5_nothink", "qwen3", "nemotron_3_nano"])
def test_training_refuses_a_prompt_that_closed_the_thinking_and_says_what_opens_it(name: str) -> None:
    tokenizer, marker = family(name, THINK, "<think>")
    problems = Dataset.from_dict({"prompt": [QUESTION]})
    with pytest.raises(UserError, match=r"closed the thinking, of 'What is 1 .*kwargs: \{enable_thinking: true\}$"):
        drop_long(problems, tokenizer, 9999, OFF, marker)
    assert len(drop_long(problems, tokenizer, 9999, ON, marker)) == 1
    text = Dataset.from_dict({"prompt": ["1 + 1? <think></think>"]})
    with pytest.raises(UserError, match=r"it ends in '.*</think>'$"):
        drop_long(text, tokenizer, 9999, {}, marker)


def test_a_template_that_turns_thinking_off_without_closing_it_is_explained() -> None:
    tokenizer, marker = family("gemma4")
    said = explain_unthinking(tokenizer, marker, QUESTION, {})
    assert said is not None and "does not ask for thinking" in said and said.endswith("{enable_thinking: true}")
    assert explain_unthinking(tokenizer, marker, QUESTION, ON) is None
    for name in ("qwen3", "qwen3_5_think", "gptoss", "lfm2_2_5"):
        assert explain_unthinking(*family(name), QUESTION, {}) is None
