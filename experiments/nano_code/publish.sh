#!/usr/bin/env bash
# Publish the last run: docs/results/nano_code*, and the table of its page.
set -euo pipefail
e1 report runs/nano_code/evaluation/{base,banned,e1} --output docs/results --name nano_code --training runs/nano_code/e1 \
    --document docs/nano_code.md --section nano_code \
    --rows "base separate 32+104" "base separate 64+104" "base unconstrained unlimited" \
    "base, Wait banned separate 32+104" "base, Wait banned separate 64+104" \
    "base, Wait banned unconstrained unlimited" \
    "e1 separate 32+104" "e1 separate 64+104" "e1 unconstrained unlimited"
python -m experiments.banned nano_code 64+104
python -m experiments.nano_code.transcripts
