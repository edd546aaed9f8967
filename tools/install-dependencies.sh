#!/bin/sh
# tools/install-dependencies.sh [GROUP...]: installs the packages of these groups of tools/packages.txt that are missing
# (default: build). Needs Debian 12 and root or sudo; does nothing, and asks nothing, when all are there.
set -eu
list=$(dirname "$0")/packages.txt
groups=" ${*:-build} "

is_installed() { [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=
while read -r group package command; do
  case $groups in *" $group "*) ;; *) continue ;; esac
  if [ -n "$command" ] && command -v "$command" >/dev/null; then continue; fi
  is_installed "$package" || missing="$missing $package"
done <"$list"
[ -n "$missing" ] || exit 0

as_root=
if ! command -v apt-get >/dev/null; then
  echo "This system has no apt-get. Install what these Debian packages hold, then run 'make build':$missing" >&2
  exit 1
elif [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Packages are missing, and installing them needs root. Run as root: apt-get install$missing" >&2
    exit 1
  fi
  as_root=sudo
fi

echo "Installing:$missing"
$as_root apt-get update --quiet=2
# shellcheck disable=SC2086  # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends $missing >/dev/null
