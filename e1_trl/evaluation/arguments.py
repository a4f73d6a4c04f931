"""Arguments of an evaluation, from the command line or a YAML file (`--config`). Imports no engine."""

import os
from argparse import SUPPRESS
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from e1_trl.answers.programs.livecodebench import PAPERS_WINDOW, Window
from e1_trl.arguments import Count, Fraction, Natural, Share, Url, Within, option, secrets_in
from e1_trl.budget import BudgetArguments
from e1_trl.command_line import CommandParser, json_object
from e1_trl.errors import UserError
from e1_trl.evaluation.methods import METHODS, MIXED, MethodOptions
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.benchmarks import BENCHMARKS, find_benchmark

RESPONSE = 32_768  # tokens of an answer without a budget: `--max-length` of the authors' script; the paper says 24K
# Fields about a dataset that a benchmark sets itself.
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
        """Read `MODEL` or `MODEL@REVISION`; the name of a folder may hold an @."""
        if Path(text).exists():
            return cls(os.path.normpath(text))
        path, _, revision = text.partition("@")
        return cls(path, revision or None)

    def __str__(self) -> str:
        return self.path if self.revision is None else f"{self.path}@{self.revision}"

    @property
    def folder(self) -> str:
        """Name of a folder, different for different models and revisions."""
        return slug(self.path, self.revision)


@dataclass(kw_only=True)
class EvaluationArguments(MethodOptions, ProblemArguments, BudgetArguments):
    """Arguments of `e1 eval`: models, problems, budgets and methods, sampling, and engine.

    An argument with the name of a field of `report.conditions.Conditions` is recorded there automatically.
    """

    model: list[str] = option(
        MISSING,
        "Checkpoint folder or Hub id of a model or of a LoRA adapter, as MODEL or MODEL@REVISION; with `base_url`, "
        "the model whose tokenizer is used. Several are evaluated one after the other and reported together in "
        "`output`.",
        metavar="MODEL",
    )

    benchmark: str | None = option(
        None,
        f"Benchmark: {', '.join(BENCHMARKS)}, or a dotted path to your own (docs/extend.md).",
        group="what to evaluate on: a benchmark or a dataset_name",
    )
    livecodebench: list[str] = option(
        list(PAPERS_WINDOW),
        "Part of the benchmark livecodebench: its release, the first day, and the day after the last.",
    )
    dataset_name: str | None = option(None, "Problems that are no benchmark: Hub id, file or folder.")
    dataset_config: str | None = option(None, "Configuration of the dataset on the Hub.")
    dataset_split: str = option("test", "Split of the dataset.")
    max_problems: Count | None = option(None, "Evaluate on this many problems, the first ones. Default: on all.")
    max_prompt_length: Natural = option(
        0,
        "Longest prompt in tokens, chat template included; longer ones are left out, and the report counts them. 0 "
        "leaves none out; a prompt that does not fit the context is then an error.",
    )
    revision: str | None = option(None, "Branch, tag or commit of a model on the Hub. Default: main.")
    name: str | None = option(None, "Name of the model in the report. Default: `served_model_name`, else `model`.")
    output: Path | None = option(
        None,
        "Folder for samples and report, where an interrupted evaluation resumes. Default: a folder in "
        "runs/evaluations named after model and problems.",
    )
    dry_run: bool = option(False, "Print a prompt and a graded answer, and stop before the model is loaded.")
    page_problems: Natural = option(
        200, "Most problems shown with their answers on the report's page; 0 makes no page."
    )

    budgets: list[str] = option(
        [],
        "Budgets in tokens, such as 1024+1024 or unlimited. Default: the budgets in the model's budget.json, which "
        "trainings write.",
        group="budgets and methods",
        metavar="THINKING+SOLUTION",
    )
    methods: list[str] = option(
        ["separate", "truncation", "s1", "no_thinking", "unconstrained"],
        f"Methods: {', '.join(METHODS)}, or a dotted path to your own (docs/extend.md).",
        metavar="METHOD",
    )
    thinking_from: Path | None = option(
        None, "Folder of a finished evaluation, whose model thinks for the method mixed, which must be the only method."
    )

    samples: Count | None = option(
        None,
        "Samples per problem: the k of avg@k, pass@k and maj@k. Default: the benchmark's own, else 1.",
        group="sampling",
    )
    temperature: Annotated[float, Within(0)] | None = option(
        None, "Temperature; 0 is greedy, with one sample. Default: the benchmark's own, else 0.6."
    )
    top_p: Share | None = option(None, "Nucleus sampling. Default: the benchmark's own, else 0.95.")
    top_k: Natural = option(0, "Sample from this many most probable tokens only; 0 turns it off.")
    min_p: Fraction = option(
        0.0, "Smallest probability of a token, as a share of the most probable one's; 0 turns it off."
    )
    logit_bias: str = option(
        "{}", 'Biases of tokens as JSON, by token id, from -100 (bans the token) to 100: {"17": -100}.'
    )
    seed: Natural = option(0, "Seed of the sampling.")
    independent: bool = option(False, "Share no samples between budgets and methods.")
    chat_template_kwargs: str = option(
        "{}", 'Arguments of the chat template, such as {"enable_thinking": true}.', metavar="JSON"
    )

    base_url: Url | None = option(
        None,
        "Address of an OpenAI-compatible server, such as http://host:8000/v1. Default: vLLM in this process.",
        group="a server that samples",
    )
    served_model_name: str | None = option(None, "Name of the model at the server. Default: `model`.")
    request_seeds: bool = option(
        True, "Send a seed with each request; false for a server that takes none, where samples may repeat."
    )
    concurrency: Count | None = option(None, "Requests in flight at a time. Default: 256, and 2048 at a server.")

    max_model_length: Count | None = option(
        None,
        f"Context in tokens. Default: the model's, of which an answer without a budget takes {RESPONSE} at most.",
        group="the engine in this process",
    )
    tensor_parallel_size: Count = option(1, "GPUs that share the model.")
    gpu_memory_utilization: Share = option(0.9, "Share of GPU memory for the engine.")
    enforce_eager: bool = option(False, "Run without compilation, which starts sooner and samples more slowly.")
    dtype: str = option("auto", "Precision of the weights; auto takes the checkpoint's.")
    trust_remote_code: bool = option(False, "Run the code that comes with a model.")
    engine_args: str = option("{}", 'Further arguments of vllm.LLM: {"quantization": "fp8"}.', metavar="JSON")

    def __post_init__(self) -> None:
        super().__post_init__()
        of_one = (self.name, self.revision, self.served_model_name)
        if len(self.model) > 1 and (self.output is None or any(each is not None for each in of_one)):
            raise UserError(
                "several models need output, and no name, revision or served_model_name; write MODEL@REVISION"
            )
        if self.thinking_from is not None and self.methods != [MIXED]:
            raise UserError(f"thinking_from needs --methods mixed alone; methods is {self.methods}")
        if len({model.folder for model in self.models}) < len(self.model):  # the second would be refused hours later
            raise UserError(f"two of the models have the same name: {' '.join(map(str, self.models))}")
        if (self.benchmark is None) == (self.dataset_name is None):
            raise UserError("name either a benchmark or a dataset_name")
        if self.benchmark is not None:
            own = find_benchmark(self.benchmark)
            unset = {each.name: each.default for each in fields(self)}
            for name in OF_BENCHMARKS:
                if getattr(self, name) not in (getattr(own, name, unset[name]), unset[name]):
                    raise UserError(f"{name} is {getattr(self, name)!r}; the benchmark {self.benchmark} has its own")
        if self.livecodebench != list(PAPERS_WINDOW) and self.benchmark != "livecodebench":
            raise UserError("--livecodebench needs --benchmark livecodebench")
        if len(self.livecodebench) != len(PAPERS_WINDOW):
            raise UserError(f"livecodebench is {self.livecodebench}; it must be like {' '.join(PAPERS_WINDOW)}")
        json_object("chat_template_kwargs", self.chat_template_kwargs)
        if held := secrets_in(json_object("engine_args", self.engine_args)):
            raise UserError(f"engine_args has {held[0]}, which would stand in the report; set the variable HF_TOKEN")
        if "@" in str(self.base_url).partition("://")[2].partition("/")[0]:
            raise UserError("base_url holds a name or password, which the report's page would show; leave it out")
        token_biases(self.logit_bias)

    def shared_with(self, record: type) -> dict[str, Any]:
        """Return the arguments that are also fields of a dataclass."""
        return {each.name: getattr(self, each.name) for each in fields(record) if hasattr(self, each.name)}

    @property
    def models(self) -> list[Model]:
        return [Model.parse(text) for text in self.model]

    @property
    def weights(self) -> Model:
        """Model that is evaluated: the first, by its path as written, which is also its name at a server."""
        (text, *_) = self.model
        model = Model(text) if Path(text).exists() else Model.parse(text)
        return model if self.revision is None else replace(model, revision=self.revision)

    @property
    def folder(self) -> Path:
        """Folder of the evaluation: `output`, or one named after model, revision and problems."""
        if self.output is not None:
            return self.output
        problems = (self.benchmark or str(self.dataset_name)) + str(Window(*self.livecodebench))
        return Path("runs", "evaluations", f"{self.weights.folder}-{slug(problems)}")


