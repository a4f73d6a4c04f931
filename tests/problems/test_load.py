"""Problems come from files as they are found: text or conversation, with answers under the usual names."""

import gzip
import json
import logging
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA
from datasets import ClassLabel, Dataset, Features, Value

from e1_trl.answers import kinds
from e1_trl.answers.kinds import INSTRUCTION
from e1_trl.answers.mathematics.golds import is_worked_solution
from e1_trl.errors import UserError
from e1_trl.problems import load
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems, make_problems
from e1_trl.problems.prompts import identity
from e1_trl.problems.selection import decontaminate
from e1_trl.problems.source import load_source

pytestmark = pytest.mark.usefixtures("datasets_cache")

ROWS = [
    {"problem": "What is 1 + 1?", "answer": "2", "source": "us"},
    {"problem": "What is 2 + 2?", "answer": " 4 ", "source": "us"},
]
PLAIN = ProblemArguments(instruction="")
ASKED = {"role": "user", "content": "What is 1 + 1?"}
SYSTEM = {"role": "system", "content": "Be brief."}


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def make(rows: list[dict[str, Any]], need_answers: bool = True, **fields: Any) -> Dataset:
    return make_problems(Dataset.from_list(rows), "rows", ProblemArguments(**fields), need_answers)


def test_a_column_of_options_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    options = [{"problem": "?", "answers": ["3.2", "4.1"], "answer": "A"}]
    assert make(options)["answers"] == [["3.2", "4.1"]] and "--answer_column answer reads the other one" in caplog.text
    caplog.clear()
    assert make(options, answer_column="answer")["answers"] == [["A"]] and not caplog.text


def test_every_kind_of_file_gives_the_same_problems(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "test.jsonl", ROWS)
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in ROWS)
    Dataset.from_list(ROWS).to_parquet(tmp_path / "rows.parquet")
    write(tmp_path / "rows.jsonl", ROWS)
    files = [tmp_path / f"rows{suffix}" for suffix in (".jsonl", ".json", ".jsonl.gz", ".parquet")]
    for problems in [
        *(load_problems(str(file), "train", PLAIN) for file in files),
        load_problems(str(tmp_path / "folder"), "test", PLAIN),
    ]:
        assert problems.to_list() == [
            {
                **row,
                "prompt": [{"role": "user", "content": row["problem"]}],
                "answers": [row["answer"].strip()],
                "key": identity(row["problem"]),
            }
            for row in ROWS
        ]


def test_another_version_of_the_package_reads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "rows.jsonl", ROWS)
    prompts = []
    for version in ("1", "1", "2"):
        monkeypatch.setattr(load, "grader_version", lambda *_, version=version: version)
        monkeypatch.setattr(kinds, "INSTRUCTION", f"Box it, says {len(prompts)}.")
        prompts.append(load_problems(file, "train", ProblemArguments())[0]["prompt"][0]["content"][-2:])
    assert prompts == ["0.", "0.", "2."]


@pytest.mark.parametrize(
    ("answers", "accepted"),
    [
        (["2", "025"], [["2"], ["025"]]),
        ([2, 25], [["2"], ["25"]]),
        ([0.5, 2], [["0.5"], ["2"]]),
        ([["2", "two"], ["3"]], [["2", "two"], ["3"]]),
        ([[2, 3], [4]], [["2", "3"], ["4"]]),
        (["So it is $\\boxed{2}$.", "$3$"], [["So it is $\\boxed{2}$."], ["$3$"]]),
    ],
)
def test_answers_may_be_texts_numbers_or_lists(tmp_path: Path, answers: list[Any], accepted: list[list[str]]) -> None:
    file = write(tmp_path / "rows.jsonl", [{"problem": "?", "answer": answer} for answer in answers])
    assert load_problems(file, "train", PLAIN)["answers"][:] == accepted


def test_a_label_is_read_by_its_name() -> None:
    features = Features({"problem": Value("string"), "answer": ClassLabel(names=["no", "yes"])})
    rows = Dataset.from_dict({"problem": ["0?", "1?", "2?"], "answer": ["yes", "no", None]}, features=features)
    made = make_problems(rows, "rows", replace(PLAIN, max_unusable=0.5))
    assert made["answers"][:] == [["yes"], ["no"]]


def test_numbers_that_lose_digits_as_they_are_read_cannot_be_used(tmp_path: Path) -> None:
    answers = [2**54 + 1, 0.5, 2**52 + 1]  # a column of JSON becomes float
    file = write(tmp_path / "rows.jsonl", [{"problem": "?", "answer": answer} for answer in answers])
    kept = load_problems(file, "train", replace(PLAIN, max_unusable=0.5))
    assert kept["answers"][:] == [["0.5"], [str(2**52 + 1)]]


