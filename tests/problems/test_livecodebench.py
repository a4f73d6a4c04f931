"""LiveCodeBench's own rows: both encodings of the hidden tests, and what must not come of hostile ones."""

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from e1_trl.answers.programs import livecodebench
from e1_trl.answers.programs.livecodebench import tests_of as read
from e1_trl.answers.programs.rows import read_answer, read_suite
from e1_trl.answers.programs.suite import Rule

PUBLIC = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
PRIVATE = [{"input": "é\u2028\n", "output": "3\n", "testtype": "stdin"}]


def packed(value: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> str:
    return armoured(pickle.dumps(value, protocol))


def armoured(pickled: bytes) -> str:
    return base64.b64encode(zlib.compress(pickled)).decode()


def row(private: Any, public: Any = None, metadata: Any = "{}") -> dict[str, Any]:
    return {
        "question_content": "Add one.",
        "starter_code": "",
        "public_test_cases": json.dumps(PUBLIC) if public is None else public,
        "private_test_cases": private,
        "metadata": metadata,
    }


def test_the_public_tests_come_first_and_the_hidden_ones_in_either_encoding() -> None:
    plain, unescaped = json.dumps(PRIVATE), json.dumps(PRIVATE, ensure_ascii=False)
    pickled = [packed(text, protocol) for text in (plain, unescaped) for protocol in PROTOCOLS]
    for private in (plain, "\n " + plain, *pickled):
        tests = read(row(private))
        assert tests == PUBLIC + PRIVATE, private
    assert [case.input for case in read_suite(tests, Rule.EXACT).cases] == ["1\n", "é\u2028\n"]


class Runs:
    def __init__(self, file: Path):
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (f"echo > {self.file}",)


def test_nothing_of_a_pickle_is_run(tmp_path: Path) -> None:
    file = tmp_path / "escaped"
    hostile = [
        *(packed(Runs(file), protocol) for protocol in PROTOCOLS),
        *(packed([json.dumps(PRIVATE), Runs(file)], protocol) for protocol in PROTOCOLS),
        armoured(b"cos\nsystem\n(S'echo > " + str(file).encode() + b"'\ntR."),
        armoured(b"(S'echo > " + str(file).encode() + b"'\nios\nsystem\n."),
    ]
    for private in hostile:
        with pytest.raises(ValueError, match="a pickle of something else") as error:
            read(row(private))
        assert "\n" not in str(error.value)
    assert not file.exists()
    pickle.loads(zlib.decompress(base64.b64decode(hostile[0])))  # which a careless reader does
    assert file.exists()


def test_what_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(livecodebench, "LARGEST", 2**16)
    fits = json.dumps(PRIVATE).ljust(2**15)
    assert len(read(row(packed(fits)))) == 2
    with pytest.raises(ValueError, match="private_test_cases: over 65536 bytes when unpacked"):
        read(row(packed(" " * 2**28)))


@pytest.mark.parametrize(
    ("private", "message"),
    [
        ("not base64!", "neither a list in JSON nor compressed"),
        (packed(json.dumps(PRIVATE))[:-8], "cut off"),
        ("[" * 10**5, "no JSON"),
        ("[1]", "no list of tests"),
        (3, "expected a text, found int"),
        (packed("not JSON"), "no JSON"),
        (packed(3), "a pickle of something else"),
        (armoured(b"."), "a pickle of 0 texts"),
        (armoured(b"X\x02\x00\x00\x00[]X\x02\x00\x00\x00[]."), "a pickle of 2 texts"),
        (armoured(b"X\xff\xff\xff\x7f[]."), "a pickle of something else"),
        (armoured(b"X\x02\x00\x00\x00[]r\xff\xff\xff\x7f"), "a pickle of something else"),
    ],
)
def test_what_is_no_row_is_one_line(private: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        read(row(private))
    assert "\n" not in str(error.value) and "private_test_cases" in str(error.value)


def test_other_columns_are_checked_too() -> None:
    for column in livecodebench.TESTS:
        lacking = row(json.dumps(PRIVATE))
        del lacking[column]
        with pytest.raises(ValueError, match=f"a row of LiveCodeBench has no '{column}'"):
            read(lacking)
    functional = json.dumps([{"input": "1", "output": "2", "testtype": "functional"}])
    for metadata in ("[]", "{", None):
        with pytest.raises(ValueError, match="do not name one function"):
            read_answer(row(functional, functional, metadata), "private_test_cases", 0)
    with pytest.raises(ValueError, match="public_test_cases: "):
        read(row(json.dumps(PRIVATE), public="{}"))
    with pytest.raises(ValueError, match="unknown shape"):
        read_suite(read(row("[{}]")), Rule.EXACT)
