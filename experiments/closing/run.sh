#!/usr/bin/env bash
# Every close of the thinking on four models, into docs/closing.md; what is not trained yet is trained before. On two CPU
# cores the two of the miniature take about six minutes; SmolLM2's took 36 on one of them. Run from the top of the
# checkout; stopped, the same command goes on.
set -euo pipefail

close() {  # experiment, name of the model, its folder
    e1 eval --config experiments/closing/$1.yaml --model $3 --name $2 --output runs/closing/$1/$2 --page_problems 0
}
small=runs/closing/first_zero/model
if [ ! -e $small/budget.json ]; then
    python -m experiments.first_zero.make_base --what data
    e1 train --config experiments/systems/e1.yaml --output_dir $small
fi
[ -e runs/smollm2/e1/budget.json ] || experiments/smollm2/run.sh
close first_zero base experiments/first_zero/base
close first_zero e1 $small
close smollm2 base runs/smollm2/base
close smollm2 e1 runs/smollm2/e1
for experiment in first_zero smollm2; do
    e1 report runs/closing/$experiment/{base,e1} --output runs/closing/$experiment/report --page_problems 0
done
python -m experiments.closing.document
