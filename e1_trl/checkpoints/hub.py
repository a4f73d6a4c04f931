"""The Hub: checks before a training that will upload, the upload of a model or its card, errors in one line."""

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
from e1_trl.checkpoints.model_card import DETAILS, MEASURED, README
from e1_trl.errors import UserError

ERRORS = (HfHubHTTPError, httpx.HTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled, HFValidationError)
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf", ".safetensors.index.json", ".bin.index.json", "adapter_config.json")
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
    """Make a repository for a model, and the branch `revision` in it, unless they are there; its id.

    `name` is with or without who owns it, and `private` whether only they see it; None: what they have set.

    Raises:
        UserError: one line: no token, no permission, no Hub, or another model is there.
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
            raise UserError(
                f"push_to_hub: {repository} holds another model ({weights[0]}), which would be mixed with this one; "
                "set hub_model_id to another name"
            )
        if missing and revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
    except ERRORS as error:
        raise UserError(f"push_to_hub: nothing can be uploaded to {name} on the Hub: {one_line(error)}") from error
    return repository


def push(folder: Path, repository: str, revision: str | None, card_only: bool = False) -> str:
    """Upload the model in a folder, or only its card and what that speaks of; the address of the commit.

    The upload also removes what an earlier model left there: numbers, and weights unless `card_only`.

    Raises:
        UserError: one line: no token, no permission, no Hub.
    """
    try:
        return str(
            HfApi().upload_folder(
                repo_id=repository,
                folder_path=folder,
                revision=revision,
                commit_message="Model card" if card_only else "End of training",
                allow_patterns=[README, BUDGET, f"{DETAILS}/*", *OLD_NUMBERS] if card_only else None,
                ignore_patterns=["_*", "checkpoint-*"],  # as Transformers does
                delete_patterns=OLD_NUMBERS if card_only else OLD_NUMBERS + OLD_WEIGHTS,
            )
        )
    except Exception as error:  # each of the Hub's ways to upload has errors of its own
        raise UserError(f"the upload to {repository} failed: {one_line(error)}") from error


def check_weights(folder: Path, repository: str, revision: str | None) -> None:
    """Make sure that a repository holds the weights of a folder, and no others, and may be written to.

    Raises:
        UserError: it does not, or cannot be asked.
    """
    try:
        HfApi().auth_check(repository, write=True)
        compared = HfApi().verify_repo_checksums(repository, revision=revision, local_dir=folder)
    except ERRORS as error:
        raise UserError(f"the weights in {repository} cannot be compared: {one_line(error)}") from error
    changed = [each["path"] for each in compared.mismatches]
    if any(map(_holds_weights, [*changed, *compared.missing_paths, *compared.extra_paths])):
        raise UserError(
            f"{repository} holds other weights than {folder}, so the card would not be theirs; push these first"
        )


def _holds_weights(file: str) -> bool:
    """Whether a path in a repository is of the model itself, not of a checkpoint inside or the training's arguments."""
    return file.endswith(WEIGHTS) and file != "training_args.bin" and "/" not in file
