"""Forced closes in the trainer's loss, in one process with a real engine."""

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import BASE
from pebble import ProcessPool
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer.utils import split_tensor_dict
from vllm import SamplingParams

from e1_trl.answers.grade import Grade, Outcome
from e1_trl.answers.mathematics.boxes import boxed_answer
from e1_trl.answers.mathematics.grader import MathematicsGrader
from e1_trl.answers.mathematics.workers import Task
from e1_trl.budget import Budget
from e1_trl.engines.engine import EngineError
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems
from e1_trl.rollout import Completion, ThinkingEnd
from e1_trl.training.advantages import brpo
from e1_trl.training.budgets import Budgets, RolloutKey, Schedule
from e1_trl.training.config import E1Config
from e1_trl.training.groups import Group, GroupReward
from e1_trl.training.named_rewards import format_reward, make_rewards
from e1_trl.training.rewards import Accuracy
from e1_trl.training.scoring import Layout
from e1_trl.training.trainer import E1Trainer
from e1_trl.training.validation import Validation

pytestmark = pytest.mark.engine

LOSS_TYPES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo"]
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def trainer(nano_data: Path, tmp_path_factory: pytest.TempPathFactory) -> E1Trainer:
    args = E1Config(
        output_dir=str(tmp_path_factory.mktemp("trainer")),
        thinking_budget=96,
        solution_budget=32,
        forced_text="Wait </think>",
        max_prompt_length=64,
        per_device_train_batch_size=32,
        num_generations=8,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
    )
    problems = load_problems(str(nano_data), "train[:32]", ProblemArguments(instruction=""))
    trainer = E1Trainer(
        model=str(BASE),
        reward_funcs=make_rewards(["accuracy"], None, MathematicsGrader(time_limit=60, workers=1)),
        args=args,
        train_dataset=problems,
    )
    trainer.current_gradient_accumulation_steps = 1  # what the training loop sets
    trainer.model.train()
    return trainer


