#!/usr/bin/env bash
# Publish the last runs, the recipe's own and those of other seeds: docs/results/smollm2*, and the tables of its page.
# With POLICY=random those of random.yaml beside them, which may all be of another base, as smollm2-random*.
set -euo pipefail
shopt -s nullglob
name=smollm2${POLICY:+-$POLICY}
all=runs/smollm2/evaluation
evaluations=($all/base $all/e1 $all/e1-seed* ${POLICY:+$all/"$POLICY"*})
shown=(--training runs/smollm2/e1)
[ -z "${POLICY:-}" ] || shown=(--page_problems 0)
rows=()
for folder in "${evaluations[@]}"; do
    rows+=("smollm2-${folder##*/} separate 24+20" "smollm2-${folder##*/} unconstrained unlimited")
done
e1 report "${evaluations[@]}" --output docs/results --name "$name" --document docs/smollm2.md --section "$name" \
    --rows "${rows[@]}" "${shown[@]}"
if [ -n "${POLICY:-}" ]; then
    python -m experiments.smollm2.policies "${evaluations[@]}"
else
    python -m experiments.smollm2.publish
fi
python -m experiments.smollm2.bases
