#!/usr/bin/env bash
# Publish the last runs, the recipe's own and those of other seeds: docs/results/smollm2*, and the tables of its page.
set -euo pipefail
evaluations=(runs/smollm2/evaluation/{base,e1})
rows=("smollm2-base separate 24+20" "smollm2-base unconstrained unlimited"
    "smollm2-e1 separate 24+20" "smollm2-e1 unconstrained unlimited")
for folder in runs/smollm2/evaluation/{e1-seed,random}*; do
    [ -d "$folder" ] || continue
    evaluations+=("$folder")
    rows+=("smollm2-${folder##*/} separate 24+20" "smollm2-${folder##*/} unconstrained unlimited")
done
e1 report "${evaluations[@]}" --output docs/results --name smollm2 --document docs/smollm2.md --section smollm2 \
    --rows "${rows[@]}"
e1 curve runs/smollm2/e1 --output docs/results --name smollm2-training
python -m experiments.smollm2.publish
