#!/bin/sh
# tools/test-bare-debian.sh FOLDER: runs `make demo` and `make test` of the last commit in a fresh Debian 12 that has git,
# make and nothing more, made in FOLDER. Needs root and debootstrap; MIRROR is the archive to use. Afterwards remove
# FOLDER.
set -eu
folder=$1
[ ! -e "$folder" ] || { echo "$folder is there already" >&2; exit 1; }
cd "$(dirname "$0")/.."

debootstrap --variant=minbase --include=git,make,ca-certificates bookworm "$folder" \
  "${MIRROR:-http://deb.debian.org/debian}"
cp /etc/resolv.conf "$folder/etc/"
git clone --quiet . "$folder/quire"
# Mounts of a namespace of their own end with it.
unshare --mount sh -eu -c '
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh -euxc "cd /quire; make demo; make test"
' sh "$folder"
