"""From arguments to what can be planned and sampled, checked before a model is loaded."""

import json
import logging
import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e1_trl.answers.grade import Grader
from e1_trl.answers.kinds import make_grader
from e1_trl.atomic import StoreError
from e1_trl.budget import Budget, Close, Marker
from e1_trl.checkpoints.budget_file import FILE, Trained
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.engines.engine import SamplingSettings
from e1_trl.evaluation.arguments import RESPONSE, EvaluationArguments, engine_args, json_object, sampling_of
from e1_trl.evaluation.manifest import Manifest, digest, installed_versions
from e1_trl.evaluation.methods import MIXED, Setting, cells
from e1_trl.evaluation.plan import Asked, Identity, Plan, Problem
from e1_trl.problems.benchmarks import BENCHMARKS, load_benchmark
from e1_trl.problems.load import load_problems
from e1_trl.problems.prompts import compose, drop_long, tokenize
from e1_trl.report.conditions import Conditions
from e1_trl.report.samples import read
from e1_trl.rollout import Segment, Stop

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

MAX_GRADING_WORKERS = 32  # a program may take gigabytes


@dataclass(frozen=True)
class Prepared:
    """What `prepare` found to be in order.

    Attributes:
        checkpoint: what the engine loads.
        tokenizer: of the model.
        setting, sampling, manifest, conditions: what all samples share; the last one is for the report.
        asked: the cells that the arguments ask for.
        problems: all problems of the data set that are short enough, with `prompt`, `problem_id` and `answers`.
        grader, grader_name: of their kind.
        benchmark, model_name: what the report calls them.
        thinking: for `mixed`.
    """

    arguments: EvaluationArguments
    checkpoint: Checkpoint
    tokenizer: "PreTrainedTokenizerBase"
    setting: Setting
    sampling: SamplingSettings
    manifest: Manifest
    conditions: Conditions
    asked: Sequence[Asked]
    problems: "Dataset"
    grader: Grader
    grader_name: str
    benchmark: str
    model_name: str
    thinking: Mapping[Identity, Segment]

    def plan(self, asked: Sequence[Asked]) -> Plan:
        """What it takes to answer the cells of `asked`.

        Raises:
            StoreError: the thinking that the cells of `mixed` need is not there.
        """
        _check_thinking(self.arguments.thinking_from, self.thinking, asked, self.problems["index"])
        template = json_object("chat_template_kwargs", self.arguments.chat_template_kwargs)
        requests = {item.cell.request for item in asked}
        first = max(item.problems for item in asked)
        problems = [
            Problem(
                index=row["index"],
                problem_id=row["problem_id"],
                prompt=row["prompt"],
                answers=row["answers"],
                prompts={
                    request: tokenize(self.tokenizer, compose(row["prompt"], request), template) for request in requests
                },
            )
            for row in self.problems
            if row["index"] < first
        ]
        return Plan(problems, asked, self.setting, self.arguments.independent, self.thinking)


