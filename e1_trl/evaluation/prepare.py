"""From arguments to what can be sampled, in steps, each of which is checked before a model is loaded."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e1_trl.answers.grade import Grader
from e1_trl.answers.kinds import make_grader
from e1_trl.arguments import json_object
from e1_trl.budget import Budget, Marker, ThinkingClose
from e1_trl.checkpoints.budget_file import FILE, BudgetInfo
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.engines.engine import SamplingSettings, end_ids, token_biases
from e1_trl.errors import UserError, user_errors
from e1_trl.evaluation.arguments import RESPONSE, EvaluationArguments
from e1_trl.evaluation.manifest import PACKAGES, Manifest, digest
from e1_trl.evaluation.methods import MIXED, UNCONSTRAINED, Setting, cells
from e1_trl.evaluation.model import Served, Weights
from e1_trl.evaluation.sampling_plan import Goal, Problem, SamplingPlan
from e1_trl.evaluation.thinking import Thinking
from e1_trl.problems.benchmarks import BENCHMARKS, Benchmark, load_benchmark
from e1_trl.problems.load import load_problems
from e1_trl.problems.prompts import Prompt, compose, tokenize
from e1_trl.provenance import installed_versions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

MAX_GRADING_WORKERS = 32  # a program may take gigabytes
OTHER = Benchmark("", samples=1)  # how problems of no benchmark are sampled


@dataclass(frozen=True)
class Prepared:
    """What `prepare` found to be in order.

    Attributes:
        arguments: with what the model and the benchmark say where the command says nothing.
        model: what is evaluated.
        manifest: what determines its samples.
        alike: what all rows of the table of answers say.
        plan: the problems that are short enough, and the goals that the command names.
        grader: of the answers.
    """

    arguments: EvaluationArguments
    model: Weights | Served
    manifest: Manifest
    alike: Mapping[str, Any]
    plan: SamplingPlan
    grader: Grader


def prepare(arguments: EvaluationArguments) -> Prepared:
    """Check all that can be checked without the model: methods, budgets, problems, prompts, marker and context.

    Raises:
        UserError: one line about what is wrong.
    """
    arguments = _complete(arguments)
    wanted = cells(arguments.methods, [Budget.parse(text) for text in arguments.budgets])
    samples, sampling = _sampling(arguments)
    checkpoint = Checkpoint.find(arguments.weights.path, arguments.weights.revision)
    model = (Served if arguments.base_url else Weights)(arguments, checkpoint, sampling)
    tokenizer, setting = _load_tokenizer(arguments, checkpoint, model)
    _check_logit_bias(sampling, len(tokenizer))
    benchmark, dataset, problems = _load_problems(arguments, tokenizer)
    manifest = Manifest(
        **model.facts(),
        dataset=dataset,
        vocabulary=digest(json.dumps(sorted(tokenizer.get_vocab().items()))),
        chat_template=digest(str(tokenizer.chat_template)),
        chat_template_kwargs=json_object("chat_template_kwargs", arguments.chat_template_kwargs),
        instruction=arguments.instruction,
        max_prompt_length=arguments.max_prompt_length,
        marker=list(setting.close.marker.ids),
        forced_text=list(setting.close.marker.forced_ids),
        s1=[list(setting.s1_marker.forced_ids), list(setting.wait_ids)],
        s1_waits=setting.s1_waits,
        context=setting.close.context,
        # Apart from the rest, which folders of before it had one can be compared with.
        sampling={name: value for name, value in asdict(sampling).items() if name != "logit_bias"},
        logit_bias=token_biases(arguments.logit_bias),
        seed=arguments.seed,
        independent=arguments.independent,
        versions=installed_versions(PACKAGES),
        thinking_from=None,
        response=setting.response,
    )
    count = min(arguments.max_problems or len(problems), len(problems))
    goals = [Goal(cell, count, samples) for cell in wanted]
    short = [each for each in problems if not 0 < arguments.max_prompt_length < len(each.prompts[""])]
    if not any(problem.index < count for problem in short):
        raise UserError(f"the first {count} prompts are all longer than max_prompt_length")
    if long := len(problems) - len(short):
        logger.warning("left out %d of %d prompts: longer than max_prompt_length", long, len(problems))
    plan = SamplingPlan(short, goals, setting, arguments.independent, {})
    logger.warning("%s", _most_tokens(plan))  # raises where a budget does not fit
    name = arguments.name or arguments.model[0]
    if arguments.thinking_from is not None:
        thinking = Thinking.read(arguments.thinking_from, manifest)
        thinking.check(goals, [problem.index for problem in short])
        plan, manifest = replace(plan, thinking=thinking.segments), replace(manifest, thinking_from=thinking.digest)
        name = f"{thinking.model} → {name}"
    elif MIXED in arguments.methods:
        raise UserError("the method mixed needs thinking_from, the folder of another model's evaluation")
    conditions = manifest.conditions(
        problems=len(problems),
        local=arguments.benchmark is None or arguments.local_benchmarks is not None,
        marker=setting.close.marker.text,
        forced_text=setting.decode(list(setting.close.marker.forced_ids)),
        s1_text=arguments.s1_text,
        wait_text=arguments.wait_text,
    )
    return Prepared(
        arguments=arguments,
        model=model,
        manifest=manifest,
        alike={
            "model": name,
            "benchmark": benchmark,
            "grader": arguments.grader,
            "seed": arguments.seed,
            "conditions": conditions.as_text(),
        },
        plan=plan,
        grader=make_grader(arguments, min(MAX_GRADING_WORKERS, len(os.sched_getaffinity(0)))),
    )


def _most_tokens(plan: SamplingPlan) -> str:
    """What is asked for, and how many tokens an answer by each method may take, before hours are spent on it.

    Raises:
        UserError: a budget does not fit the context.
    """
    most: dict[str, int] = {}
    for goal in plan.goals:
        most[goal.cell.method] = max(most.get(goal.cell.method, 0), plan.most_tokens(goal))
    asked = max(goal.problems * goal.samples for goal in plan.goals)
    said = ", ".join(f"{method} {tokens:,}" for method, tokens in most.items())
    hint = f" ({UNCONSTRAINED} has no budget; --methods can leave it out)" if UNCONSTRAINED in most else ""
    return f"{asked:,} answers by each method at each budget, of at most so many tokens: {said}{hint}"


def _complete(arguments: EvaluationArguments) -> EvaluationArguments:
    """The arguments, with the benchmark's grader, and with the model's marker and budgets where they name none."""
    model, told = arguments.weights, dict[str, Any]()
    trained = BudgetInfo.find(model.path, model.revision)
    if trained is None and not arguments.budgets:
        raise UserError(f"budgets is empty, and {model} has no {FILE}; name some, as 512+1024 1024+1024")
    if trained is not None and arguments.marker is None:
        told["marker"] = trained.marker
        if arguments.forced_text is None:
            told["forced_text"] = trained.forced_text
    if trained is not None and not arguments.budgets:
        told["budgets"] = [str(budget) for budget in trained.budgets]
    for name, value in told.items():
        logger.warning("%s: %r, from %s of %s", name, value, FILE, model)
    if arguments.benchmark in BENCHMARKS:
        told["grader"] = BENCHMARKS[arguments.benchmark].grader
    return replace(arguments, **told)


def _sampling(arguments: EvaluationArguments) -> tuple[int, SamplingSettings]:
    """Samples per problem and how they are drawn: what was asked for, else as the benchmark says."""
    usual = BENCHMARKS.get(arguments.benchmark or "", OTHER)
    temperature = usual.temperature if arguments.temperature is None else arguments.temperature
    top_p = usual.top_p if arguments.top_p is None else arguments.top_p
    if temperature == 0 and (arguments.samples or 1) > 1:
        raise UserError(f"samples is {arguments.samples}, which are all the same at temperature 0; ask for 1")
    samples = arguments.samples or (usual.samples if temperature else 1)
    logger.warning("sampling %d times per problem, temperature %g, top_p %g", samples, temperature, top_p)
    return samples, SamplingSettings(
        temperature=temperature,
        top_p=top_p,
        top_k=arguments.top_k,
        min_p=arguments.min_p,
        logit_bias=token_biases(arguments.logit_bias),
    )


def _check_logit_bias(sampling: SamplingSettings, vocabulary: int) -> None:
    """Refuse biases of tokens that there are not.

    Raises:
        UserError: a token id lies outside of the vocabulary.
    """
    if outside := [token for token in sampling.logit_bias or {} if token >= vocabulary]:
        raise UserError(f"logit_bias names the token {outside[0]}; the vocabulary has {vocabulary}, from 0 on")


def _load_tokenizer(
    arguments: EvaluationArguments, checkpoint: Checkpoint, model: Weights | Served
) -> tuple["PreTrainedTokenizerBase", Setting]:
    """The tokenizer, and what all problems share: the texts that end the thinking in its tokens, and the context."""
    from transformers import AutoConfig, AutoTokenizer

    code = arguments.trust_remote_code
    with user_errors(f"the model {checkpoint.model}", OSError, ValueError):
        tokenizer = AutoTokenizer.from_pretrained(**checkpoint.tokenizer, trust_remote_code=code)
        config = AutoConfig.from_pretrained(
            checkpoint.model, revision=checkpoint.model_revision, trust_remote_code=code
        ).get_text_config()
    marker = Marker.from_tokenizer(tokenizer, arguments.marker, arguments.forced_text)
    marker.check(end_ids(checkpoint.model, checkpoint.model_revision, tokenizer, code))
    context = arguments.max_model_length or model.context(marker) or config.to_dict().get("max_position_embeddings")
    if context is None:
        raise UserError(f"the configuration of {checkpoint.model} names no context; set max_model_length, in tokens")
    return tokenizer, Setting(
        close=ThinkingClose(marker, context),
        s1_marker=Marker.from_tokenizer(tokenizer, arguments.marker, marker.text + arguments.s1_text),
        wait_ids=tuple(tokenizer.encode(arguments.wait_text, add_special_tokens=False)),
        s1_waits=arguments.s1_waits,
        decode=tokenizer.decode,
        response=None if arguments.max_model_length or context <= RESPONSE else RESPONSE,
    )


class Prompts(dict[str, list[int]]):
    """The prompts of one problem as token ids, by what is added to it; each is tokenized once, when it is needed."""

    def __init__(self, prompt: Prompt, tokenize: Callable[[Prompt], list[int]]):
        self._prompt = prompt
        self._tokenize = tokenize

    def __missing__(self, request: str) -> list[int]:
        self[request] = self._tokenize(compose(self._prompt, request))
        return self[request]


def _load_problems(
    arguments: EvaluationArguments, tokenizer: "PreTrainedTokenizerBase"
) -> tuple[str, str, list[Problem]]:
    """What the report calls the problems, that with a digest of them, and all of them."""
    if arguments.benchmark is not None:
        rows, benchmark = load_benchmark(arguments.benchmark, arguments, arguments.livecodebench)
    else:
        name = str(arguments.dataset_name)
        rows = load_problems(name, arguments.dataset_split, arguments, arguments.dataset_config)
        benchmark = Path(name).name
    names = rows["key"]
    rows = rows.select_columns(["prompt", "answers"])  # all that matters
    template = json_object("chat_template_kwargs", arguments.chat_template_kwargs)
    prompt_ids = partial(tokenize, tokenizer, chat_template_kwargs=template)
    problems = [
        Problem(
            index=index,
            problem_id=name,
            prompt=row["prompt"],
            answers=row["answers"],
            prompts=Prompts(row["prompt"], prompt_ids),
        )
        for index, (name, row) in enumerate(zip(names, rows, strict=True))
    ]
    return benchmark, f"{benchmark}: {digest(json.dumps(rows.to_dict()))}", problems
