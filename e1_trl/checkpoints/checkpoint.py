"""Which model is evaluated: a checkpoint, or a LoRA adapter with its base; a folder or on the Hub."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import snapshot_download
from transformers.utils import cached_file, extract_commit_hash, has_file
from transformers.utils.peft_utils import find_adapter_config_file

from e1_trl.errors import UserError, user_errors

# What an adapter's configuration must say, or leave out, for vLLM to serve it as it was trained.
PLAIN_LORA = {
    "peft_type": "LORA",
    "bias": "none",
    "use_dora": False,
    "modules_to_save": None,
    "rank_pattern": None,
    "alpha_pattern": None,
}
VLLM_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


@dataclass(frozen=True)
class Checkpoint:
    """What an engine loads.

    Attributes:
        model: folder or Hub id of the weights; of an adapter, those of its base.
        revision: branch, tag or commit on the Hub of what was named: the model or the adapter.
        adapter, rank: folder or Hub id of the adapter, and its rank.
    """

    model: str
    revision: str | None = None
    adapter: str | None = None
    rank: int = 0

    @classmethod
    def find(cls, name: str, revision: str | None) -> "Checkpoint":
        """The checkpoint of a folder or Hub id.

        Raises:
            UserError: a revision of a folder, an adapter that vLLM cannot serve, or the Hub has no such model or
                revision, or cannot be reached.
        """
        if Path(name).is_dir() and revision is not None:
            raise UserError(f"{name} is a folder, which has no revision {revision!r}; leave it unset")
        with user_errors(f"the model {name}", OSError, ValueError):
            file = find_adapter_config_file(name, revision=revision)
        if file is None:
            return cls(name, revision)
        config = json.loads(Path(file).read_text())
        other = [key for key, value in PLAIN_LORA.items() if (config.get(key) or value) != value]
        if other or config["base_model_name_or_path"] is None or config["r"] > max(VLLM_LORA_RANKS):
            what = ", ".join(f"{key} = {config.get(key)!r}" for key in [*other, "base_model_name_or_path", "r"])
            raise UserError(f"{name}: vLLM serves plain LoRA adapters only ({what}); merge it into its base first")
        return cls(config["base_model_name_or_path"], revision, adapter=name, rank=config["r"])

    @property
    def tokenizer(self) -> dict[str, str | None]:
        """Where the tokenizer lies, as arguments of `from_pretrained`: with an adapter, or else with its base."""
        if self.adapter is not None and has_file(self.adapter, "tokenizer_config.json", revision=self.revision):
            return {"pretrained_model_name_or_path": self.adapter, "revision": self.revision}
        return {"pretrained_model_name_or_path": self.model, "revision": self.model_revision}

    @property
    def adapter_folder(self) -> str | None:
        """The adapter's files on this machine; vLLM would take the newest of the Hub."""
        if self.adapter is None or Path(self.adapter).is_dir():
            return self.adapter
        return snapshot_download(self.adapter, revision=self.revision)

    @property
    def max_rank(self) -> int:
        """The rank that vLLM is to make room for."""
        return served_rank(self.rank)

    @property
    def model_revision(self) -> str | None:
        """The revision of the weights; those of an adapter's base are its newest."""
        return self.revision if self.adapter is None else None

    def fingerprint(self) -> str:
        """What identifies the weights: a hash of a folder's files, the commit of what is on the Hub.

        Of a served model, whose weights are out of sight, it identifies the model that it was said to be.

        Raises:
            UserError: the Hub has no such model or revision, or cannot be reached.
        """
        base = _fingerprint(self.model, self.model_revision, "config.json")
        if self.adapter is None:
            return base
        return f"{base} + {_fingerprint(self.adapter, self.revision, 'adapter_config.json')}"


def served_rank(rank: int) -> int:
    """The smallest of the ranks of adapters that vLLM makes room for, which is enough for this one."""
    return next(each for each in VLLM_LORA_RANKS if each >= rank)


def _fingerprint(name: str, revision: str | None, config: str) -> str:
    if not Path(name).is_dir():
        with user_errors(f"the model {name}", OSError, ValueError):
            file = cached_file(name, config, revision=revision)
        return str(extract_commit_hash(file, None))
    total = hashlib.sha256()
    weights = {file for pattern in ("*.safetensors", "*.bin") for file in Path(name).glob(pattern)}
    weights.discard(Path(name) / "training_args.bin")  # no weights, and another after each resumption
    # vLLM takes from the generation config which tokens end a sequence.
    settings = [file for file in (Path(name) / config, Path(name) / "generation_config.json") if file.exists()]
    for file in sorted([*weights, *settings]):
        with file.open("rb") as content:
            total.update(hashlib.file_digest(content, "sha256").digest())
    return total.hexdigest()[:16]
