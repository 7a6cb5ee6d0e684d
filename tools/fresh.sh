#!/usr/bin/env bash
# Runs `make demo` and `make test` on the committed tree in a clean Debian root, as on a machine where nobody has installed
# anything: debootstrap makes the root, this machine's Rust toolchain is mounted into it, and its settings for apt and
# certificates are copied. Nothing else is there.
#
# usage: tools/fresh.sh [DIRECTORY [TARGET…]]    needs root; the directory is made, used and removed (default: target/fresh)
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
root=$(realpath -m "${1:-target/fresh}")
shift || true
targets=("${@:-demo test}")

fail() {
	echo "fresh: $1" >&2
	exit 2
}
[ "$(id -u)" -eq 0 ] || fail "a Debian root can only be made by root; run: sudo tools/fresh.sh"
[ ! -e "$root" ] || fail "$root is there already; remove it or name another directory"
command -v rustc >/dev/null || fail "there is no rustc: install Rust 1.93 or later (https://rustup.rs)"
if ! command -v debootstrap >/dev/null; then
	echo "fresh: installing debootstrap"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
fi
toolchain=$(rustc --print sysroot)
sources=()
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
	[ ! -s "$file" ] || sources+=("$file")
done
[ ${#sources[@]} -gt 0 ] || fail "there is neither /etc/apt/sources.list.d/debian.sources nor /etc/apt/sources.list: this needs a Debian"
mirror=$(sed -n 's/^URIs: *//p; s/^deb \([^[][^ ]*\) .*/\1/p' "${sources[@]}" | sed -n 1p)
release=$(. /etc/os-release && echo "$VERSION_CODENAME")

echo "fresh: making a clean Debian ($release) in $root"
mkdir -p "$root"
trap 'rm -rf --one-file-system "$root"' EXIT
debootstrap --variant=minbase --include=ca-certificates "$release" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 ||
	{ tail -n 5 "$root.log" >&2; fail "debootstrap failed; all it said is in $root.log"; }
rm -f "$root.log"
rm -f "$root/etc/apt/sources.list"
for settings in "${sources[@]}" /etc/apt/apt.conf.d /etc/apt/auth.conf.d /usr/local/share/ca-certificates /etc/ssl/certs /etc/resolv.conf /etc/hosts; do
	if [ -e "$settings" ]; then
		mkdir -p "$root$(dirname "$settings")"
		cp -aL --remove-destination "$settings" "$root$(dirname "$settings")/"
	fi
done
mkdir -p "$root/toolchain" "$root/root/.cargo" "$root/old"
cp -L "${CARGO_HOME:-$HOME/.cargo}"/config.toml "$root/root/.cargo/" 2>/dev/null || true
git clone -q --no-hardlinks "$source" "$root/root/crashproof"

# Namespaces, and not a plain chroot: in one, an ordinary user could not make the namespaces of the sandbox.
export root toolchain
unshare --mount --pid --fork --propagation private bash -euc '
	mount --bind "$root" "$root"
	mount --bind -o ro "$toolchain" "$root/toolchain"
	mount --rbind /dev "$root/dev"
	mount --rbind /sys "$root/sys"
	mount -t proc proc "$root/proc"
	mount -t tmpfs tmpfs "$root/tmp"
	cd "$root"
	pivot_root . old
	umount -l /old
	cd /root/crashproof
	export HOME=/root PATH=/toolchain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends make git >/dev/null
	for target; do
		echo "fresh: make $target"
		make $target
	done
' fresh ${targets[@]}
echo "fresh: passed: make ${targets[*]}"
