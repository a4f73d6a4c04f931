"""Trainings that go wrong, or start from something uncommon: each a process with a real engine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BASE, ROOT, kill, launch, outside_a_group, printed
from hub_stub import serving_hub

pytestmark = [pytest.mark.engine, pytest.mark.distributed]

TRAINER = """
import sys
from e1_trl.budget import Budget
from e1_trl.answers.grade import Grade, Outcome
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems
from e1_trl.training.config import E1Config
from e1_trl.training.rewards import Accuracy
from e1_trl.training.trainer import E1Trainer
from e1_trl.training.validation import Validation

class Failing:
    faults = (Outcome.UNGRADED,)

    def grade(self, solutions, references):
        return [Grade(Outcome.UNGRADED, None)] * len(solutions)

def trainer(model, data, output, **more):
    fixed = dict(thinking_budget=16, solution_budget=16, max_prompt_length=64, per_device_train_batch_size=8)
    fixed |= dict(num_generations=8, use_cpu=True, bf16=False, report_to="none", gradient_checkpointing=False)
    args = E1Config(output, **fixed, **more)
    problems = load_problems(data, "train[:32]", ProblemArguments(instruction=""))
    return E1Trainer(model, Accuracy(Failing()), args, problems, problems)
"""


def run(script: str, *arguments: object, **environment: str) -> str:
    """What a script prints that begins with a trainer on its way."""
    done = subprocess.run(
        [sys.executable, "-c", TRAINER + script, *map(str, arguments)],
        cwd=ROOT,
        env={**outside_a_group(), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_training_whose_weights_are_no_numbers_any_more_ends(nano_data: Path, tmp_path: Path) -> None:
    steps = ("--max_steps", 4, "--warmup_steps", 0, "--lr_scheduler_type", "constant")
    process = launch(*(*steps, "--learning_rate", 1e20), output=tmp_path / "run", data=nano_data, launched=False)
    try:
        assert process.wait() != 0
    finally:
        kill(process)
    assert "RuntimeError: step 1: the loss is NaN: the policy computes no numbers any more" in printed(tmp_path / "run")


VALIDATES = """
data, output = sys.argv[1:]
best = dict(metric_for_best_model="eval_budget/16+16/accuracy", load_best_model_at_end=True, eval_budgets=["16+16"])
trained = trainer("experiments/nano/base", data, output, max_steps=1, eval_strategy="steps", eval_steps=1, **best,
    save_steps=1)
prompts = trained.train_dataset.select(range(2))
trained.add_callback(Validation(trained, prompts, [Budget(16, 16)], Failing()))
trained.train()
trained.save_state()
"""


def test_a_validation_in_which_nothing_could_be_graded_is_no_accuracy_and_no_end(
    nano_data: Path, tmp_path: Path
) -> None:
    text = run(VALIDATES, nano_data, tmp_path / "run")
    state = json.loads((tmp_path / "run" / "trainer_state.json").read_text())
    validated = [entry for entry in state["log_history"] if "eval_budget/16+16/forced_ratio" in entry]
    assert [entry["step"] for entry in validated] == [0, 1]
    assert not any("eval_budget/16+16/accuracy" in entry for entry in validated)
    assert (state["global_step"], state["best_global_step"]) == (1, None)
    assert "nothing could be graded, so there is no eval_budget/16+16/accuracy" in text


STARTS = """
revision, data, output = sys.argv[1:]
started = trainer("org/base", data, output, model_init_kwargs={"revision": revision, "dtype": "float32"})
config = started.vllm_generation.llm.llm_engine.model_config
print("CONTEXT", config.hf_config.max_position_embeddings, config.revision, config.tokenizer_revision)
"""


def test_the_engine_is_of_the_revision_that_is_trained(nano_data: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in BASE.iterdir() if path.is_file()}
    config = json.loads(files["config.json"])
    later = json.dumps({**config, "max_position_embeddings": 2 * config["max_position_embeddings"]}).encode()
    with serving_hub() as hub:
        hub.add("org/base", files)
        hub.add("org/base", {**files, "config.json": later, "CHANGES": b"twice the context"})
        revision = hub.commits("org/base")[0].id
        home = {**hub.environment, "HF_HOME": str(tmp_path / "home")}
        text = run(STARTS, revision, nano_data, tmp_path / "run", **home)
    assert f"CONTEXT {config['max_position_embeddings']} {revision} {revision}" in text
