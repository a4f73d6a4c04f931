#!/usr/bin/env bash
# The real model from its weights to its table, on both bases. The first stage of these is kept; the second one takes
# half an hour on a GPU, and the rest about nine hours on two CPU cores; both are estimates. Killed at any moment, the
# same command goes on: `timeout 150m make train RECIPE=real` is a part of it. Rows are in docs/results/real.json as they
# are made.
exec python -m experiments.real "$@"
