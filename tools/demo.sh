#!/bin/sh
# Streams an answer of the embedded demo model into the terminal; TTFT and tokens/s follow it.
# Usage: tools/demo.sh BINARY MODEL_DIR PROMPT
set -eu
[ $# -eq 3 ] || { echo "usage: tools/demo.sh BINARY MODEL_DIR PROMPT" >&2; exit 2; }
echo "--- $1 generate $2 --chat \"$3\""
"$1" generate "$2" --chat "$3" --max-tokens 200 --temperature 0.8 --top-p 0.95 --seed 7
echo "--- that was $2, a model of Sluice's own; try any Llama, Mistral or Qwen directory instead"
