#!/bin/sh
# Runs a program of this folder, with the folder's own glibc where the machine's is too old.
# SLUICE_OWN_GLIBC=1 takes the folder's glibc in any case.
# Usage: ./run PROGRAM [ARGUMENTS], e.g. ./run sluice doctor
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ $# -eq 0 ] || [ ! -f "$here/$1" ]; then
  echo "usage: $0 PROGRAM [ARGUMENTS]; programs: sluice ops_bench parity_test cuda_models_test" \
    "device_cuda_test" >&2
  exit 2
fi
program=$here/$1
shift
if [ -z "${SLUICE_OWN_GLIBC:-}" ] && "$here/sluice" --version >/dev/null 2>&1; then
  exec "$program" "$@"
fi
# The loader takes this path in place of LD_LIBRARY_PATH.
path=$here/lib/glibc:$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$here/lib/glibc/ld-linux-x86-64.so.2" --library-path "$path" "$program" "$@"
