#!/bin/sh
# Installs the programs that tools/compare_peers.py compares Sluice with into build/peers, each in
# an environment of its own and pinned: vllm, openvino, llama. `tools/install.sh peers` installs the
# Debian packages that they need and then calls this. An installed peer is left alone; one that
# fails is named, and the others are installed. A change of this file or of the pins installs them
# again. Needs PyPI, 13 GB of disk, and for llama.cpp a quarter of an hour of one core.
# Usage: tools/install_peers.sh [DIR [PEER...]]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=${1:-$here/../build/peers}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- openvino vllm llama
mkdir -p "$root"
root=$(cd "$root" && pwd)

make_venv() { # NAME
  [ -x "$root/$1/bin/pip" ] || python3 -m venv "$root/$1"
  "$root/$1/bin/pip" -q --disable-pip-version-check install --no-compile \
    -r "$here/requirements-peers-$1.txt"
}

install_openvino() { make_venv openvino; }

install_vllm() {
  make_venv vllm || return 1
  "$root/vllm/bin/pip" -q --disable-pip-version-check install --no-compile --no-deps \
    -r "$here/requirements-peers-vllm-nodeps.txt"
}

# llama.cpp for this CPU, AMX included. Built by clang where there is one: built by g++ 12 its AMX
# path faults.
install_llama() {
  [ -x "$root/llama/bin/pip" ] || python3 -m venv "$root/llama" || return 1
  pip="$root/llama/bin/pip -q --disable-pip-version-check"
  $pip install --no-compile "$(pinned gguf)" "$(pinned numpy)" || return 1
  $pip download --no-deps --no-binary llama-cpp-python -d "$root/llama/source" \
    "$(pinned llama-cpp-python)" || return 1
  tar -xzf "$root"/llama/source/llama_cpp_python-*.tar.gz -C "$root/llama/source" || return 1
  compilers=""
  ! command -v clang++-16 >/dev/null ||
    compilers="-DCMAKE_C_COMPILER=clang-16 -DCMAKE_CXX_COMPILER=clang++-16"
  # shellcheck disable=SC2086
  cmake -S "$root"/llama/source/llama_cpp_python-*/vendor/llama.cpp -B "$root/llama/build" \
    -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DGGML_OPENMP=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_BUILD_APP=OFF $compilers >/dev/null || return 1
  nice cmake --build "$root/llama/build" -j"${JOBS:-1}" \
    --target llama-batched-bench llama-server llama-quantize >/dev/null || return 1
  for program in llama-batched-bench llama-server llama-quantize; do
    cp "$root/llama/build/bin/$program" "$root/llama/bin/" || return 1
  done
  rm -f "$root"/models/*-Q[48]_0.gguf # another version's, or not written by llama-quantize
}

pinned() { # PACKAGE: the line that pins it
  grep "^$1==" "$here/requirements-peers-llama.txt"
}

failed=""
for peer in "$@"; do
  case $peer in
    openvino | vllm | llama) ;;
    *) echo "install_peers.sh: unknown peer '$peer'; openvino, vllm, llama" >&2; exit 2 ;;
  esac
  stamp="$root/$peer.stamp"
  wanted=$(cat "$here"/requirements-peers-"$peer"*.txt "$here/install_peers.sh" | cksum)
  [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || continue
  echo "install_peers.sh: $peer"
  if "install_$peer"; then echo "$wanted" >"$stamp"; else failed="$failed $peer"; fi
done
[ -z "$failed" ] || { echo "install_peers.sh: could not install:$failed" >&2; exit 1; }
