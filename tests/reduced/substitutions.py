"""What a recipe is given other values for when it runs in small, on two CPU processes: every one, with its reason.

Knows nothing about how it is run. What is not listed here reaches the trainer as the recipe says it; a test compares.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e1_trl.budget import Budget

BUDGETS = 64  # what they are divided by
BATCHES = 32
PROMPTS = 4
PROCESSES = 2
STEPS = 2  # the optimizer steps of one generation
REWARD = "tests.reduced.reward.letters"
PROGRAM = "</think>\n```python\nprint(int(input()) * 2)\n```\n"

Fields = Mapping[str, Any]  # of a recipe, or of an Accelerate configuration


@dataclass(frozen=True)
class Substitution:
    """A field that gets another value.

    Attributes:
        field: of a recipe, or of an Accelerate configuration.
        becomes: the value, in words.
        reason: why the recipe's own does not do here.
        value: computes it from the recipe and its Accelerate configuration.
        applies: whether the recipe needs it with that configuration.
    """

    field: str
    becomes: str
    reason: str
    value: Callable[[Fields, Fields], Any]
    applies: Callable[[Fields, Fields], bool] = lambda recipe, accelerate: True


def _validates(recipe: Fields, _: Fields) -> bool:
    return "eval_budgets" in recipe


def _budget(text: str) -> str:
    """A budget such as `1024+1024`, divided."""
    budget = Budget.parse(text)
    parts = (_quotient("a budget of eval_budgets", part, BUDGETS) for part in (budget.thinking, budget.solution))
    return str(Budget(*parts))


def _divided(field: str, divisor: int, reason: str) -> Substitution:
    return Substitution(
        field, f"divided by {divisor}", reason, lambda recipe, _: _quotient(field, recipe.get(field), divisor)
    )


def _quotient(what: str, value: Any, divisor: int) -> int:
    if not isinstance(value, int) or value % divisor:
        raise ValueError(f"{what} is {value!r}; to run at reduced size it must be a multiple of {divisor}")
    return value // divisor


def _fixed(field: str, value: Any, reason: str) -> Substitution:
    return Substitution(field, str(value).lower() if isinstance(value, bool) else str(value), reason, lambda *_: value)


def _processes(_: Fields, accelerate: Fields) -> int:
    return min(PROCESSES, accelerate["num_processes"])


def _share(recipe: Fields, accelerate: Fields) -> int:
    """What a process learns from in a step, if a mini-batch is the recipe's divided by `BATCHES`."""
    own = recipe["per_device_train_batch_size"] * recipe.get("gradient_accumulation_steps", 1)
    mini_batch = own * accelerate["num_processes"]
    return _quotient("a step's number of rollouts", mini_batch, BATCHES * _processes(recipe, accelerate))


def _batch(recipe: Fields, accelerate: Fields) -> int:
    return min(recipe["per_device_train_batch_size"], _share(recipe, accelerate))


def _accumulation(recipe: Fields, accelerate: Fields) -> int:
    return _quotient("a process's rollouts", _share(recipe, accelerate), _batch(recipe, accelerate))


