"""Arguments of `e1 serve`, and those that it shares with `e1 chat`."""

from dataclasses import MISSING, dataclass
from typing import Annotated, ClassVar

from e1_trl.arguments import Url, Within, check_fields, json_object
from e1_trl.checkpoints.budget_file import Effort
from e1_trl.command_line import option
from e1_trl.errors import UserError


@dataclass(kw_only=True)
class ModelArguments:
    """Arguments of `e1 serve` and `e1 chat`: the model, its server and its budget."""

    GROUP: ClassVar[str] = "model"

    model: str = option(MISSING, "Folder or Hub id of the model, with tokenizer and budget.json.", metavar="MODEL")
    budget: str | None = option(None, "Budget in tokens, as 256+256. Default: that of budget.json.", metavar="BUDGET")
    marker: str | None = option(None, "Text that ends the thinking. Default: the marker in budget.json, else </think>.")
    forced_text: str | None = option(
        None,
        "Text that vLLM was told to append when the thinking budget runs out. Default: the forced text in "
        "budget.json, else the marker.",
    )
    upstream: Url | None = option(
        None, "Address of a vLLM server that samples from the model. Default: a server is started.", metavar="URL"
    )
    served_model_name: str | None = option(None, "Name of the model, at the server and for clients. Default: `model`.")
    sampling: str = option("{}", 'Sampling parameters for requests that set none, as {"top_k": 20}.', metavar="JSON")
    revision: str | None = option(None, "Branch, tag or commit of a model on the Hub. Default: main.")
    trust_remote_code: bool = option(False, "Run the code that comes with a model.")

    def __post_init__(self) -> None:
        check_fields(self)
        json_object("sampling", self.sampling)  # raises where it is none

    @property
    def name(self) -> str:
        """The model's name, at the server and for clients."""
        return self.served_model_name or self.model


@dataclass(kw_only=True)
class ServeArguments(ModelArguments):
    """Arguments of `e1 serve`."""

    GROUP: ClassVar[str] = "clients"

    upstream: Url = option(
        MISSING, "Address of the vLLM server, as http://host:8000/v1, started with a --reasoning-config.", metavar="URL"
    )
    port: Annotated[int, Within(1, 65_535)] = option(8100, "Port to listen on.")
    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 listens on all.")
    efforts: list[str] = option(
        [],
        "Budgets of `reasoning_effort` in tokens, as low=256+1024. Default: those in budget.json, else 1/4, 1 and 4 "
        "times the thinking budget.",
        metavar="EFFORT=BUDGET",
    )
    max_budget: str = option("unlimited", "Largest budget of a request, in tokens, as 4096+1024.", metavar="BUDGET")
    drop: list[str] = option([], "Fields to take out of every request, as tools.", metavar="FIELD")
    allow_origins: list[str] = option([], "Web pages that may ask, as https://chat.example.org; * allows all.")
    allow_hosts: list[str] = option([], "Names, besides localhost, by which a proxy on localhost may be called.")

    def read_efforts(self) -> dict[str, Effort]:
        """Return budgets by effort; raise a `UserError` where an entry is not an effort and a budget."""
        if wrong := [each for each in self.efforts if "=" not in each]:
            raise UserError(f"efforts: {wrong[0]!r} must read 'low=256+1024'")
        return {name: Effort.read(text) for name, text in (each.split("=", 1) for each in self.efforts)}
