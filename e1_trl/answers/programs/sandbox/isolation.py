"""Chooses the isolation of boxes on this machine, after attacking it with programs of its own.

python -m e1_trl.answers.programs.sandbox.isolation      says for each kind whether it holds here, or what it needs
"""

import logging
import os
import socket
import tempfile
from pathlib import Path

from e1_trl.answers.programs.sandbox.box import Box, refused_to_nobody
from e1_trl.answers.programs.sandbox.command import Isolation, SandboxError
from e1_trl.answers.programs.sandbox.process import End, Limits
from e1_trl.errors import UserError

logger = logging.getLogger(__name__)

LIMITS = Limits(cpu=5.0, wall=20.0, memory=2**28, output=2**16)
ANSWER = b"42\n"

WORKS = ("print(int(input()) + 1)", "import numpy, sortedcontainers; print(numpy.int64(input()) + 1)")

# Each prints what it gained, and nothing if it is contained.
ATTACKS = {
    "reads a file of ours": "print(open({file!r}).read())",
    "reads the environment of ours": "print(open('/proc/{pid}/environ').read())",
    "inherits the environment": "import os; print(os.environ.get('PATH', ''), end='')",
    "writes a file": "import os\nfor folder in ({folder!r}, '/tmp', '/dev/shm', '/var/tmp', '/', '.'):\n"
    "    try: open(os.path.join(folder, 'e1_trl_escaped'), 'w'); print(folder)\n    except OSError: pass",
    "starts a process": "import os\nif not os.fork(): os._exit(0)\nprint('forked')",
    "starts a program": "import os; os.execv('/bin/true', ['true'])",
    "signals others": "import os\nfor pid in ({pid}, os.getppid(), -1):\n"
    "    try: os.kill(pid, 0); print(pid)\n    except OSError: pass",
    "opens a socket": "import socket; print(socket.create_connection(('127.0.0.1', {port})))",
    "makes a namespace": "import ctypes\nif not ctypes.CDLL(None).unshare(0x10000000): print('unshared')",
}
ADVICE = {
    Isolation.NAMESPACES: "Linux 5.3 and unprivileged user namespaces (kernel.unprivileged_userns_clone=1, "
    "user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0; in a container, a seccomp profile that "
    "allows unshare and mount)",
    Isolation.LANDLOCK: "Landlock (Linux 5.13, lsm=…,landlock at boot; in a container, a seccomp profile that allows "
    "it)",
}


def choose() -> Isolation:
    """Return the strongest isolation that holds on this machine, or raise a UserError that says what each lacks."""
    reasons = list[str]()
    for isolation in Isolation:
        lacking = what_is_lacking(isolation)
        if lacking is None:
            if reasons:
                logger.warning("programs run with %s, since %s", isolation, *reasons)
            if os.geteuid() == 0 and (refused := refused_to_nobody(isolation)):
                logger.warning("programs run as root instead of nobody, without a limit on threads: %s", refused)
            return isolation
        reasons.append(lacking)
    raise UserError("programs cannot be run safely here. " + " | ".join(reasons))


def what_is_lacking(isolation: Isolation) -> str | None:
    """Return the reason why this isolation does not hold here, in one line; None if it holds."""
    try:
        attack(isolation)
    except SandboxError as error:
        return f"{error}; it needs {ADVICE[isolation]}"
    return None


def attack(isolation: Isolation) -> None:
    """Run the attacks and two harmless programs in a box of this kind."""
    with (
        tempfile.TemporaryDirectory(prefix="e1_trl_") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        Box(isolation) as box,
    ):
        planted = Path(folder) / "planted"
        planted.write_text("escaped")
        port = server.getsockname()[1]
        for name, source in ATTACKS.items():
            program = source.format(file=str(planted), folder=folder, pid=os.getpid(), port=port)
            run = box.run(program.encode(), b"", LIMITS)
            if run.stdout or (run.end is End.EXITED and name == "starts a program"):
                raise SandboxError(f"a box with {isolation} does not hold: a program {name}")
        for source in WORKS:
            run = box.run(source.encode(), b"41\n", LIMITS)
            if (run.end, run.stdout) != (End.EXITED, ANSWER):
                raise SandboxError(f"a box with {isolation} does not run a harmless program: {run.said or run.end}")


def main() -> None:
    for isolation in Isolation:
        print(f"{isolation}: {what_is_lacking(isolation) or 'holds'}")


if __name__ == "__main__":
    main()
