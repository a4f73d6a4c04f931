"""One family in vLLM: whether it starts, takes the trainer's weights, samples with them, and shows one that is stale.

python -m experiments.families.measure "Qwen3" cpu     synced as in a training on a CPU
python -m experiments.families.measure "Qwen3" cuda    synced in place, as in a training on a GPU
"""

import json
import os
import re
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from transformers import AutoTokenizer, PreTrainedModel
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration

from e1_trl.budget import ThinkingClose
from e1_trl.engines.colocated import make_training_engine
from e1_trl.engines.engine import EngineError
from e1_trl.errors import one_line
from e1_trl.marker import MARKER, Marker
from e1_trl.trl_internals import TrlEngine, starting
from experiments.families.models import FAMILIES, WITH_IMAGE_CODE, make_model, move, save, write_torchvision

PROMPTS = [[5, 9, 30, 41, 7, 8, 22, 63, 14, 3, 50, 60, 70, 80, 10, 11, 12, 13, 27, 33], [40, 41, 42]]
TOKENS = 8
TIE = 0.1  # nats from the most probable token, within which bfloat16 may choose another
# Tensors that a sync leaves out, the first of a model.
STALE = ("A_log", "experts.gate_up_proj", "down_proj.weight", "w2.weight")


def keep_layouts() -> None:
    """Let vLLM's CPU build keep the weights of linear layers and convolutions as they are loaded, as on CUDA."""
    from vllm.model_executor.layers import utils

    def dispatch(layer: torch.nn.Module, remove_weight: bool) -> None:
        if layer.weight.ndim == 2:
            layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = dispatch


def sync_as_on_gpu(generation: VLLMGeneration, sync: Any) -> None:
    """Sync as on a GPU; experts, which the CPU kernel takes in no other form, are repacked after it."""
    from vllm.model_executor.layers.fused_moe import RoutedExperts

    from e1_trl.engines.weight_check import sync_in_place

    sync_in_place(TrlEngine(generation), sync)
    for module in engine_model(generation).modules():
        if isinstance(module, RoutedExperts):
            module.quant_method.moe_kernel.fused_experts.process_weights_after_loading(module)


def engine_model(generation: VLLMGeneration) -> torch.nn.Module:
    """Return vLLM's module."""
    return generation.llm.llm_engine.model_executor.driver_worker.model_runner.get_model()


def compare_samples(generation: VLLMGeneration, model: PreTrainedModel) -> dict[str, Any]:
    """Sample greedily, and hold tokens and log-probabilities against those of the trainer's model."""
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    greedy = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, logprobs=0)
    gaps = []
    behind = []
    for ids, output in zip(PROMPTS, generation.llm.generate(prompts, greedy, use_tqdm=False), strict=True):
        sampled = output.outputs[0]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*ids, *sampled.token_ids]]), use_cache=False).logits
        found = logits[0, len(ids) - 1 : -1].float().log_softmax(-1)
        own = found.gather(1, torch.tensor(sampled.token_ids)[:, None])[:, 0]
        engines = [step[token].logprob for step, token in zip(sampled.logprobs, sampled.token_ids, strict=True)]
        gaps.append((own - torch.tensor(engines)).abs().max().item())
        behind.append((found.max(-1).values - own).max().item())
    return {"greedy_tokens_equal": max(behind) < TIE, "logprob_gap": round(max(gaps), 3)}


def find_stale(check: Any, generation: VLLMGeneration, model: PreTrainedModel) -> dict[str, str]:
    """Sync with one tensor that arrives with other values, and return the one that the check names."""
    names = [name for name, _ in model.named_parameters()]
    stale = next(name for part in STALE for name in names if part in name)
    kind = type(engine_model(generation))
    load = kind.load_weights
    kind.load_weights = lambda self, weights: load(self, [(n, t + 0.05 if n == stale else t) for n, t in weights])
    try:
        check()
    except EngineError as error:
        named = re.match(r"vLLM's (\S+) is not what the trainer has just sent", str(error))
        return {"stale": stale, "named": named[1] if named else str(error)}
    finally:
        kind.load_weights = load
    return {"stale": stale, "named": ""}


def measure(name: str, way: str, folder: Path) -> dict[str, Any]:
    """Start a family's engine, sync it three times, compare what it samples, and make one tensor stale."""
    from e1_trl.engines.weight_check import WeightCheck

    note: dict[str, Any] = {}
    if name.startswith(WITH_IMAGE_CODE) and find_spec("torchvision") is None:
        write_torchvision(folder / "stand_in")
        sys.path.append(str(folder / "stand_in"))
        os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(folder / "stand_in")])
        note = {"note": "an empty package stands in for torchvision, which the CPU installation lacks"}
    if way == "cuda":
        keep_layouts()
    model = make_model(name)
    save(model, folder / "model")
    model.name_or_path = str(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    accelerator = Accelerator(cpu=True)
    vllm_generation.LLM = partial(vllm_generation.LLM, enforce_eager=True)
    try:
        with starting(None, 1):
            generation = VLLMGeneration(model, accelerator, tokenizer, max_model_length=128, max_num_seqs=8)
    except Exception as error:
        return {"engine": one_line(error)}
    sync = generation.sync_weights
    close = ThinkingClose(Marker.from_tokenizer(tokenizer, MARKER), 128)
    check = make_training_engine(TrlEngine(generation), close, accelerator, adapter=False, seed=0).weights
    if way == "cuda":
        check = WeightCheck(TrlEngine(generation), partial(sync_as_on_gpu, generation, sync))
    # The CPU's kernels of these layers take repacked convolutions only, which no sync in place can fill.
    packs = any(hasattr(model.config.get_text_config(), field) for field in ("linear_num_key_heads", "conv_L_cache"))
    is_compared = way == "cpu" or not packs
    row: dict[str, Any] = {"engine": "starts", **note}
    try:
        check()  # weights that the engine has already, as those that an adapter leaves alone
        if is_compared:
            row["unchanged_gap"] = compare_samples(generation, model)["logprob_gap"]
        move(model, 0.05)
        check()
    except Exception as error:
        return {**row, "weights": f"{type(error).__name__}: {one_line(error)}"}
    row |= {"weights": "pass", "compared_tensors": len(check.compared)}
    if is_compared:
        row |= compare_samples(generation, model)
    return row | find_stale(check, generation, model)


def main(argv: list[str]) -> None:
    """Print the row of a family and a way of syncing, as JSON."""
    name, way = argv
    if name not in FAMILIES or way not in ("cpu", "cuda"):
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        row = measure(name, way, Path(folder))
    print(json.dumps(row), flush=True)
    os._exit(0)  # without the engine's end


if __name__ == "__main__":
    main(sys.argv[1:])
