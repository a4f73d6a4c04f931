"""Checkpoint that an engine loads: a model, or a LoRA adapter with its base, in a folder or on the Hub."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import snapshot_download
from transformers.utils import cached_file, extract_commit_hash, has_file
from transformers.utils.peft_utils import find_adapter_config_file

from e1_trl.arguments import OF_A_WHOLE_BASE
from e1_trl.checkpoints.budget_file import find_file
from e1_trl.errors import UserError, user_errors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ORIGIN = "e1/origin.json"  # of a trained model: its base, and the commit of the base on the Hub

# Values that vLLM needs in an adapter's configuration, where they are set, to serve it as it was trained.
PLAIN_LORA = {
    "peft_type": "LORA",
    "bias": "none",
    "use_dora": False,
    "modules_to_save": None,
    "rank_pattern": None,
    "alpha_pattern": None,
    "lora_bias": False,
    "alora_invocation_tokens": None,
    "trainable_token_indices": None,
    "layer_replication": None,
}
VLLM_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


@dataclass(frozen=True)
class Checkpoint:
    model: str  # folder or Hub id of the weights; with an adapter, those of its base
    revision: str | None = None  # branch, tag or commit on the Hub, of the adapter if there is one, else of the model
    adapter: str | None = None  # folder or Hub id of the adapter
    rank: int = 0  # of the adapter
    base_revision: str | None = None  # revision of the adapter's base that was trained; None: the newest

    @classmethod
    def find(cls, name: str, revision: str | None) -> "Checkpoint":
        if Path(name).is_dir() and revision is not None:
            raise UserError(f"{name} is a folder, which has no revision {revision!r}; leave it unset")
        with user_errors(f"the model {name}", OSError, ValueError):
            file = find_adapter_config_file(name, revision=revision)
        if file is None:
            return cls(name, revision)
        config = json.loads(Path(file).read_text())
        if other := unserved(config):
            what = ", ".join(f"{key} = {config.get(key)!r}" for key in other)
            raise UserError(f"{name}: vLLM serves plain LoRA adapters only ({what}); merge it into its base first")
        base = config["base_model_name_or_path"]
        trained = _trained_revision(name, revision, base, config.get("revision"))
        return cls(base, revision, adapter=name, rank=config["r"], base_revision=trained)

    @property
    def tokenizer(self) -> dict[str, str | None]:
        """Place of the tokenizer, as arguments of `from_pretrained`: the adapter if it has one, else the model."""
        if self.adapter is not None and has_file(self.adapter, "tokenizer_config.json", revision=self.revision):
            return {"pretrained_model_name_or_path": self.adapter, "revision": self.revision}
        return {"pretrained_model_name_or_path": self.model, "revision": self.model_revision}

    def load_tokenizer(self, code: bool) -> "PreTrainedTokenizerBase":
        """Load the tokenizer; `code` allows the code that comes with it. Raises a `UserError` if it cannot be read."""
        from transformers import AutoTokenizer

        with user_errors(f"the model {self.model}", OSError, ValueError):
            return AutoTokenizer.from_pretrained(**self.tokenizer, trust_remote_code=code, mistral_format=False)

    @property
    def adapter_folder(self) -> str | None:
        """Folder of the adapter on this machine, at its revision; vLLM would download the newest."""
        if self.adapter is None or Path(self.adapter).is_dir():
            return self.adapter
        return snapshot_download(self.adapter, revision=self.revision)

    @property
    def model_revision(self) -> str | None:
        """Revision of the weights, which with an adapter are its base's; None: the newest."""
        return self.revision if self.adapter is None else self.base_revision

    def fingerprint(self) -> str:
        """Identify the weights: by a hash of a folder's files, or by the commit on the Hub."""
        base = _fingerprint(self.model, self.model_revision, "config.json")
        if self.adapter is None:
            return base
        return f"{base} + {_fingerprint(self.adapter, self.revision, 'adapter_config.json')}"


def unserved(config: Mapping[str, Any]) -> list[str]:
    """Return the fields of an adapter's configuration for which vLLM would not serve it as it was trained."""
    other = [key for key, value in PLAIN_LORA.items() if (config.get(key) or value) != value]
    other += ["init_lora_weights"] * (str(config.get("init_lora_weights")).lower() not in OF_A_WHOLE_BASE)
    other += ["base_model_name_or_path"] * (config.get("base_model_name_or_path") is None)
    return other + ["r"] * ("peft_type" not in other and config["r"] > max(VLLM_LORA_RANKS))


def served_rank(rank: int) -> int:
    """Return the smallest rank that vLLM can reserve and that is at least `rank`."""
    return next(each for each in VLLM_LORA_RANKS if each >= rank)


def _trained_revision(adapter: str, revision: str | None, base: str, recorded: str | None) -> str | None:
    """Return the revision of an adapter's base that was trained: what PEFT has recorded, else our `ORIGIN`."""
    if Path(base).is_dir():
        return None
    if recorded is not None:
        return recorded
    file = find_file(adapter, ORIGIN, revision)
    origin = {} if file is None else json.loads(file.read_text())
    return origin["commit"] if origin.get("base") == base else None


def _fingerprint(name: str, revision: str | None, config: str) -> str:
    folder = Path(name)
    if not folder.is_dir():
        with user_errors(f"the model {name}", OSError, ValueError):
            file = cached_file(name, config, revision=revision)
        return str(extract_commit_hash(file, None))
    weights = {*folder.glob("*.safetensors"), *folder.glob("*.bin")}
    weights.discard(folder / "training_args.bin")  # no weights, and different after each resumption
    # vLLM takes from the generation config which tokens end a sequence.
    settings = [file for file in (folder / config, folder / "generation_config.json") if file.exists()]
    total = hashlib.sha256()
    for file in sorted([*weights, *settings]):
        with file.open("rb") as content:
            total.update(hashlib.file_digest(content, "sha256").digest())
    return total.hexdigest()[:16]
