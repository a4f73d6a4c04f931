"""Arguments of `e1 serve` and of what it shares with `e1 chat`. Imports nothing heavy, so that help stays quick."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from e1_trl.arguments import Count, Url, Within, check_fields, json_object
from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import Effort
from e1_trl.errors import UserError

OF_REQUESTS = {"stop", "stop_token_ids", "seed", "n", "logprobs", "max_tokens", "prompt", "stream", "model"}
LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(kw_only=True)
class ModelArguments:
    """Arguments of `e1 serve` and `e1 chat`: the model, its server and its budget."""

    GROUP: ClassVar[str] = "model and server"

    model: str = field(
        metadata={
            "metavar": "MODEL",
            "help": "Checkpoint folder or Hub id of the model, whose tokenizer and budget.json are used.",
        }
    )
    thinking_budget: str | None = field(
        default=None,
        metadata={
            "metavar": "TOKENS",
            "help": "Thinking budget in tokens, or unlimited. Default: the trained one, from budget.json.",
            "group": "budget",
        },
    )
    solution_budget: str | None = field(
        default=None,
        metadata={
            "metavar": "TOKENS",
            "help": "Solution budget in tokens, or unlimited. Default: the trained one, from budget.json.",
        },
    )
    marker: str | None = field(
        default=None,
        metadata={"help": "Text that ends the thinking. Default: the marker in budget.json, else </think>."},
    )
    forced_text: str | None = field(
        default=None,
        metadata={
            "help": "Text appended when the thinking budget runs out. Default: the forced text in budget.json, else "
            "the marker."
        },
    )
    upstream: Url | None = field(
        default=None,
        metadata={
            "metavar": "URL",
            "help": "Address of a vLLM server that samples from the model. Default: a server is started.",
            "group": GROUP,
        },
    )
    served_model_name: str | None = field(
        default=None,
        metadata={"help": "Name of the model, at the server and for clients. Default: `model`.", "group": GROUP},
    )
    sampling: str = field(
        default="{}",
        metadata={
            "metavar": "JSON",
            "help": 'Sampling parameters of the server for requests that do not set them, as {"temperature": 0.6}.',
        },
    )
    revision: str | None = field(
        default=None, metadata={"help": "Branch, tag or commit of a model on the Hub. Default: main."}
    )
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with a model."})

    def __post_init__(self) -> None:
        check_fields(self)
        if of_requests := OF_REQUESTS & json_object("sampling", self.sampling).keys():
            raise UserError(f"sampling holds {min(of_requests)}, which each request sets for itself; remove it")

    @property
    def name(self) -> str:
        """The model's name, at the server and for clients."""
        return self.served_model_name or self.model


@dataclass(kw_only=True)
class ServeArguments(ModelArguments):
    """Arguments of `e1 serve`."""

    GROUP: ClassVar[str] = "clients"

    upstream: Url = field(
        metadata={
            "metavar": "URL",
            "help": "Address of the vLLM server that samples from the model, as http://host:8000/v1, started with a "
            "--reasoning-config.",
        }
    )
    port: Annotated[int, Within(1, 65_535)] = field(default=8100, metadata={"help": "Port to listen on."})
    host: str = field(default="127.0.0.1", metadata={"help": "Address to listen on; 0.0.0.0 listens on all."})
    efforts: list[str] = field(
        default_factory=list,
        metadata={
            "metavar": "EFFORT=THINKING+SOLUTION",
            "help": "Budgets of `reasoning_effort` in tokens, as low=256+1024. Default: those in budget.json, else "
            "1/4, 1 and 4 times the thinking budget.",
        },
    )
    max_budget: str = field(
        default="unlimited",
        metadata={"metavar": "THINKING+SOLUTION", "help": "Largest budget of a request, in tokens."},
    )
    drop: list[str] = field(
        default_factory=list,
        metadata={"metavar": "FIELD", "help": "Fields to take out of every request, as tools tool_choice."},
    )
    max_requests: Count = field(
        default=1024, metadata={"help": "Most requests answered at a time; more are refused with status 503."}
    )
    allow_origins: list[str] = field(
        default_factory=list,
        metadata={"metavar": "ORIGIN", "help": "Web pages that may ask, as https://chat.example.org; * allows all."},
    )
    allow_hosts: list[str] = field(
        default_factory=list,
        metadata={
            "metavar": "NAME",
            "help": "Names by which clients may call a proxy that listens on this machine alone. Default: localhost.",
        },
    )
    log_requests: bool = field(default=False, metadata={"help": "Log prompts and answers as well."})

    def __post_init__(self) -> None:
        super().__post_init__()
        Budget.parse(self.max_budget)
        _ = self.named_efforts  # raises where an entry is wrong

    @property
    def named_efforts(self) -> dict[str, Effort]:
        """Budgets by effort.

        Raises:
            UserError: an entry is not an effort and a budget.
        """
        if wrong := [each for each in self.efforts if "=" not in each]:
            raise UserError(f"efforts: {wrong[0]!r} must read 'low=256+1024'")
        return {name: Effort.read(text) for name, text in (each.split("=", 1) for each in self.efforts)}

    @property
    def hosts(self) -> set[str] | None:
        """Names that a request's `Host` may have; `None` if any, where other machines can connect anyway."""
        return {*LOCAL, *self.allow_hosts} if self.host in LOCAL else None