RECIPE = (
    _divided("thinking_budget", BUDGETS, "seconds for a generation; all of it is used, as a random model never closes"),
    _divided("solution_budget", BUDGETS, "as above"),
    _divided("max_prompt_length", PROMPTS, "the context of the engine; what is asked here is short"),
    _divided("generation_batch_size", BATCHES, "four prompts, learned from in two optimizer steps, as in the recipe"),
    Substitution(
        "per_device_train_batch_size",
        f"as it is, or what a process has of a mini-batch divided by {BATCHES}",
        "no process learns from more at once than it has",
        _batch,
    ),
    Substitution(
        "gradient_accumulation_steps",
        f"what makes a mini-batch the recipe's divided by {BATCHES}",
        "as above",
        _accumulation,
    ),
    _fixed("max_steps", STEPS, "one generation; a first run ends after one step, a second one resumes from there"),
    _fixed("save_steps", 1, "a checkpoint after each"),
    Substitution("eval_steps", "1", "validation before the first step and after each", lambda *_: 1, _validates),
    Substitution(
        "eval_budgets",
        "both parts divided by the same",
        "as the budgets",
        lambda recipe, _: [_budget(text) for text in recipe["eval_budgets"]],
        _validates,
    ),
    Substitution(
        "metric_for_best_model",
        "the same of the last of these",
        "as above",
        lambda recipe, _: f"eval_budget/{_budget(recipe['eval_budgets'][-1])}/accuracy",
        _validates,
    ),
    _fixed("dtype", "float32", "without master weights, steps of 1e-6 would round away"),
    _fixed("bf16", False, "refused without a GPU"),
    _fixed("vllm_enable_sleep_mode", False, "vLLM sleeps on GPUs only"),
    Substitution(
        "vllm_mode",
        "colocate, where it is server",
        "TRL sends weights to a server by NCCL, which needs GPUs",
        lambda *_: "colocate",
        lambda recipe, _: recipe["vllm_mode"] == "server",
    ),
    Substitution(
        "ddp_backend",
        "gloo, but not for one process",
        "NCCL needs GPUs",
        lambda *_: "gloo",
        lambda _, accelerate: accelerate["num_processes"] > 1,
    ),
    Substitution(
        "use_cpu",
        "true, but not under DeepSpeed",
        "the processes use their CPUs; with DeepSpeed they do so anyway, and this would have Accelerate drop DeepSpeed",
        lambda *_: True,
        lambda _, accelerate: accelerate["distributed_type"] != "DEEPSPEED",
    ),
    Substitution(
        "reward_funcs",
        f"`{REWARD}` added",
        "the share of letters in a solution; by `accuracy` alone, all answers of a prompt are alike and teach nothing",
        lambda recipe, _: [*recipe["reward_funcs"], REWARD],
    ),
    Substitution(
        "forced_text",
        "the marker, then a program in a block, where programs are the answers",
        "the sandbox runs it, and it is right for one of the problems; a random model writes none",
        lambda *_: PROGRAM,
        lambda recipe, _: recipe.get("grader") == "programs",
    ),
)

ACCELERATE = (
    Substitution("num_processes", f"{PROCESSES}, or 1 where it is 1", "two CPU processes", _processes),
    _fixed("mixed_precision", "no", "as `bf16` above"),
    _fixed("main_process_port", 0, "one that is free"),
)

# Name, value, reason. In a value, {folder} is the folder of the run and {clone} that of this project.
ENVIRONMENT = (
    ("CUDA_VISIBLE_DEVICES", "", "no GPU, even where there is one"),
    ("DS_ACCELERATOR", "cpu", "DeepSpeed on CPUs"),
    ("ACCELERATE_TORCH_DEVICE", "cpu", "Accelerate calls it `cpu:0` under DDP, where PyTorch loads no checkpoint to"),
    ("VLLM_CPU_KVCACHE_SPACE", "1", "GiB of KV cache; `vllm_gpu_memory_utilization` then has no effect"),
    ("TORCH_COMPILE_DISABLE", "1", "vLLM compiles nothing, which takes longer than all the rest"),
    ("MALLOC_MMAP_MAX_", "0", "memory is not given back to the kernel after each tensor, which is half of the time"),
    ("MALLOC_TRIM_THRESHOLD_", str(2**34), "as above; bytes"),
    ("HF_HUB_OFFLINE", "1", "what the recipe names on the Hub is found in the folder of the run, or nowhere"),
    ("HF_DATASETS_CACHE", "{folder}/cache", "`datasets` would take what an earlier run had under the same name"),
    ("PYTHONPATH", "{clone}", "the added reward is found"),
)


def of_recipe(recipe: Fields, accelerate: Fields) -> dict[str, Any]:
    """The fields of a recipe that get another value under an Accelerate configuration, with that value.

    Raises:
        ValueError: a budget or a batch cannot be divided.
    """
    return {each.field: each.value(recipe, accelerate) for each in RECIPE if each.applies(recipe, accelerate)}


def of_accelerate(recipe: Fields, accelerate: Fields) -> dict[str, Any]:
    """The fields of the Accelerate configuration that get another value, with that value."""
    return {each.field: each.value(recipe, accelerate) for each in ACCELERATE if each.applies(recipe, accelerate)}


def environment(folder: Path, clone: Path) -> dict[str, str]:
    """The variables of the environment, with their values."""
    return {name: value.format(folder=folder, clone=clone) for name, value, _ in ENVIRONMENT}