@pytest.fixture
def rows(trainer: E1Trainer) -> Rows:
    """Eight of each of four problems, as the dataset has them."""
    return [dict(trainer.train_dataset[i // 8]) for i in range(32)]


def sampled(trainer: E1Trainer, rows: Rows) -> dict[str, list[Any]]:
    """A rollout of each row of the dataset."""
    trainer._rows = rows
    return E1Trainer.rollout([row["prompt"] for row in rows], trainer)


def losses(trainer: E1Trainer, rows: Rows, rollout: dict[str, list[Any]]) -> dict[str, float]:
    """The loss of one recorded rollout under every loss type, with the policy moved a little since."""
    trainer.rollout_func, trainer.num_iterations = lambda prompts, trainer: dict(rollout), 2
    batch = trainer._generate_and_score_completions([dict(row) for row in rows])
    trainer.num_iterations = 1
    # A step away from the sampling policy, the ratio of the policy to its old self is not 1 any more.
    batch["old_per_token_logps"] = batch["old_per_token_logps"] + 0.1
    result = {}
    for trainer.loss_type in LOSS_TYPES:
        result[trainer.loss_type] = trainer._compute_loss(trainer.model, batch).item()
    return result


def with_logprobs(rollout: dict[str, list[Any]], mask: int, value: float) -> dict[str, list[Any]]:
    """The rollout with `value` as the log-probability of every token of this loss mask."""
    logprobs = [
        [value if trained == mask else logprob for logprob, trained in zip(row, trained_row, strict=True)]
        for row, trained_row in zip(rollout["logprobs"], rollout["env_mask"], strict=True)
    ]
    return {**rollout, "logprobs": logprobs}


def test_the_log_probability_of_a_forced_token_cannot_change_the_loss(trainer: E1Trainer, rows: Rows) -> None:
    rollout = sampled(trainer, rows)
    assert {"forced", "closed"} <= set(rollout["thinking_end"])
    assert all(math.isnan(p) for row in with_logprobs(rollout, 1, math.nan)["logprobs"] for p in row)

    expected = losses(trainer, rows, rollout)
    assert any(abs(value) > 1e-3 for value in expected.values())
    for value in (0.0, -3.0, -50.0, -9999.0):
        assert losses(trainer, rows, with_logprobs(rollout, 0, value)) == expected
    # The same change to the sampled tokens does move it: the comparison can fail.
    assert losses(trainer, rows, with_logprobs(rollout, 1, -3.0)) != expected


def test_real_losses_are_trls_of_padded_rows(trainer: E1Trainer, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = sampled(trainer, rows)
    assert trainer.layout is Layout.TRIMMED
    found = {}
    for layout in Layout:
        monkeypatch.setattr(trainer, "layout", layout)
        found[layout] = losses(trainer, rows, rollout)
    for layout in (Layout.TRIMMED, Layout.PACKED):
        assert found[layout] == pytest.approx(found[Layout.PADDED], abs=1e-5) and found[layout] != found[Layout.PADDED]


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_in_16_bits_a_policy_has_the_ratio_1_to_itself_while_it_is_the_one_that_sampled(
    trainer: E1Trainer, rows: Rows, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    rollout = sampled(trainer, rows)
    monkeypatch.setattr(trainer, "rollout_func", lambda prompts, trainer: dict(rollout))
    monkeypatch.setattr(trainer, "importance_sampling_level", level)
    monkeypatch.setattr(trainer, "loss_type", "dapo")
    for bound in ("epsilon_low", "epsilon_high"):
        monkeypatch.setattr(trainer, bound, 0.0)  # so that everything that differs is clipped

    def clipped(iterations: int) -> list[float]:
        """The share of tokens that are clipped on either side, in micro-batches of a generation."""
        monkeypatch.setattr(trainer, "num_iterations", iterations)
        metrics: dict[str, Any] = {"train": defaultdict(list), "eval": defaultdict(list)}
        monkeypatch.setattr(trainer, "_metrics", metrics)
        with torch.autocast("cpu", torch.bfloat16):
            batch = trainer._generate_and_score_completions([dict(row) for row in rows])
            signs = [1.0 if at % 2 else -1.0 for at in range(len(rows))]
            for each in split_tensor_dict({**batch, "advantages": torch.tensor(signs)}, 4):
                trainer._compute_loss(trainer.model, each)
        assert len(metrics["train"]["sampling/importance_sampling_ratio/mean"]) == 1  # to vLLM's: it is corrected
        return metrics["train"]["clip_ratio/region_mean"]

    assert clipped(iterations=1) == [0.0] * 4
    # A generation that lasts for two steps has old log-probabilities, which round otherwise than those of its parts.
    assert any(clipped(iterations=2))


def test_forced_tokens_have_no_gradient(trainer: E1Trainer, rows: Rows) -> None:
    rollout = sampled(trainer, rows)
    trainer.rollout_func = lambda prompts, trainer: dict(rollout)
    batch = trainer._generate_and_score_completions([dict(row) for row in rows])
    scored: list[torch.Tensor] = []
    score = trainer._get_per_token_logps_and_entropies

    def watched(*args: Any, **kwargs: Any) -> Any:
        logps, *rest = score(*args, **kwargs)
        logps.retain_grad()
        scored.append(logps)
        return logps, *rest

    trainer._get_per_token_logps_and_entropies, trainer.loss_type = watched, "dapo"
    try:
        trainer._compute_loss(trainer.model, batch).backward()
    finally:
        trainer._get_per_token_logps_and_entropies = score
    gradient = scored[0].grad
    trained = (batch["completion_mask"] * batch["tool_mask"]).bool()
    assert (gradient[~trained] == 0).all()
    assert (gradient[trained] != 0).any()
    forced = (batch["completion_mask"].bool() & ~batch["tool_mask"].bool()).sum(dim=1).tolist()
    assert forced == [2 if end == "forced" else 0 for end in rollout["thinking_end"]]


def recorded(trainer: E1Trainer, thinking: list[str], forced: list[str], solution: list[str]) -> Completion:
    """A completion of these three parts; the marker ends its thinking, or is the first of the forced tokens."""
    ids = [trainer.processing_class.convert_tokens_to_ids(part) for part in (thinking, forced, solution)]
    tokens = [token for part in ids for token in part]
    return Completion(
        token_ids=array("i", tokens),
        thinking_end=ThinkingEnd.FORCED if forced else ThinkingEnd.CLOSED,
        thinking_tokens=len(ids[0]),
        forced_tokens=len(ids[1]),
        close_tokens=1 if forced else 0,
        solution_tokens=len(ids[2]),
        truncated=False,
        logprobs=[-1.0] * len(tokens),
    )


def patch(monkeypatch: pytest.MonkeyPatch, trainer: E1Trainer, completion: Completion, **rewards: Any) -> None:
    """Have every prompt completed alike, and rewarded by these, with weights of 1, in place of the trainer's own."""
    monkeypatch.setattr(trainer, "_complete", lambda prompts, *_: [completion] * len(prompts))
    monkeypatch.setattr(trainer, "rollout_func", E1Trainer.rollout)
    if rewards:
        monkeypatch.setattr(trainer, "reward_funcs", list(rewards.values()))
        monkeypatch.setattr(trainer, "reward_func_names", list(rewards))
        monkeypatch.setattr(trainer, "reward_processing_classes", [None] * len(rewards))
        monkeypatch.setattr(trainer, "reward_weights", torch.ones(len(rewards)))


def test_a_reward_sees_the_forced_tokens_that_open_the_box(trainer: E1Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    completion = recorded(trainer, ["9"], ["</think>", r"\boxed{"], ["9", "}", "<|end|>"])
    patch(monkeypatch, trainer, completion)
    rollout = sampled(trainer, [trainer.train_dataset[0]])
    assert rollout["solution_text"] == [r"\boxed{9}"]
    assert rollout["env_mask"] == [completion.loss_mask]


def test_each_rollout_has_its_drawn_budget(trainer: E1Trainer, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    draws: list[RolloutKey] = []

    class Alternating(Budgets):
        def at(self, draw: RolloutKey) -> Budget:
            draws.append(draw)
            return Budget(4 + draw.row % 2 * 4, 4)

    monkeypatch.setattr(trainer, "budgets", Alternating(**vars(trainer.budgets)))
    rollout = sampled(trainer, rows)
    thought = rollout["thinking_tokens"]
    assert all(tokens <= 4 + i % 2 * 4 for i, tokens in enumerate(thought)) and max(thought) == 8
    assert [draw.problem for draw in draws] == [row["key"] for row in rows]
    assert [draw.row for draw in draws] == list(range(32)) and len({draw.generation for draw in draws}) == 1


class Failing:
    """A grader of which every other grade is its own fault."""

    faults = (Outcome.UNGRADED,)

    def grade(self, solutions: Sequence[str], references: Sequence[Sequence[str]]) -> list[Grade]:
        ends = [Outcome.CORRECT, Outcome.UNGRADED, Outcome.WRONG, Outcome.UNGRADED]
        return [Grade(ends[i % 4], None) for i in range(len(solutions))]


def test_ungraded_rollouts_are_in_no_mean_and_move_nothing(trainer: E1Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    completion = recorded(trainer, ["9", "</think>"], [], [r"\boxed{", "9", "}", "<|end|>"])
    rewards = {"accuracy": Accuracy(Failing()), "format": format_reward}  # type: ignore[arg-type]
    patch(monkeypatch, trainer, completion, **rewards, silent=lambda prompts, **_: [None] * len(prompts))
    monkeypatch.setattr(trainer, "_metrics", {"train": defaultdict(list), "eval": defaultdict(list)})
    row = {"prompt": trainer.train_dataset[0]["prompt"], "answers": ["9"]}
    batch = trainer._generate_and_score_completions([dict(row) for _ in range(8)])
    # Of eight, two are right and two are wrong; all are well formed. Without the others their mean is 1.5.
    signs = [round(math.copysign(1, value)) if value else 0 for value in batch["advantages"].tolist()]
    assert signs == [1, 0, -1, 0, 1, 0, -1, 0]
    logged = trainer._metrics["train"]
    assert (logged["reward"], logged["rewards/accuracy/mean"]) == ([1.5], [0.5])
    assert sum(logged["grading/ungraded"]) / len(logged["grading/ungraded"]) == 0.5
    assert sum(logged["reward/closed"]) / len(logged["reward/closed"]) == 1.5


def test_a_validation_in_which_nothing_could_be_graded_is_no_accuracy_and_never_the_best(
    trainer: E1Trainer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Ungraded(Failing):
        def grade(self, solutions: Sequence[str], references: Sequence[Sequence[str]]) -> list[Grade]:
            return [Grade(Outcome.UNGRADED, None)] * len(solutions)

    accuracy = "eval_budget/16+16/accuracy"
    monkeypatch.setattr(trainer, "validation", None)
    for name, value in (("metric_for_best_model", accuracy), ("greater_is_better", True)):
        monkeypatch.setattr(trainer.args, name, value)
    Validation(trainer, trainer.train_dataset.select(range(2)), [Budget(16, 16)], Ungraded())
    assert not trainer._determine_best_metric(trainer.evaluate(), None)
    (logged,) = [entry for entry in trainer.state.log_history if "eval_budget/16+16/forced_ratio" in entry]
    assert accuracy not in logged and f"nothing could be graded, so there is no {accuracy}" in caplog.text


def test_a_policy_that_computes_nan_ends_the_training(trainer: E1Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch, trainer, recorded(trainer, ["9", "</think>"], [], [r"\boxed{", "9", "}", "<|end|>"]))
    batch = trainer._generate_and_score_completions([dict(trainer.train_dataset[0]) for _ in range(8)])
    (weight, *_) = trainer.model.parameters()
    monkeypatch.setattr(weight, "data", torch.full_like(weight, math.nan))
    with pytest.raises(RuntimeError, match="step 0: the loss is NaN; resume from an earlier checkpoint"):
        trainer.compute_loss(trainer.model, batch)


def test_a_reward_of_groups_sees_those_of_a_generation(trainer: E1Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[Group] = []

    class First(GroupReward):
        def of(self, group: Group) -> list[float]:
            groups.append(group)
            return [4.0] + [0.0] * 7

    completion = recorded(trainer, ["9", "</think>"], [], [r"\boxed{", "9", "}", "<|end|>"])
    patch(monkeypatch, trainer, completion, accuracy=Accuracy(Failing()), first=First())  # type: ignore[arg-type]
    row = {"prompt": trainer.train_dataset[0]["prompt"], "answers": ["9"]}
    batch = trainer._generate_and_score_completions([{**row, "key": f"{at // 8:016}"} for at in range(16)])
    correct = [True, None, False, None] * 2
    flags = [True] * 8, [False] * 8
    ends = [ThinkingEnd.CLOSED] * 8
    assert groups == [
        Group(f"{key:016}", correct, [2] * 8, [6] * 8, *flags, budgets=[96] * 8, ends=ends) for key in range(2)
    ]
    assert [at for at, value in enumerate(batch["advantages"].tolist()) if value > 0] == [0, 8]


def test_rollouts_are_graded_once_as_they_end(trainer: E1Trainer, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = trainer.vllm_generation.llm.llm_engine
    (accuracy,) = trainer.reward_funcs
    processes = accuracy.grader.processes
    processes.run([])  # forgets what another test began and never graded
    handed_over: list[Task] = []
    schedule, step = ProcessPool.schedule, engine.step

    def counted(self: ProcessPool, function: Any, args: Any = (), **options: Any) -> Any:
        handed_over.append(args[2:])  # what follows time limit and function
        return schedule(self, function, args=args, **options)

    def patient() -> Any:  # the next tokens are sampled only when all that was handed over is graded
        waited.append(len(wait(processes._begun.values(), timeout=60).done))
        return step()

    waited: list[int] = []
    monkeypatch.setattr(trainer, "rollout_func", E1Trainer.rollout)
    monkeypatch.setattr(ProcessPool, "schedule", counted)
    monkeypatch.setattr(engine, "step", patient)
    trainer._generate_and_score_completions(rows)
    assert 0 < waited[-1] <= len(handed_over)
    tasks = [(boxed_answer(row["solution_text"]), True, tuple(row["answers"])) for row in rows]
    assert sorted(handed_over) == sorted({task for task in tasks if task[0] is not None})
    assert not processes._begun
    logged = {name: values[-1] for name, values in trainer._metrics["train"].items() if name.startswith("seconds/")}
    assert logged.keys() >= {"seconds/waiting_for_grades", "seconds/sampling", "seconds/scoring"}
    assert all(0 <= seconds < 60 for seconds in logged.values())


@pytest.fixture
def forking(trainer: E1Trainer, monkeypatch: pytest.MonkeyPatch) -> E1Trainer:
    """The trainer with four forks of each thought and two advantages of each rollout."""
    nested = Schedule.parse("thinking_budget", {"nested": [4, 12, 36, 96]})
    monkeypatch.setattr(trainer, "budgets", replace(trainer.budgets, thinking=nested))
    monkeypatch.setattr(trainer, "_advantage", brpo)
    monkeypatch.setattr(trainer, "rollout_func", E1Trainer.rollout)
    monkeypatch.setattr(trainer, "_metrics", {"train": defaultdict(list), "eval": defaultdict(list)})
    return trainer


def test_forks_share_a_thought_and_each_token_has_the_advantage_of_its_part(forking: E1Trainer, rows: Rows) -> None:
    batch = forking._generate_and_score_completions(rows)
    ids = batch["completion_ids"].tolist()
    thoughts = [each[: row["thinking_tokens"]] for each, row in zip(ids, rows, strict=True)]
    for first in range(0, 32, 4):
        longest = thoughts[first + 3]
        assert [thoughts[first + fork] for fork in range(4)] == [longest[:most] for most in (4, 12, 36, 96)]
    assert len({tuple(thoughts[first + 3]) for first in range(0, 32, 4)}) == 8  # two thoughts about each problem

    rewards = forking._rewards
    groups = [range(start, start + 8) for start in range(0, 32, 8)]
    blank = Group("", [None] * 8, [1] * 8, [1] * 8, [True] * 8, [False] * 8, forks=4)
    expected = [pair for rows in groups for pair in brpo(blank, [rewards[row] for row in rows])]
    assert any(thinking != solution for thinking, solution in expected)
    length = len(ids[0])
    assert batch["advantages"].shape == (32, length)
    for row, (thinking, solution) in enumerate(expected):
        is_forced = rows[row]["thinking_end"] == "forced"  # by tokens of the thinking
        closed = len(thoughts[row]) + is_forced * forking.thinking_close.marker.close_tokens
        parts = [thinking] * closed + [solution] * (length - closed)
        assert batch["advantages"][row].tolist() == pytest.approx(parts)
    for part, values in zip(("thinking", "solution"), zip(*expected, strict=True), strict=True):
        assert [*forking._logs["extra"][f"{part}_advantage"]][-32:] == pytest.approx([*values])
    (sampled_tokens,) = forking._metrics["train"]["thinking/sampled_tokens"]
    assert sampled_tokens * 32 == pytest.approx(sum(len(thoughts[first + 3]) for first in range(0, 32, 4)))

    # The loss takes them: where all tokens of a row have one, it is what TRL computes of rows' advantages.
    of_rows = batch["advantages"][:, :1]
    losses = [
        forking._compute_loss(forking.model, {**batch, "advantages": each}).item()
        for each in (batch["advantages"], of_rows.expand(-1, length), of_rows.squeeze(1))
    ]
    assert losses[1] == pytest.approx(losses[2], abs=1e-6) and abs(losses[0] - losses[1]) > 1e-4


@pytest.fixture
def moved(trainer: E1Trainer) -> Iterator[VLLMGeneration]:
    """The engine, after a first step of Adam at learning rate 1e-6 that it was not told of."""
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    generation = trainer.vllm_generation
    generation.sync_weights()
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(1e-6 * torch.randn_like(parameter).sign())
    yield generation
    trainer.model.load_state_dict(before)
    generation.sync_weights()


def test_a_validation_compares_weights_once_for_budgets(trainer: E1Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = trainer.vllm_generation.sync_weights
    monkeypatch.setattr(trainer.vllm_generation, "sync_weights", lambda: (synced.append(1), sync()))
    monkeypatch.setattr(trainer, "validation", None)
    monkeypatch.setattr(trainer.args, "eval_on_start", True)
    (accuracy,) = trainer.reward_funcs
    budgets = [Budget(8, 8), Budget(16, 16)]
    Validation(trainer, trainer.train_dataset.select(range(2)), budgets, accuracy.grader)
    metrics = trainer.evaluate()
    assert len(synced) == 1 and all(metrics[f"eval_budget/{budget}/thinking_tokens"] > 0 for budget in budgets)
    assert not trainer.args.eval_on_start  # or Transformers would have it evaluate at step 0 once more


def test_every_tensor_of_the_engine_is_compared(trainer: E1Trainer, moved: VLLMGeneration) -> None:
    engine = moved.llm.llm_engine.model_executor.driver_worker.model_runner.get_model()
    moved.sync_weights()
    assert trainer.engine.weights.compared == {name for name, _ in engine.named_parameters()}


@pytest.mark.parametrize(
    "skipped",
    [
        "model.embed_tokens.weight",
        "model.layers.2.input_layernorm.weight",
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.1.self_attn.k_proj.bias",
        "model.layers.0.mlp.down_proj.weight",
        "lm_head.weight",
    ],
)
def test_a_sync_that_skips_one_tensor_is_noticed(
    trainer: E1Trainer, moved: VLLMGeneration, monkeypatch: pytest.MonkeyPatch, skipped: str
) -> None:
    sent = dict(trainer.model.named_parameters())[skipped].detach()
    # The engine computes in bfloat16, where 1e-6 rounds away in some numbers of a matrix and in all of a norm.
    stale = sent + (1e-6 if sent.ndim == 2 else 0.01)
    engine = moved.llm.llm_engine.model_executor.driver_worker.model_runner.get_model()
    load = type(engine).load_weights

    def skip(self: Any, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        return load(self, [(name, stale if name == skipped else tensor) for name, tensor in weights])

    monkeypatch.setattr(type(engine), "load_weights", skip)
    stacked = re.sub("[qkv]_proj", "qkv_proj", skipped)
    with pytest.raises(EngineError, match=re.escape(f"vLLM's {stacked} is not what the trainer has just sent")):
        moved.sync_weights()


def test_a_cache_that_the_engine_keeps_is_noticed(moved: VLLMGeneration) -> None:
    engine = moved.llm.llm_engine
    moved.sync_weights()
    engine.add_request("held", {"prompt_token_ids": [1] * 40}, SamplingParams(max_tokens=8))
    engine.step()  # its blocks are in use from now on
    with pytest.raises(EngineError, match="vLLM did not empty its prefix cache"):
        moved.sync_weights()
    engine.abort_request(["held"])
    moved.sync_weights()


def test_a_tensor_that_is_not_sent_is_noticed_at_once(
    trainer: E1Trainer, moved: VLLMGeneration, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm = trainer.engine.vllm
    every = vllm.named_params
    norm = "model.norm.weight"
    monkeypatch.setattr(vllm, "named_params", lambda: ((n, p) for n, p in every() if n != norm))
    with pytest.raises(EngineError, match=r"vLLM's model\.norm\.weight was sent nothing"):
        moved.sync_weights()


def test_an_evaluation_samples_from_weights_loaded_last(trainer: E1Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "rollout_func", E1Trainer.rollout)  # which other tests replace
    monkeypatch.setattr(trainer.state, "global_step", 5)
    problems = trainer.train_dataset.select(range(8))
    assert trainer.evaluate(problems)["eval_reward"] > 0.2
    norm = trainer.model.model.norm.weight.data
    monkeypatch.setattr(trainer, "validation", dict)  # is not asked about other problems
    kept = norm.clone()
    norm.zero_()  # so that all tokens are alike
    assert trainer.evaluate(problems)["eval_reward"] < 0.05
    norm.copy_(kept)
    assert trainer.evaluate(eval_dataset=problems)["eval_reward"] > 0.2
