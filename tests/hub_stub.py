"""A stub of the Hub on this machine, for creating repositories, uploading and loading.

Like the Hub it keeps commits and branches; unlike the Hub it treats large files as small ones, and models, datasets and
kernels share one namespace. It keeps everything in memory.
"""

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import huggingface_hub
import pytest
import yaml

WRITER = "hf_writer"  # tokens
READER = "hf_reader"
SPACES = ("datasets", "kernels")  # prefixes of their names
OWNERS = ("someone", "org")  # of the repositories that the writer may write to


@dataclass
class Commit:
    """The files after a commit, by path."""

    id: str
    message: str
    files: dict[str, bytes]
    changed: set[str]


@dataclass
class Repository:
    """Commits by branch; the first one is empty."""

    private: bool = False
    branches: dict[str, list[Commit]] = field(default_factory=lambda: {"main": [Commit("0" * 40, "", {}, set())]})

    def at(self, revision: str) -> Commit | None:
        if revision in self.branches:
            return self.branches[revision][-1]
        return next((c for commits in self.branches.values() for c in commits if c.id == revision), None)


class Hub(ThreadingHTTPServer):
    """The server. Commits wait while it is `stalled`, as if the network were down, and fail while it is `full`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.uploading = threading.Event()
        self.stalled = self.full = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment of programs for which it replaces the Hub, with a token that may write."""
        switches = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
        return {"HF_ENDPOINT": self.address, "HF_TOKEN": WRITER, **switches}

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace the Hub in this process."""
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", self.address)
        template = f"{self.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    def add(self, name: str, files: dict[str, bytes], branch: str = "main") -> None:
        """Create a repository and a branch, if there is none, and add a commit."""
        branches = self.repositories.setdefault(name, Repository()).branches
        identity = hashlib.sha1("".join([branch, *sorted(files)]).encode()).hexdigest()
        branches.setdefault(branch, branches["main"][:1]).append(Commit(identity, "", files, set(files)))

    def commits(self, name: str, branch: str = "main") -> list[Commit]:
        """Return the commits of a branch, without the empty first one."""
        return self.repositories[name].branches[branch][1:]


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._read(self._parts)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._write(self._parts)

    @property
    def _parts(self) -> list[str]:
        return [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]

    @property
    def _token(self) -> str | None:
        return (self.headers["Authorization"] or "").removeprefix("Bearer ") or None

    def _read(self, parts: list[str]) -> None:
        kind, parts = (parts[1], parts[2:]) if parts[0] == "api" else ("resolve", parts[parts[0] in SPACES :])
        name = "/".join(parts[:2])
        repository = self.server.repositories.get(name)
        if repository is None:
            return self._refuse(404, "RepoNotFound")
        if parts[2:3] == ["auth-check"]:
            return self._answer({}) if self._token == WRITER and parts[0] in OWNERS else self._refuse(403)
        action, revision, *path = [*parts[2:], "", ""] if len(parts) < 4 else parts[2:]
        commit = repository.at(revision or "main")
        if commit is None:
            return self._refuse(404, "RevisionNotFound")
        if kind == "resolve":
            return self._file(commit, "/".join(path))
        files = [self._described(path, content) for path, content in sorted(commit.files.items())]
        if action == "tree":
            inside = [each for each in files if each["path"].startswith("/".join([*filter(None, path), ""]))]
            return self._answer(inside)
        siblings = [{"rfilename": path} for path in commit.files]
        return self._answer(
            {"id": name, "modelId": name, "sha": commit.id, "private": repository.private, "siblings": siblings}
        )

    @staticmethod
    def _described(path: str, content: bytes) -> dict[str, Any]:
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return {"type": "file", "path": path, "size": len(content), "oid": blob}

    def _file(self, commit: Commit, path: str) -> None:
        if path not in commit.files:
            return self._refuse(404, "EntryNotFound")
        etag = hashlib.sha256(commit.files[path]).hexdigest()
        return self._send(200, commit.files[path], {"ETag": f'"{etag}"', "X-Repo-Commit": commit.id})

    def _write(self, parts: list[str]) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        if parts == ["api", "validate-yaml"]:
            found = [{"message": fault} for fault in faults(json.loads(body)["content"])]
            return self._answer({"errors": found, "warnings": []}, 400 if found else 200)
        if self._token != WRITER:
            return self._refuse(403 if self._token else 401)
        if parts == ["api", "repos", "create"]:
            return self._create(json.loads(body))
        name, action, revision = "/".join(parts[2:4]), parts[4], "/".join(parts[5:])
        branches = self.server.repositories[name].branches
        if action == "branch":
            if revision in branches:
                return self._refuse(409)
            branches[revision] = list(branches["main"])
            return self._answer({})
        if revision not in branches:
            return self._refuse(404, "RevisionNotFound")
        if action == "preupload":
            paths = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]
            return self._answer({"files": modes})
        self.server.uploading.set()
        while self.server.stalled:
            threading.Event().wait(0.1)
        if self.server.full:
            return self._refuse(400)
        return self._commit(name, branches[revision], [json.loads(line) for line in body.splitlines()])

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked.get('organization') or 'someone'}/{asked['name']}"
        if name.split("/")[0] not in OWNERS:
            return self._refuse(403)
        there = name in self.server.repositories
        self.server.repositories.setdefault(name, Repository(private=asked.get("visibility") == "private"))
        return self._answer({"url": f"{self.server.address}/{name}", "name": name}, 409 if there else 200)

    def _commit(self, name: str, commits: list[Commit], lines: list[dict[str, Any]]) -> None:
        (_, header), *operations = ((line["key"], line["value"]) for line in lines)
        files, message = dict(commits[-1].files), header["summary"]
        changed = {value["path"] for _, value in operations}
        for key, value in operations:
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "deletedFile":
                del files[value["path"]]
        identity = hashlib.sha1(json.dumps([commits[-1].id, message, sorted(changed)]).encode()).hexdigest()
        commits.append(Commit(identity, message, files, changed))
        return self._answer({"commitUrl": f"{self.server.address}/{name}/commit/{identity}", "commitOid": identity})

    def _refuse(self, status: int, code: str = "") -> None:
        self._send(status, json.dumps({"error": code or str(status)}).encode(), {"X-Error-Code": code})

    def _answer(self, content: object, status: int = 200) -> None:
        self._send(status, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def faults(card: str) -> list[str]:
    """Describe what the Hub refuses in a model card's metadata: other types than a mapping, and invalid ids."""
    _, _, rest = card.partition("---\n")
    data = yaml.safe_load(rest.partition("\n---")[0])
    if not isinstance(data, dict):
        return ["the metadata are no mapping"]
    found = []
    for key in ("base_model", "datasets"):
        names = [data[key]] if isinstance(data.get(key), str) else data.get(key) or []
        found += [
            f"{key}: {name!r} is no id on the Hub" for name in names if not re.fullmatch(r"[^/.][^/]*/[^/]+", name)
        ]
    return found


@contextlib.contextmanager
def serving_hub() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.stalled = False
        hub.shutdown()
        hub.server_close()
