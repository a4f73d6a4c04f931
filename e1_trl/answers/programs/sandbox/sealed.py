"""A file without a name that holds some bytes, which nobody can change any more: what a program is given."""

import fcntl
import io

from e1_trl.answers.programs.sandbox.inside.restrictions import demand, libc

MFD_CLOEXEC, MFD_ALLOW_SEALING = 1, 2
F_ADD_SEALS, UNCHANGEABLE = 1033, 0b10111  # no other seals, size, or writing from now on; denying all sleeps for a tick


def readable(data: bytes) -> io.FileIO:
    """A file without a name that holds the data, opened for reading only, and that nobody can change any more."""
    # Not by the modules os and fcntl, which know it only where Python was built with a young C library.
    written = libc.memfd_create(b"", MFD_CLOEXEC | MFD_ALLOW_SEALING)
    demand(written)
    with open(written, "wb") as file:
        file.write(data)
        file.flush()
        fcntl.fcntl(written, F_ADD_SEALS, UNCHANGEABLE)  # Landlock lets a program open it anew by its number
        return io.FileIO(f"/proc/self/fd/{written}", "r")
