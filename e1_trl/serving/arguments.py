"""Arguments of `e1 serve` and of what it shares with `e1 chat`. Imports nothing heavy, so that help stays quick."""

from dataclasses import MISSING, dataclass
from typing import Annotated, ClassVar

from e1_trl.arguments import Count, Url, Within, check_fields, json_object
from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import Effort
from e1_trl.command_line import option
from e1_trl.errors import UserError

OF_REQUESTS = {"stop", "stop_token_ids", "seed", "n", "logprobs", "max_tokens", "prompt", "stream", "model"}
LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(kw_only=True)
class ModelArguments:
    """Arguments of `e1 serve` and `e1 chat`: the model, its server and its budget."""

    GROUP: ClassVar[str] = "budget"

    model: str = option(
        MISSING, "Checkpoint folder or Hub id of the model, whose tokenizer and budget.json are used.", metavar="MODEL"
    )
    thinking_budget: str | None = option(
        None,
        "Thinking budget in tokens, or unlimited. Default: the trained one, from budget.json.",
        metavar="TOKENS",
    )
    solution_budget: str | None = option(
        None,
        "Solution budget in tokens, or unlimited. Default: the trained one, from budget.json.",
        metavar="TOKENS",
    )
    marker: str | None = option(None, "Text that ends the thinking. Default: the marker in budget.json, else </think>.")
    forced_text: str | None = option(
        None,
        "Text that vLLM was told to append when the thinking budget runs out. Default: the forced text in "
        "budget.json, else the marker.",
    )
    upstream: Url | None = option(
        None,
        "Address of a vLLM server that samples from the model. Default: a server is started.",
        metavar="URL",
        group="model and server",
    )
    served_model_name: str | None = option(None, "Name of the model, at the server and for clients. Default: `model`.")
    sampling: str = option(
        "{}",
        'Sampling parameters of the server for requests that do not set them, as {"temperature": 0.6}.',
        metavar="JSON",
    )
    revision: str | None = option(None, "Branch, tag or commit of a model on the Hub. Default: main.")
    trust_remote_code: bool = option(False, "Run the code that comes with a model.")

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

    upstream: Url = option(
        MISSING,
        "Address of the vLLM server that samples from the model, as http://host:8000/v1, started with a "
        "--reasoning-config.",
        metavar="URL",
    )
    port: Annotated[int, Within(1, 65_535)] = option(8100, "Port to listen on.")
    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 listens on all.")
    efforts: list[str] = option(
        [],
        "Budgets of `reasoning_effort` in tokens, as low=256+1024. Default: those in budget.json, else 1/4, 1 and 4 "
        "times the thinking budget.",
        metavar="EFFORT=THINKING+SOLUTION",
    )
    max_budget: str = option("unlimited", "Largest budget of a request, in tokens.", metavar="THINKING+SOLUTION")
    drop: list[str] = option([], "Fields to take out of every request, as tools.", metavar="FIELD")
    max_requests: Count = option(1024, "Most requests answered at a time; more are refused with status 503.")
    allow_origins: list[str] = option(
        [], "Web pages that may ask, as https://chat.example.org; * allows all.", metavar="ORIGIN"
    )
    allow_hosts: list[str] = option(
        [], "Names, besides localhost, by which a proxy may be called that listens on this machine.", metavar="NAME"
    )
    log_requests: bool = option(False, "Log prompts and answers as well.")

    def __post_init__(self) -> None:
        super().__post_init__()
        Budget.parse(self.max_budget)
        self.read_efforts()  # raises where an entry is wrong

    def read_efforts(self) -> dict[str, Effort]:
        """Return budgets by effort; raise a `UserError` where an entry is not an effort and a budget."""
        if wrong := [each for each in self.efforts if "=" not in each]:
            raise UserError(f"efforts: {wrong[0]!r} must read 'low=256+1024'")
        return {name: Effort.read(text) for name, text in (each.split("=", 1) for each in self.efforts)}
