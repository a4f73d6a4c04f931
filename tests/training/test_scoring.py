"""Log-probabilities without padding equal the padded ones, and so do the weights trained with them."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import BASE, in_group
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, PreTrainedModel, Qwen2Config
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from e1_trl.training import trainer as module
from e1_trl.training.arguments import VARLEN
from e1_trl.training.phases import Phases
from e1_trl.training.scoring import PARTS_ON_CPU, Layout, layout_of, scored
from e1_trl.training.trainer import E1Trainer

LOSS_TYPES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo"]
LOGPROBS, GRADIENTS = 5e-4, 1e-5
UNPADDED = [Layout.TRIMMED, Layout.PACKED]
PROMPTS = [1, 9, 4, 12, 2, 7, 3]  # tokens
COMPLETIONS = [20, 1, 13, 0, 31, 6, 27]  # tokens that are trained on or forced; the 0 is a row that TRL masks
FORCED = [(5, 8), None, (0, 3), None, (28, 31), None, (1, 2)]  # of them


class WithoutEngine(E1Trainer):
    """E1Trainer's losses, of a model that samples nothing."""

    def __init__(self, model: PreTrainedModel, output_dir: Path):
        rows = Dataset.from_dict({"prompt": ["1"] * 8})
        args = GRPOConfig(str(output_dir), bf16=False, use_cpu=True, report_to="none")
        tokenizer = AutoTokenizer.from_pretrained(BASE)
        GRPOTrainer.__init__(self, model, lambda **_: [], args, rows, processing_class=tokenizer)
        self.layout, self.beta = Layout.PADDED, 0.1  # later than TRL would load a reference
        self.current_gradient_accumulation_steps = 1
        self._phases = Phases(self.accelerator.device)


def model_of(attention: str, kind: Any = Qwen2Config, **fields: Any) -> PreTrainedModel:
    """A small random model, with weights large enough for attention to attend somewhere."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}
    return AutoModelForCausalLM.from_config(kind(**sizes, **heads, **fields), attn_implementation=attention)


def padded_rows() -> tuple[torch.Tensor, torch.Tensor, int]:
    """Token ids and mask as TRL pads them, and how many of the columns are completions."""
    width, kept = max(PROMPTS), max(COMPLETIONS)
    ids = torch.randint(3, 32, (len(PROMPTS), width + kept), generator=torch.Generator().manual_seed(1))
    columns = torch.arange(width + kept)
    begins, ends = width - torch.tensor(PROMPTS), width + torch.tensor(COMPLETIONS)
    mask = ((columns >= begins[:, None]) & (columns < ends[:, None])).int()
    return ids * mask, mask, kept


def batch_of(trainer: E1Trainer) -> dict[str, Any]:
    """Return TRL's inputs of the loss for these rows, with forced tokens, a step away from the sampling policy."""
    ids, mask, kept = padded_rows()
    with torch.no_grad():
        old = score(trainer, Layout.PADDED)
    trained = mask[:, -kept:].clone()
    for row, forced in zip(trained, FORCED, strict=True):
        if forced:
            row[slice(*forced)] = 0
    noise = torch.randn(old.shape, generator=torch.Generator().manual_seed(2))
    parts = {"prompt": slice(None, -kept), "completion": slice(-kept, None)}
    return {
        **{f"{name}_ids": ids[:, part] for name, part in parts.items()},
        **{f"{name}_mask": mask[:, part] for name, part in parts.items()},
        "tool_mask": trained,
        "advantages": torch.linspace(-1, 1, len(ids)),
        "old_per_token_logps": old + 0.1 * noise,
        "ref_per_token_logps": old - 0.1 * noise,
        "num_items_in_batch": trained.sum(),
    }


def score(trainer: E1Trainer, layout: Layout) -> torch.Tensor:
    """Log-probabilities of the completions by the trainer, from rows as TRL pads them."""
    trainer.layout = layout
    logps, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, *padded_rows())
    return logps


