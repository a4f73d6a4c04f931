"""A recipe shown before it is trained."""

import json
import re
import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import DeepSpeedPlugin
from conftest import BASE, CODE_BASE, ROOT
from hub_stub import serving_hub
from peft import LoraConfig, get_peft_model
from test_config import config
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerState
from trl import ModelConfig
from trl.trainer.utils import RepeatSampler

from e1_trl.checkpoints.model_card import BaseModel
from e1_trl.errors import UserError
from e1_trl.train import main, make_adapter, train
from e1_trl.training.beforehand import check_model
from e1_trl.training.dry_run import steps_of
from e1_trl.training.resumption import check_output, check_same_adapter, check_same_base, find_checkpoint
from experiments.families.models import make_model, save

NANO = (
    *("--config", ROOT / "experiments" / "nano" / "recipe.yaml", "--model_name_or_path", BASE, "--use_cpu", "true"),
    *("--grading_time_limit", 60),  # seconds, which no loaded machine takes
)


def dry_run(*options: object) -> None:
    main([str(part) for part in (*NANO, "--dry_run", "true", *options)])


def test_a_dry_run_shows_what_would_be_trained_on_and_loads_no_model(
    nano_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(row) for row in (nano_data / "train.jsonl").read_text().splitlines()[:100]]
    # A gold answer that holds a box is graded by what is in it.
    first, answer = rows[0]["problem"], rows[0]["answer"]
    rows = [{**rows[0], "answer": f"So it is $\\boxed{{{answer}}}$."}, *rows[1:], {"problem": "", "answer": "3"}]
    (tmp_path / "hundred.jsonl").write_text("\n".join(map(json.dumps, rows)))
    dry_run(
        "--dataset_name", tmp_path / "hundred.jsonl", "--output_dir", tmp_path / "run", "--forced_text", "</think>a"
    )
    printed = capsys.readouterr().out
    for line in (
        f"<|user|>{first}<|assistant|><think>",
        "marker           '</think>' = [5]",
        "forced text      '</think>a' = [5, 16], closed by the first 1",
        "budget           64+32 tokens: completions of up to 98",
        "context          162 tokens, with prompts of up to 64",
        "rewards          accuracy x 1",
        "training         100 prompts, 60 steps",
        "a step           512 rollouts: 128 per device x 4 accumulated x 1 processes",
        "a generation     64 prompts x 8 rollouts, for 1 steps",
    ):
        assert line in printed, printed
    assert rf"\boxed{{{answer}}} is correct; \boxed{{{answer}1}} is wrong" in printed
    assert not (tmp_path / "run").exists()


def test_a_dry_run_calls_the_rewards_as_a_training_does(
    nano_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_rewards.py").write_text(
        "def ended(completions, completion_ids, solution_text, thinking_end, solution_tokens, answers, **kwargs):\n"
        "    assert completions[0][0]['content'] == '</think>' + solution_text[0]\n"
        "    assert len(completion_ids[0]) == 1 + solution_tokens[0] and kwargs['thinking_budget'] == [64, 64]\n"
        "    kwargs['log_metric']('ended', 1.0)\n"
        "    return [0.5 if end == 'closed' else None for end in thinking_end]\n"
        "async def late(prompts, **kwargs):\n    return [None for _ in prompts]\n"
        "def too_few(prompts, **kwargs):\n    return [1.0]\n"
        "def careless(prompts, **kwargs):\n    return kwargs['no_such_column']\n"
        "from e1_trl.training.groups import GroupReward\n"
        "class Equal(GroupReward):\n    def of(self, group):\n        return [1.0 for _ in group.tokens]\n"
        "def dense(solution_tokens, **kwargs):\n    return [1 / count for count in solution_tokens]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = ("--dataset_name", nano_data, "--output_dir", tmp_path / "run", "--reward_funcs", "accuracy")
    dry_run(*words, "format", "own_rewards.ended", "own_rewards.late", "own_rewards.Equal")
    given = "they give        accuracy 1, 0; format 1, 1; ended 0.5, 0.5; late none, none; Equal is not tried"
    assert f"{given} (3 and 4 solution tokens, no thinking)" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"too_few gives \[1.0\] for 2 completions; it must give a number, or None"):
        dry_run(*words, "own_rewards.too_few")
    with pytest.raises(KeyError, match="no_such_column"):
        dry_run(*words, "own_rewards.careless")
    # A kind of answer that names no solutions to try has rewards all the same.
    (tmp_path / "untried.py").write_text(
        "from dataclasses import replace\nfrom e1_trl.answers.kinds import MATHEMATICS\n"
        "KIND = replace(MATHEMATICS, trials=lambda row: ())\n"
    )
    with pytest.raises(ZeroDivisionError):
        dry_run(*words, "own_rewards.dense", "--grader", "untried")


