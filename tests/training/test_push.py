"""What a finished training uploads, to a stub of the Hub on this machine."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from conftest import Train

COMMITS: list[dict[str, bytes]] = []  # the files of every commit, by path


class Hub(BaseHTTPRequestHandler):
    """As much of the Hub as an upload of small files needs."""

    def do_GET(self) -> None:
        self._answer({"id": "someone/e1", "sha": "0" * 40, "siblings": []})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        action = self.path.split("?")[0].split("/")[2:]
        if action[-2:] == ["repos", "create"]:
            self._answer({"url": f"{self._origin}/someone/e1", "name": "someone/e1"})
        elif "preupload" in action:
            files = [file["path"] for file in json.loads(body)["files"]]
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            self._answer({"files": [{"path": path, **mode} for path in files]})
        elif "commit" in action:
            operations = [json.loads(line) for line in body.splitlines()]
            files = [operation["value"] for operation in operations if operation["key"] == "file"]
            COMMITS.append({file["path"]: base64.b64decode(file["content"]) for file in files})
            url = f"{self._origin}/someone/e1/commit/{'1' * 40}"
            self._answer({"success": True, "commitUrl": url, "commitOid": "1" * 40, "hookOutput": ""})
        else:  # validate-yaml
            self._answer({"errors": [], "warnings": []})

    @property
    def _origin(self) -> str:
        return f"http://{self.headers['Host']}"

    def _answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The stub's address, where the programs that a test starts take the Hub to be."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name, value in {
        "HF_ENDPOINT": address,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",
        "HF_TOKEN": "hf_stub",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }.items():
        monkeypatch.setenv(name, value)
    COMMITS.clear()
    yield address
    server.shutdown()


@pytest.mark.engine
@pytest.mark.distributed
def test_a_training_uploads_its_model_once_and_no_completions(
    train: Train, hub: str, nano_data: Path, tmp_path: Path
) -> None:
    # Prompts that are texts, which go to the model as they are.
    data = tmp_path / "texts.jsonl"
    with data.open("w") as file:
        for line in (nano_data / "train.jsonl").read_text().splitlines()[:64]:
            problem = json.loads(line)
            text = f"<|user|>{problem['problem']}<|assistant|><think>"
            file.write(json.dumps({"prompt": text, "answer": problem["answer"]}) + "\n")
    options = {
        "--dataset_name": data,
        "--problem_column": "prompt",
        "--thinking_budget": 192,
        "--max_steps": 2,
        "--save_strategy": "steps",
        "--save_steps": 1,
        "--push_to_hub": "true",
        "--hub_model_id": "someone/e1",
        "--log_completions": "true",
        "--num_completions_to_print": 1,
    }
    log = train(*(word for option in options.items() for word in option))
    assert all(entry["reward"] > 0 for entry in log if "loss" in entry)
    assert list((tmp_path / "run" / "completions").glob("*.parquet"))
    (files,) = COMMITS
    uploaded = ["README.md", "config.json", "model.safetensors", "tokenizer.json"]
    assert {*uploaded, "trainer_state.json", "provenance.json"} <= files.keys()
    assert files["model.safetensors"] == (tmp_path / "run" / "checkpoint-2" / "model.safetensors").read_bytes()
    assert not [path for path in files if "completions" in path or path.startswith("checkpoint")]
    card = yaml.safe_load(files["README.md"].decode().split("---")[1])
    assert "elastic-reasoning" in card["tags"]
