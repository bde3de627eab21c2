# Everything a change has to pass: `make check`. PYTHON names the environment's interpreter.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)
JOBS ?= 2

.PHONY: check lint types test coverage test-gpu faults faults-gpu scale-test slurm-test docs bench

check: lint types coverage

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -n $(JOBS)

# The figure without a GPU: what can only run on one is measured on one.
coverage:
	$(PYTHON) -m pytest -n $(JOBS) --cov --cov-report=term:skip-covered --cov-fail-under=90

# Every fault that a run has to survive: a hundred kills of the command, two thousand configurations in one process, and
# many more odd inputs than `make test` has.
faults:
	$(PYTHON) tests/faults/covered.py | SWEEPER_TEST_KILLS=100 SWEEPER_TEST_NIGHT=2000 SWEEPER_TEST_EXAMPLES=1000 \
	  xargs -d '\n' $(PYTHON) -m pytest -n $(JOBS)

faults-gpu:
	$(PYTHON) tests/faults/covered.py gpu | xargs -d '\n' $(PYTHON) -m pytest
	$(PYTHON) bench/bench_faults.py

# What a cluster loses is done again, and nothing twice: 200 points with ten kills, whole commands, two nodes, SLURM.
# Needs the extra `ray`; the part on SLURM needs root and Debian's slurm-wlm and munge.
scale-test:
	SWEEPER_SCALE_POINTS=200 SWEEPER_SCALE_KILLS=10 $(PYTHON) -m pytest tests/test_ray.py tests/slurm/test_ray_on_slurm.py

# A real one-node SLURM, started and ended by the tests: root, and Debian's slurm-wlm and munge.
slurm-test:
	$(PYTHON) -m pytest tests/slurm -s --durations=3

docs:
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

# What only proves results right may share the GPU, and compiles side by side; what times it has it alone.
test-gpu:
	$(PYTHON) -m pytest tests/gpu -m shares_gpu -n 8
	$(PYTHON) -m pytest tests/gpu -m "not shares_gpu"

bench:
	$(PYTHON) bench/bench_space.py
	$(PYTHON) bench/bench_emulator.py
	$(PYTHON) bench/bench_plan.py
	$(PYTHON) bench/bench_scale.py --quick --check
