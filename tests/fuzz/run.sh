#!/bin/sh
# tests/fuzz/run.sh BUILD SECONDS: runs every fuzz target of a build folder for that long, from what it found before and
# the repository's own files. Stops at the first that fails; libFuzzer names the file that did it.
set -eu
build=$1 seconds=$2

seeds_of() {
  case $1 in
    config) echo tests/data/model ;;
    grounding) echo tests/data/document ;;
    picture) echo samples ;;
    tokenizer) echo tests/data/tokenizer ;;
  esac
}

for target in "$build"/fuzz_*; do
  [ -x "$target" ] || { echo "no fuzz targets in $build" >&2; exit 1; }
  name=${target##*/fuzz_}
  corpus=$build/corpus/$name
  mkdir -p "$corpus"
  echo "== $name, $seconds s"
  # shellcheck disable=SC2046  # no folder for some
  "$target" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="$corpus.failed-" "$corpus" $(seeds_of "$name")
done
