"""What each method is, by its record; the coroutines themselves are tested with the tree."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.errors import UserError
from e1_trl.evaluation.methods import METHODS, MIXED, Cell, Method, MethodOptions, Question, Setting, make_cells
from e1_trl.marker import Marker
from e1_trl.rollout import Segment, Stop, ThinkingEnd
from e1_trl.tree import Tree

CLOSE, EOS = 0, 1
SETTING = Setting(
    close=ThinkingClose(Marker("</think>", (CLOSE,), (CLOSE,), close_tokens=1), context=100),
    s1_marker=Marker("</think>", (CLOSE,), (CLOSE, 8, 9), close_tokens=1),
    wait_ids=(5,),
    options=MethodOptions(s1_waits=2),
    decode=str,
)


def answer(
    cell: Cell,
    sample: Callable[[list[int], int], Segment],
    thinking: Segment | None = None,
    setting: Setting = SETTING,
) -> tuple[list[int], ThinkingEnd, bool]:
    """Run one method on a "model" that answers every request by `sample(prompt_ids, max_tokens)`."""
    tree: Tree[Cell] = Tree(0, 0, setting.close.marker, setting.decode)
    tree.start(cell, METHODS[cell.method].complete(tree, Question([7, 7], cell.budget, thinking), setting))
    queue = tree.requests()
    while queue:
        (_, branch), request = queue.pop()
        tree.receive(branch, sample(request.prompt_ids, request.max_tokens))
        queue += tree.requests()
    completion = tree.completions[cell]
    return completion.token_ids.tolist(), completion.thinking_end, completion.truncated


def endless(prompt_ids: list[int], max_tokens: int) -> Segment:
    return Segment([4] * max_tokens, Stop.LENGTH)


def concise(prompt_ids: list[int], max_tokens: int) -> Segment:
    """Thinks for two tokens, then answers with one."""
    if CLOSE in prompt_ids:
        return Segment([3, EOS], Stop.EOS)
    return Segment([4, 4, CLOSE], Stop.MARKER)


@pytest.mark.parametrize(
    ("method", "asked", "kept"),
    [
        ("separate", "8+4", "8+4"),
        ("separate", "unlimited", None),
        ("truncation", "unlimited+4", None),
        ("s1_as_released", "8+4", "8+20"),
        ("no_thinking", "8+4", "0+4"),
        ("unconstrained", "8+4", "unlimited"),
        (MIXED, "unlimited+4", "unlimited+4"),
    ],
)
def test_a_method_keeps_a_budget_as_its_record_says(method: str, asked: str, kept: str | None) -> None:
    found = METHODS[method].keeps(Budget.parse(asked))
    assert found == (None if kept is None else Budget.parse(kept))


def test_cells_are_every_method_at_every_budget_at_which_it_runs_once() -> None:
    found = make_cells(["no_thinking", "separate"], [Budget(8, 4), Budget(16, 4)])
    assert list(map(str, found)) == ["no_thinking 0+4", "separate 8+4", "separate 16+4"]
    with pytest.raises(ValueError, match="no method of s1 applies to any budget of unlimited"):
        make_cells(["s1"], [Budget(None, None)])


def test_a_budget_at_which_no_method_can_run_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    kept = make_cells(["separate", "s1"], [Budget(16, 8), Budget(None, None)])
    assert [str(cell) for cell in kept] == ["separate 16+8", "s1 16+8"]
    assert "budget unlimited is left out: none of separate, s1 can run at it" in caplog.text
    caplog.clear()
    make_cells(["separate", "unconstrained"], [Budget(16, 8), Budget(16, None), Budget(None, None)])
    make_cells(["unconstrained"], [Budget(16, 8)])
    assert [record.getMessage() for record in caplog.records] == [
        "budget 16+unlimited is left out: none of separate, unconstrained can run at it"
    ]


def test_a_method_that_returns_nothing_is_named() -> None:
    def forgetful(tree: Tree[Cell], question: Question, setting: Setting) -> Iterator[Any]:
        yield from METHODS["separate"].answer(tree, question, setting)

    tree: Tree[Cell] = Tree(0, 0, SETTING.close.marker, SETTING.decode)
    question = Question([7, 7], Budget(0, 8), None)
    tree.start(Cell("separate", Budget(0, 8)), Method(forgetful).complete(tree, question, SETTING))
    (((_, branch), _),) = tree.requests()
    with pytest.raises(UserError, match="forgetful returned None; a method must return a Completion"):
        tree.receive(branch, Segment([EOS], Stop.EOS))


def test_only_l1_adds_a_sentence_to_the_problem_and_its_budget_bounds_nothing() -> None:
    budget = Budget(8, 4)
    assert Cell("l1_exact", budget).request == "Think for 8 tokens."
    assert Cell("l1_max", budget).request == "Think for maximum 8 tokens."
    others = set(METHODS) - {"l1_exact", "l1_max"}
    assert {Cell(method, budget).request for method in others} == {""}
    assert all(METHODS[method].bounded == (method in others) for method in METHODS)
    assert METHODS["l1_max"].context(10, budget, SETTING) == SETTING.close.context
    tokens, end, _ = answer(Cell("l1_max", budget), endless)
    assert len(tokens) == 100 - 2 and end is ThinkingEnd.FORCED


@pytest.mark.parametrize(("method", "forced"), [("separate", 1), ("truncation", 0), ("s1", 3)])
def test_the_engine_gets_room_for_what_a_method_forces_and_no_more(method: str, forced: int) -> None:
    assert METHODS[method].context(10, Budget(8, 4), SETTING) == 10 + 8 + forced + 4
    assert METHODS[method].context(88 - forced, Budget(8, 4), SETTING) == SETTING.close.context
    with pytest.raises(ValueError, match=f"with budget 8.4 and {forced} forced tokens does not fit the context of 100"):
        METHODS[method].context(89 - forced, Budget(8, 4), SETTING)
    assert METHODS["separate"].context(10, Budget(None, 4), SETTING) == SETTING.close.context


def test_s1_forces_the_close_and_the_words_that_ask_for_the_answer() -> None:
    tokens, end, truncated = answer(Cell("s1", Budget(4, 2)), endless)
    assert tokens == [4] * 4 + [CLOSE, 8, 9] + [4] * 2 and end is ThinkingEnd.FORCED and truncated


@pytest.mark.parametrize(
    ("method", "thinking", "kept"),
    [("s1", 20, [4, 4, 5, 4, 4, 5, 4, 4]), ("s1", 3, [4, 4]), ("s1_no_wait", 20, [4, 4])],
    ids=["twice", "not where it would not fit", "never"],
)
def test_s1_puts_its_wait_in_place_of_an_early_close(method: str, thinking: int, kept: list[int]) -> None:
    expected = ([*kept, CLOSE, 3, EOS], ThinkingEnd.CLOSED, False)
    assert answer(Cell(method, Budget(thinking, 4)), concise) == expected


def test_s1_puts_its_wait_in_place_of_all_tokens_of_a_marker() -> None:
    texts = {10: "</", 11: "think", 12: ">"}
    marker = Marker("</think>", (*texts,), (*texts,), close_tokens=3)
    close = ThinkingClose(marker, context=100)
    setting = replace(
        SETTING, close=close, s1_marker=marker, decode=lambda ids: "".join(texts.get(i, "x") for i in ids)
    )

    def closes(prompt_ids: list[int], max_tokens: int) -> Segment:
        return Segment([3, EOS], Stop.EOS) if prompt_ids[-1] == 12 else Segment([4, *texts], Stop.MARKER)

    assert answer(Cell("s1", Budget(20, 4)), closes, setting=setting)[0] == [4, 5, 4, 5, 4, *texts, 3, EOS]


@pytest.mark.parametrize("method", ["separate", "truncation", "unconstrained", "s1", "l1_max"])
@pytest.mark.parametrize(
    ("prompt", "sampled", "end"),
    [
        ("assistant:", "The sum is 4.", ThinkingEnd.NONE),
        ("assistant:", "\n<think>4?", ThinkingEnd.EOS),
        ("assistant:<think>", "The sum is 4.", ThinkingEnd.EOS),
    ],
)
def test_an_answer_without_thinking_is_a_solution(method: str, prompt: str, sampled: str, end: ThinkingEnd) -> None:
    def decode(ids: Sequence[int], **_: Any) -> str:
        return "".join(map(chr, ids))

    marker = Marker("</think>", (CLOSE,), (CLOSE,), close_tokens=1, opener="<think>", decode=decode)
    close = ThinkingClose(marker, context=100)
    setting = replace(SETTING, close=close, s1_marker=marker, decode=decode)
    cell = Cell(method, METHODS[method].keeps(Budget(20, 4)) or Budget(20, 4))
    tree: Tree[Cell] = Tree(0, 0, marker, decode)
    tree.start(cell, METHODS[method].complete(tree, Question([*map(ord, prompt)], cell.budget), setting))
    (((_, branch), _),) = tree.requests()
    tree.receive(branch, Segment([*map(ord, sampled)], Stop.EOS))
    completion = tree.completions[cell]
    assert completion.thinking_end is end and completion.solution_tokens == len(sampled) * (end is ThinkingEnd.NONE)
    assert decode(completion.graded_ids) == sampled * (end is ThinkingEnd.NONE)


def test_a_method_that_keeps_a_total_is_refused() -> None:
    with pytest.raises(UserError, match=r"separate keeps the budget 8\+4/10; a method's budget has no total"):
        Cell("separate", Budget(8, 4, total=10))


def test_truncation_makes_nothing_of_an_unfinished_thought() -> None:
    assert answer(Cell("truncation", Budget(3, 2)), endless) == ([4] * 5, ThinkingEnd.TOTAL, True)
    assert answer(Cell("truncation", Budget(3, 2)), concise) == ([4, 4, CLOSE, 3, EOS], ThinkingEnd.CLOSED, False)
    # A close that is the last of all tokens leaves none for the solution.
    assert answer(Cell("truncation", Budget(2, 1)), concise) == ([4, 4, CLOSE], ThinkingEnd.CLOSED, True)


def test_mixed_answers_after_the_thinking_that_it_is_given() -> None:
    given = Segment([2, 2, 2, CLOSE], Stop.MARKER)
    for thinking in (8, 4):  # of which its close is the last
        assert answer(Cell(MIXED, Budget(thinking, 4)), concise, given)[0] == [2, 2, 2, CLOSE, 3, EOS]
    # Cut at a smaller budget, it is closed by force.
    tokens, end, _ = answer(Cell(MIXED, Budget(2, 4)), concise, given)
    assert tokens == [2, 2, CLOSE, 3, EOS] and end is ThinkingEnd.FORCED
