"""The Hub: checks before a training that will upload, and the upload of a model or of its card."""

import shlex
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OfflineModeIsEnabled

from e1_trl.checkpoints.budget_file import FILE as BUDGET
from e1_trl.checkpoints.model_card import DETAILS, README, RESULTS
from e1_trl.errors import UserError, user_errors

# A class of httpx, and from huggingface_hub 2 on of httpx2.
HTTP_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]
LOGIN = "it needs HF_TOKEN, or `hf auth login`"
ERRORS = (HTTP_ERROR, LocalTokenNotFoundError, OfflineModeIsEnabled, HFValidationError)
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf", ".safetensors.index.json", ".bin.index.json", "adapter_config.json")
# Patterns of files that an earlier model may have left in the repository; none matches inside a checkpoint's folder.
OLD_NUMBERS = [f"{RESULTS}*"]
OLD_WEIGHTS = ["model*.safetensors*", "pytorch_model*", "adapter_*"]
OWN = ["_*", "checkpoint-*", "completions/*"]  # patterns of what no upload takes: Transformers' two, and tables


def keep_from_the_hub(output_dir: Path) -> None:
    """Link TRL's folder `completions` to `_completions`, so that its tables stay out of the model's repository.

    Transformers uploads all of `output_dir` but what begins with `_` or `checkpoint-`, and follows no links. The tables
    go to the Hub only by TRL's `log_completions_hub_repo`.
    """
    tables = output_dir / "_completions"
    link = output_dir / "completions"
    if link.is_dir() and not link.is_symlink():  # TRL makes it with its trainer
        link.rename(tables)
    tables.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(tables.name)


def reserve(name: str, private: bool | None, revision: str | None) -> None:
    """Make a repository for a model and a branch in it (None: main), unless they exist."""
    api = HfApi()
    with user_errors(f"push_to_hub: nothing can be uploaded to {name} on the Hub ({LOGIN})", *ERRORS):
        repository = api.create_repo(name, private=private, exist_ok=True).repo_id
        api.auth_check(repository, write=True)
        if private and not api.model_info(repository).private:  # one that exists stays public
            raise UserError(f"push_to_hub: hub_private_repo is true, and {repository} is public; name another one")
        missing = None if revision is None or api.revision_exists(repository, revision) else revision
        files = api.list_repo_files(repository, revision=None if missing else revision)  # a new branch begins as main
        weights = [file for file in files if _holds_weights(file)]
        if weights and BUDGET not in files:
            raise UserError(
                f"push_to_hub: {repository} holds another model ({weights[0]}), which would be mixed with this one; "
                "set hub_model_id to another name"
            )
        if missing is not None:
            api.create_branch(repository, branch=missing, exist_ok=True)


def push(folder: Path, repository: str, revision: str | None, card_only: bool = False) -> str:
    """Upload the model in a folder, or only its card with the files it links to; return the address of the commit.

    Numbers that an earlier model left in the repository are removed; so are its weights, unless `card_only`.
    """
    # Each of the Hub's ways to upload has errors of its own.
    with user_errors(f"the upload to {repository} failed", Exception):
        return str(
            HfApi().upload_folder(
                repo_id=repository,
                folder_path=folder,
                revision=revision,
                commit_message="Model card" if card_only else "End of training",
                allow_patterns=[README, BUDGET, f"{DETAILS}/*"] if card_only else None,
                ignore_patterns=OWN,
                delete_patterns=OLD_NUMBERS if card_only else OLD_NUMBERS + OLD_WEIGHTS,
            )
        )


def upload_command(folder: Path, repository: str, revision: str | None) -> str:
    """Return a command that uploads the model in a folder as `push` does."""
    patterns = {"--exclude": OWN, "--delete": OLD_NUMBERS + OLD_WEIGHTS}
    options = [word for option, each in patterns.items() for pattern in each for word in (option, pattern)]
    branch = [] if revision is None else ["--revision", revision]
    return shlex.join(["hf", "upload", repository, str(folder), ".", *branch, *options])


def check_weights(folder: Path, repository: str, revision: str | None) -> None:
    """Check that a repository may be written to and holds the weights of a folder, and no others."""
    with user_errors(f"the weights in {repository} cannot be compared ({LOGIN})", *ERRORS):
        HfApi().auth_check(repository, write=True)
        compared = HfApi().verify_repo_checksums(repository, revision=revision, local_dir=folder)
    changed = [each["path"] for each in compared.mismatches]
    found = [*changed, *compared.missing_paths, *compared.extra_paths]
    if any(_holds_weights(file) and not file.endswith(".gguf") for file in found):  # others convert weights to it
        raise UserError(
            f"{repository} holds other weights than {folder}, so the card would not be about them; push these first"
        )


def _holds_weights(file: str) -> bool:
    """Return whether a file in a repository holds the model's own weights, not a checkpoint's or the arguments."""
    return file.endswith(WEIGHTS) and file != "training_args.bin" and "/" not in file
