"""The Hub, where models are shared: what is made sure of before a training, and what went wrong in one line."""

import hashlib
import traceback
from pathlib import Path

import httpx
from huggingface_hub import HfApi
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RevisionNotFoundError,
)

from e1_trl.checkpoints.budget_file import FILE as BUDGET
from e1_trl.checkpoints.model_card import DETAILS, EVAL_RESULTS, MEASURED, README

ERRORS = (HfHubHTTPError, httpx.HTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled, HFValidationError)
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf", ".safetensors.index.json", ".bin.index.json", "adapter_config.json")
SETTINGS = "training_args.bin"  # no weights, though it is called so


def keep_from_the_hub(output_dir: Path) -> None:
    """Keep TRL's tables of completions out of the model's repository on the Hub, where nothing is in their place yet.

    TRL writes them to `completions`, and Transformers uploads all of `output_dir` but what starts with `_` or
    `checkpoint-`, and follows no links. Their place on the Hub is `log_completions_hub_repo`.
    """
    tables, link = output_dir / "_completions", output_dir / "completions"
    tables.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(tables.name)


def failed(error: Exception) -> bool:
    """Whether an error came from the Hub's client, whose ways to upload have errors of their own."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, ERRORS) or any("huggingface_hub" in Path(frame.filename).parts for frame in frames)


def said(error: BaseException) -> str:
    """What an error of the Hub says, in one line, and what would help."""
    if not isinstance(error, ERRORS) and error.__cause__ is not None:
        error = error.__cause__
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    line = " ".join(str(error).split()) or type(error).__name__
    if status in (401, 403, 404) or isinstance(error, LocalTokenNotFoundError):
        return f"{line}; set HF_TOKEN to a token that may write there, or log in with `hf auth login`"
    return f"it cannot be reached ({line})" if isinstance(error, httpx.TransportError) else line


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
        repository = api.create_repo(name, private=private, exist_ok=True).repo_id
        api.auth_check(repository, write=True)
        try:
            files, missing = api.list_repo_files(repository, revision=revision), False
        except RevisionNotFoundError:  # it will begin as main is
            files, missing = api.list_repo_files(repository), True
        weights = [file for file in files if _holds_weights(file)]
        if weights and BUDGET not in files:
            raise ValueError(
                f"push_to_hub: {repository} holds another model ({weights[0]}), which would be mixed with this one; "
                "set hub_model_id to another name"
            )
        if missing and revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
    except ERRORS as error:
        raise ValueError(f"push_to_hub: nothing can be uploaded to {name} on the Hub: {said(error)}") from error
    return repository


def remove_stale(folder: Path, repository: str, revision: str | None) -> None:
    """Remove from a repository what an earlier model of ours left there and this one does not have.

    Its weights would be loaded instead of, or beside, those that have been uploaded; what was measured is of them.
    """
    api = HfApi()
    files = api.list_repo_files(repository, revision=revision)
    stale = [
        file for file in files if (_holds_weights(file) or file.startswith(MEASURED)) and not (folder / file).exists()
    ]
    if stale:
        api.delete_files(repository, stale, revision=revision, commit_message="Remove what an earlier model left")


def push_card(folder: Path, repository: str, revision: str | None) -> str:
    """Upload the card of the model in a folder, and what it speaks of, but no weights; the address of the commit.

    Raises:
        ValueError: one line: no token, no permission, no Hub.
    """
    try:
        return str(
            HfApi().upload_folder(
                repo_id=repository,
                folder_path=folder,
                allow_patterns=[README, BUDGET, f"{DETAILS}/*", f"{EVAL_RESULTS}*"],
                delete_patterns=[f"{start}*" for start in MEASURED],  # nothing older stays
                commit_message="Model card",
                revision=revision,
            )
        )
    except Exception as error:
        if not failed(error):
            raise
        raise ValueError(f"the card cannot be uploaded to {repository}: {said(error)}") from error


def check_weights(folder: Path, repository: str, revision: str | None) -> None:
    """Make sure that a repository holds the weights of a folder, and no others, and may be written to.

    Raises:
        ValueError: it does not, or cannot be asked.
    """
    try:
        HfApi().auth_check(repository, write=True)
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