def test_unnamed_columns_are_the_first_of_the_usual_ones() -> None:
    problems, answers = ["question", "problem", "prompt"], ["solution", "answer", "answers"]
    for last in (1, 2, 3):
        (row,) = make([{column: f"in {column}" for column in problems[:last] + answers[:last]}], instruction="")
        assert (row["problem"], row["answers"]) == (f"in {problems[last - 1]}", [f"in {answers[last - 1]}"])


def test_named_columns_win_and_all_others_stay_as_they_are() -> None:
    source = {"problem": "no", "answers": [1.5], "prompt": 3, "question": "1 + 1?", "final": 2, "solution": "two"}
    (row,) = make([source], problem_column="question", answer_column="final", instruction="")
    ours = {"problem": "1 + 1?", "prompt": [{"role": "user", "content": "1 + 1?"}], "answers": ["2"]}
    assert row == {**source, **ours, "key": identity("1 + 1?")}


TURNS = [SYSTEM, {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}, ASKED]
QUESTION = ASKED["content"]


@pytest.mark.parametrize(
    ("row", "instruction", "prompt"),
    [
        ({"problem": QUESTION}, None, [{"role": "user", "content": f"{QUESTION} {INSTRUCTION}"}]),
        ({"problem": QUESTION}, "Box it.", [{"role": "user", "content": f"{QUESTION} Box it."}]),
        ({"prompt": TURNS}, None, TURNS),
        ({"prompt": TURNS}, "Box it.", [*TURNS[:-1], {"role": "user", "content": f"{QUESTION} Box it."}]),
        ({"prompt": QUESTION}, None, QUESTION),  # a text, as in TRL
        ({"prompt": QUESTION}, "Box it.", f"{QUESTION} Box it."),
    ],
)
def test_a_problem_is_asked_for_its_answer_and_a_prompt_as_the_recipe_says(
    row: dict[str, Any], instruction: str | None, prompt: Any
) -> None:
    (made,) = make([{**row, "solution": "2"}], instruction=instruction)
    asked = f"2 + 2?\n\n{QUESTION}" if len(prompt) == len(TURNS) else QUESTION
    assert (made["prompt"], made["problem"], made["key"]) == (prompt, asked, identity(asked))


def test_answers_are_not_needed_where_nothing_grades_them() -> None:
    (row,) = make([{"prompt": [ASKED]}], need_answers=False)
    assert (row["prompt"], row["answers"]) == ([ASKED], [])
    rows = make([{"prompt": "?", "answer": answer} for answer in ("1", "")], need_answers=False)
    assert rows["answers"][:] == [["1"], []]
    with pytest.raises(ValueError, match="no column 'gold'"):
        make([{"prompt": "?"}], need_answers=False, answer_column="gold")


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({"problem_column": "text"}, "'text'; the columns are id, solution; name one as problem_column"),
        ({}, "prompt or problem or question; the columns are id, solution; name one as problem_column"),
        ({"problem_column": "id", "answer_column": "gold"}, "'gold'; .* are id, solution; name one as answer_column"),
    ],
)
def test_missing_column_is_named_with_those_there_are(fields: dict[str, str], missing: str) -> None:
    with pytest.raises(ValueError, match=f"^rows: no column {missing}$"):
        make([{"id": "1", "solution": "2"}], **fields)


