#!/usr/bin/env bash
# The real model from its weights to its picture: problems, warm-up, E1 training, evaluation of base and trained model.
#   experiments/smollm2/run.sh [options of `e1 train`]         about two hours on two CPU cores
# Run from the top of the checkout, as `make train RECIPE=smollm2` does. Killed at any moment, the same
# command goes on where it was; `rm -r runs/smollm2` begins anew. With SEED=43 the E1 training and its evaluation are made
# again from the same base with that seed, beside the recipe's own; with POLICY=random, with the budgets of random.yaml.
set -euo pipefail

run=runs/smollm2
name=${POLICY:-e1}${SEED:+-seed$SEED}
mkdir -p $run

# Stages that have ended are not repeated. When each began and ended is noted, in seconds, for the cost.
stage() {
    local stage=$1
    shift
    if grep -qs "^$stage ended" $run/stages; then return; fi
    echo "==> $stage"
    echo "$stage began $(date +%s)" >> $run/stages
    "$@" || { echo "$stage failed $(date +%s)" >> $run/stages; exit 1; }
    echo "$stage ended $(date +%s)" >> $run/stages
}

train() {
    # The state is what a checkpoint writes last: one without it was being written.
    local resume=()
    ! compgen -G "$run/$name/checkpoint-*/trainer_state.json" > /dev/null || resume=(--resume_from_checkpoint true)
    e1 train --config "experiments/smollm2/${POLICY:-recipe}.yaml" --output_dir $run/$name ${SEED:+--seed "$SEED"} \
        "${resume[@]}" "$@"
}

stage data python -m experiments.smollm2.make_base --what data
stage warm-up python -m experiments.smollm2.make_base --what model
stage "training$([ "$name" = e1 ] || echo "-of-$name")" train "$@"
for model in base $name; do
    stage "evaluation-of-$model" e1 eval --config experiments/smollm2/evaluation.yaml --model $run/$model \
        --name smollm2-$model --output $run/evaluation/$model
done
e1 report $run/evaluation/base $run/evaluation/$name --output $run/report