@pytest.fixture(params=["sdpa", "eager"])
def trainer(request: pytest.FixtureRequest, tmp_path: Path) -> E1Trainer:
    return WithoutEngine(model_of(request.param), tmp_path)


def of_completions(values: torch.Tensor) -> torch.Tensor:
    _, mask, kept = padded_rows()
    return values[mask[:, -kept:].bool()]


@pytest.mark.parametrize("layout", UNPADDED)
@pytest.mark.parametrize("batch_size", [None, 3, 1])
def test_unpadded_rows_score_as_the_padded_ones(trainer: E1Trainer, layout: Layout, batch_size: int | None) -> None:
    ids, mask, kept = padded_rows()
    given = {"batch_size": batch_size, "compute_entropy": True}
    expected = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, kept, **given)
    trls = GRPOTrainer._get_per_token_logps_and_entropies(trainer, trainer.model, ids, mask, kept, **given)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(expected[:2], trls[:2], strict=True))
    trainer.layout = layout
    found = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, kept, **given)
    for ours, theirs in zip(found[:2], expected[:2], strict=True):
        assert ours.shape == theirs.shape == (len(ids), kept)
        torch.testing.assert_close(ours, theirs, atol=LOGPROBS, rtol=0)
        assert of_completions(theirs).abs().min() > 10 * LOGPROBS and (ours[theirs == 0] == 0).all()


def losses_and_gradients(trainer: E1Trainer, batch: dict[str, Any]) -> dict[str, list[torch.Tensor]]:
    """Under each loss: itself, and the gradient of each weight that is trained."""
    found = {}
    for trainer.loss_type in LOSS_TYPES:
        trainer.model.zero_grad()
        loss = trainer._compute_loss(trainer.model, batch)
        loss.backward()
        weights = [each for each in trainer.model.parameters() if each.requires_grad]
        found[trainer.loss_type] = [loss.detach(), *(each.grad.clone() for each in weights)]
    return found


@pytest.mark.parametrize("way", ["plain", "lora", "checkpointing"])
def test_losses_and_gradients_are_those_of_the_padded(tmp_path: Path, way: str) -> None:
    model = model_of("sdpa")
    if way == "lora":
        model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False))
    trainer = WithoutEngine(model, tmp_path)
    trainer.model.train()
    if way == "checkpointing":
        trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
    batch = batch_of(trainer)
    expected = losses_and_gradients(trainer, batch)
    for trainer.layout in UNPADDED:
        found = losses_and_gradients(trainer, batch)
        for name, values in expected.items():
            assert values[0].abs() > 1e-3 and max(each.abs().max() for each in values[1:]) > 1e-3, name
            for ours, theirs in zip(found[name], values, strict=True):
                about = f"{name}, {trainer.layout}: "
                torch.testing.assert_close(ours, theirs, atol=GRADIENTS, rtol=0, msg=about.__add__)
    # The comparison can fail: a forced token that is trained on moves every loss.
    moved = losses_and_gradients(trainer, {**batch, "tool_mask": batch["completion_mask"]})
    assert all((moved[name][0] - expected[name][0]).abs() > 10 * GRADIENTS for name in LOSS_TYPES)


@pytest.mark.parametrize("layout", UNPADDED)
def test_rows_without_a_token_to_train_on_have_a_gradient_of_zero(tmp_path: Path, layout: Layout) -> None:
    trainer, (ids, mask, kept) = WithoutEngine(model_of("sdpa"), tmp_path), padded_rows()
    trainer.layout, mask[:, -kept:] = layout, 0
    logps, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, kept)
    logps.sum().backward()
    assert all((each.grad == 0).all() for each in trainer.model.parameters())


