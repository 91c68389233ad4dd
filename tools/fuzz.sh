#!/bin/bash
# Runs every libFuzzer target of a build folder for some seconds each, several at once.
# Usage: tools/fuzz.sh BUILD_DIR SECONDS JOBS. New inputs go to BUILD_DIR/corpus, crashes to
# BUILD_DIR/crashes; exits 1 if any target found something. Prints one line a target.
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: tools/fuzz.sh BUILD_DIR SECONDS JOBS" >&2; exit 2; }
build=$1 seconds=$2 jobs=$3
seeds=$(cd "$(dirname "$0")/.." && pwd)/tests/fuzz/corpus

run_one() {
  local target=$1 name log
  name=$(basename "$target"); name=${name#fuzz_}
  mkdir -p "$build/corpus/$name" "$build/crashes"
  log=$build/fuzz_$name.log
  local folders=("$build/corpus/$name")
  [ -d "$seeds/$name" ] && folders+=("$seeds/$name")
  local options=(-max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 -print_final_stats=1
                 -artifact_prefix="$build/crashes/$name-")
  [ -f "$seeds/$name.dict" ] && options+=(-dict="$seeds/$name.dict")
  if "$target" "${options[@]}" "${folders[@]}" >"$log" 2>&1; then
    local runs
    runs=$(awk '/number_of_executed_units/ {print $2}' "$log")
    echo "fuzz $name: $runs runs in $seconds s: clean"
  else
    tail -40 "$log"
    echo "fuzz $name: FAILED; see $log and $build/crashes"
    return 1
  fi
}
export -f run_one
export build seconds seeds

targets=$(find "$build" -type f -name 'fuzz_*' -perm -u+x | sort)
[ -n "$targets" ] || { echo "fuzz.sh: no target in $build" >&2; exit 1; }
printf '%s\n' "$targets" | xargs -P"$jobs" -I{} bash -c 'set -euo pipefail; run_one "$1"' _ {}
