#!/usr/bin/env bash
# Every method at every budget on the nano base and the trained model, and what one generation for all of it saves;
# into docs/. After `make train`, from the top of the checkout; nothing else should run, since it takes times.
set -euo pipefail

sweep() { e1 eval --config experiments/nano/sweep.yaml "$@"; }
sweep --model experiments/nano/base --name base --output runs/sweep/base
sweep --model runs/nano/e1 --name e1 --output runs/sweep/e1
sweep --model runs/nano/e1 --name e1 --methods mixed --thinking_from runs/sweep/base --output runs/sweep/base-e1
e1 report runs/sweep/{base,e1,base-e1} --output docs/results --name methods --page_problems 0

python -m benchmarks.bench_sweep --document docs/evaluation.md
