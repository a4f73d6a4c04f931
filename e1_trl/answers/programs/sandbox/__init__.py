"""Runs untrusted programs and reports how each ended."""
