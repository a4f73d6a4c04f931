"""vLLM's server for OpenAI's clients, in forked processes: neither it nor its engine imports what is imported."""

import multiprocessing
from collections.abc import Sequence


def main(argv: Sequence[str]) -> None:
    """Serve until it is killed; reads its options from `sys.argv`, where they are, too."""
    from vllm.entrypoints.launchers.api_server import entry
    from vllm.v1.engine import utils

    utils.get_mp_context = lambda: multiprocessing.get_context("fork")  # and not a new interpreter
    entry.main()
