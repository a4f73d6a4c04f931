#!/usr/bin/env bash
# The paper in miniature, from nothing to its picture: problems, E1 training, evaluation of base and trained model.
#   recipes/miniature.sh nano|nano_code [options of `e1 train`]         about ten minutes on two CPU cores
# Run from the top of the checkout, as `make train` does.
set -euo pipefail

name=$1
shift
case $name in
    nano) solution=32 ;;
    nano_code) solution=104 ;;
esac

python -m "recipes.$name.make_base" --what data

echo "==> training into runs/$name/e1, followed at three budgets on 128 problems"
e1 train --config "recipes/$name.yaml" --eval_budgets "32+$solution" "64+$solution" "128+$solution" --eval_steps 20 \
    --dataset_test_split 'test[:128]' "$@"

evaluation=runs/$name/evaluation
echo "==> evaluating base and trained model at five budgets"
rm -rf "$evaluation"
e1 eval --config "recipes/$name/evaluation.yaml" --model "recipes/$name/base" --name base --output "$evaluation/base"
e1 eval --config "recipes/$name/evaluation.yaml" --model "runs/$name/e1" --name e1 --output "$evaluation/e1"
e1 report "$evaluation"/{base,e1} --output "$evaluation"
