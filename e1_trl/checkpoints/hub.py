"""The Hub: checks before a training that will upload, the upload of a model or its card, errors in one line."""

import hashlib
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
from huggingface_hub.hf_api import RepoSibling

from e1_trl.checkpoints.budget_file import FILE as BUDGET
from e1_trl.checkpoints.model_card import DETAILS, EVAL_RESULTS, MEASURED, README

ERRORS = (HfHubHTTPError, httpx.HTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled, HFValidationError)
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf", ".safetensors.index.json", ".bin.index.json", "adapter_config.json")
SETTINGS = "training_args.bin"  # no weights, though it is called so
# By pattern what an earlier model of ours may have left; nothing in the folder of a checkpoint.
OLD_NUMBERS = [f"{start}*" for start in MEASURED]
OLD_WEIGHTS = ["model*.safetensors*", "pytorch_model*", "adapter_*"]


def keep_from_the_hub(output_dir: Path) -> None:
    """Keep TRL's tables of completions out of the model's repository on the Hub, where nothing is in their place yet.

    TRL writes them to `completions`, and Transformers uploads all of `output_dir` but what starts with `_` or
    `checkpoint-`, and follows no links. Their place on the Hub is `log_completions_hub_repo`.
    """
    tables, link = output_dir / "_completions", output_dir / "completions"
    tables.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(tables.name)


def one_line(error: BaseException) -> str:
    """What an error of the Hub says, and what would help."""
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
        raise ValueError(f"push_to_hub: nothing can be uploaded to {name} on the Hub: {one_line(error)}") from error
    return repository


def push(folder: Path, repository: str, revision: str | None, card_only: bool = False) -> str:
    """Upload the model in a folder, or only its card and what that speaks of; the address of the commit.

    The upload also removes what an earlier model left there: numbers, and weights unless `card_only`.

    Raises:
        ValueError: one line: no token, no permission, no Hub.
    """
    try:
        return str(
            HfApi().upload_folder(
                repo_id=repository,
                folder_path=folder,
                revision=revision,
                commit_message="Model card" if card_only else "End of training",
                allow_patterns=[README, BUDGET, f"{DETAILS}/*", f"{EVAL_RESULTS}*"] if card_only else None,
                ignore_patterns=["_*", "checkpoint-*"],  # as Transformers does
                delete_patterns=OLD_NUMBERS if card_only else OLD_NUMBERS + OLD_WEIGHTS,
            )
        )
    except Exception as error:  # each of the Hub's ways to upload has errors of its own
        raise ValueError(f"the upload to {repository} failed: {one_line(error)}") from error


def check_weights(folder: Path, repository: str, revision: str | None) -> None:
    """Make sure that a repository holds the weights of a folder, and no others, and may be written to.

    Raises:
        ValueError: it does not, or cannot be asked.
    """
    try:
        HfApi().auth_check(repository, write=True)
        files = HfApi().model_info(repository, revision=revision, files_metadata=True).siblings or []
    except ERRORS as error:
        raise ValueError(f"the weights in {repository} cannot be compared: {one_line(error)}") from error
    there = {sibling.rfilename: sibling for sibling in files if _holds_weights(sibling.rfilename)}
    here = {file.name: file for file in folder.iterdir() if _holds_weights(file.name)}
    if there.keys() != here.keys() or not all(_same(file, there[name]) for name, file in here.items()):
        raise ValueError(
            f"{repository} holds other weights than {folder}, so the card would not be theirs; push these first"
        )


def _holds_weights(file: str) -> bool:
    return file.endswith(WEIGHTS) and file != SETTINGS and "/" not in file


def _same(file: Path, there: RepoSibling) -> bool:
    """Whether a file is the Hub's, which names contents by SHA-256 if they are large, as blobs of git if not."""
    if there.lfs is None:
        content = file.read_bytes()
        return there.blob_id == hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    with file.open("rb") as opened:
        return there.lfs.sha256 == hashlib.file_digest(opened, "sha256").hexdigest()
