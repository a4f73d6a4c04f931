"""What a box and what runs inside it agree on."""

import struct

READY = b"ready"
NUMERIC = b"numpy"  # a program that has this word in it goes to the second zygote
STARTED = b"started"
# The descriptors, in a program's process: it says that it is through with a test, and reads that the next one may
# begin, each by a byte. Beyond them are the inputs of its later tests.
ANSWER, DONE, NEXT = 3, 4, 5
TURN = b"\n"
REPLY = struct.Struct("<iq")
# Exit statuses. A program may end with them, too, and so lie about why it failed, not about whether it did.
CRASHED, OUT_OF_MEMORY, NOT_CALLABLE = 1, 113, 114
