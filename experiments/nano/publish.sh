#!/usr/bin/env bash
# Publish the last run: docs/results/nano*, and the table of its page.
set -euo pipefail
e1 report runs/nano/evaluation/{base,banned,e1} --output docs/results --name nano --training runs/nano/e1 \
    --document docs/nano.md --section nano \
    --rows "base separate 64+32" "base unconstrained unlimited" \
    "base, Wait banned separate 32+32" "base, Wait banned separate 64+32" "base, Wait banned unconstrained unlimited" \
    "e1 separate 32+32" "e1 separate 64+32" "e1 unconstrained unlimited"
python -m experiments.banned nano 64+32
