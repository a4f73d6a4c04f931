"""Options of single methods: a field here, and its use in the method, is all that a new one takes."""

from dataclasses import dataclass
from typing import ClassVar

from e1_trl.arguments import Natural
from e1_trl.command_line import option


@dataclass(kw_only=True)
class MethodOptions:
    """Options of single methods. Each is an option of `e1 eval`, is handed to the methods, and is recorded."""

    GROUP: ClassVar[str] = "options of single methods"

    s1_text: str = option(
        "\nFinal Answer:", "Text that the method s1 appends after the marker when its budget runs out."
    )
    wait_text: str = option("\nWait", "Text that the method s1 puts in place of an early close of the thinking.")
    s1_waits: Natural = option(1, "Most times that the method s1 replaces an early close by `wait_text`.")
