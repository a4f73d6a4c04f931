"""What is made sure of on the Hub before a training: against a stub of it on this machine."""

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from hub_stub import READER, Hub, serving_hub

from e1_trl.checkpoints.hub import check_weights, keep_from_the_hub, push, reserve, upload_command
from e1_trl.errors import UserError


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving_hub() as hub:
        hub.stand_in(monkeypatch)
        yield hub


def test_a_repository_is_made_with_its_branch_and_may_be_there_already(hub: Hub) -> None:
    reserve("e1", None, None)
    assert not hub.repositories["someone/e1"].private
    for _ in range(2):
        reserve("org/e1", True, "run-2")
    with pytest.raises(UserError, match=r"^push_to_hub: hub_private_repo is true, and someone/e1 is public"):
        reserve("e1", True, None)
    assert hub.repositories["org/e1"].private and set(hub.repositories["org/e1"].branches) == {"main", "run-2"}


def test_what_keeps_an_upload_from_working_is_said_in_one_line(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(name: str = "someone/e1") -> str:
        with pytest.raises(ValueError) as error:
            reserve(name, None, None)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "another/e1" in refusal("another/e1") and "403" in refusal("another/e1")
    assert "a b" in refusal("a b")
    hub.add("another/e1", {})  # which may be read
    assert "403" in refusal("another/e1")
    monkeypatch.setenv("HF_TOKEN", READER)
    assert "403" in refusal()
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN_PATH", "/nonexistent")
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", "/nonexistent")
    assert "401" in refusal()
    monkeypatch.setenv("HF_TOKEN", "x")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "Connection refused" in refusal()


def test_a_repository_that_holds_another_model_is_refused_and_ones_own_is_not(hub: Hub) -> None:
    hub.add("someone/e1", {"model-00001-of-00002.safetensors": b"x", "README.md": b""})
    for revision in (None, "run-2"):  # a new branch begins as main is
        with pytest.raises(ValueError, match=r"holds another model \(model-00001-of-00002.safetensors\)"):
            reserve("e1", None, revision)
    assert set(hub.repositories["someone/e1"].branches) == {"main"}
    hub.add("someone/e1", {"model.safetensors": b"x", "budget.json": b""})
    reserve("e1", None, None)
    for file in ("model.gguf", "model.pt"):  # on a branch that is there, which main says nothing of
        hub.add("someone/e1", {file: b"x"}, "run-2")
        with pytest.raises(ValueError, match=rf"holds another model \({file}\)"):
            reserve("e1", None, "run-2")


@pytest.mark.parametrize("revision", [None, "run-2"])
def test_an_upload_removes_what_an_earlier_model_left(hub: Hub, tmp_path: Path, revision: str | None) -> None:
    own = ["model.safetensors", "README.md", "_README.md", "checkpoint-2/model.safetensors", "completions/1.parquet"]
    for file in own:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("---\ntags: [a]\n---\n")
    stale = ["adapter_config.json", "adapter_model.safetensors", "model.safetensors.index.json", "e1/results-old.md"]
    stale += ["model-00001-of-00002.safetensors", "pytorch_model.bin", "pytorch_model.bin.index.json"]
    kept = {"model.safetensors", "training_args.bin", ".eval_results/mmlu.yaml", "last-checkpoint/model.safetensors"}
    for repository in ("someone/e1", "someone/by-hand"):
        hub.add(repository, dict.fromkeys([*stale, *kept], b""), revision or "main")
    push(tmp_path, "someone/e1", revision)
    subprocess.run(shlex.split(upload_command(tmp_path, "someone/by-hand", revision)), check=True)
    for repository in ("someone/e1", "someone/by-hand"):
        last = hub.commits(repository, revision or "main")[-1]
        assert last.files.keys() == kept | {"README.md"} and last.files["model.safetensors"]
    hub.full = True
    (tmp_path / "model.safetensors").write_text("more")
    with pytest.raises(ValueError, match=r"^the upload to someone/e1 failed: [^\n]*400[^\n]*$"):
        push(tmp_path, "someone/e1", revision)


@pytest.mark.parametrize("made", [False, True])
def test_tables_of_completions_stay_out_of_an_upload(tmp_path: Path, made: bool) -> None:
    if made:  # by TRL, in front of a script's `write_cards`
        (tmp_path / "completions").mkdir()
    for _ in range(2):  # a second time as a run is resumed
        keep_from_the_hub(tmp_path)
        assert (tmp_path / "completions").resolve() == tmp_path / "_completions"


def test_a_card_goes_only_to_where_its_weights_are(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "README.md").write_text("---\ntags: [a]\n---\n")
    (tmp_path / "trainer_state.json").write_text("{}")
    (tmp_path / "budget.json").write_text("{}")
    (tmp_path / "e1").mkdir()
    (tmp_path / "e1" / "results-new.md").write_text("")
    for there in ({}, {"model.safetensors": b"others"}, {"model.safetensors": b"weights", "more.bin": b""}):
        hub.add("someone/e1", there)
        with pytest.raises(ValueError, match="holds other weights"):
            check_weights(tmp_path, "someone/e1", None)
    old = {
        "model.safetensors": b"weights",
        "training_args.bin": b"other",
        "last-checkpoint/model.safetensors": b"",
        "e1/results-old.md": b"",
        "config.json": b"{}",
        "quantized.gguf": b"",
    }
    hub.add("someone/e1", old)
    check_weights(tmp_path, "someone/e1", None)
    hub.add("someone/e1", {"model.safetensors": b"others"}, "run-2")
    with pytest.raises(ValueError, match="holds other weights"):
        check_weights(tmp_path, "someone/e1", "run-2")
    push(tmp_path, "someone/e1", None, card_only=True)
    last = hub.commits("someone/e1")[-1]
    new = {"README.md", "budget.json", "e1/results-new.md"}
    assert last.changed == {*new, "e1/results-old.md"} and set(last.files) == {*old, *new} - {"e1/results-old.md"}
    push(tmp_path, "someone/e1", "run-2", card_only=True)
    assert set(hub.repositories["someone/e1"].branches["run-2"][-1].files) >= new
    with pytest.raises(ValueError, match="cannot be compared"):
        check_weights(tmp_path, "someone/other", None)