def prepare(arguments: EvaluationArguments) -> Prepared:
    """Check all that can be checked without the model: methods, budgets, problems, prompts, marker and context.

    Raises:
        ValueError, OSError, StoreError: one line about what is wrong.
    """
    from transformers import AutoConfig, AutoTokenizer

    arguments = told_by_the_model(arguments)
    if arguments.benchmark in BENCHMARKS:
        arguments = replace(arguments, grader=BENCHMARKS[arguments.benchmark].grader)
    wanted = cells(arguments.methods, [Budget.parse(text) for text in arguments.budgets])
    checkpoint = Checkpoint.find(arguments.weights.path, arguments.weights.revision)
    code = arguments.trust_remote_code
    tokenizer = AutoTokenizer.from_pretrained(**checkpoint.tokenizer, trust_remote_code=code)
    config = AutoConfig.from_pretrained(
        checkpoint.model, revision=checkpoint.model_revision, trust_remote_code=code
    ).get_text_config()
    context = arguments.max_model_length or config.to_dict().get("max_position_embeddings")
    if context is None:
        raise ValueError(f"the configuration of {checkpoint.model} names no context; set max_model_length, in tokens")
    setting = _settle(arguments, tokenizer, context)
    problems, benchmark = _load(arguments)
    samples, sampling = sampling_of(arguments)
    names = problems["key" if "key" in problems.column_names else "problem_id"]  # the latter of a benchmark's programs
    problems = problems.select_columns(["prompt", "answers"])  # all that matters
    dataset, count = f"{benchmark}: {digest(json.dumps(problems.to_dict()))}", len(problems)
    problems = problems.add_column("problem_id", [None if name is None else str(name) for name in names])
    problems = problems.add_column("index", list(range(count)))
    chosen = min(arguments.max_problems or count, count)
    template = json_object("chat_template_kwargs", arguments.chat_template_kwargs)
    if arguments.max_prompt_length:
        problems = drop_long(problems, tokenizer, arguments.max_prompt_length, template)
    manifest = Manifest(
        model=_served(arguments, checkpoint) if arguments.base_url else checkpoint.fingerprint(),
        dataset=dataset,
        vocabulary=digest(json.dumps(sorted(tokenizer.get_vocab().items()))),
        chat_template=digest(str(tokenizer.chat_template)),
        chat_template_kwargs=template,
        instruction=arguments.instruction,
        max_prompt_length=arguments.max_prompt_length,
        marker=list(setting.close.marker.ids),
        forced_text=list(setting.close.marker.forced_ids),
        s1=[list(setting.s1_marker.forced_ids), list(setting.wait_ids)],
        s1_waits=setting.s1_waits,
        context=setting.close.context,
        sampling=asdict(sampling),
        seed=arguments.seed,
        independent=arguments.independent,
        # A server has its own.
        engine={} if arguments.base_url else {"dtype": arguments.dtype, **engine_args(arguments)},
        versions=installed_versions(),
        thinking_from=None,
        response=setting.response,
    )
    model_name = arguments.name or arguments.model[0]
    thinking: Mapping[Identity, Segment] = {}
    if arguments.thinking_from is not None:
        other, thinking = read_thinking(arguments.thinking_from, manifest)
        model_name = f"{other} → {model_name}"
        manifest = replace(manifest, thinking_from=digest((arguments.thinking_from / "run.json").read_text()))
    elif any(cell.method == MIXED for cell in wanted):
        raise ValueError("the method mixed needs thinking_from, the finished evaluation of the model that thinks")
    prepared = Prepared(
        arguments=arguments,
        checkpoint=checkpoint,
        tokenizer=tokenizer,
        setting=setting,
        sampling=sampling,
        manifest=manifest,
        conditions=manifest.conditions(
            problems=count,
            local=arguments.benchmark is None or arguments.local_benchmarks is not None,
            marker=setting.close.marker.text,
            forced_text=setting.decode(list(setting.close.marker.forced_ids)),
            s1_text=arguments.s1_text,
            wait_text=arguments.wait_text,
        ),
        asked=[Asked(cell, chosen, samples) for cell in wanted],
        problems=problems,
        grader=make_grader(arguments, min(MAX_GRADING_WORKERS, len(os.sched_getaffinity(0)))),
        grader_name=arguments.grader,
        benchmark=benchmark,
        model_name=model_name,
        thinking=thinking,
    )
    _ = prepared.plan(prepared.asked).context  # raises where a budget does not fit
    return prepared


def told_by_the_model(arguments: EvaluationArguments) -> EvaluationArguments:
    """The arguments, with the marker, forced text and budgets of the model's `budget.json` where they name none.

    Raises:
        ValueError: no budget is named anywhere, or the model's file is not what it should be.
        OSError: there is no such model.
    """
    model = arguments.weights
    trained = Trained.find(model.path, model.revision)
    if trained is None:
        if not arguments.budgets:
            raise ValueError(f"budgets is empty, and {model} has no {FILE}; name some, as 512+1024 1024+1024")
        return arguments
    told: dict[str, Any] = {}
    if arguments.marker is None:
        told["marker"] = trained.marker
        if arguments.forced_text is None:
            told["forced_text"] = trained.forced_text
    if not arguments.budgets:
        told["budgets"] = [str(budget) for budget in trained.budgets]
    for name, value in told.items():
        logger.warning("%s: %r, from %s of %s", name, value, FILE, model)
    return replace(arguments, **told)