def test_the_number_of_passes_follows_from_the_number_of_rows(tmp_path: Path) -> None:
    trainer, (ids, mask, kept) = WithoutEngine(model_of("sdpa"), tmp_path), padded_rows()
    widths: list[tuple[int, ...]] = []

    def counted(**inputs: Any) -> Any:
        widths.append(tuple(inputs["input_ids"].shape))
        return trainer.model(**inputs)

    whole = torch.ones_like(mask)
    for each in (mask, whole):
        scored(counted, trainer.model.base_model, ids, each, kept, 4, packed=False, parts=4)
    trimmed, untrimmed = widths[: len(ids)], widths[len(ids) :]
    assert trimmed == [(1, length) for length in sorted(mask.sum(1).tolist())]
    assert untrimmed == [(1, ids.shape[1])] * len(ids)
    widths.clear()
    scored(counted, trainer.model.base_model, ids, mask, kept, 4, packed=True)
    lengths = sorted(mask.sum(1).tolist())
    assert widths == [(1, sum(lengths[:4])), (1, sum(lengths[4:]))]
    widths.clear()
    scored(counted, trainer.model.base_model, ids, mask, kept, 4, packed=False)
    assert widths == [(4, lengths[3]), (3, lengths[-1])]


@pytest.mark.parametrize(
    ("processes", "gradient", "layout", "parts"),
    [
        (1, True, Layout.TRIMMED, PARTS_ON_CPU),
        (2, True, Layout.TRIMMED, 1),
        (1, False, Layout.TRIMMED, 1),
        (1, True, Layout.PACKED, 1),
    ],
)
def test_only_a_process_that_trains_alone_on_a_cpu_makes_more_than_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, gradient: bool, layout: Layout, parts: int
) -> None:
    made: list[int] = []

    def noting(*arguments: Any) -> tuple[None, None]:
        made.append(arguments[7])
        return None, None

    trainer = WithoutEngine(model_of("sdpa"), tmp_path)
    trainer.layout = layout
    monkeypatch.setattr(module, "scored", noting)
    monkeypatch.setattr(type(trainer.accelerator), "num_processes", processes)
    with torch.set_grad_enabled(gradient):
        trainer._get_per_token_logps_and_entropies(trainer.model, *padded_rows())
    assert made == [parts]


QWEN = Qwen2Config(num_hidden_layers=2)
CHUNKED = Qwen2Config(num_hidden_layers=1, layer_types=["chunked_attention"])


def made(config: Any) -> PreTrainedModel:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(deepcopy(config))  # which Transformers writes into


@pytest.mark.parametrize(
    ("config", "padding_free", "aux_loss", "layout", "why"),
    [
        (QWEN, True, False, Layout.TRIMMED, "without flash attention, packed rows would need a mask"),
        (QWEN, True, True, Layout.PADDED, "the load-balancing loss needs whole batches"),
        (QWEN, False, False, Layout.PADDED, "padding_free is false"),
        (GPT2Config(), True, False, Layout.PADDED, "the model's positions are not rotary"),
        (CHUNKED, True, False, Layout.PADDED, "the model has layers of chunked_attention"),
    ],
)
def test_a_layout_follows_the_model(config: Any, padding_free: bool, aux_loss: bool, layout: Layout, why: str) -> None:
    assert layout_of(made(config), padding_free, aux_loss) == (layout, why)


@pytest.mark.parametrize("flash", ["flash_attention_2", "flash_attention_3", "kernels-community/flash-attn2", VARLEN])
def test_rows_are_packed_where_attention_gets_their_bounds(flash: str) -> None:
    model = made(QWEN)
    model.config._attn_implementation = flash
    assert layout_of(model, padding_free=True, aux_loss=False)[0] is Layout.PACKED


@pytest.mark.parametrize("rope_type", ["default", "yarn", "dynamic", "longrope"])
@pytest.mark.parametrize("nested", [False, True])
def test_positions_that_depend_on_the_longest_row_are_padded(rope_type: str, nested: bool) -> None:
    model = made(QWEN)
    rotary = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 4.0}
    model.config.rope_parameters = {"full_attention": rotary} if nested else rotary
    expected = Layout.PADDED if rope_type in ("dynamic", "longrope") else Layout.TRIMMED
    assert layout_of(model, padding_free=True, aux_loss=False)[0] is expected


