#!/bin/bash
# Runs one long test and prints its seed, its command and its result. Exits 1 if it found something.
# Usage: tools/campaign.sh NAME SECONDS JOBS [SEED]
# CAMPAIGN_PRESET (release) is the build that scheduler and soak run; with asan-ubsan they look for
# errors of memory as well.
#   scheduler      random lives of scheduler and KV bookkeeping, by the million steps
#   fuzz           every fuzz target for SECONDS
#   fuzz-TARGET    one fuzz target, JOBS processes on one corpus
#   snapshot-kill  saves of a snapshot that are killed at any moment: the file stays whole
#   clients        the tests with lm-eval, guidellm, aiperf and the clients of make venv-clients and
#                  venv-agents and venv-libraries; makes their environments first, which takes as
#                  long as it takes
#   lend-pages     pages that a lender takes from a stopped borrower, 1,000 times
#   lend-partition networks that fail between two servers and their coordinator, in namespaces
#   lend-clock     two servers and their coordinator while the wall clock jumps
#   agent-partition networks that fail between a gateway and its agent, in namespaces
#   three-hosts    the commands of docs/gateway-machines.md on three hosts, which are namespaces
#   etcd           coordinators and gateways with a real etcd, killed, stopped and cut off
#   kill           kill -9 of function processes and their server at any moment, under load
#   kv-kill        kill -9 of a server with --kv-disk while it serves chats; every answer is checked
#   gateway-kill   kill -9 of a gateway and its functions at any moment, under load; reads the bill
#   agent-kill     the same with two agents, which are killed and stopped, too
#   etcd-kill      agent-kill with three members of etcd, which are killed, too
#   ray-kill       etcd-kill with two Ray nodes, whose raylets, processes and agents are killed, too
#   gateway-soak   gateway-kill without kills of the gateway: its memory does not grow
#   soak           a server with the demo model under load: no failed request, no growing memory
# Without SEED the campaign takes one from the clock; the same seed repeats a campaign (the fuzzer's
# and the soak's interleaving excepted).
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  sed -n '3,29s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
[ $# -ge 3 ] && [ $# -le 4 ] || usage
name=$1 seconds=$2 jobs=$3 seed=${4:-$(date +%s)}
[[ $seconds =~ ^[1-9][0-9]*$ && $jobs =~ ^[1-9][0-9]*$ && $seed =~ ^[0-9]+$ ]] || usage
preset=${CAMPAIGN_PRESET:-release}
results=build/campaigns
mkdir -p "$results"

# build PRESET TARGET...: silent unless it fails.
build() {
  local options=() log=$results/build.log
  [ "$1" = fuzz ] || options=(-DSLUICE_TESTS=ON)
  if ! { cmake --preset "$1" "${options[@]}" &&
         cmake --build --preset "$1" -j"$jobs" --target "${@:2}"; } >"$log" 2>&1; then
    tail -40 "$log"
    exit 1
  fi
}

result() { echo "campaign $name: $*"; }

# ---------------------------------------------------------------- scheduler

# Steps of one process, shared by all policies; the seeds of two rounds are far apart.
round_steps=1000000
round_seeds=1000000

# scheduler_rounds WORKER: rounds until the time is over; prints one line for each.
scheduler_rounds() {
  local worker=$1 round=0 log=$results/scheduler-$1.log
  while [ "$round" -eq 0 ] || [ "$(date +%s)" -lt "$deadline" ]; do
    local first=$((seed + (round * jobs + worker) * round_seeds))
    if ! SLUICE_SCHEDULER_STEPS=$round_steps SLUICE_SCHEDULER_SEED=$first SLUICE_SCHEDULER_TRACE=1 \
        "$binary" --gtest_filter='*SchedulerProperty*' >"$log" 2>&1; then
      tail -20 "$log"
      echo "repeat: SLUICE_SCHEDULER_STEPS=$round_steps SLUICE_SCHEDULER_SEED=$first $binary" \
           "--gtest_filter='*SchedulerProperty*'"
      return 1
    fi
    echo "round from seed $first: clean"
    round=$((round + 1))
  done
}

run_scheduler() {
  tools/install.sh build test
  build "$preset" scheduler_test
  binary=build/$preset/src/scheduler/scheduler_test
  deadline=$(($(date +%s) + seconds))
  export binary deadline seed seconds jobs results round_steps round_seeds
  export -f scheduler_rounds
  echo "SLUICE_SCHEDULER_STEPS=$round_steps SLUICE_SCHEDULER_SEED=$seed $binary" \
       "--gtest_filter='*SchedulerProperty*', and on with later seeds"
  local log=$results/scheduler.log status=0
  seq 0 $((jobs - 1)) | xargs -P"$jobs" -I{} bash -c 'scheduler_rounds {}' >"$log" || status=$?
  if [ $status -ne 0 ]; then
    grep -v ': clean$' "$log" || true
    result "FAILED; see $results"
    return 1
  fi
  result "$(($(wc -l <"$log") * round_steps)) steps from seed $seed: clean"
}

# ---------------------------------------------------------------- fuzz

run_fuzz() {
  tools/install.sh build fuzz
  build fuzz fuzz_targets
  tools/fuzz.sh build/fuzz "$seconds" "$jobs"
}

run_fuzz_target() {
  local target=$1 corpus=build/fuzz/corpus/$1 seeds=tests/fuzz/corpus/$1
  tools/install.sh build fuzz
  build fuzz "fuzz_$target"
  mkdir -p "$corpus" build/fuzz/crashes
  local options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -seed="$seed"
                 -artifact_prefix="build/fuzz/crashes/$target-")
  [ "$jobs" -eq 1 ] || options+=(-fork="$jobs")
  [ -f "$seeds.dict" ] && options+=(-dict="$seeds.dict")
  local folders=("$corpus")
  [ -d "$seeds" ] && folders+=("$seeds")
  local command=("build/fuzz/tests/fuzz/fuzz_$target" "${options[@]}" "${folders[@]}")
  echo "${command[*]}"
  if ! "${command[@]}" >"$results/$name.log" 2>&1; then
    tail -40 "$results/$name.log"
    result "FAILED; the inputs are in build/fuzz/crashes"
    return 1
  fi
  tail -1 "$results/$name.log"
  result "$seconds s from seed $seed: clean"
}

