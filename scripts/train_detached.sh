#!/bin/bash
# A training that outlives the call that starts it, for machines lent a few minutes at a time.
#
#   scripts/train_detached.sh start FOLDER RUN ARGS...   begins `matchattention train ARGS... --output RUN`, returns at once;
#                                                        RUN's checkpoint, state, caches and log are exported to FOLDER,
#                                                        which must outlive the call: not one that is emptied before each
#   scripts/train_detached.sh wait FOLDER SECONDS        waits for its end or a new warning, at most so long, and shows the
#                                                        end of its log
#
# CACHE=DIR takes the compile caches of an earlier export. The command must have a --minutes limit of its own: nothing here
# stops it.
set -u
verb=$1
folder=$2
shift 2
log=$folder/train.log
warnings() { grep -c '^warning' "$log"; }
running() { [ -f "$folder/$1" ] && kill -0 "$(cat "$folder/$1")" 2>/dev/null; }
case $verb in
  start)
    run=$1
    shift
    mkdir -p "$folder"
    rm -f "$folder"/*.part* "$folder"/log.jsonl "$folder"/warnings  # of another training
    : > "$log"
    export PYTHONUNBUFFERED=1 PYTHONPATH=${PYTHONPATH:-.}
    if [ -n "${CACHE:-}" ]; then python3 scripts/lent_gpu.py unpack "$CACHE" runs/cache; fi
    setsid nohup python3 -m matchattention train "$@" --output "$run" > "$log" 2>&1 < /dev/null &
    echo $! > "$folder/pid"
    setsid nohup python3 scripts/lent_gpu.py export "$run" "$folder" --watch "$(cat "$folder/pid")" \
      > "$folder/export.log" 2>&1 < /dev/null &
    echo $! > "$folder/exporter"
    ;;
  wait)
    end=$((SECONDS + $1))
    known=$(cat "$folder/warnings" 2>/dev/null || echo 0)  # one call is enough to read them
    while { running pid || running exporter; } && [ $SECONDS -lt $end ] && [ "$(warnings)" -le "$known" ]; do sleep 1; done
    warnings > "$folder/warnings"
    if running pid; then echo "still running"; elif running exporter; then echo "ended, exporting"; else echo "ended"; fi
    tail -c 5000 "$log"
    cat "$folder/export.log"
    ;;
  *)
    echo "first argument: start or wait" >&2
    exit 2
    ;;
esac
