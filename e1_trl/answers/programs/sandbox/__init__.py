"""Runs programs that nobody trusts, and says how each ended."""
