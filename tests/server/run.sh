#!/bin/sh
# Runs one of the server's tests against what a build folder holds:
#   tests/server/run.sh BUILD_DIR clients|bad_input|openapi|lifecycle|load [ARGUMENT...]
# The tests are copied into the build folder, where npm packages are installed for those that need them. Ends with 77
# (skipped) without Node 20, or where the packages cannot be fetched.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
name=$2
shift 2

skip() { echo "skipped: $1"; exit 77; }
command -v node >/dev/null || skip "node is not installed"
node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' || skip "wanted Node 20 or newer, found $(node --version)"

folder=$build/tests/server-npm
mkdir -p "$folder"
install_packages() {
  cmp -s package-lock.json installed-lock.json && return
  npm ci --no-audit --no-fund >npm.log 2>&1 || { cat npm.log; skip "npm ci failed"; }
  cp package-lock.json installed-lock.json
}
(
  flock 9
  cp "$here"/*.mjs "$here"/*.json "$here"/.npmrc "$folder"
  cd "$folder"
  case $name in clients | openapi)
    command -v npm >/dev/null || skip "npm, which fetches the clients, is not installed"
    install_packages ;;
  esac
) 9>"$folder/lock"

cd "$here/../.."
export QUIRE_BUILD="$build" QUIRE_SOURCE="$PWD"
case $name in
  load) exec node "$folder/load.mjs" "$@" ;;
  *) exec node --test --test-timeout=300000 "$@" "$folder/$name.test.mjs" ;;
esac
