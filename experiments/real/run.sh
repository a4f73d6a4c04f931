#!/usr/bin/env bash
# The real model from its bases, whose adapters are kept, to its table: about ten hours on two CPU cores (an estimate).
# These bases do not pass their gate, so nothing is trained without --despite-gate.
# Killed at any moment, the same command goes on: `timeout 150m make train RECIPE=real` is a part of it. Rows are in
# docs/results/real.json as they are made.
exec python -m experiments.real "$@"