def _settle(arguments: EvaluationArguments, tokenizer: "PreTrainedTokenizerBase", context: int) -> Setting:
    marker = Marker.from_tokenizer(tokenizer, arguments.marker, arguments.forced_text)
    return Setting(
        close=Close(marker, context),
        s1_marker=Marker.from_tokenizer(tokenizer, arguments.marker, marker.text + arguments.s1_text),
        wait_ids=tuple(tokenizer.encode(arguments.wait_text, add_special_tokens=False)),
        s1_waits=arguments.s1_waits,
        decode=tokenizer.decode,
        response=None if arguments.max_model_length or context <= RESPONSE else RESPONSE,
    )


def _load(arguments: EvaluationArguments) -> tuple["Dataset", str]:
    """All problems, and what the report calls them."""
    if arguments.benchmark is not None:
        return load_benchmark(arguments.benchmark, arguments, arguments.livecodebench)
    name = str(arguments.dataset_name)
    return load_problems(name, arguments.dataset_split, arguments, arguments.dataset_config), Path(name).name


def _served(arguments: EvaluationArguments, checkpoint: Checkpoint) -> str:
    return f"served: {arguments.served_model_name or arguments.weights.path}, {checkpoint.fingerprint()}"


def read_thinking(folder: Path, manifest: Manifest) -> tuple[str, dict[Identity, Segment]]:
    """The name of another model and the longest thinking of each of its samples, from its finished evaluation.

    Raises:
        StoreError: there is none.
        ValueError: it was on other problems or with another tokenizer.
    """
    table = read(folder, ["model", "method", "problem", "sample", "token_ids", "thinking_tokens", "thinking_end"])
    theirs, ours = Manifest.read(folder).as_json(), manifest.as_json()
    for name in ("dataset", "vocabulary", "marker"):
        if theirs[name] != ours[name]:
            raise ValueError(f"{folder} has {name} = {theirs[name]!r}, this evaluation {ours[name]!r}; must be equal")
    usable = table[table["method"].isin(["unconstrained", "separate"])]
    if usable.empty:
        raise StoreError(f"{folder} has neither separate nor unconstrained samples, whose thinking mixed could use")
    found: dict[Identity, Segment] = {}
    for row in usable.itertuples():
        tokens = array("i", row.token_ids[: row.thinking_tokens])
        stop = {"closed": Stop.MARKER, "eos": Stop.EOS}.get(row.thinking_end, Stop.LENGTH)
        key = (row.problem, row.sample)
        if key not in found or len(tokens) >= len(found[key].token_ids):
            found[key] = Segment(tokens, stop)
    return str(table["model"].iloc[0]), found


def _check_thinking(
    folder: Path | None, thinking: Mapping[Identity, Segment], asked: Sequence[Asked], problems: Sequence[int]
) -> None:
    """Make sure that another model has thought of every problem and sample of `mixed`, as far as its budgets need."""
    for item in asked:
        budget = item.cell.budget.thinking
        if item.cell.method != MIXED:
            continue
        first = (index for index in problems if index < item.problems)
        for problem, sample in product(first, range(item.samples)):
            where = f"problem {problem}, sample {sample}"
            if (problem, sample) not in thinking:
                raise StoreError(f"{folder} lacks the thinking of {where}; evaluate that model on as many")
            segment = thinking[problem, sample]
            if segment.stop is Stop.LENGTH and (budget is None or budget > len(segment.token_ids)):
                raise StoreError(
                    f"{folder}: the thinking of {where} was cut at {len(segment.token_ids)} tokens; evaluate that "
                    "model with the method unconstrained, or up to as large a budget as here"
                )
