"""What an evaluation is told on the command line, or in a YAML file (`--config`). Imports no engine."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import yaml

from e1_trl.answers.programs.livecodebench import PAPERS_WINDOW
from e1_trl.arguments import json_object
from e1_trl.budget import BudgetArguments
from e1_trl.closing import ClosingArguments
from e1_trl.errors import UserError
from e1_trl.evaluation.methods import METHODS
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.benchmarks import BENCHMARKS

RESPONSE = 32_768  # tokens of an answer without a budget: `--max-length` of the authors' script; the paper says 24K
# Fields that say of a dataset what a benchmark knows of itself.
OF_BENCHMARKS = (
    *("grader", "program_prompt", "max_tests", "exclude", "answer_after"),
    *("dataset_split", "dataset_config"),
)


@dataclass(frozen=True)
class Model:
    """A checkpoint folder or Hub id, and the revision of the latter."""

    path: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Model":
        """From `MODEL` or `MODEL@REVISION`; a folder is taken as it is called."""
        if Path(text).exists():
            return cls(os.path.normpath(text))
        path, _, revision = text.partition("@")
        return cls(path, revision or None)

    def __str__(self) -> str:
        return self.path if self.revision is None else f"{self.path}@{self.revision}"

    @property
    def folder(self) -> str:
        """A folder's name, different for different models and revisions."""
        return slug(self.path, self.revision)


