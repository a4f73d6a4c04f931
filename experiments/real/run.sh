#!/usr/bin/env bash
# The real model from its bases, whose adapters are kept, to its rows in docs/results/real.json. Killed at any moment,
# the same command goes on: `timeout 150m make train RECIPE=real` is a part of it.
# Tensors of this size are allocated faster in pages of 2 MB; those of the miniatures are not.
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1
exec python -m experiments.real "$@"
