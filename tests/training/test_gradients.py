"""In what precision DeepSpeed adds up gradients, as our configuration makes it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.distributed

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")

ACCUMULATES = """
import sys, deepspeed, torch
from e1_trl.training.config import E1Config

steps = 512
args = E1Config(sys.argv[1], report_to="none", bf16=False)
settings = args.deepspeed_plugin.deepspeed_config
settings |= {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": steps,
    "train_batch_size": steps,
    "gradient_clipping": 0.0,
    "bf16": {"enabled": True},
    "zero_allow_untested_optimizer": True,
}
deepspeed.init_distributed("gloo")
weights = torch.nn.Linear(2, 2, bias=False)
torch.nn.init.zeros_(weights.weight)
engine, *_ = deepspeed.initialize(
    model=weights, optimizer=torch.optim.SGD(weights.parameters(), lr=1.0), config=settings
)
ones = torch.ones(1, 2, dtype=torch.bfloat16)
for _ in range(steps):
    engine.backward(engine(ones).sum())
    engine.step()
moved = deepspeed.utils.safe_get_full_fp32_param(next(engine.module.parameters()))
print("MOVED", moved.flatten().tolist(), engine.communication_data_type)
"""


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_gradients_of_many_micro_batches_add_up_in_fp32_under_zero(stage: int, tmp_path: Path) -> None:
    (tmp_path / "accumulates.py").write_text(ACCUMULATES)
    done = subprocess.run(
        [*TORCHRUN, str(tmp_path / "accumulates.py"), str(tmp_path)],
        env={
            **os.environ,
            "DS_ACCELERATOR": "cpu",
            "ACCELERATE_USE_DEEPSPEED": "true",
            "ACCELERATE_DEEPSPEED_ZERO_STAGE": str(stage),
        },
        capture_output=True,
        text=True,
    )
    (printed,) = [line for line in done.stdout.splitlines() if "MOVED" in line] or [done.stderr[-3000:]]
    # In bfloat16 the sum of 512 gradients of 1/512 stops growing at one half.
    assert printed.endswith("MOVED [-1.0, -1.0, -1.0, -1.0] torch.float32")
