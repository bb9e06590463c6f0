# make setup                      make .venv from nothing (a second call costs nothing)
# make grade                      grade assignments/   (WHAT=a1 or WHAT=a1.broadcast: only that)
# make grade SOLUTION=reference   grade another folder   (JSON=FILE: write the results there too)
# make test                       the kit's own tests; in a student's repository, grade and fail
#                                 until every point is earned
# (ARGS=--no-throughput and the like go to `grader check`)
# make soak                       long repetitions of what must never fail
# make bench                      measure   (BENCH=messages: only that)
# make gpu                        what needs a GPU, on one or several
# make lint                       ruff and mypy
# make assignments                make assignments/ from reference/

PYTHON   ?= python3
SOLUTION ?= assignments
WHAT     ?=
JSON     ?=
BENCH    ?=
ARGS     ?=

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.stamp
# Present from the first to the last step of a set-up: one that was killed leaves it behind.
UNFINISHED := $(VENV)/.unfinished

# A student's repository has neither the kit's tests nor their tools.
HAVE_TESTS := $(wildcard tests)
EXTRAS     := $(if $(HAVE_TESTS),[test],[notebooks])

CHECK = $(BIN)/grader check $(WHAT) --solution '$(SOLUTION)' $(if $(JSON),--json '$(JSON)') $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help setup grade test soak bench gpu lint assignments clean

help:
	@sed -n '$(if $(HAVE_TESTS),,/make soak/d;/make bench/d;/make gpu/d;/make lint/d;/make assignments/d;)s/^# \(make .*\)/\1/p; s/^#  \( .*\)/ \1/p' Makefile

setup: $(STAMP)

# torch comes first and pinned, so that pip never weighs one multi-gigabyte build against another.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "TinyParallel needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -1)." \
	         "Name another: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" >&2; exit 1; }
	@if [ -e $(UNFINISHED) ]; then echo "an earlier set-up was cut off: starting again"; rm -rf $(VENV); fi
	@[ -x $(BIN)/python ] || { rm -rf $(VENV); mkdir -p $(VENV); touch $(UNFINISHED); $(PYTHON) -m venv $(VENV); }
	@touch $(UNFINISHED)
	$(BIN)/python -m pip install --quiet -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.$(EXTRAS)'
	$(BIN)/python -m kernels.setup
	@rm -f $(UNFINISHED)
	@touch $(STAMP)

# `grader check` says 1 when points are missing: that is a result, not a failure of the grader.
grade: $(STAMP)
	@$(CHECK) || [ $$? -eq 1 ]

ifneq ($(HAVE_TESTS),)
test: $(STAMP) lint
	$(BIN)/python -m pytest tests -m 'not soak' -n auto --dist loadfile
else
test: $(STAMP)
	@$(CHECK)
endif

soak: $(STAMP)
	$(BIN)/python -m pytest tests -m soak

gpu: $(STAMP)
	$(BIN)/python -m bench.gpu

bench: $(STAMP)
	@$(BIN)/python -m bench $(BENCH)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

assignments: $(STAMP)
	$(BIN)/grader release --assignments

clean:
	rm -rf $(VENV) build *.egg-info