UNDER_ZERO = """
import sys, deepspeed, torch
import torch.distributed as dist
from transformers.integrations import HfDeepSpeedConfig
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from trl.trainer.utils import add_fused_lm_head
from test_scoring import model_of, padded_rows
from e1_trl.training.scoring import scored

deepspeed.init_distributed("gloo")
rank = dist.get_rank()
ids, mask, kept = padded_rows()
ids, mask = (each[[6, 1, 2, 0] if rank else [3, 5, 4, 1]] for each in (ids, mask))

def headed(model):
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model

def loss_of(model, module, packed):
    logps, entropies = scored(model, module.base_model, ids, mask, kept, len(ids), packed)
    return (logps * torch.arange(len(ids))[:, None]).mean() + 0.1 * entropies.mean()

plain = headed(model_of("sdpa"))
labels = ids.masked_fill(mask == 0, -100)
labels[:, :-kept] = -100
outputs = plain(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
at = torch.arange(len(ids))[:, None]
((outputs.log_probs[:, -kept:] * at).mean() + 0.1 * outputs.entropy[:, -kept:].mean()).backward()
expected = {name: each.grad.clone() for name, each in plain.named_parameters()}
for each in expected.values():
    dist.all_reduce(each)
    each /= dist.get_world_size()

def compare(way, found):
    worst = max((found[name] - each).abs().max().item() for name, each in expected.items())
    size = max(each.abs().max().item() for each in expected.values())
    if rank == 0:
        print("COMPARED", way, worst, size)

for packed in (False, True):
    for checkpointing in (None, False, True):
        module = headed(model_of("sdpa")).train()
        if checkpointing is not None:
            module.gradient_checkpointing_enable({"use_reentrant": checkpointing})
        wrapped = torch.nn.parallel.DistributedDataParallel(module)
        loss_of(wrapped, module, packed).backward()
        compare(f"ddp-{packed}-{checkpointing}", {name: each.grad for name, each in module.named_parameters()})
    for stage in (2, 3):
        module = model_of("sdpa").train()
        zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
        settings = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}
        optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
        settings["zero_allow_untested_optimizer"] = True
        known = HfDeepSpeedConfig(settings)  # by which TRL's head sees that its weights are shared out
        engine, *_ = deepspeed.initialize(model=headed(module), optimizer=optimizer, config=settings)
        with torch.no_grad():
            loss_of(engine, module, packed)  # as the old policy is scored
        engine.backward(loss_of(engine, module, packed))
        full = deepspeed.utils.safe_get_full_grad
        compare(f"zero{stage}-{packed}", {name: full(each) for name, each in module.named_parameters()})
        unset_hf_deepspeed_config()
"""


@pytest.mark.distributed
@pytest.mark.slow
def test_gradients_are_those_of_the_padded_on_two_processes(tmp_path: Path) -> None:
    printed = in_group(UNDER_ZERO, folder=tmp_path)
    compared = [line.split()[1:] for line in printed.splitlines() if line.startswith("COMPARED")]
    assert len(compared) == 10, printed
    for way, worst, size in compared:
        assert float(worst) < GRADIENTS < 0.01 < float(size), (way, worst, size)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: PyTorch's flash kernel")
def test_flash_attention_tells_packed_rows_apart() -> None:
    model = model_of(VARLEN).bfloat16().cuda()
    assert layout_of(model, padding_free=True, aux_loss=False)[0] is Layout.PACKED
    add_fused_lm_head(model)
    ids, mask, kept = padded_rows()
    batch = (model.base_model, ids.cuda(), mask.cuda(), kept, len(ids))
    expected, _ = scored(model, *batch, packed=False)
    found, _ = scored(model, *batch, packed=True)
    together, _ = scored(lambda position_ids, **inputs: model(**inputs), *batch, packed=True)
    assert (found - expected).abs().max() < 0.1 < (together - expected).abs().max()
