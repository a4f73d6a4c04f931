#!/usr/bin/env bash
# The paper in miniature, from nothing to its picture: problems, E1 training, evaluation of base and trained model.
#   recipes/nano/run.sh [options of `e1 train`]         ten or eleven minutes on two CPU cores
# Run from the top of the checkout, as `make train` does.
set -euo pipefail

if [ ! -d runs/nano/data ]; then
    python recipes/nano/make_base.py --what data --output runs/nano
fi

echo "==> training into runs/nano/e1, followed at three budgets on 128 problems"
e1 train --config recipes/nano.yaml --eval_budgets 32+32 64+32 128+32 --eval_steps 20 --dataset_test_split 'test[:128]' "$@"

echo "==> evaluating base and trained model on 1,024 problems at five budgets"
rm -rf runs/nano/evaluation
e1 eval --config recipes/nano/evaluation.yaml --model recipes/nano/base --name base --output runs/nano/evaluation/base
e1 eval --config recipes/nano/evaluation.yaml --model runs/nano/e1 --name e1 --output runs/nano/evaluation/e1
e1 report runs/nano/evaluation/{base,e1} --output runs/nano/evaluation
