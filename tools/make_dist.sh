#!/bin/bash
# Makes a folder that runs on a machine with a GPU and none of our Debian libraries: the binary, the
# GPU tests with their data, the op benchmark, the demo model, every shared library they need,
# gpu_check, which runs it all, and `run`, which runs one program. glibc and its loader are in a
# folder of their own, for machines with an older glibc. CUDA's driver is the machine's own.
# Usage: tools/make_dist.sh BUILD_DIR OUTPUT_DIR
set -eu -o pipefail
[ $# -eq 2 ] || { echo "usage: tools/make_dist.sh BUILD_DIR OUTPUT_DIR" >&2; exit 2; }
build=$1 out=$2
programs="apps/sluice tests/parity/parity_test tests/golden/cuda_models_test
          src/device/cuda/device_cuda_test bench/ops_bench"

rm -rf "$out"
mkdir -p "$out/lib/glibc" "$out/tests/golden" "$out/models"
for program in $programs; do
  [ -x "$build/$program" ] || { echo "make_dist: $build/$program is missing" >&2; exit 1; }
  cp "$build/$program" "$out/"
  strip --strip-debug "$out/$(basename "$program")"
done

# name => path, of all programs; the loader has a path only.
for program in $programs; do ldd "$build/$program"; done |
  awk '$2 == "=>" {print $1, $3} $1 ~ /^\// {n = split($1, p, "/"); print p[n], $1}' | sort -u |
  while read -r name path; do
    case $name in
      libc.so.6|libm.so.6|ld-linux-x86-64.so.2) cp -L "$path" "$out/lib/glibc/$name" ;;
      *) cp -L "$path" "$out/lib/$name" ;;
    esac
  done

# From glibc 2.34 on these are empty and no program of ours names them, but the driver and cuBLASLt
# do: without them here, an older machine's own would be mixed with our libc, and fail to load.
glibc=$(dirname "$(ldd "$build/apps/sluice" | awk '$1 == "libc.so.6" {print $3}')")
for name in libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1 libresolv.so.2; do
  cp -L "$glibc/$name" "$out/lib/glibc/"
done

cp -r tests/golden/models tests/golden/adapters "$out/tests/golden/"
cp -r models/demo "$out/models/"
cp tools/gpu_check.py "$out/gpu_check"
cp tools/gpu_bench.py tools/checkpoint_layout.py tools/torch_bench.py "$out/"
cp tools/run_dist.sh "$out/run"
chmod +x "$out/gpu_check" "$out/run"
{ git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown; } >"$out/COMMIT"

# Every program finds its libraries in the folder, as on a machine that has none of them.
for program in "$out"/sluice "$out"/ops_bench "$out"/*_test; do
  if ldd "$program" | grep -v "$(cd "$out" && pwd)/lib/" |
     grep -Ev 'linux-vdso|/lib(64)?/.*(libc|libm|libdl|libpthread|librt|ld-linux-x86-64)\.so'; then
    echo "make_dist: $program takes a library from outside the folder" >&2
    exit 1
  fi
done
# With the folder's own glibc too, as on a machine with an older one.
SLUICE_OWN_GLIBC=1 "$out/run" sluice --version >/dev/null
du -sh "$out" | cut -f1 | sed "s|^|$out: |"
echo "copy it to the machine with the GPU; there: ./gpu_check, or ./run sluice doctor"
