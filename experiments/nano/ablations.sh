#!/usr/bin/env bash
# The paper's claims on the nano model: one training run each, every model evaluated on the same 512 problems, and one
# report, into docs/. After `make train`, from the top of the checkout; about two hours on two cores. What is trained stays
# as it is; an evaluation samples what its folder lacks, and refuses the folder of a model that has changed since.
set -euo pipefail

runs=runs/ablations
evaluations=$runs/evaluations
transition="Wait </think>"

# NAME and what it changes of the recipe, whose budget is 64+32.
train() {
    [ -e "$runs/$1/trainer_state.json" ] ||
        e1 train --config experiments/nano/recipe.yaml --output_dir "$runs/$1" "${@:2}"
}

# FOLDER, NAME, MODEL and options of `e1 eval`.
evaluate() {
    e1 eval --config experiments/nano/evaluation.yaml --max_problems 512 --output "$evaluations/$1" --name "$2" --model "$3" "${@:4}"
}

# Figure 6: the training budget, at 0.5, 2 and 3 times the recipe's (1 is the recipe itself).
for budget in 32 128 192; do train budget-$budget --thinking_budget $budget; done
# Table 3: a second round at twice the budget, from the model of the first.
train second-round-128 --model_name_or_path runs/nano/e1 --thinking_budget 128
# Not in the paper: what is gained by not training on tokens that the policy did not choose.
train close-trained --trained_close all
# Not in the paper: words before the forced close ("Wait " is the one word of the nano language, besides digits).
train transition --forced_text "$transition"
# Not in the paper: the recipe again from other seeds; how far two runs of one recipe lie apart.
for seed in 43 44; do train seed-$seed --seed $seed; done

methods=(--methods separate unconstrained)
evaluate e1 e1 runs/nano/e1 "${methods[@]}"
evaluate base base experiments/nano/base "${methods[@]}"
for name in budget-{32,128,192} second-round-128 close-trained seed-{43,44}; do
    evaluate $name $name $runs/$name "${methods[@]}"
done
evaluate transition transition $runs/transition "${methods[@]}" --forced_text "$transition"
evaluate "base, transition" "base, transition" experiments/nano/base "${methods[@]}" --forced_text "$transition"
# Thinking by one, solution by the other; the evaluation names a mixed model after both.
evaluate "base → e1" e1 runs/nano/e1 --methods mixed --thinking_from $evaluations/base
evaluate "e1 → base" base experiments/nano/base --methods mixed --thinking_from $evaluations/e1

python -m experiments.nano.ablations
