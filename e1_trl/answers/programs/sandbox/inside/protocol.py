"""What a box and what runs inside it agree on."""

import struct

READY = b"ready"
NUMERIC = b"numpy"  # a program that has this word in it goes to the second zygote
ANSWER = 3  # the descriptor, in a program's process
REPLY = struct.Struct("<iq")
# Exit statuses. A program may end with them, too, and so lie about why it failed, not about whether it did.
CRASHED, OUT_OF_MEMORY, NOT_CALLABLE = 1, 113, 114