# ---------------------------------------------------------------- snapshot-kill

kills_per_round=200

run_snapshot_kill() {
  tools/install.sh build test
  build "$preset" snapshot_cli_test
  local test=build/$preset/tests/integration/snapshot_cli_test log=$results/snapshot-kill.log
  local round=0 deadline=$(($(date +%s) + seconds))
  local filter='--gtest_filter=*KilledWhileSaving*'
  echo "SLUICE_SNAPSHOT_KILLS=$kills_per_round $test $filter, again and again"
  while [ "$round" -eq 0 ] || [ "$(date +%s)" -lt "$deadline" ]; do
    if ! SLUICE_SNAPSHOT_KILLS=$kills_per_round "$test" "$filter" >"$log" 2>&1; then
      tail -20 "$log"
      result "FAILED in round $round"
      return 1
    fi
    round=$((round + 1))
  done
  result "$((round * kills_per_round)) killed saves: clean"
}

# ---------------------------------------------------------------- kill

# run_kill SCRIPT [OPTION...]
run_kill() {
  tools/install.sh build test
  build "$preset" sluice
  local command=("$1" "build/$preset/apps/sluice" models/demo "$seconds" "$seed" "${@:2}")
  local log=$results/$name.log
  echo "${command[*]}"
  if ! "${command[@]}" >"$log" 2>&1; then
    tail -30 "$log"
    result "FAILED, seed $seed"
    return 1
  fi
  result "$(tail -1 "$log"); seed $seed: clean"
}

run_etcd_kill() {
  tools/install.sh campaigns
  run_kill tools/gateway_kill.py --agents 2 --etcd
}

run_ray_kill() {
  tools/install.sh campaigns
  make venv-ray
  run_kill tools/gateway_kill.py --agents 2 --etcd --ray
}

run_three_hosts() {
  tools/install.sh campaigns
  make venv-ray
  build "$preset" sluice
  local options
  for options in "" --ray; do
    if ! tests/integration/three_hosts.py "build/$preset/apps/sluice" $options; then
      result "FAILED"
      return 1
    fi
  done
  result "clean"
}

# ---------------------------------------------------------------- soak

# Resident memory of the server may grow by so much after the first round.
soak_growth_kib=$((64 << 10))
soak_round_seconds=10

resident_kib() { awk '/^VmRSS:/ {print $2}' "/proc/$1/status"; }

