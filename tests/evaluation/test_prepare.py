"""What is checked and settled before an engine is started: prompts, sampling, context, adapters."""

import json
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import huggingface_hub
import pytest
from conftest import BASE, options
from server_stub import ServerStub
from transformers import AutoTokenizer

import e1_trl
from e1_trl.atomic import StoreError
from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import BudgetInfo, Point
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.errors import UserError
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.command import main
from e1_trl.evaluation.methods import MethodOptions
from e1_trl.evaluation.model import Weights
from e1_trl.evaluation.prepare import Prepared, prepare
from e1_trl.evaluation.sampling_plan import Problem, SamplingPlan
from e1_trl.evaluation.store import Store
from e1_trl.report.conditions import Conditions
from e1_trl.rollout import Segment, Stop

Prepare = Callable[..., Prepared]
AT = ("--budgets", "16+16")


@pytest.fixture
def prepared(nano_data: Path, tmp_path: Path) -> Prepare:
    """Prepare an evaluation of the nano base on its problems; later words override earlier ones."""
    return lambda *words: prepare(parse(options(nano_data, tmp_path, *words)))


def conditions(work: Prepared) -> Conditions:
    return Conditions.from_text(work.alike["conditions"])


def engine_options(work: Prepared) -> dict[str, object]:
    assert isinstance(work.model, Weights)
    return work.model.options(context=100, seed=3)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the nano base, to be changed."""
    return shutil.copytree(BASE, tmp_path / "model")


@pytest.fixture
def long_data(tmp_path: Path) -> Path:
    """Problems of which every other one has a long prompt, the first included."""
    rows = [{"problem": "a=1;" * length + "a?", "answer": "1"} for length in (300, 1, 300, 2)]
    file = tmp_path / "long.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_what_cannot_work_is_refused_before_a_model_is_loaded(
    prepared: Prepare, long_data: Path, model: Path, tmp_path: Path
) -> None:
    (model / "chat_template.jinja").unlink()
    long = ("--dataset_name", long_data, "--dataset_split", "train")
    raw = tmp_path / "raw.jsonl"
    raw.write_text(json.dumps({"prompt": "<|user|>a?<|assistant|><think>", "answer": "1"}) + "\n")
    texts = ("--dataset_name", raw, "--dataset_split", "train", "--methods")
    refused = [
        ("^a prompt of .* does not fit the context", ("--budgets", "2000+16")),
        ("^no answer from http://127.0.0.1:9/v1", ("--base_url", "http://127.0.0.1:9/v1")),
        ("l1_max asks for a length behind a problem, but the prompts are texts", (*texts, "separate", "l1_max")),
        ("needs thinking_from", ("--dataset_name", tmp_path / "none", "--methods", "mixed")),
        ("has no chat template", ("--model", model)),
        ("which has no revision 'v1'", ("--revision", "v1")),
        ("engine_args sets seed, which", ("--engine_args", '{"seed": 1}')),
        ("a prompt of 12.. tokens with budget 16.16", long),
        ("the first 1 prompts are all longer", (*long, "--max_problems", 1, "--max_prompt_length", 1000)),
        ("samples is 4, which are all the same at temperature 0", ("--samples", 4, "--temperature", 0)),
        ("logit_bias names the token 99; the vocabulary has ", ("--logit_bias", '{"99": -100}')),
    ]
    for expected, words in refused:
        with pytest.raises((ValueError, OSError), match=expected) as error:
            prepared(*AT, "--output", tmp_path / "out", *words)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_marker_forced_text_and_budgets_are_the_models_own_unless_others_are_named(
    prepared: Prepare, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match=r"budgets is empty, and .* has no budget.json; name some"):
        prepared("--model", model)

    measured = {"problems": 1, "samples": 1, "accuracy": 1.0, "ci_low": 0.0, "ci_high": 1.0}
    measured |= {"mean_tokens": 1.0, "forced_ratio": 0.0, "eos_ratio": 0.0}
    point = Point(benchmark="b", method="separate", thinking_budget=16, solution_budget=8, **measured)
    trained = BudgetInfo(";", "0;", 2, Budget(32, 16, 40))
    only = ("--methods", "separate", "--model", model)
    for curve, budgets in (((), ["32+16"]), ((point, replace(point, method="truncation")), ["16+8"])):
        replace(trained, curve=curve).write(model)
        work = prepared(*only)
        assert [str(goal.cell.budget) for goal in work.plan.goals] == budgets
        assert work.plan.setting.decode(work.plan.setting.close.marker.forced_ids) == "0;"
        assert (conditions(work).marker, conditions(work).forced_text) == (";", "0;"), "the report says it"
    assert f"marker: ';', from budget.json of {model}" in caplog.text

    (model / "e1").mkdir()
    asked = {"instruction": "Be brief.", "chat_template_kwargs": {"thinking": True}}
    (model / "e1/origin.json").write_text(json.dumps(asked))
    unset = replace(work.arguments, instruction=None)
    for arguments, told in ((unset, True), (replace(unset, instruction="", chat_template_kwargs='{"a": 1}'), False)):
        caplog.clear()
        prepare(arguments)
        assert (f"instruction: 'Be brief.' in the training of {model}, but not here" in caplog.text) is told
        assert (f"chat_template_kwargs: {{'thinking': True}} in the training of {model}" in caplog.text) is told

    work = prepared(*only, "--budgets", "8+8", "--marker", "</think>")
    assert [str(goal.cell.budget) for goal in work.plan.goals] == ["8+8"]
    marker = work.plan.setting.close.marker
    assert marker.forced_ids == marker.ids and work.plan.setting.decode(marker.ids) == "</think>"


def test_arguments_of_the_template_the_sampling_and_the_engine_reach_it(prepared: Prepare, model: Path) -> None:
    template = (model / "chat_template.jinja").read_text()
    (model / "chat_template.jinja").write_text(template + "{% if thinking %}a=1;{% endif %}")
    words = ["--model", model, *AT, "--max_problems", 2, "--top_k", 20, "--min_p", 0.1, "--dtype", "float32"]
    words += ["--trust_remote_code", "true", "--engine_args", '{"block_size": 64}']
    plain = prepared(*words)
    more = prepared(*words, "--chat_template_kwargs", '{"thinking": true}')
    ids, longer = (work.plan.problems[0].prompts("") for work in (plain, more))
    assert longer == [*ids, *AutoTokenizer.from_pretrained(BASE).encode("a=1;")]
    assert plain.facts != more.facts
    assert (conditions(plain).top_k, conditions(plain).min_p) == (20, 0.1)
    expected = {"trust_remote_code": True, "dtype": "float32", "block_size": 64, "max_model_len": 100, "seed": 3}
    assert expected.items() <= engine_options(plain).items()


def test_another_logit_bias_in_one_folder_is_refused(prepared: Prepare, tmp_path: Path) -> None:
    plain = prepared(*AT)
    banned = prepared(*AT, "--logit_bias", '{"27": -100, "5": 1.5}')
    assert plain.model.sampling.parameters().keys().isdisjoint({"logit_bias"})
    assert banned.model.sampling.parameters()["logit_bias"] == {5: 1.5, 27: -100.0}
    with Store.open(tmp_path, plain.facts) as store:
        store.bind()
    said = r"with logit_bias = None, this one has \{'5': 1.5, '27': -100.0\}"
    with pytest.raises(StoreError, match=said), Store.open(tmp_path, banned.facts):
        pass
    assert conditions(plain).unlike(conditions(banned)) == ("logit_bias",)


def test_a_benchmark_of_the_paper_is_sampled_as_in_the_paper(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "aime2024.jsonl").write_text(json.dumps({"problem": "a=1;a?", "answer": "1"}) + "\n")
    words = ["--model", str(BASE), "--benchmark", "aime2024", "--local_benchmarks", str(tmp_path), *AT]

    def sampled(*more: str) -> tuple[int, float, float]:
        work = prepare(parse([*words, *more]))
        return work.plan.goals[0].samples, conditions(work).temperature, conditions(work).top_p

    assert sampled() == (16, 0.6, 0.95)
    assert "sampling 16 times per problem, temperature 0.6, top_p 0.95" in caplog.text
    assert sampled("--temperature", "0") == (1, 0.0, 0.95), "they would all be the same"
    assert sampled("--samples", "2", "--temperature", "1", "--top_p", "1") == (2, 1.0, 1.0)
    (problem,) = prepare(parse(words)).plan.problems
    assert problem.prompt[-1]["content"].endswith("output the final answer within \\boxed{}.")  # type: ignore[index]


def endless(plan: SamplingPlan, problem: Problem) -> dict[str, int]:
    """How many tokens the first sample of a problem has by each method, of a "model" that never ends."""
    tree = plan.tree(problem, 0, ())
    while requests := tree.requests():
        for (_, branch), request in requests:
            tree.receive(branch, Segment([5] * request.max_tokens, Stop.LENGTH))
    return {str(cell): len(completion.token_ids) for cell, completion in tree.completions.items()}


def test_an_answer_without_a_budget_takes_the_authors_length_or_a_context_asked(prepared: Prepare, model: Path) -> None:
    config = json.loads((BASE / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 131_072}))
    words = ("--model", model, *AT, "--methods", "separate", "unconstrained", "l1_max", "--max_problems", 8)
    long = prepared(*words)
    problems = long.plan.problems[:8]
    prompts = [problem.prompts(request) for problem in problems for request in ("", "Think for maximum 16 tokens.")]
    assert len({len(ids) for ids in prompts}) > 1, "prompts of different lengths have answers as long"
    for problem in problems:
        lengths = {"unconstrained unlimited": 32_768, "l1_max 16+16": 32_768, "separate 16+16": 33}
        assert endless(long.plan, problem) == lengths
    assert long.plan.close.context == 32_768 + max(map(len, prompts))
    assert (conditions(long).context, conditions(long).response) == (131_072, 32_768)

    own = prepared(*words, "--max_model_length", 65_536)
    short = prepared(*AT, "--methods", "unconstrained")
    for work, context in ((own, 65_536), (short, 1024)):
        assert (conditions(work).response, work.plan.close.context) == (None, context)


def test_the_context_of_rotary_factors_does_not_depend_on_the_budgets(prepared: Prepare, model: Path) -> None:
    rope = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    size = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 1}
    config = {"model_type": "phi3", "pad_token_id": 0, "max_position_embeddings": 131_072, "rope_scaling": rope, **size}
    (model / "config.json").write_text(json.dumps(config))
    words = ("--model", model, "--methods", "separate", "--budgets")
    contexts = [prepared(*words, each).plan.close.context for each in ("16+16", "5000+16")]
    assert contexts == [131_072, 131_072]
    own = prepared(*words, "16+16", "--max_model_length", 4096)
    assert own.plan.close.context == conditions(own).context == 4096


def test_titles_and_names_say_the_part_of_a_dataset_and_the_model(prepared: Prepare, tmp_path: Path) -> None:
    data = tmp_path / "gsm8k"
    data.mkdir()
    configs = "configs:\n- config_name: main\n  data_files:\n  - split: train\n    path: rows.jsonl\n"
    (data / "README.md").write_text(f"---\n{configs}---\n")
    (data / "rows.jsonl").write_text(json.dumps({"problem": "a=1;a?", "answer": "1"}) + "\n")
    part = prepared(*AT, "--dataset_name", data, "--dataset_config", "main", "--dataset_split", "train")
    assert (part.alike["benchmark"], part.alike["model"]) == ("gsm8k-main-train", str(BASE))
    assert part.facts["dataset"].startswith("gsm8k: "), "as folders of earlier versions have it"


def test_what_is_left_out_for_its_length_is_counted_and_what_repeats(
    prepared: Prepare, long_data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = ("--dataset_name", long_data, "--dataset_split", "train")
    work = prepared(*AT, *long, "--max_prompt_length", 100, "--max_problems", 3)
    assert [problem.index for problem in work.plan.problems] == [1, 3] and work.plan.goals[0].problems == 3
    assert [problem.index for problem, _ in work.plan.places()] == [1]
    assert (conditions(work).problems, conditions(work).max_prompt_length) == (4, 100)
    assert "1 of 4 problems repeat others; intervals treat all as independent" in caplog.text


def test_a_dry_run_shows_the_first_prompt_that_is_kept_and_how_its_answers_are_graded(
    long_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*AT, "--dataset_split", "train", "--max_prompt_length", 100, "--instruction", "", "--dry_run", "true"]
    main(options(long_data, tmp_path / "output", *words))
    printed = capsys.readouterr().out
    assert "\n<|user|>a=1;a?<|assistant|><think>\n" in printed and "thinking         opened by the prompt\n" in printed
    assert r"graded           \boxed{1} is correct; \boxed{11} is wrong" in printed
    rows = map(json.loads, long_data.read_text().splitlines())
    long_data.write_text("".join(json.dumps({**row, "answer": "1 apple and pears"}) + "\n" for row in rows))
    with pytest.raises(UserError, match=r"^accepted answers are not graded as they should be: \\boxed\{1\} is wrong"):
        main(options(long_data, tmp_path / "output", *words))
    assert not (tmp_path / "output").exists()


def test_a_question_that_the_tokenizer_loses_is_told(prepared: Prepare, caplog: pytest.LogCaptureFixture) -> None:
    prepared(*AT)
    assert "loses a part of a question" not in caplog.text
    prepared(*AT, "--instruction", "Put the answer into a box.")  # nano's tokenizer has few words
    assert "loses a part of a question: expected" in caplog.text and "--instruction replaces" in caplog.text


def test_the_context_of_a_server_is_that_of_the_evaluation(
    prepared: Prepare, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def asked(url: str, *more: object) -> Prepared:
        return prepared("--base_url", url, "--served_model_name", "m", *AT, *more)

    with ServerStub(models=[{"id": "m", "max_model_len": 512}]) as server:
        work = asked(server.url)
        assert work.plan.close.context == work.plan.setting.close.context == conditions(work).context == 512
        assert work.alike["model"] == "m" and asked(server.url, "--name", "other").alike["model"] == "other"
        longest = max(len(problem.prompts("")) for problem in work.plan.problems)
        assert caplog.messages[-1] == (
            "256 answers by each method at each budget, of at most so many tokens: separate 33, truncation 32, "
            f"s1 34, no_thinking 18, unconstrained {512 - longest} (unconstrained has no budget; --methods can leave "
            "it out)"
        )
        said = "^a prompt of .* with budget 480.16 .* does not fit the context of 512 tokens: "
        with pytest.raises(UserError, match=said):
            asked(server.url, "--budgets", "480+16", "--methods", "unconstrained", "s1")
        assert asked(server.url, "--max_model_length", 256).plan.close.context == 256
        with pytest.raises(UserError, match="serves m, not 'other'; set served_model_name"):
            asked(server.url, "--served_model_name", "other")
        with Store.open(tmp_path, work.facts) as store:
            store.bind()
        server.shutdown()
    # What has begun goes on with its context, and, where it is whole, without the server.
    assert asked(server.url).facts == work.facts
    assert asked(ServerStub().url, "--output", tmp_path / "other").plan.close.context == 1024


def adapter(folder: Path, **settings: object) -> Path:
    """The configuration of a LoRA adapter of the nano base, which is all that is looked at beforehand."""
    folder.mkdir(parents=True)
    config = {"peft_type": "LORA", "base_model_name_or_path": str(BASE), "r": 12, "bias": "none", **settings}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def test_an_adapter_that_would_be_served_wrongly_is_refused(tmp_path: Path) -> None:
    wrong = {"modules_to_save": ["lm_head"], "use_dora": True, "bias": "all", "r": 1024, "lora_bias": True}
    wrong |= {"rank_pattern": {"q_proj": 4}, "alpha_pattern": {"q_proj": 4}, "base_model_name_or_path": None}
    wrong |= {"peft_type": "IA3", "init_lora_weights": "pissa", "alora_invocation_tokens": [1]}
    wrong |= {"trainable_token_indices": [1], "layer_replication": [[0, 2]]}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=r"vLLM serves plain LoRA adapters only \(.*\); merge it into its base"):
            Checkpoint.find(str(adapter(tmp_path / name, **{name: value})), None)
    assert Checkpoint.find(str(adapter(tmp_path / "plain", init_lora_weights="gaussian", use_rslora=True)), None).rank


def test_an_adapter_takes_tokenizer_and_context_from_its_base(prepared: Prepare, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter")
    work = prepared(*AT, "--model", folder)
    assert work.model.checkpoint == Checkpoint(str(BASE), None, adapter=str(folder), rank=12)
    assert {"tokenizer": str(BASE), "max_lora_rank": 16}.items() <= engine_options(work).items()


def test_weights_are_known_by_all_that_an_engine_reads_and_by_nothing_else(tmp_path: Path) -> None:
    generation = "generation_config.json"
    read = {"config.json": "{}", "model.safetensors": "", generation: "{}", "pytorch_model.bin": ""}
    found = []
    later = {"training_args.bin": "", "README.md": ""}
    for file, text in (*read.items(), (generation, '{"eos_token_id": [1, 2]}'), *later.items()):
        (tmp_path / file).write_text(text)
        found.append(Checkpoint(str(tmp_path)).fingerprint())
    assert len(set(found)) == 5 and len({*found[4:]}) == 1


def test_the_revision_of_a_model_or_an_adapter_on_the_hub_is_the_one_that_is_loaded(
    prepared: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a cache as the Hub's client leaves it, and without the Hub."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    commits = {"main": "0" * 40, "v1": "1" * 40}
    for name in ("nano", "adapter"):
        repository = tmp_path / f"models--someone--{name}"
        (repository / "refs").mkdir(parents=True)
        for reference, commit in commits.items():
            (repository / "refs" / reference).write_text(commit)
            if name == "adapter":
                folder = adapter(repository / "snapshots" / commit, base_model_name_or_path="someone/nano")
                (folder / "e1").mkdir()
                origin = {"base": "someone/nano", "commit": commits["v1"]} if reference == "v1" else {}
                (folder / "e1/origin.json").write_text(json.dumps(origin))
            else:
                shutil.copytree(BASE, repository / "snapshots" / commit)
    of_adapter = Checkpoint.find("someone/adapter", "v1")
    assert of_adapter.fingerprint() == f"{commits['v1']} + {commits['v1']}", "the base that was trained"
    assert Checkpoint.find("someone/adapter", None).fingerprint() == f"{commits['main']} + {commits['main']}"
    assert str(of_adapter.adapter_folder).endswith(commits["v1"])
    of_folder = adapter(tmp_path / "own", base_model_name_or_path="someone/nano", revision="v1")
    pinned = prepared(*AT, "--model", of_folder)
    assert {"revision": "v1", "tokenizer_revision": "v1"}.items() <= engine_options(pinned).items()
    work = prepared(*AT, "--model", "someone/nano", "--revision", "v1")
    assert (work.facts["model"], work.alike["model"]) == (commits["v1"], "someone/nano@v1")
    assert "budget.json of someone/nano is not in the cache, and the Hub cannot be asked" in caplog.text
    assert {"revision": "v1", "tokenizer_revision": "v1"}.items() <= engine_options(work).items()


def test_a_methods_option_is_handed_over_and_recorded_but_named_in_two_files_at_most(prepared: Prepare) -> None:
    work = prepared(*AT, "--s1_waits", 3, "--wait_text", "Hm")
    assert work.plan.setting.options.s1_waits == 3
    assert work.facts["s1_waits"] == 3
    assert conditions(work).options == {"s1_text": r"\boxed{", "wait_text": "Hm", "s1_waits": 3}
    package = [path.read_text() for path in Path(e1_trl.__path__[0]).rglob("*.py")]
    for each in fields(MethodOptions):
        assert sum(each.name in text for text in package) <= 2
