"""The engine of a training is of the revision that is trained, and not of the newest one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BASE, ROOT, outside_a_group
from hub_stub import serving_hub

pytestmark = [pytest.mark.engine, pytest.mark.distributed]

STARTS = """
import sys
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems
from e1_trl.training.config import E1Config
from e1_trl.training.named_rewards import format_reward
from e1_trl.training.trainer import E1Trainer

revision, data, output = sys.argv[1:]
fixed = dict(thinking_budget=16, solution_budget=16, max_prompt_length=64, per_device_train_batch_size=8)
fixed |= dict(num_generations=8, use_cpu=True, bf16=False, report_to="none")
args = E1Config(output, **fixed, model_init_kwargs={"revision": revision, "dtype": "float32"})
problems = load_problems(data, "train[:32]", ProblemArguments(instruction=""))
config = E1Trainer("org/base", format_reward, args, problems).vllm_generation.llm.llm_engine.model_config
print("CONTEXT", config.hf_config.max_position_embeddings, config.revision, config.tokenizer_revision)
"""


@pytest.mark.slow
def test_the_engine_is_of_the_revision_that_is_trained(nano_data: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in BASE.iterdir() if path.is_file()}
    config = json.loads(files["config.json"])
    later = json.dumps({**config, "max_position_embeddings": 2 * config["max_position_embeddings"]}).encode()
    with serving_hub() as hub:
        hub.add("org/base", files)
        hub.add("org/base", {**files, "config.json": later, "CHANGES": b"twice the context"})
        revision = hub.commits("org/base")[0].id
        environment = {**outside_a_group(), **hub.environment, "HF_HOME": str(tmp_path / "home")}
        line = [sys.executable, "-c", STARTS, revision, str(nano_data), str(tmp_path / "run")]
        done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    assert f"CONTEXT {config['max_position_embeddings']} {revision} {revision}" in done.stdout