# wait_until_ready SERVER LOG: prints the server's address.
wait_until_ready() {
  local url
  for _ in $(seq 600); do
    url=$(sed -n 's/^ready: \(http[^ ]*\) .*/\1/p' "$2")
    [ -z "$url" ] || { echo "$url"; return; }
    kill -0 "$1" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

run_soak() {
  tools/install.sh build test
  build "$preset" sluice
  local sluice=build/$preset/apps/sluice log=$results/soak-server.log
  "$sluice" serve models/demo --port 0 >"$log" 2>&1 &
  local server=$! url round=0 rounds first=0 last=0
  trap "kill -9 $server 2>/dev/null || true" EXIT
  if ! url=$(wait_until_ready "$server" "$log"); then
    cat "$log"
    result "FAILED: the server did not start"
    return 1
  fi
  rounds=$(((seconds + soak_round_seconds - 1) / soak_round_seconds))
  local load=("$sluice" bench serve --base-url "$url" --request-rate 20 --burstiness 0.5
              --num-prompts $((20 * soak_round_seconds * 4)) --lengths uniform:1-60,1-60
              --duration "$soak_round_seconds" --no-progress)
  echo "${load[*]} --seed $seed, and on with the next seeds"
  while [ $round -lt $rounds ]; do
    if ! "${load[@]}" --seed $((seed + round)) >"$results/soak.log" 2>&1; then
      tail -30 "$results/soak.log"
      result "FAILED in round $round, seed $((seed + round))"
      return 1
    fi
    last=$(resident_kib "$server")
    [ $round -gt 0 ] || first=$last
    round=$((round + 1))
  done
  kill -TERM "$server"
  local status=0
  wait "$server" || status=$?
  trap - EXIT
  if [ $status -ne 0 ]; then
    tail -20 "$log"
    result "FAILED: the server ended with $status after SIGTERM"
    return 1
  fi
  if [ $((last - first)) -gt $soak_growth_kib ]; then
    result "FAILED: resident memory grew from $((first >> 10)) to $((last >> 10)) MiB," \
           "$round rounds"
    return 1
  fi
  result "$round rounds of $soak_round_seconds s from seed $seed, resident memory" \
         "$((first >> 10)) to $((last >> 10)) MiB: clean"
}

# ---------------------------------------------------------------- clients

run_clients() {
  tools/install.sh build test
  make venv-clients venv-agents venv-libraries venv-lm-eval venv-guidellm venv-aiperf
  build "$preset" sluice
  local test failed=0
  for test in others frameworks libraries evaluation guidellm aiperf; do
    SLUICE_BINARY=build/$preset/apps/sluice python3 tests/client/run.py "${test}_test.py" -q ||
      failed=1
  done
  if [ $failed -ne 0 ]; then
    result "FAILED"
    return 1
  fi
  result "clean"
}

# ---------------------------------------------------------------- lend-pages

run_lend_pages() {
  tools/install.sh build test
  build "$preset" lent_pages_test
  local test=build/$preset/src/lent_pages/lent_pages_test log=$results/lend-pages.log
  local settings=("SLUICE_LEND_TRIALS=1000" "SLUICE_LEND_MIB=${LEND_MIB:-16}")
  local filter='--gtest_filter=*StoppedBorrower*'
  echo "${settings[*]} $test $filter"
  if ! env "${settings[@]}" "$test" "$filter" >"$log" 2>&1; then
    tail -20 "$log"
    result "FAILED"
    return 1
  fi
  result "$(grep trials "$log"): clean"
}

run_client_files() { # FILE...
  tools/install.sh build test campaigns
  make build/venv/client.stamp
  build "$preset" sluice
  local file
  for file in "$@"; do
    if ! SLUICE_BINARY=build/$preset/apps/sluice python3 tests/client/run.py "$file"; then
      result "FAILED: $file"
      return 1
    fi
  done
  result "clean"
}

echo "campaign $name: $seconds s, $jobs processes, seed $seed"
case $name in
  scheduler) run_scheduler ;;
  fuzz) run_fuzz ;;
  fuzz-*) run_fuzz_target "${name#fuzz-}" ;;
  snapshot-kill) run_snapshot_kill ;;
  kill) run_kill tools/kill_campaign.py ;;
  kv-kill) run_kill tools/kv_kill_campaign.py ;;
  gateway-kill) run_kill tools/gateway_kill.py ;;
  agent-kill) run_kill tools/gateway_kill.py --agents 2 ;;
  etcd-kill) run_etcd_kill ;;
  ray-kill) run_ray_kill ;;
  gateway-soak) run_kill tools/gateway_kill.py --soak ;;
  soak) run_soak ;;
  clients) run_clients ;;
  lend-pages) run_lend_pages ;;
  three-hosts) run_three_hosts ;;
  etcd) run_client_files lend_etcd_test.py gateway_group_test.py ;;
  lend-clock) run_client_files lend_clock_test.py ;;
  lend-partition) run_client_files lend_partition_test.py ;;
  agent-partition) run_client_files agent_partition_test.py ;;
  *) usage ;;
esac
