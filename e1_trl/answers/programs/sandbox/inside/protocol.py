"""Constants that both sides of a box share."""

import struct

READY = b"ready"
STARTED = b"started"
# Descriptors in a program's process. By a byte each, it says on DONE that a test is over, and is told on NEXT that the
# next may begin. The descriptors after them are the inputs of later tests.
ANSWER = 3
DONE = 4
NEXT = 5
TURN = b"\n"
REPLY = struct.Struct("<iq")
# Exit statuses. A program may use them too, and so lie about why it failed, but not about whether it did.
CRASHED = 1
OUT_OF_MEMORY = 113
NOT_CALLABLE = 114
