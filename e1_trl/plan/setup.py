"""What of a recipe and of an Accelerate configuration decides memory and time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from e1_trl.plan.architecture import Architecture

# TRL's and our own defaults of the fields that are read here.
DEFAULTS: Mapping[str, Any] = {
    "beta": 0.0,
    "dtype": "float32",
    "generation_batch_size": None,
    "gradient_accumulation_steps": 1,
    "grader": "mathematics",
    "gradient_checkpointing": True,
    "lora_r": 16,
    "lora_target_modules": None,
    "max_prompt_length": 1024,
    "num_iterations": 1,
    "num_generations": 8,
    "optim": "adamw_torch_fused",
    "per_device_train_batch_size": 8,
    "solution_budget": 1024,
    "steps_per_generation": None,
    "thinking_budget": 1024,
    "use_peft": False,
    "vllm_enable_sleep_mode": False,
    "vllm_gpu_memory_utilization": 0.3,
    "vllm_importance_sampling_correction": True,
    "vllm_mode": "colocate",
    "vllm_tensor_parallel_size": 1,
}
ADAM = ("adamw_torch", "adamw_torch_fused")
OFFLOADED = {"offload_param_device": ("none",), "offload_optimizer_device": ("none", "cpu")}


@dataclass(frozen=True)
class Setup:
    """One training on one node.

    Attributes:
        zero: the ZeRO stage; 0 is DistributedDataParallel, where each GPU holds everything.
        offload: the optimizer's state lies in the host's memory.
        prompt: tokens of the longest one.
        adapter: parameters of the LoRA adapter that is trained; None where the model is.
        context: tokens of a whole sequence: prompt, thinking, close, solution.
        batch: sequences that a GPU learns from at once.
        rollouts: sequences of one generation, over all GPUs.
        steps: optimizer steps for each generation.
        iterations: how often a generation is learned from.
        served: vLLM has GPUs of its own, which are assumed to be as many and are not planned for.
    """

    architecture: Architecture
    gpus: int
    zero: int
    offload: bool
    dtype: int  # bytes
    adapter: int | None
    reference: bool
    checkpointing: bool
    prompt: int
    context: int
    batch: int
    rollouts: int
    steps: float
    iterations: int
    utilization: float
    sleep: bool
    served: bool
    tensor_parallel: int
    programs: bool  # are the answers
    scored_anew: bool  # the log-probabilities of what was sampled, by the trainer, for the correction

    @classmethod
    def of(cls, recipe: Mapping[str, Any], accelerate: Mapping[str, Any], gpus: int | None = None) -> "Setup":
        """The setup of a recipe's fields under an Accelerate configuration's; `gpus` unset is the configuration's.

        Raises:
            ValueError: what cannot be planned for, by name.
        """
        fields = {**DEFAULTS, **recipe}
        for name in ("thinking_budget", "solution_budget"):
            if fields[name] is None:
                raise ValueError(f"{name} is null: without bound on the tokens there is nothing to plan with")
            if not isinstance(fields[name], int):
                raise ValueError(f"{name} is {fields[name]!r}, not a number of tokens")
        if fields["use_peft"] and fields["lora_target_modules"] not in ("all-linear", ["all-linear"]):
            raise ValueError(
                f"lora_target_modules {fields['lora_target_modules']!r} cannot be planned for, only all-linear"
            )
        if str(getattr(fields["optim"], "value", fields["optim"])) not in ADAM:
            raise ValueError(f"optim {fields['optim']} cannot be planned for, only {' and '.join(ADAM)}")
        if "model_name_or_path" not in fields:
            raise ValueError("the recipe names no model (model_name_or_path)")
        zero = accelerate.get("deepspeed_config", {})
        kind = accelerate.get("distributed_type", "NO")
        if kind not in ("DEEPSPEED", "MULTI_GPU", "NO"):
            raise ValueError(f"distributed_type {kind} cannot be planned for, only DEEPSPEED and MULTI_GPU")
        for name, planned in OFFLOADED.items():
            if zero.get(name, "none") not in planned:
                raise ValueError(f"{name} {zero[name]} cannot be planned for, only {' and '.join(planned)}")
        stage = int(zero.get("zero_stage", 0)) if kind == "DEEPSPEED" else 0
        gpus = gpus or int(accelerate.get("num_processes", 1))
        mini_batch = fields["per_device_train_batch_size"] * fields["gradient_accumulation_steps"] * gpus
        rollouts = fields["generation_batch_size"] or mini_batch * (
            (fields["steps_per_generation"] or fields["gradient_accumulation_steps"])
            / fields["gradient_accumulation_steps"]
        )
        forced = 1  # token, of the marker
        architecture = Architecture.of(fields["model_name_or_path"])
        return cls(
            architecture=architecture,
            gpus=gpus,
            zero=stage,
            offload=zero.get("offload_optimizer_device", "none") == "cpu",
            # DeepSpeed computes in bf16, whatever the model was loaded in.
            dtype=4 if fields["dtype"] in ("float32", "auto", None) and stage == 0 else 2,
            adapter=architecture.adapter(fields["lora_r"]) if fields["use_peft"] else None,
            reference=fields["beta"] != 0,
            checkpointing=bool(fields["gradient_checkpointing"]),
            prompt=fields["max_prompt_length"],
            context=fields["max_prompt_length"] + fields["thinking_budget"] + forced + fields["solution_budget"],
            batch=fields["per_device_train_batch_size"],
            rollouts=int(rollouts),
            steps=rollouts / mini_batch * fields["num_iterations"],
            iterations=fields["num_iterations"],
            utilization=fields["vllm_gpu_memory_utilization"],
            sleep=bool(fields["vllm_enable_sleep_mode"]),
            served=fields["vllm_mode"] == "server",
            tensor_parallel=fields["vllm_tensor_parallel_size"],
            programs=fields["grader"] == "programs",
            # TRL also needs them where a generation is learned from in several steps.
            scored_anew=bool(fields["vllm_importance_sampling_correction"]) or rollouts > mini_batch,
        )
