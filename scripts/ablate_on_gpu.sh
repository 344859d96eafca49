#!/bin/bash
# All of docs/ablations.md on a GPU that is lent for minutes: the same call again and again until it says "all done".
#
#   scripts/ablate_on_gpu.sh OUT SECONDS
#
# Goes on from benchmarks/results/ and writes into OUT; copy what comes back into benchmarks/results/ before the next call.
# Takes real pairs (local/real_pairs.bin, from `matchattention ablate pack`) and the photo bank along where they are.
# The most telling comes first: rows and seeds of table 6, more seeds of its close rows, figures, scenes, budgets.
set -u
out=$1
seconds=$2
chip=${CHIP:-nvidia-h200}
export PYTHONUNBUFFERED=1 PYTHONPATH=${PYTHONPATH:-.}
mkdir -p "$out"
# What is as it was when this call began need not travel back: the machine hands out eight files a call.
trap 'for file in "$out"/*.json; do cmp -s "$file" "benchmarks/results/${file##*/}" && rm "$file"; done' EXIT
cp benchmarks/results/ablations-"$chip"*.json benchmarks/results/figure-*-"$chip".json "$out" 2> /dev/null
real=()
[ -f local/real_pairs.bin ] && real=(--real local/real_pairs.bin)

time_is_up() {
  echo "time is up: copy the results and call it again"
  exit 0
}

matchattention() {
  [ $((seconds - SECONDS)) -ge 30 ] || time_is_up
  timeout $((seconds - SECONDS + 20)) python3 -m matchattention "$@"
}

ablate() {
  local log
  log=$(mktemp)
  matchattention ablate --at-once "${AT_ONCE:-3}" --time-limit $((seconds - SECONDS)) "$@" > >(tee "$log") || exit 1
  wait $!
  ! grep -q "not complete" "$log" || time_is_up
}

table() {
  ablate --pairs 8192 "${real[@]}" --output "$out/ablations-$chip.json" "$@"
}

table --table 6 --seeds 1,2
table --no-costs --rows rt-dot,rt-1x8,rt-no-occlusion,rt-2d,rt-self-blind --seeds 3,4,5
for name in cascade operator-tokens size-scan self-positions; do
  compgen -G "$out/figure-$name-*.json" > /dev/null && continue
  whole=$(mktemp -d)  # cut short by the call's end, it is measured anew by the next one
  if matchattention figure $name --no-draw --output "$whole"; then mv "$whole"/*.json "$out"; else echo "$name failed, going on"; fi
done
table --no-costs --table scenes --seeds 1,2,3
for pairs in 2048 4096 16384 32768; do
  ablate --no-costs --rows rt --seeds 1,2 --pairs $pairs --output "$out/ablations-$chip-$pairs-pairs.json"
done
echo "all done"
