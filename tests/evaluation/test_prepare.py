"""What is checked and settled before an engine is started: prompts, sampling, context, adapters."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import BASE, options
from transformers import AutoTokenizer

from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import Point, Trained
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.plan import Plan, Problem
from e1_trl.evaluation.prepare import prepare
from e1_trl.evaluation.start_engine import engine_options
from e1_trl.rollout import Segment, Stop

AT = ("--budgets", "16+16")


def test_what_cannot_work_is_refused_before_a_model_is_loaded(nano_data: Path, tmp_path: Path) -> None:
    out, nowhere = tmp_path / "out", "http://127.0.0.1:9/v1"
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    long = tmp_path / "long.jsonl"
    rows = [{"problem": "a=1;" * 300 + "a?", "answer": "1"}, {"problem": "a=1;a?", "answer": "1"}]
    long.write_text("".join(json.dumps(row) + "\n" for row in rows))
    untemplated = tmp_path / "untemplated"
    shutil.copytree(BASE, untemplated)
    (untemplated / "chat_template.jinja").unlink()

    at = ("--budgets", "16+16")
    refused = [
        ("does not fit the context of 1024 tokens", options(nano_data, out, "--budgets", "2000+16")),
        ("'x\\+16': 'x' is neither a number", options(nano_data, out, "--budgets", "x+16")),
        ("unknown method 's2'", options(nano_data, out, *at, "--methods", "s2")),
        ("applies to any budget", options(nano_data, out, "--budgets", "unlimited", "--methods", "s1")),
        ("it must hold at least one row", options(empty, out, *at, "--dataset_split", "train")),
        ("name either a benchmark or a dataset_name", options(nano_data, out, *at, "--benchmark", "amc")),
        ("unknown benchmark 'aime'", ["--model", BASE, "--output", out, *at, "--benchmark", "aime"]),
        ("has no chat template", options(nano_data, out, *at, "--model", untemplated)),
        ("which has no revision 'v1'", options(nano_data, out, *at, "--revision", "v1")),
        ("max_problems is 0; it must be 1 or more", options(nano_data, out, *at, "--max_problems", 0)),
        ("needs thinking_from", options(nano_data, out, *at, "--methods", "mixed")),
        ("engine_args sets seed, for which", options(nano_data, out, *at, "--engine_args", '{"seed": 1}')),
        ("seed is -1", options(nano_data, out, *at, "--seed", -1)),
        ("request_seeds is about a server", options(nano_data, out, *at, "--request_seeds", "false")),
        ("a prompt of 12.. tokens with budget 16.16", options(long, out, *at, "--dataset_split", "train")),
        (
            "the first 1 prompts are all longer",
            options(long, out, *at, "--dataset_split", "train", "--max_problems", 1, "--max_prompt_length", 1000),
        ),
        (
            "samples is 4, which are all the same at temperature 0; ask for 1",
            options(nano_data, out, *at, "--samples", 4, "--temperature", 0),
        ),
        ("engine_args is '\\[1\\]'; it must be a JSON object", options(nano_data, out, *at, "--engine_args", "[1]")),
        ("chat_template_kwargs is 'x', which is not", options(nano_data, out, *at, "--chat_template_kwargs", "x")),
        ("--livecodebench needs --benchmark livecodebench", options(nano_data, out, *at, "--livecodebench", "v5")),
        (
            "livecodebench is \\['v5'\\]; it must be like v5",
            ["--model", BASE, *at, "--benchmark", "livecodebench", "--livecodebench", "v5"],
        ),
        (
            "grader is 'programs'; the benchmark amc has its own",
            ["--model", BASE, *at, "--benchmark", "amc", "--grader", "programs"],
        ),
        (
            "program_prompt is 'deepcoder'; the benchmark leetcode has its own",
            ["--model", BASE, *at, "--benchmark", "leetcode", "--program_prompt", "deepcoder"],
        ),
        (
            "max_tests is 3; the benchmark leetcode has its own",
            ["--model", BASE, *at, "--benchmark", "leetcode", "--max_tests", "3"],
        ),
        ("with base_url, the server", options(nano_data, out, *at, "--base_url", nowhere, "--data_parallel_size", 2)),
    ]
    for expected, arguments in refused:
        with pytest.raises((ValueError, OSError), match=expected) as error:
            prepare(parse([str(argument) for argument in arguments]))
        assert "\n" not in str(error.value)
    assert not out.exists()


def test_marker_forced_text_and_budgets_are_the_models_own_unless_others_are_named(
    nano_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tmp_path / "model"
    shutil.copytree(BASE, model)
    with pytest.raises(ValueError, match=r"budgets is empty, and .* has no budget.json; name some"):
        prepare(parse(options(nano_data, tmp_path, "--model", model)))

    measured = {"problems": 1, "samples": 1, "accuracy": 1.0, "ci_low": 0.0, "ci_high": 1.0}
    point = Point("b", "separate", 16, 8, mean_tokens=1.0, forced_ratio=0.0, **measured)
    trained = Trained(";", "0;", 2, Budget(32, 16))
    only = ("--methods", "separate", "--model", model)
    for curve, budgets in (((), ["32+16"]), ((point, replace(point, method="truncation")), ["16+8"])):
        replace(trained, curve=curve).write(model)
        found = prepare(parse(options(nano_data, tmp_path, *only)))
        assert [str(asked.cell.budget) for asked in found.asked] == budgets
        assert found.tokenizer.decode(found.setting.close.marker.ids) == ";"
        assert found.tokenizer.decode(found.setting.close.marker.forced_ids) == "0;"
        assert (found.conditions.marker, found.conditions.forced_text) == (";", "0;"), "the report says it"
    assert f"marker: ';', from budget.json of {model}" in caplog.text

    named = ("--budgets", "8+8", "--marker", "</think>")
    found = prepare(parse(options(nano_data, tmp_path, *only, *named)))
    assert [str(asked.cell.budget) for asked in found.asked] == ["8+8"]
    assert found.setting.close.marker.forced_ids == found.setting.close.marker.ids != (0,)
    assert found.tokenizer.decode(found.setting.close.marker.ids) == "</think>"


def test_arguments_of_the_template_the_sampling_and_the_engine_reach_it(nano_data: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(BASE, model)
    template = (model / "chat_template.jinja").read_text()
    (model / "chat_template.jinja").write_text(template + "{% if thinking %}a=1;{% endif %}")
    asked = ["--model", model, *AT, "--max_problems", 2, "--top_k", 20, "--min_p", 0.1, "--dtype", "float32"]
    asked += ["--trust_remote_code", "true", "--engine_args", '{"block_size": 64}']
    plain = prepare(parse(options(nano_data, tmp_path, *asked)))
    thinking = ["--chat_template_kwargs", '{"thinking": true}']
    more = prepare(parse(options(nano_data, tmp_path, *asked, *thinking)))
    ids, longer = (prepared.plan(prepared.asked).problems[0].prompts[""] for prepared in (plain, more))
    assert longer == [*ids, *AutoTokenizer.from_pretrained(BASE).encode("a=1;")]
    assert plain.manifest != more.manifest
    assert (plain.sampling.top_k, plain.sampling.min_p) == (20, 0.1)
    arguments = engine_options(plain, 100, seed=3)
    expected = {"trust_remote_code": True, "dtype": "float32", "block_size": 64, "max_model_len": 100, "seed": 3}
    assert expected.items() <= arguments.items()


def test_a_benchmark_of_the_paper_is_sampled_as_in_the_paper_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "aime2024.jsonl").write_text(json.dumps({"problem": "a=1;a?", "answer": "1"}) + "\n")
    asked = ["--model", str(BASE), "--benchmark", "aime2024", "--local_benchmarks", str(tmp_path), *AT]
    prepared = prepare(parse(asked))
    assert prepared.asked[0].samples == 16
    assert (prepared.sampling.temperature, prepared.sampling.top_p) == (0.6, 0.95)
    assert "sampling 16 times per problem, temperature 0.6, top_p 0.95" in caplog.text
    assert prepare(parse([*asked, "--temperature", "0"])).asked[0].samples == 1, "they would all be the same"
    own = prepare(parse([*asked, "--samples", "2", "--temperature", "1", "--top_p", "1"]))
    assert (own.asked[0].samples, own.sampling.temperature, own.sampling.top_p) == (2, 1.0, 1.0)


def test_the_prompt_asks_for_a_box_where_nothing_else_is_said(nano_data: Path, tmp_path: Path) -> None:
    arguments = ["--model", str(BASE), "--dataset_name", str(nano_data), "--output", str(tmp_path), *AT]
    prepared = prepare(parse([*arguments, "--max_problems", "1"]))
    assert prepared.problems[0]["prompt"][-1]["content"].endswith("output the final answer within \\boxed{}.")


def endless(plan: Plan, problem: Problem) -> dict[str, int]:
    """How many tokens the first sample of a problem has by each method, of a "model" that never ends."""
    tree = plan.tree(problem, 0, ())
    queue = tree.requests()
    while queue:
        (_, branch), request = queue.pop()
        tree.receive(branch, Segment([5] * request.max_tokens, Stop.LENGTH))
        queue += tree.requests()
    return {str(cell): len(completion.token_ids) for cell, completion in tree.completions.items()}


def test_an_answer_without_a_budget_takes_no_more_than_the_authors_length_unless_another_context_is_asked_for(
    nano_data: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(BASE, model)
    config = json.loads((BASE / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 131_072}))
    asked = ("--model", model, *AT, "--methods", "separate", "unconstrained", "l1_max", "--max_problems", 8)
    long = prepare(parse(options(nano_data, tmp_path, *asked)))
    plan = long.plan(long.asked)
    prompts = [ids for problem in plan.problems for ids in problem.prompts.values()]
    assert len({len(ids) for ids in prompts}) > 1, "prompts of different lengths have answers as long"
    for problem in plan.problems:
        assert endless(plan, problem) == {
            "unconstrained unlimited": 32_768,
            "l1_max 16+16": 32_768,
            "separate 16+16": 33,
        }
    assert plan.context == 32_768 + max(map(len, prompts))
    assert (long.conditions.context, long.conditions.response) == (131_072, 32_768)

    own = prepare(parse(options(nano_data, tmp_path, *asked, "--max_model_length", 65_536)))
    assert own.conditions.response is None and own.plan(own.asked).context == 65_536
    short = prepare(parse(options(nano_data, tmp_path, *AT, "--methods", "unconstrained")))
    assert short.conditions.response is None and short.plan(short.asked).context == 1024


def test_what_is_left_out_for_its_length_is_counted(tmp_path: Path) -> None:
    data = tmp_path / "long.jsonl"
    rows = [{"problem": "a=1;" * length + "a?", "answer": "1"} for length in (1, 100, 2, 100)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = options(data, tmp_path / "out", *AT, "--dataset_split", "train", "--max_prompt_length", 100)
    prepared = prepare(parse([*asked, "--max_problems", "3"]))
    assert prepared.problems["index"][:] == [0, 2] and prepared.asked[0].problems == 3
    assert (prepared.conditions.problems, prepared.conditions.max_prompt_length) == (4, 100)


def adapter(folder: Path, **settings: object) -> Path:
    """The configuration of a LoRA adapter of the nano base, which is all that is looked at beforehand."""
    folder.mkdir(parents=True)
    config = {"peft_type": "LORA", "base_model_name_or_path": str(BASE), "r": 12, "bias": "none", **settings}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "settings",
    [
        {"modules_to_save": ["lm_head"]},
        {"use_dora": True},
        {"bias": "all"},
        {"rank_pattern": {"q_proj": 4}},
        {"alpha_pattern": {"q_proj": 4}},
        {"r": 1024},
        {"base_model_name_or_path": None},
        {"peft_type": "IA3", "r": None},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_an_adapter_that_would_be_served_wrongly_is_refused(settings: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"vLLM serves plain LoRA adapters only \(.*\); merge it into its base first"):
        Checkpoint.find(str(adapter(tmp_path / "adapter", **settings)), None)


def test_an_adapter_takes_tokenizer_and_context_from_its_base_where_it_has_none(
    nano_data: Path, tmp_path: Path
) -> None:
    folder = adapter(tmp_path / "adapter")
    prepared = prepare(parse(options(nano_data, tmp_path, *AT, "--model", folder)))
    assert prepared.checkpoint == Checkpoint(str(BASE), None, adapter=str(folder), rank=12)
    assert engine_options(prepared, 100, seed=0)["tokenizer"] == str(BASE)
    assert engine_options(prepared, 100, seed=0)["max_lora_rank"] == 16


def test_the_revision_of_an_adapter_on_the_hub_is_the_one_that_is_loaded(tmp_path: Path) -> None:
    """In a cache as the Hub's client leaves it, and without the Hub."""
    repository = tmp_path / "models--someone--adapter"
    for name, commit in {"main": "0" * 40, "v1": "1" * 40}.items():
        (repository / "refs").mkdir(parents=True, exist_ok=True)
        (repository / "refs" / name).write_text(commit)
        adapter(repository / "snapshots" / commit)
    program = (
        "from e1_trl.checkpoints.checkpoint import Checkpoint\n"
        "found = Checkpoint.find('someone/adapter', 'v1')\n"
        "print(found.fingerprint(), found.adapter_folder)"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert f"+ {'1' * 40} " in done.stdout and done.stdout.strip().endswith("1" * 40)
