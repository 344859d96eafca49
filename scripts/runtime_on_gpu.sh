#!/bin/bash
# Everything about the runtime that only a GPU can say, in one call of less than ten minutes where nothing is installed:
# speed, with the kernels of a pass and the idle share, parity with fp32, the doctor, then the tests marked `gpu`.
#
#   scripts/runtime_on_gpu.sh OUT     MATCHATTENTION_COMMIT names the commit in the results
#
# Each part has its own time; what it has found by then is in OUT. A machine without pytest needs it in local/pytest:
#   pip install --target local/pytest pytest
set -uo pipefail
out=$1
cd "$(dirname "$0")/.."
export PYTHONUNBUFFERED=1 TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$PWD/runs/cache/triton}
python3 -c "import pytest" 2>/dev/null || export PYTHONPATH=$PWD/local/pytest${PYTHONPATH:+:$PYTHONPATH}

part() {
  echo "== $1 seconds at most: ${*:2}"
  timeout "$@" 2>&1 || echo "== ended with $?"
}
bench() { part "$1" python3 -m matchattention bench "${@:2}" --output "$out"; }

bench 120 network --seconds 0.3 --profile
bench 80 predictor
bench 50 network --model rt-flow --no-large --no-parity --modes fused-graph,eager-graph
bench 70 network --model xl --no-large --no-parity --modes eager-graph --profile
part 60 python3 -m matchattention doctor | tee "$out/doctor.txt"
# By name: the other tests import packages that are not there.
mapfile -t tests < <(grep -rlE "^(@|pytestmark = \[)pytest\.mark\.gpu" tests --include=test_*.py)
part 205 python3 -m pytest -m gpu -vv --tb=short -p no:cacheprovider --durations=10 "${tests[@]}" | tee "$out/tests.txt"
