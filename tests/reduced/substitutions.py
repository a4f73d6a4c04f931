"""Substitutions that let a recipe run at reduced size on two CPU processes, each with its reason.

All other fields reach the trainer as in the recipe; a test compares.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e1_trl.budget import Budget
from e1_trl.errors import UserError

BUDGETS = 64  # divisors
BATCHES = 32
PROMPTS = 4
PROCESSES = 2
STAND_IN = "packages"  # folder of a run with a package that this installation lacks, if it needs one
STEPS = 2  # the optimizer steps of one generation
REWARD = "tests.reduced.reward.letters"
PROGRAM = "</think>\n```python\nprint(int(input()) * 2)\n```\n"

Fields = Mapping[str, Any]  # of a recipe, or of an Accelerate configuration


def of_recipe(recipe: Fields, accelerate: Fields) -> dict[str, Any]:
    """Return the fields of a recipe that get another value under an Accelerate configuration."""

    def divided(name: str, divisor: int) -> int:
        return _quotient(name, recipe.get(name), divisor)

    own = recipe["per_device_train_batch_size"] * recipe.get("gradient_accumulation_steps", 1)
    mini_batch, processes = own * accelerate["num_processes"], _processes(accelerate)
    share = _quotient("a step's number of rollouts", mini_batch, BATCHES * processes)  # of a process
    batch = min(recipe["per_device_train_batch_size"], share)
    values: dict[str, Any] = {
        # Seconds for a generation; all of it is used, as a random model never closes.
        "thinking_budget": divided("thinking_budget", BUDGETS),
        "solution_budget": divided("solution_budget", BUDGETS),
        "max_prompt_length": divided("max_prompt_length", PROMPTS),  # what is asked here is short
        # Four prompts, learned from in two optimizer steps, as in the recipe.
        "generation_batch_size": divided("generation_batch_size", BATCHES),
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": _quotient("a process's rollouts", share, batch),
        "max_steps": STEPS,  # one generation; a first run ends after one step, a second one resumes from there
        "save_steps": 1,
        "dtype": "float32",  # without master weights, steps of 1e-6 would round away
        "bf16": False,  # refused without a GPU
        "vllm_enable_sleep_mode": False,  # vLLM sleeps on GPUs only
        # The share of letters in a solution; by accuracy alone, all answers of a prompt are alike and teach nothing.
        "reward_funcs": [*recipe["reward_funcs"], REWARD],
    }
    if "eval_budgets" in recipe:  # validation before the first step and after each
        budgets = [_budget(text) for text in recipe["eval_budgets"]]
        best = f"eval_budget/{budgets[-1]}/accuracy"
        values |= {"eval_steps": 1, "eval_budgets": budgets, "metric_for_best_model": best}
    if recipe["vllm_mode"] == "server":  # TRL sends weights to a server by NCCL, which needs GPUs
        values["vllm_mode"] = "colocate"
    if accelerate["num_processes"] > 1:  # NCCL needs GPUs
        values["ddp_backend"] = "gloo"
    if accelerate["distributed_type"] != "DEEPSPEED":  # which uses CPUs anyway; this would have Accelerate drop it
        values["use_cpu"] = True
    if recipe.get("grader") == "programs":  # right for one of the problems; a random model writes none
        values["forced_text"] = PROGRAM
    return values


def of_accelerate(accelerate: Fields) -> dict[str, Any]:
    """Return the fields of the Accelerate configuration that get another value.

    `distributed_type` stays: under MULTI_GPU `accelerate launch` starts the processes, which it does not for MULTI_CPU
    without MPI, and `use_cpu` has them use their CPUs.
    """
    return {"num_processes": _processes(accelerate), "mixed_precision": "no", "main_process_port": 0}


def environment(folder: Path, clone: Path) -> dict[str, str]:
    """Return the environment variables of a run in a folder."""
    return {
        "CUDA_VISIBLE_DEVICES": "",  # no GPU, even where there is one
        "DS_ACCELERATOR": "cpu",
        "ACCELERATE_TORCH_DEVICE": "cpu",  # Accelerate calls it cpu:0 under DDP, where PyTorch loads no checkpoint to
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; vllm_gpu_memory_utilization then has no effect
        "TORCH_COMPILE_DISABLE": "1",  # vLLM compiles nothing, which takes longer than all the rest
        # Memory is not given back to the kernel after each tensor, which is half of the time.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(2**34),  # bytes
        "HF_HUB_OFFLINE": "1",  # what the recipe names on the Hub is found in the folder of the run, or nowhere
        "HF_DATASETS_CACHE": f"{folder}/cache",  # datasets would take what an earlier run had under the same name
        "PYTHONPATH": f"{clone}:{folder}/{STAND_IN}",  # the added reward is found, and what this installation lacks
    }


def _budget(text: str) -> str:
    """Divide a budget such as `1024+1024`."""
    budget = Budget.parse(text)
    parts = (_quotient("a budget of eval_budgets", part, BUDGETS) for part in (budget.thinking, budget.solution))
    return str(Budget(*parts))


def _quotient(what: str, value: Any, divisor: int) -> int:
    if not isinstance(value, int) or value % divisor:
        raise UserError(f"{what} is {value!r}; to run at reduced size it must be a multiple of {divisor}")
    return value // divisor


def _processes(accelerate: Fields) -> int:
    return min(PROCESSES, accelerate["num_processes"])
