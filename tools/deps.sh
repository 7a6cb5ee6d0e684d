#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks: apt packages, and nothing else. The Rust toolchain is
# only looked for.
set -euo pipefail

packages=(gcc g++ make pkg-config clang-19 libclang1-19 libclang-rt-19-dev llvm-19 llvm-19-dev binutils dwz libxml2-utils libpmem-dev libpmemobj-dev z3 lmdb-utils sqlite3 chromium chromium-driver)
# `tools/deps.sh build` asks for what `make build` and `make demo` need, without the compilers and libraries of the tests.
if [ "${1:-test}" = build ]; then
	packages=(gcc make binutils clang-19 libclang1-19 llvm-19-dev)
fi

if ! command -v cargo >/dev/null; then
	echo "deps: there is no cargo; install Rust 1.93 or later (https://rustup.rs)" >&2
	exit 1
fi

missing=()
for package in "${packages[@]}"; do
	if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then
		missing+=("$package")
	fi
done
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi

if ! command -v apt-get >/dev/null; then
	echo "deps: install these with the package manager of this system: ${missing[*]}" >&2
	exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
	as_root=(sudo)
fi
echo "deps: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
