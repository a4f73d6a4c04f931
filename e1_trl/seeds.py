"""Seeds as hashes of the purpose they serve: the same in every process and every run."""

import hashlib
import json

NUMPY = 2**32  # numpy's global generator takes seeds below this


def seed_of(*what: int | str) -> int:
    """Hash words and numbers to a seed below 2^63, as servers take it."""
    return int.from_bytes(hashlib.sha256(json.dumps(what).encode()).digest()[:8], "big") >> 1
