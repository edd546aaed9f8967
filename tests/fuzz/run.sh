#!/bin/sh
# tests/fuzz/run.sh BUILD SECONDS: runs every fuzz target of a build folder for that long, from the repository's own
# files and what it found before. Stops at the first that fails and leaves the input beside its corpus.
set -eu
build=$1 seconds=$2

seeds_of() {
  case $1 in
    config) ls tests/data/model/*.json ;;
    grounding) ls tests/data/document/*.txt ;;
    picture) ls tests/data/image/pictures/* ;;
    tokenizer) ls models/tiny/tokenizer.json ;;
    safetensors | request) ;;
    *) echo "no seeds are known for $1" >&2; return 1 ;;
  esac
}

for target in "$build"/fuzz_*; do
  name=${target##*/fuzz_}
  corpus=$build/corpus/$name
  mkdir -p "$corpus"
  seeds=$(seeds_of "$name")
  for seed in $seeds; do cp "$seed" "$corpus"; done
  echo "== $name, $seconds s"
  "$target" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="$corpus.failed-" "$corpus"
done
