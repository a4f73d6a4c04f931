"""The opening of a thinking is not shown."""

from hypothesis import given
from hypothesis import strategies as st

from e1_trl.serving.response import OPENING, OpeningFilter


def shown(text: str, cuts: list[int]) -> str:
    opening = OpeningFilter()
    places = sorted({min(cut, len(text)) for cut in cuts})
    pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    return "".join(map(opening.strip, pieces)) + opening.flush()


@given(st.sampled_from(["", "\n", " "]), st.text(alphabet="<think> a"), st.lists(st.integers(0, 20)))
def test_the_opening_is_not_shown_however_it_comes(before: str, text: str, cuts: list[int]) -> None:
    assert shown(before + OPENING + text, cuts) == text
    whole = "a" + before + text
    assert shown(whole, cuts) == whole


def test_what_only_begins_like_the_opening_is_shown() -> None:
    assert shown("<thin", [1, 3]) == "<thin" and shown("<thing>", [4]) == "<thing>" and shown("", []) == ""
