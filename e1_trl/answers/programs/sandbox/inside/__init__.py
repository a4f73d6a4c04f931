"""The part of the project that runs inside a box."""
