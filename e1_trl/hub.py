"""The Hub, where models are shared: what is made sure of before a training, and what went wrong in one line."""

import hashlib
from pathlib import Path

import httpx
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OfflineModeIsEnabled

from e1_trl.report.model_card import DETAILS, EVAL_RESULTS, README, RESULTS
from e1_trl.trained import FILE as BUDGET

ERRORS = (HfHubHTTPError, httpx.HTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled, HFValidationError)
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
SETTINGS = "training_args.bin"  # no weights, though it is called so


def failed(error: Exception) -> bool:
    """Whether it is an error of the Hub, also where its client wraps one, as of the upload of a large file."""
    return isinstance(error, ERRORS) or isinstance(error.__cause__, ERRORS)


def said(error: BaseException) -> str:
    """What an error of the Hub says, in one line, and what would help."""
    error = error if isinstance(error, ERRORS) or error.__cause__ is None else error.__cause__
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    line = " ".join(str(error).split())
    if status in (401, 403) or isinstance(error, LocalTokenNotFoundError):
        return f"{line}; set HF_TOKEN to a token that may write there, or log in with `hf auth login`"
    if isinstance(error, httpx.HTTPError):
        return f"it cannot be reached ({line or type(error).__name__})"
    return line


def reserve(name: str, private: bool | None, revision: str | None) -> str:
    """Make a repository for a model, and the branch in it, unless they are there; its id.

    Args:
        name: of the repository, with or without who owns it.
        private: whether only they see it; None: what they have set.
        revision: the branch; None: main.

    Raises:
        ValueError: one line: no token, no permission, no Hub, or another model is there.
    """
    api = HfApi()
    try:
        if api.whoami().get("auth", {}).get("accessToken", {}).get("role") == "read":
            raise ValueError(f"push_to_hub: the token of HF_TOKEN may read only; {name} needs one that may write")
        repository = api.create_repo(name, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        files = api.list_repo_files(repository, revision=revision)
    except ERRORS as error:
        raise ValueError(f"push_to_hub: nothing can be uploaded to {name} on the Hub: {said(error)}") from error
    weights = [file for file in files if _holds_weights(file)]
    if weights and BUDGET not in files:
        raise ValueError(
            f"push_to_hub: {repository} holds another model ({weights[0]}), which would be mixed with this one; set "
            "hub_model_id to another name, or hub_revision to a new branch"
        )
    return repository


def push_card(folder: Path, repository: str, revision: str | None) -> str:
    """Upload the card of the model in a folder, and what it speaks of, but no weights; the address of the commit.

    Raises:
        ValueError: one line: no token, no permission, no Hub.
    """
    card = [README, BUDGET, f"{DETAILS}/*", f"{EVAL_RESULTS}/*"]
    measured = [f"{DETAILS}/{RESULTS}*", f"{EVAL_RESULTS}/*"]  # of which nothing older is to stay
    try:
        return str(
            HfApi().upload_folder(
                repo_id=repository,
                folder_path=folder,
                allow_patterns=card,
                delete_patterns=measured,
                commit_message="Model card",
                revision=revision,
            )
        )
    except ERRORS as error:
        raise ValueError(f"the card cannot be uploaded to {repository}: {said(error)}") from error


def check_weights(folder: Path, repository: str, revision: str | None) -> None:
    """Make sure that a repository holds the weights of a folder, and no others.

    Raises:
        ValueError: it does not, or cannot be asked.
    """
    try:
        files = HfApi().model_info(repository, revision=revision, files_metadata=True).siblings or []
    except ERRORS as error:
        raise ValueError(f"the weights in {repository} cannot be compared: {said(error)}") from error
    there = {
        sibling.rfilename: sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
        for sibling in files
        if _holds_weights(sibling.rfilename)
    }
    here = {file.name: file for file in folder.iterdir() if _holds_weights(file.name)}
    if there.keys() != here.keys() or any(there[name] not in _hashes(file) for name, file in here.items()):
        raise ValueError(
            f"{repository} holds other weights than {folder}, so the card would not be theirs; push these first"
        )


def _holds_weights(file: str) -> bool:
    return file.endswith(WEIGHTS) and file != SETTINGS and "/" not in file


def _hashes(file: Path) -> tuple[str, str]:
    """What the Hub calls a file's content: its SHA-256 if it is large, its hash as a blob of git if it is not."""
    sha256, blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % file.stat().st_size, usedforsecurity=False)
    with file.open("rb") as content:
        while chunk := content.read(1 << 20):
            sha256.update(chunk)
            blob.update(chunk)
    return sha256.hexdigest(), blob.hexdigest()