def token_biases(text: str) -> dict[int, float] | None:
    """Read `logit_bias`, sorted by token id; `None` if it is empty, a `UserError` for other keys or values."""
    biases = json_object("logit_bias", text)
    for token, bias in biases.items():  # vLLM's server clips beyond 100
        if not token.isdecimal() or type(bias) not in (int, float) or not -100 <= bias <= 100:
            raise UserError(f'logit_bias is {text}; expected token ids and numbers up to 100, such as {{"17": -100}}')
    return dict(sorted((int(token), float(bias)) for token, bias in biases.items())) or None


def slug(name: str, revision: str | None = None) -> str:
    """Make a folder's name from a model's or dataset's, different for different names and revisions."""
    # A relative path may start with dots: it names a folder above, or a hidden one.
    path = os.path.abspath(name) if name.startswith(".") else name
    plain = path.strip("/").replace("/", "--")
    return plain if revision is None else f"{plain}@{revision.replace('/', '--')}"


def make_parser() -> CommandParser:
    made = CommandParser(
        "e1 eval",
        "--model MODEL … (--benchmark NAME | --dataset_name DATA) [OPTIONS]",
        "Evaluate models at every thinking budget and beside baselines, in this process or at a server. The same\n"
        "command resumes an interrupted evaluation, or extends a finished one:\n\n"
        "  e1 eval --model runs/my-model --benchmark math500 --budgets 512+1024 1024+1024",
    )
    made.add_argument(
        "--config",
        hint=Path,
        group="options from a file",
        default=SUPPRESS,
        help="YAML file with any of these options; those on the command line override it.",
    )
    made.add_record(EvaluationArguments)
    return made


def parse(argv: Sequence[str]) -> EvaluationArguments:
    """Read the command line; `--config FILE` stands for options in YAML, which those on the line override."""
    return make_parser().read(EvaluationArguments, argv)
