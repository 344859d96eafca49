#!/bin/bash
# A training that outlives the call that starts it, for machines lent a few minutes at a time.
#
#   scripts/train_detached.sh start FOLDER ARGS...   begins `matchattention train ARGS... --export FOLDER`, returns at once
#   scripts/train_detached.sh wait FOLDER SECONDS    waits for its end, at most so long, and shows the end of its log
#
# The command must have a --minutes limit of its own: nothing here stops it.
set -u
verb=$1
folder=$2
shift 2
log=$folder/train.log
running() { [ -f "$folder/pid" ] && kill -0 "$(cat "$folder/pid")" 2>/dev/null; }
case $verb in
  start)
    mkdir -p "$folder"
    PYTHONUNBUFFERED=1 PYTHONPATH=${PYTHONPATH:-.} setsid nohup python3 -m matchattention train "$@" --export "$folder" \
      > "$log" 2>&1 < /dev/null &
    echo $! > "$folder/pid"
    ;;
  wait)
    end=$((SECONDS + $1))
    while running && [ $SECONDS -lt $end ]; do sleep 1; done
    if running; then echo "still running"; else echo "ended"; fi
    tail -c 5000 "$log"
    ;;
  *)
    echo "first argument: start or wait" >&2
    exit 2
    ;;
esac