def test_answers_that_are_sentences_fail(nano_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = r"\\boxed\{.\} is wrong for \['. apples and pears'\]; .*set answer_after to"
    rows = [json.loads(row) for row in (nano_data / "train.jsonl").read_text().splitlines()[:64]]
    rows = [{**row, "answer": f"{row['answer']} apples and pears"} for row in rows]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=f"^accepted answers are not graded as they should be: {said}"):
        dry_run("--dataset_name", tmp_path / "train.jsonl", "--output_dir", tmp_path / "run")
    printed = capsys.readouterr().out
    assert f"answers          {[rows[0]['answer']]}" in printed and "} is wrong\nrewards " in printed
    # A minority of such answers is as it is in honest sets.
    rows = [{**row, "answer": row["answer"][0] if at > 5 else row["answer"]} for at, row in enumerate(rows)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    dry_run("--dataset_name", tmp_path / "train.jsonl", "--output_dir", tmp_path / "run")


def test_a_dry_run_fails_where_template_or_tokenizer_loses_the_question(nano_data: Path, tmp_path: Path) -> None:
    model = shutil.copytree(BASE, tmp_path / "model")
    words = ("--dataset_name", nano_data, "--output_dir", tmp_path / "run", "--model_name_or_path", model)
    lost = "^problem 0: the chat template or the tokenizer loses a part of a question: expected .*, found "
    with pytest.raises(UserError, match=lost):
        dry_run(*words, "--instruction", "Überlege gut.")  # of which the tokenizer knows no letter
    (model / "chat_template.jinja").write_text("<|user|>{{ messages[0].text }}<|assistant|><think>")
    with pytest.raises(UserError, match=lost):
        dry_run(*words)


@pytest.mark.usefixtures("sandbox")
def test_a_dry_run_fails_where_most_own_programs_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"problem": "2", "tests": [{"input": "2", "output": "4"}], "entry_point": None}
    programs = ("--grader", "programs", "--answer_column", "tests", "--instruction", "")
    small = ("--per_device_train_batch_size", 8, "--gradient_accumulation_steps", 1)
    file = tmp_path / "train.jsonl"
    words = (*programs, *small, "--model_name_or_path", CODE_BASE, "--dataset_name", file, "--output_dir", tmp_path)
    file.write_text((json.dumps({**row, "solutions": ["print(2 * int(input()))"]}) + "\n") * 2)
    dry_run(*words)
    assert "its own solution is correct; a program that does nothing is wrong" in capsys.readouterr().out
    failing = json.dumps({**row, "solutions": ["print 2 * int(input())"]}) + "\n"  # Python 2's
    file.write_text(failing + file.read_text())
    dry_run(*words)
    assert "its own solution is crashed; a program that does nothing is wrong" in capsys.readouterr().out
    file.write_text(failing * 2)
    said = "graded as they should be: its own solution is crashed for .*; `e1 validate` lists the problems whose"
    with pytest.raises(UserError, match=said):
        dry_run(*words)