@dataclass(kw_only=True)
class EvaluationArguments(ProblemArguments, BudgetArguments, ClosingArguments):
    """What to evaluate, on what, and how."""

    model: list[str] = field(
        metadata={
            "help": "Checkpoint folder or Hub id, of a model or of a LoRA adapter, as MODEL[@REVISION]; with "
            "`base_url`, the one whose tokenizer is used. Several are evaluated one after the other, and reported "
            "together in `output`."
        }
    )
    budgets: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Budgets as `thinking+solution` in tokens, or `unlimited`; unset: those of the "
            "model's budget.json, which trainings write. So are `marker` and `forced_text`."
        },
    )
    methods: list[str] = field(
        default_factory=lambda: ["separate", "truncation", "s1", "no_thinking", "unconstrained"],
        metadata={"help": f"Of {', '.join(METHODS)}."},
    )
    benchmark: str | None = field(default=None, metadata={"help": f"One of {', '.join(BENCHMARKS)}."})
    livecodebench: list[str] = field(
        default_factory=lambda: list(PAPERS_WINDOW),
        metadata={"help": "Of the benchmark livecodebench: release, first day, and the day after the last."},
    )
    dataset_name: str | None = field(default=None, metadata={"help": "Any other problems: Hub id, file or folder."})
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of the dataset."})
    dataset_split: str = field(default="test", metadata={"help": "Split of the dataset."})
    output: Path | None = field(
        default=None,
        metadata={"help": "Folder for samples and report, where an interrupted evaluation is resumed; unset: by name."},
    )
    name: str | None = field(default=None, metadata={"help": "Name of a model in the report; unset: `model`."})
    revision: str | None = field(default=None, metadata={"help": "Branch, tag or commit of a model on the Hub."})
    max_prompt_length: int = field(
        default=0,
        metadata={
            "help": "Longest prompt in tokens, chat template included; problems with longer ones are left out, and the "
            "report counts them. 0 leaves none out; a prompt that does not fit the context is an error."
        },
    )
    max_problems: int | None = field(default=None, metadata={"help": "Evaluate on the first problems only."})

    page_problems: int = field(
        default=200, metadata={"help": "Problems shown whole on the report's page, at most; 0: no page."}
    )

    samples: int | None = field(
        default=None,
        metadata={"help": "Samples per problem: k of avg@k, pass@k and maj@k; unset: the benchmark's, else 1."},
    )
    temperature: float | None = field(
        default=None, metadata={"help": "0 is greedy, with one sample; unset: the benchmark's, or 0.6."}
    )
    top_p: float | None = field(default=None, metadata={"help": "Nucleus sampling; unset: the benchmark's, or 0.95."})
    top_k: int = field(default=0, metadata={"help": "Sample from the most probable tokens only; 0 is off."})
    min_p: float = field(default=0.0, metadata={"help": "Smallest share of the top token's probability; 0 is off."})
    seed: int = field(default=0, metadata={"help": "Seed of the sampling."})
    independent: bool = field(default=False, metadata={"help": "Share no samples between budgets and methods."})
    chat_template_kwargs: str = field(
        default="{}",
        metadata={"help": 'Arguments of the chat template as JSON: {"enable_thinking": true}.'},
    )

    s1_text: str = field(
        default="\nFinal Answer:", metadata={"help": "What s1 appends after the marker when its budget runs out."}
    )
    wait_text: str = field(default="\nWait", metadata={"help": "What s1 puts in place of an early close."})
    s1_waits: int = field(default=1, metadata={"help": "How often s1 does so at most."})
    thinking_from: Path | None = field(
        default=None, metadata={"help": "For `mixed`: the finished evaluation of the model that thinks."}
    )

    base_url: str | None = field(
        default=None, metadata={"help": "An OpenAI-compatible server to sample from, as http://host:8000/v1."}
    )
    served_model_name: str | None = field(default=None, metadata={"help": "The model's name there; unset: `model`."})
    request_seeds: bool = field(
        default=True,
        metadata={"help": "A seed for each request; false for a server that takes none: samples may repeat."},
    )
    concurrency: int | None = field(
        default=None, metadata={"help": "Requests in flight at a time; unset: 256, and 2048 at a server."}
    )
    max_model_length: int | None = field(
        default=None,
        metadata={
            "help": "Context in tokens; unset: the model's, of which an answer without a budget takes "
            f"{RESPONSE} at most."
        },
    )
    tensor_parallel_size: int = field(default=1, metadata={"help": "GPUs that share the model."})
    gpu_memory_utilization: float = field(default=0.9, metadata={"help": "Share of GPU memory for the engine."})
    enforce_eager: bool = field(default=False, metadata={"help": "Start faster, and run without compilation."})
    dtype: str = field(default="auto", metadata={"help": "Precision of the weights; auto: the checkpoint's."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with a model."})
    engine_args: str = field(
        default="{}", metadata={"help": 'Other arguments of vllm.LLM as JSON, such as \'{"quantization": "fp8"}\'.'}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        ClosingArguments.__post_init__(self)
        if len(self.model) > 1 and (self.output is None or self.name is not None or self.revision is not None):
            raise UserError("several models need output, and no name or revision; write MODEL@REVISION")
        if len({model.folder for model in self.models}) < len(self.model):
            raise UserError(f"two of the models have one name: {' '.join(map(str, self.models))}")
        if (self.benchmark is None) == (self.dataset_name is None):
            raise UserError("name either a benchmark or a dataset_name")
        if self.benchmark in BENCHMARKS:
            grader, unset = BENCHMARKS[self.benchmark].grader, {each.name: each.default for each in fields(self)}
            for name in OF_BENCHMARKS:
                if getattr(self, name) not in (grader if name == "grader" else unset[name], unset[name]):
                    raise UserError(f"{name} is {getattr(self, name)!r}; the benchmark {self.benchmark} has its own")
        if self.livecodebench != list(PAPERS_WINDOW) and self.benchmark != "livecodebench":
            raise UserError("--livecodebench needs --benchmark livecodebench")
        if len(self.livecodebench) != len(PAPERS_WINDOW):
            raise UserError(f"livecodebench is {self.livecodebench}; it must be like {' '.join(PAPERS_WINDOW)}")
        for name in ("samples", "max_problems", "concurrency", "tensor_parallel_size"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.base_url is None and not self.request_seeds:
            raise UserError("request_seeds is about a server; without base_url, no request has a seed")
        for name in ("seed", "page_problems"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        for name in ("chat_template_kwargs", "engine_args"):
            json_object(name, getattr(self, name))

    @property
    def models(self) -> list[Model]:
        """All that are named."""
        return [Model.parse(text) for text in self.model]

    @property
    def weights(self) -> Model:
        """The one that is evaluated: the first, by the path as it was written, which is a server's name for it."""
        (text, *_) = self.model
        model = Model(text) if Path(text).exists() else Model.parse(text)
        return model if self.revision is None else replace(model, revision=self.revision)

    @property
    def folder(self) -> Path:
        """Where the evaluation lies: `output`, or a folder named after model, revision and problems."""
        if self.output is not None:
            return self.output
        problems = self.benchmark or str(self.dataset_name)
        if self.livecodebench != list(PAPERS_WINDOW):
            problems += "-" + "-".join(self.livecodebench)
        return Path("runs", "evaluations", f"{self.weights.folder}-{slug(problems)}")


def slug(name: str, revision: str | None = None) -> str:
    """A model's or data set's name as a folder's, different for different names and revisions."""
    # A relative path may start with dots, which name a folder above, or a hidden one.
    path = os.path.abspath(name) if name.startswith(".") else name
    plain = path.strip("/").replace("/", "--")
    return plain if revision is None else f"{plain}@{revision.replace('/', '--')}"


def parse(argv: Sequence[str]) -> EvaluationArguments:
    """Read the command line; `--config FILE` stands for the arguments of a YAML file, which later ones override.

    Raises:
        UserError: the arguments contradict each other, or the file is not a YAML mapping.
        OSError: there is no such file.
        SystemExit: an argument is unknown or missing (argparse says so), or help was asked for.
    """
    from transformers import HfArgumentParser

    configured = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    configured.add_argument("--config", type=Path)
    known, rest = configured.parse_known_args(argv)
    parser = HfArgumentParser(EvaluationArguments, prog="e1 eval", allow_abbrev=False)
    parser.add_argument("--config", help="YAML file with any of these arguments; the command line overrides it.")
    written = [] if known.config is None else read_yaml(known.config)
    words = [*written, *rest]
    if any(word.partition("=")[0] == "--data_parallel_size" for word in words):
        raise UserError(
            "data_parallel_size is for a server: `vllm serve MODEL --data-parallel-size N`, and here "
            "--base_url http://localhost:8000/v1"
        )
    return parser.parse_args_into_dataclasses(words)[0]


def read_yaml(file: Path) -> list[str]:
    """The entries of a YAML mapping as command-line arguments.

    Raises:
        UserError: it is no mapping.
    """
    try:
        entries = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        raise UserError(f"{file}: {' '.join(str(error).split())}") from error
    if not isinstance(entries, dict):
        raise UserError(f"{file} must hold a YAML mapping of arguments to values")
    arguments: list[str] = []
    for name, value in entries.items():
        if value is not None:
            values = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
            arguments += [f"--{name}", *map(str, values)]
    return arguments
