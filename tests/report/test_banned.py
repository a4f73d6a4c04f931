"""The base with "Wait" banned: the tokens that are banned, and what its page says of E1's gain."""

import json
import re
from pathlib import Path

import pytest
from conftest import ROOT
from transformers import AutoTokenizer

from experiments import banned


@pytest.mark.parametrize("name", ["nano", "nano_code"])
def test_what_a_miniature_bans_is_every_token_that_is_wait(name: str) -> None:
    script = (ROOT / "experiments" / name / "run.sh").read_text()
    (biases,) = re.findall(r"'(\{.*\})'", script)
    vocabulary = AutoTokenizer.from_pretrained(ROOT / "experiments" / name / "base").get_vocab()
    assert json.loads(biases) == {str(token): -100 for text, token in vocabulary.items() if text.strip() == "Wait"}


def test_a_page_says_what_share_of_the_gain_one_token_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("docs/results").mkdir(parents=True)
    page = Path("docs/nano.md")
    page.write_text("before\n<!-- banned -->\n<!-- /banned -->\nafter\n")
    rows = [
        {"model": model, "method": method, "thinking_budget": budget, "accuracy": accuracy + budget / 1000}
        for model, accuracy in zip(banned.MODELS, (0.2, 0.8, 0.9), strict=True)
        for method, budget in (("separate", 64), ("separate", 32), ("truncation", 64))
    ]
    Path("docs/results/nano.json").write_text(json.dumps({"rows": rows, "differences": []}))
    monkeypatch.setattr("sys.argv", ["banned", "nano", "64+32"])
    banned.main()
    said = "gains 60.0 points at 64+32, and E1 70.0: one banned token reaches 86% of E1's gain."
    assert said in page.read_text().splitlines()[2]