@pytest.mark.parametrize(
    ("fields", "prompts", "steps"),
    [
        ({"num_train_epochs": 0.5}, 100, 13),
        ({"num_train_epochs": 1.5}, 100, 38),
        ({"num_train_epochs": 1, "num_iterations": 2}, 103, 50),
        ({"num_train_epochs": 1, "steps_per_generation": 8}, 100, 24),
        ({"num_train_epochs": 1, "gradient_accumulation_steps": 8, "steps_per_generation": 4}, 100, 6),
        ({"num_train_epochs": 1, "gradient_accumulation_steps": 8, "steps_per_generation": 4}, 108, 7),
        ({"max_steps": 7}, 100, 7),
    ],
)
def test_the_number_of_steps_is_the_trainers(fields: dict[str, Any], prompts: int, steps: int, tmp_path: Path) -> None:
    batch = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 2, "num_generations": 8}
    args = config(output_dir=str(tmp_path), **batch | fields)
    assert steps_of(args, prompts) == steps
    sampler = RepeatSampler(
        range(prompts),
        mini_repeat_count=args.num_generations,
        batch_size=args.generation_batch_size // args.num_generations,
        repeat_count=args.num_iterations * args.steps_per_generation,
    )
    batches = DataLoader(range(prompts), 16 * args.steps_per_generation, sampler=sampler)  # type: ignore[arg-type]
    *_, trained = Trainer(torch.nn.Linear(1, 1), args).set_initial_training_values(args, batches)
    assert trained == steps


