"""The page of troubles quotes what the code says, and the code points to a page that is there."""

import re
from pathlib import Path

from conftest import ROOT

from e1_trl.errors import TROUBLESHOOTING

PAGE = (ROOT / TROUBLESHOOTING).read_text()
# What libraries say, by the words that people search for.
OF_LIBRARIES = {
    "CUDA out of memory",
    "OutOfMemoryError",
    "OOM",
    "No available memory for the cache blocks",
    "Watchdog caught collective operation timeout",
    "ZeRORuntimeException",
    "Your setup doesn't support bf16/gpu",
    "driver on your system is too old",
    "Failed to find C compiler",
    "Python.h: No such file or directory",
    "No space left on device",
    "PytorchStreamWriter failed writing file",
    "offline mode is enabled",
    "Cannot find an appropriate cached snapshot folder",
    "is not available in the local cache",
}


def quoted() -> list[str]:
    """The messages in the lines below the headings, without what differs from case to case."""
    lines = re.findall(r"^\*(`.*)\*$", PAGE, re.MULTILINE)
    return [part.strip() for line in lines for text in re.findall("`([^`]+)`", line) for part in text.split("…")]


def test_every_quoted_message_is_one_of_ours() -> None:
    sources = "".join(file.read_text() for file in [ROOT / "Makefile", *Path(ROOT, "e1_trl").rglob("*.py")])
    flat = re.sub(r'"\s*\n?\s*f?"', "", sources).replace("{name}", "SIGKILL")
    ours = {each for each in quoted() if each} - OF_LIBRARIES
    assert len(ours) > 10 and {each for each in ours if each not in flat} == set()


def test_options_and_columns_of_the_page_exist() -> None:
    named = set(re.findall(r"`(?:--)?([a-z]+(?:_[a-z0-9]+)+)\b", PAGE))
    sources = "".join(
        file.read_text() for file in [*Path(ROOT, "e1_trl").rglob("*.py"), *Path(ROOT).glob("recipes/*.yaml")]
    )
    assert {each for each in named if each not in sources} <= {"frac_reward_zero_std"}  # TRL's metric
