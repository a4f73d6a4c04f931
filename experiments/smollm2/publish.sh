#!/usr/bin/env bash
# Publish the last runs, the recipe's own and those of other seeds: docs/results/smollm2*, and the tables of its page.
# With POLICY=random those of random.yaml beside them, which may all be of another base, as smollm2-random*.
set -euo pipefail
name=smollm2${POLICY:+-$POLICY}
evaluations=() rows=()
for folder in runs/smollm2/evaluation/{base,e1,e1-seed*,${POLICY:+"$POLICY"*}}; do
    [ -d "$folder" ] || continue
    evaluations+=("$folder")
    for what in ${POLICY:+"separate 12+20"} "separate 24+20" ${POLICY:+"separate 48+20" "separate 96+20"} "unconstrained unlimited"; do
        rows+=("smollm2-${folder##*/} $what")
    done
done
e1 report "${evaluations[@]}" --output docs/results --name "$name" --document docs/smollm2.md --section "$name" \
    --rows "${rows[@]}" ${POLICY:+--page_problems 0}
if [ -n "${POLICY:-}" ]; then
    python -m experiments.smollm2.policies "${evaluations[@]}"
else
    e1 curve runs/smollm2/e1 --output docs/results --name smollm2-training
    python -m experiments.smollm2.publish
fi
