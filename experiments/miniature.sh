#!/usr/bin/env bash
# The paper in miniature, from nothing to its picture: problems, E1 training, evaluation of base and trained model.
#   experiments/miniature.sh NAME SOLUTION_BUDGET BANNED [options of `e1 train`]
# BANNED is the bias that keeps the base from rechecking: what is gained without any training.
# Called by experiments/*/run.sh from the top of the checkout.
set -euo pipefail

name=$1
solution=$2
banned=$3
shift 3
# One GPU is enough where PyTorch can use any; a build for CPUs cannot, whatever the driver lists.
python -c 'import torch; exit(not torch.cuda.is_available())' && set -- --accelerate_config one_gpu "$@"

python -m "experiments.$name.make_base" --what data

# A run begins anew, unless it is told to go on.
[[ " $* " == *" --resume_from_checkpoint "* ]] || rm -rf "runs/$name/e1"
echo "==> training into runs/$name/e1, followed at three budgets on 128 problems"
e1 train --config "experiments/$name/recipe.yaml" --log_completions true \
    --eval_budgets "32+$solution" "64+$solution" "128+$solution" --eval_steps 20 --dataset_test_split 'test[:128]' "$@"

evaluation=runs/$name/evaluation
echo "==> evaluating the base, the base without its word for a recheck, and the trained model at five budgets"
rm -rf "$evaluation"
base=(e1 eval --config "experiments/$name/evaluation.yaml" --model "experiments/$name/base")
"${base[@]}" --name base --output "$evaluation/base"
"${base[@]}" --name "base, Wait banned" --output "$evaluation/banned" --logit_bias "$banned"
e1 eval --config "experiments/$name/evaluation.yaml" --model "runs/$name/e1" --name e1 --output "$evaluation/e1"
e1 report "$evaluation"/{base,banned,e1} --output "$evaluation" --training "runs/$name/e1"