def test_a_training_that_could_not_upload_does_not_begin_and_a_dry_run_makes_no_repository(
    nano_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_hub() as hub:
        hub.stand_in(monkeypatch)
        hub.add("someone/e1", {"pytorch_model.bin": b"x"})
        pushing = ("--dataset_name", nano_data, "--push_to_hub", "true", "--hub_model_id", "someone/e1")
        said = r"^push_to_hub: someone/e1 holds another model \(pytorch_model.bin\)[^\n]*$"
        with pytest.raises(UserError, match=said):
            main([str(part) for part in (*NANO, "--output_dir", tmp_path / "run", *pushing)])
        dry_run("--output_dir", tmp_path / "run", *pushing[:-1], "someone/new")
        assert list(hub.repositories) == ["someone/e1"]
    assert not (tmp_path / "run").exists()


def test_no_training_begins_where_one_is(nano_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    output = tmp_path / "run"
    check_output(output)
    (output / "checkpoint-10").mkdir(parents=True)
    check_output(output)  # killed before a checkpoint was whole
    for state in ("optimizer.pt", "scheduler.pt"):
        (output / "checkpoint-10" / state).touch()
    words = ("--dataset_name", nano_data, "--output_dir", output)
    for file in ("checkpoint-10/trainer_state.json", "trainer_state.json"):
        TrainerState(global_step=10).save_to_json(str(output / file))
        said = f"output_dir {output} holds an earlier run \\({file}\\): resume it with --resume_from_checkpoint true"
        with pytest.raises((UserError, SystemExit), match=said):
            main([str(part) for part in (*NANO, *words)])
        caplog.clear()
        dry_run(*words)
        assert re.search(said, caplog.text)
        caplog.clear()
        dry_run(*words, "--resume_from_checkpoint", "true")
        assert "holds an earlier run" not in caplog.text
    own = SimpleNamespace(process_index=0, output_dir=str(output))
    recipe: Any = SimpleNamespace(args=own, problems=None, evaluation=None, checkpoint=None)
    with pytest.raises(UserError, match=said):  # another training wrote it while this one prepared
        train(recipe, {})


def test_forks_and_advantages_are_shown_or_refused_before_a_model_loads(
    nano_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--dataset_name", nano_data, "--output_dir", tmp_path / "run", "--advantage", "per_fork")
    forked = ("--thinking_budget", "{nested: [32, 64]}")
    dry_run(*words, *forked)
    printed = capsys.readouterr().out
    assert "of a rollout     32+32 and 64+32 at step 0, 32+32 and 64+32 at step 30" in printed
    assert "advantage        per_fork\n" in printed
    with pytest.raises(UserError, match=r"^the advantage per_fork compares forks of a thought; set thinking_budget: {"):
        dry_run(*words)
    with pytest.raises(UserError, match=r"^loss_type vespo and .* need one advantage of a completion"):
        dry_run(*words, *forked, "--loss_type", "vespo")


def test_the_last_whole_checkpoint_is_resumed_from(tmp_path: Path) -> None:
    args = config(output_dir=str(tmp_path), resume_from_checkpoint="true")
    for step in (2, 10, 11, "10-best", 12):
        (tmp_path / f"checkpoint-{step}").mkdir()
    with pytest.raises(ValueError, match=f"^{tmp_path} holds no whole checkpoint .* to resume from"):
        find_checkpoint(args)
    auto = config(output_dir=str(tmp_path), resume_from_checkpoint="auto")
    assert find_checkpoint(auto) is None
    for step, name in ((2, 2), (10, 10), (40, "10-best")):
        TrainerState(global_step=step).save_to_json(str(tmp_path / f"checkpoint-{name}" / "trainer_state.json"))
    (tmp_path / "checkpoint-12" / "trainer_state.json").write_text('{"of_another_version": 1}')
    (tmp_path / "checkpoint-11" / "trainer_state.json").write_text('{"epoch": 0.1, "glob')  # killed while it wrote
    assert find_checkpoint(args, dry_run=True) == str(tmp_path / "checkpoint-10")
    args.max_steps = 10  # a finished training needs no optimizer
    assert find_checkpoint(args) == str(tmp_path / "checkpoint-10")
    args.max_steps = 11
    for state in ("optimizer.pt", "scheduler.pt"):
        with pytest.raises(UserError, match=rf"checkpoint-10 holds no {state[:9]}.*; train from its weights as a new"):
            find_checkpoint(args)
        (tmp_path / "checkpoint-10" / state).touch()
    assert find_checkpoint(args) == find_checkpoint(auto) == str(tmp_path / "checkpoint-10")
    TrainerState(global_step=12).save_to_json(str(tmp_path / "trainer_state.json"))  # as only the best was kept
    command = rf"hf upload {tmp_path.name} {tmp_path} \. --exclude '_\*'"
    for each in (args, auto):
        with pytest.raises(UserError, match=r"finished at step 12, .* or name a checkpoint$"):
            find_checkpoint(each)
        each.push_to_hub = True
        with pytest.raises(UserError, match=rf"name a checkpoint; to upload it, run {command}"):
            find_checkpoint(each)
    args.resume_from_checkpoint = str(tmp_path / "checkpoint-10")
    assert find_checkpoint(args) == str(tmp_path / "checkpoint-10")
    (tmp_path / "trainer_state.json").unlink()
    moving = config(output_dir=str(tmp_path), resume_from_checkpoint="true", sync_ref_model=True, beta=0.1)
    with pytest.raises(UserError, match=r"^sync_ref_model is true: a resumed training would begin again with the base"):
        find_checkpoint(moving)
    args.resume_from_checkpoint = str(tmp_path / "checkpoint-2")
    with pytest.raises(UserError, match=r"checkpoint-10 is later than .*: go on from it with .* true, or, if it is of"):
        find_checkpoint(args)
    args.resume_from_checkpoint = str(tmp_path / "checkpoint-11")
    with pytest.raises(ValueError, match=r"checkpoint-11 holds no whole checkpoint \(with trainer_state.json\)"):
        find_checkpoint(args)
    args.resume_from_checkpoint = "false"
    assert find_checkpoint(args) is None


def test_an_adapter_is_resumed_with_the_scale_that_it_was_trained_with(tmp_path: Path) -> None:
    check_same_adapter(tmp_path, None)
    check_same_adapter(tmp_path, LoraConfig())
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "model.safetensors").touch()
    with pytest.raises(UserError, match="holds a whole model, and the recipe trains an adapter; unset use_peft"):
        check_same_adapter(tmp_path / "whole", LoraConfig())
    LoraConfig(r=8, lora_alpha=32).save_pretrained(tmp_path)
    check_same_adapter(tmp_path, LoraConfig(r=8, lora_alpha=32, lora_dropout=0.1))
    with pytest.raises(UserError, match="holds an adapter; set use_peft"):
        check_same_adapter(tmp_path, None)
    with pytest.raises(UserError, match="has lora_alpha 32, use_rslora False, and the recipe differs"):
        check_same_adapter(tmp_path, LoraConfig(r=8, lora_alpha=64, use_rslora=True))


@pytest.mark.parametrize(
    ("saved", "own", "same"),
    [
        (BaseModel("org/a", "c" * 40), BaseModel("org/renamed", "c" * 40), True),
        (BaseModel("org/a", "c" * 40), BaseModel("org/a", "d" * 40), False),
        (BaseModel("/data/a", None), BaseModel("/moved/a", None), True),
        (BaseModel("org/a", "c" * 40), BaseModel("/data/b", None), False),
        (None, BaseModel("/data/a", None), True),
        (None, BaseModel("org/b", "c" * 40), False),
    ],
)
def test_an_adapter_is_resumed_on_its_own_base_and_a_whole_model_on_another_with_a_warning(
    saved: BaseModel | None, own: BaseModel, same: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check_same_base(tmp_path, own)  # of which nothing is known
    if saved is not None:
        (tmp_path / "e1").mkdir()
        saved.write(tmp_path)
        check_same_base(tmp_path, own)
        assert ("a reference model (beta) and the card are the recipe's" in caplog.text) is not same
    LoraConfig(base_model_name_or_path="org/a").save_pretrained(tmp_path)
    expected = nullcontext() if same else pytest.raises(UserError, match=r"^the base of .* was org/a.* where the")
    with expected:
        check_same_base(tmp_path, own)


def test_an_adapter_has_no_dropout_and_a_plain_base(tmp_path: Path) -> None:
    LoraConfig().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=rf"^{tmp_path} holds an adapter; merge it into its base first"):
        make_adapter(config(), ModelConfig(model_name_or_path=str(tmp_path)))
    model = ModelConfig(model_name_or_path=str(BASE), use_peft=True)
    assert make_adapter(config(), model).lora_dropout == 0
    assert make_adapter(config(disable_dropout=False), replace(model, lora_dropout=0.05)).lora_dropout == 0.05
    with pytest.raises(UserError, match=r"^load_in_4bit and load_in_8bit need bitsandbytes, which vLLM no"):
        make_adapter(config(), replace(model, load_in_4bit=True))


def test_an_adapter_of_all_layers_leaves_out_those_that_read_images(tmp_path: Path) -> None:
    for name, adapted in (("Gemma 3", 14), ("Gemma 3, images", 14)):
        base = make_model(name)
        save(base, tmp_path / name)
        model = ModelConfig(model_name_or_path=str(tmp_path / name), use_peft=True, lora_target_modules=["all-linear"])
        trained = get_peft_model(base, make_adapter(config(), model))
        check_model(config(), trained)
        assert sum("lora_A" in each for each, _ in trained.named_parameters()) == adapted
    named = make_adapter(config(), replace(model, lora_target_modules=["q_proj", "lm_head"]))
    assert named.exclude_modules is None


def test_a_checkpoint_with_deepspeeds_optimizer_needs_deepspeed(tmp_path: Path) -> None:
    args = config(output_dir=str(tmp_path), resume_from_checkpoint="true")
    folder = tmp_path / "checkpoint-20"
    (folder / "global_step20").mkdir(parents=True)
    TrainerState(global_step=20).save_to_json(str(folder / "trainer_state.json"))
    with pytest.raises(UserError, match=r"holds no optimizer\*, .*, or with DeepSpeed; train from its weights as a"):
        find_checkpoint(args)
    args.deepspeed_plugin = DeepSpeedPlugin(zero_stage=2)
    assert find_checkpoint(args) == str(folder)
    args.max_steps = 20  # DeepSpeed loads the optimizer of a finished training, too
    shutil.rmtree(folder / "global_step20")
    with pytest.raises(UserError, match=r"holds no global_step\*"):
        find_checkpoint(args)


def test_the_schedule_of_the_documents_example_is_trained_under_by_its_dotted_path(
    nano_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "extend.md").read_text()
    (example,) = re.findall(r"```python\n(# my_schedules.py\n.*?)```", text, re.S)
    (tmp_path / "my_schedules.py").write_text(example)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_schedules", raising=False)
    schedule = ("--thinking_budget", "{my_schedules.staircase: [32, 64], every: 5}")
    dry_run("--dataset_name", nano_data, "--output_dir", tmp_path / "run", *schedule)
    printed = capsys.readouterr().out
    assert "budget           up to 64+32 tokens: completions of up to 97" in printed
    assert "of a rollout     32+32 at step 0, 64+32 at step 30, 64+32 at step 59" in printed