def test_what_holds_no_rows_is_named(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "train.jsonl"
    file.parent.mkdir()
    (tmp_path / "table.csv").touch()
    with pytest.raises(UserError, match=r"table.csv has none of the suffixes \.jsonl, .* that holds it as train\.csv$"):
        load_source(str(tmp_path / "table.csv"), "train[:5]")
    with pytest.raises(ValueError, match=rf"^no file {re.escape(str(file))}"):
        load_source(str(file), "train")
    write(file, ROWS)
    with pytest.raises(ValueError, match=r"split test: .*\['train'\]"):
        load_source(str(file.parent), "test")


GOOD = json.dumps(ROWS[0]).encode() + b"\n"


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("rows.jsonl", b"", "it holds no row"),
        ("rows.jsonl", b"\n", "corresponds to no data"),
        ("rows.jsonl", GOOD + b'{"problem": "1 +', "JSON parse error: .* in row 1$"),
        ("rows.jsonl", GOOD + b"\n[1, 2]\n", r"Column\(\) changed from object to array in row 1$"),
        ("rows.jsonl.gz", gzip.compress(GOOD * 1000, mtime=0)[:50], "Compressed file ended before"),
        ("rows.jsonl.gz", GOOD, "Not a gzipped file"),
        ("rows.json", b'[{"problem": "1"},\n{"problem" "2"}]', "No ':' found"),
        ("rows.parquet", GOOD, "Parquet magic bytes not found"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_reason(tmp_path: Path, name: str, content: bytes, fault: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"^{re.escape(str(tmp_path / name))}, split train: .*{fault}"):
        load_problems(str(tmp_path / name), "train", PLAIN)


def test_a_file_is_any_one_split_or_a_slice_of_it(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", ROWS)
    for split, rows in {"train": ROWS, "test": ROWS, "test[1:]": ROWS[1:]}.items():
        assert load_source(file, split).to_list() == rows, split


def test_a_file_that_was_corrected_is_read_again_though_its_time_is_the_same(tmp_path: Path) -> None:
    for rows in (ROWS, ROWS[1:]):
        file = write(tmp_path / "rows.jsonl", rows)
        os.utime(file, (0, 0))
        assert load_source(file, "train").to_list() == rows


def test_rows_that_cannot_be_used_are_left_out_and_the_first_named(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"problem": f"{i} + 1?", "answer": "" if i % 150 == 10 else str(i + 1)} for i in range(900)]
    with caplog.at_level(logging.WARNING):
        problems = make(rows)
    assert len(problems) == 894
    assert problems[10]["answers"] == ["12"]
    assert caplog.messages == [
        "rows: 6 of 900 rows cannot be used (row 10, column 'answer': ''; row 160, column 'answer': ''; "
        "row 310, column 'answer': ''; …); they are left out"
    ]


def test_a_conversation_is_named_by_its_user_and_holds_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    last = {"role": "user", "content": "Box it."}
    reply = {"role": "assistant", "content": "2"}
    talks = [[{"role": "user", "content": text}, reply, last] for text in ("1 + 1?", "2 + 2?")]
    blank = [{"role": "system", "content": ""}, ASKED]
    rows = [{"problem": talk, "answer": "2"} for talk in (*talks, blank, [ASKED, reply])]
    problems = make(rows, max_unusable=0.5, instruction="")
    assert problems["problem"][:] == ["1 + 1?\n\nBox it.", "2 + 2?\n\nBox it.", ASKED["content"]]
    assert len(set(problems["key"])) == 3 and "1 of 4 rows cannot be used (row 3, " in caplog.text


def test_more_rows_that_cannot_be_used_than_allowed_are_an_error() -> None:
    rows = [{"problem": "?", "answer": "1"}, {"problem": None, "answer": "1"}, {"problem": "?", "answer": None}]
    with pytest.raises(ValueError, match=r"^rows: 2 of 3 rows .*'problem': None; row 2, column 'answer': None\); max"):
        make(rows)
    assert len(make(rows, max_unusable=0.7)) == 1
    with pytest.raises(ValueError, match="2 of 2 rows cannot be used"):
        make(rows[1:], max_unusable=1.0)


@pytest.mark.parametrize(
    ("column", "usable", "unusable"),
    [
        ("problem", "?", ["  ", None]),
        ("prompt", "?", [" "]),
        ("prompt", [ASKED], [None, [], [SYSTEM], [{**ASKED, "content": " "}], [{**ASKED, "tool_calls": ["add"]}]]),
        ("answer", "1", ["  ", None]),
        ("answer", ["1"], [[], ["1", ""], ["1", None], None]),
        ("answer", 1.0, [float("nan")]),
    ],
)
def test_a_row_without_problem_or_answer_cannot_be_used(column: str, usable: Any, unusable: list[Any]) -> None:
    row = {"answer": "1", column: usable} if column == "prompt" else {"problem": "?", "answer": "1", column: usable}
    for value in unusable:
        assert len(make([row, {**row, column: value}], max_unusable=0.5)) == 1, value


@pytest.mark.parametrize(("column", "value"), [("problem", 3), ("answer", True)])
def test_a_column_of_another_kind_is_an_error(column: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"1 of 1 rows cannot be used.*column '{column}': {value}"):
        make([{"problem": "?", "answer": "1"} | {column: value}])


WORKED = [
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72",
    "There are 185 days and 5 are left out. So the answer is: 180.",
    "The answer is 72.",
    "Half of the twelve friends who came to the party each ate two of the cakes that he had baked, which makes 12.",
    "因为他每天跑三公里一共跑了六天所以是十八公里",
]


def test_a_gold_answer_that_is_a_worked_solution_is_refused_and_three_are_shown() -> None:
    with pytest.raises(UserError) as error:
        make([{"problem": "?", "answer": answer} for answer in WORKED])
    assert re.match(
        r"rows: 5 of 5 rows cannot be used \(row 0, column 'answer': 'Natalia sold.* 72' \(a worked solution, or a "
        r"sentence\); row 1, .*; row 2, .*'The answer is 72.' \(a worked .*\); …\); max_unusable is 0.01; .*set "
        "answer_after to",
        str(error.value),
    )
    # Where nothing grades them, a reward of one's own may read them; and one accepted form that is short is enough.
    assert make([{"problem": "?", "answer": WORKED[0]}], need_answers=False)["answers"][:] == [[WORKED[0]]]
    assert len(make([{"problem": "?", "answer": [WORKED[0], "72"]}])) == 1


def test_answers_begin_after_the_text_that_precedes_them() -> None:
    rows = [{"problem": "?", "answer": answer} for answer in (*WORKED[:1], "A #### B\n#### 5", "7")]
    assert make(rows, answer_after="####")["answers"][:] == [["72"], ["5"], ["7"]]
    forms = [{"problem": "?", "answer": ["It is #### 5", "Or #### 5.0"]}]
    assert make(forms, answer_after="####")["answers"][:] == [["5", "5.0"]]
    with pytest.raises(UserError, match=r"1 of 1 rows .*'5 is all ####'\)"):
        make([{"problem": "?", "answer": "5 is all ####"}], answer_after="####")


def test_no_honest_gold_answer_of_a_public_set_is_taken_for_a_worked_solution() -> None:
    files = sorted(DATA.glob("math_*/*.jsonl*"))
    if not files:
        pytest.skip(f"{DATA} is not on this machine")
    golds = 0
    for file in files:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt") as lines:
            rows = [json.loads(line) for line in lines]
        found = [str(form) for row in rows for form in row.get("answers") or [row["answer"]]]
        assert [gold for gold in found if is_worked_solution(gold)] == []
        golds += len(found)
        if "gsm8k" in file.name:  # as its authors publish it
            assert all(is_worked_solution(row["solution"]) for row in rows)
    assert golds > 50_000


def of(*texts: str) -> Dataset:
    return make([{"problem": text, "answer": "1"} for text in texts])


def test_problems_that_are_evaluated_on_are_not_trained_on(caplog: pytest.LogCaptureFixture) -> None:
    problems = of("Find $x_1$ if $2 - x_1 \\leqslant 1.5$.", "Find $x_1$ if $2 + x_1 \\le 1.5$.", "Find 1.5!", "15!")
    others = of("find \\( x_{1} \\), if\n\\[ 2-x_{1} \\leq 1.5 \\]", "15")
    with caplog.at_level(logging.WARNING):
        left = decontaminate(problems, others, "math500")
    assert left["problem"][:] == problems["problem"][1:]
    assert caplog.messages == ["left out 1 of 4 problems: they occur in math500"]
    long = "Find the number of ways to colour the faces of a cube red or blue."
    asked = [[{"role": "user", "content": f"Solve. {text} Box it: \\boxed{{}}"}] for text in (long, "1 + 1?", long[1:])]
    left = decontaminate(make([{"prompt": each, "answer": "1"} for each in asked]), of("1+1?", long.lower()), "math500")
    assert left["prompt"][:] == asked[1:]
    scripts = ("Find $2^{10}$ modulo 7.", "Find $210$ modulo 7.", "What is $12_3$?", "What is $123$?")
    assert len(decontaminate(of(*scripts), of(*scripts[::2]), "math500")) == 2
    spelt = of(r"Find $\big(2-x^2\big)\cdot 90^\circ$ if $x\ge\pi$, \ldots, \operatorname{gcd}(x)")
    assert len(decontaminate(of("Find (2−x²)·90° if x≥π, ..., gcd(x)", "Find 2+x²"), spelt, "math500")) == 1
    with pytest.raises(ValueError, match=r"^all 1 problems occur in math500"):
        decontaminate(of("1 + 1?"), of("1+1?", "2+2?"), "math500")


@pytest.mark.slow
def test_every_real_overlap_with_the_benchmarks_is_found() -> None:
    train, folder = DATA / "math_train" / "deepscaler.jsonl.gz", DATA / "math_eval"
    if not train.exists() or not folder.exists():
        pytest.skip(f"{train} or {folder} is not on this machine")
    problems = load_problems(str(train), "train", PLAIN)
    for benchmark, known, found in [("math500", 7, 11), ("olympiadbench675", 1, 10), ("aime2024", 0, 0)]:
        others = load_problems(str(folder / f"{benchmark}.jsonl"), "train", PLAIN)
        left = decontaminate(problems, others, benchmark)
        assert len(problems) - len(left) == found
        assert sum(benchmark in (row or []) for row in problems["overlaps_eval"]) == known
        assert not any(benchmark in (row or []) for row in left["overlaps_eval"])
