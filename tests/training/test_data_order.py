"""Order of problems in a training that is resumed."""

import json
from pathlib import Path

import pytest
from conftest import in_group

# TRL's own trainer with its sampler and data loader, of which a step only writes down what it is given.
TRAINS = """
import json, os, sys
from pathlib import Path
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config
from trl import GRPOConfig, GRPOTrainer
from conftest import BASE
from e1_trl.training.callbacks import DataOrder

class Watched(GRPOTrainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        self.seen.append((self.state.global_step, sorted({row["prompt"] for row in inputs})))
        return torch.zeros(())

def seen(resumed):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = AutoModelForCausalLM.from_config(Qwen2Config(**sizes, num_key_value_heads=1, vocab_size=8))
    args = GRPOConfig(
        sys.argv[1], num_train_epochs=3, per_device_train_batch_size=4, num_generations=4, save_steps=1,
        use_cpu=True, bf16=False, ddp_backend="gloo", report_to="none", logging_strategy="no",
    )
    rows = Dataset.from_dict({"prompt": [str(at) for at in range(12)]})
    trainer = Watched(
        model, lambda **_: [], args, rows, processing_class=AutoTokenizer.from_pretrained(BASE), callbacks=[DataOrder()]
    )
    trainer.seen = []
    trainer.train(resume_from_checkpoint=f"{sys.argv[1]}/checkpoint-{resumed}" if resumed else None)
    return trainer.seen

runs = [seen(int(step)) for step in sys.argv[2:]]
(Path(sys.argv[1]) / f"seen-{os.environ['RANK']}.json").write_text(json.dumps(runs))
"""


def orders(folder: Path, processes: int, *resumed: int) -> list[list[list[list[object]]]]:
    """Return, for each process, the steps and problems of each run, which is resumed at this step."""
    in_group(TRAINS, folder, *resumed, folder=folder, processes=processes)
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(processes)]


@pytest.mark.distributed
@pytest.mark.slow
def test_a_resumed_run_goes_on_with_the_order_of_problems_in_every_epoch(tmp_path: Path) -> None:
    for runs in orders(tmp_path, 2, 0, 2, 6, 10):  # of six steps an epoch: within one, between two
        whole = runs[0]
        epochs = [[problems for _, problems in whole[start : start + 6]] for start in (0, 6, 12)]
        assert epochs[0] != epochs[1] != epochs[2] and len(whole) == 18
        for resumed, run in zip((2, 6, 10), runs[1:], strict=True):
            assert run == whole[resumed:]
