#!/usr/bin/env bash
# Installs the Debian package on a bare Debian 12 and runs the program there: bare_debian.sh FOLDER-WITH-DEBS
# Needs root, debootstrap and packages from a mirror; ends with 77 where one of them is not there.
set -euo pipefail
debs=$(cd "$1" && pwd)
mirror=${TESSERA_DEBIAN_MIRROR:-http://deb.debian.org/debian}
[ "$(id -u)" = 0 ] || { echo "skipped: no root"; exit 77; }
command -v debootstrap >/dev/null || { echo "skipped: debootstrap is not there"; exit 77; }
root=$(mktemp -d /tmp/tessera-bare.XXXXXX)
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$root"' EXIT
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1 ||
  { tail -3 "$root.log"; rm -f "$root.log"; echo "skipped: no Debian from $mirror"; exit 77; }
rm -f "$root.log"
cp "$debs"/tessera_*.deb "$debs"/tessera-view_*.deb "$debs"/libtessera-dev_*.deb "$root/tmp/"
mount -t proc proc "$root/proc"
inside() { env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }

inside sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends /tmp/tessera_*.deb' >/dev/null 2>&1
inside tessera doctor
inside tessera generate -p "a red cube" --seed 7 -o /tmp/cube.png
inside tessera caption /tmp/cube.png
inside timeout 30 sh -c 'tessera serve --port 0 --json >/tmp/said & sleep 5; kill -TERM $!; wait $!; test $? = 75 && grep -q "http://127.0.0.1" /tmp/said'
test "$(inside stat -c %a /usr/share/tessera /usr/bin/tessera | sort -u)" = 755
test -f "$root/usr/lib/systemd/system/tessera.service"
inside sh -c 'apt-get -qq install -y --no-install-recommends /tmp/tessera-view_*.deb /tmp/libtessera-dev_*.deb g++ pkg-config' >/dev/null 2>&1
inside sh -c 'cd /tmp && g++ -std=c++20 /usr/share/doc/tessera/examples/generate.cpp $(pkg-config --cflags --libs tessera) -o made && ./made' >/dev/null
inside sh -c 'ldd /usr/bin/tessera-view | grep "not found" && exit 1 || exit 0'
inside sh -c 'apt-get -qq purge -y tessera >/dev/null 2>&1 && test ! -e /usr/bin/tessera && test ! -e /usr/share/tessera'
echo "installed, run and removed on $(cat "$root/etc/debian_version")"
