#!/bin/bash
# Starts the server with the demo model, streams a chat answer into the terminal, prints TTFT and
# tokens/s, and leaves the server running until Ctrl-C. Needs bash only: it reads the answer from
# the socket itself. With SLUICE_DEMO_ONCE=1 it ends after the answer; its exit status says whether
# there was one.
# Usage: tools/demo.sh BINARY MODEL_DIR PROMPT
set -eu -o pipefail
[ $# -eq 3 ] || { echo "usage: tools/demo.sh BINARY MODEL_DIR PROMPT" >&2; exit 2; }
binary=$1 model=$2 prompt=$3
name=$(basename "$model")
log=$(mktemp "${TMPDIR:-/tmp}/sluice-demo.XXXXXX")

# Port 8000 if it is free, otherwise any free port.
port=8000
if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then port=0; fi

echo "--- $binary serve $model --port $port"
"$binary" serve "$model" --port "$port" >"$log" 2>&1 &
server=$!
stop() {
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  rm -f "$log"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

url=""
for _ in $(seq 600); do
  url=$(sed -n 's/^ready: \(http[^ ]*\) .*/\1/p' "$log")
  [ -z "$url" ] || break
  kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
  sleep 0.1
done
[ -n "$url" ] || { echo "demo.sh: not ready after 60 s" >&2; cat "$log" >&2; exit 1; }
grep '^start ' "$log"

json_text() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\n'/\\n}
  printf '"%s"' "${text//$'\t'/\\t}"
}
body="{\"model\":\"$name\",\"messages\":[{\"role\":\"user\",\"content\":$(json_text "$prompt")}],"
body+='"max_tokens":200,"temperature":0.8,"top_p":0.95,"seed":7,"stream":true,'
body+='"stream_options":{"include_usage":true}}'
length=$(printf '%s' "$body" | wc -c)

echo "--- $url/v1/chat/completions: $prompt"
# HTTP/1.0: the answer ends with the connection, without chunked coding.
exec 3<>"/dev/tcp/127.0.0.1/${url##*:}"
printf 'POST /v1/chat/completions HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: %s\r\n\r\n%s' \
  "$length" "$body" >&3

tokens="" finish=""
content='"content":"(([^"\\]|\\.)*)"'
while IFS= read -r line <&3; do
  if [[ $line == data:* && $line =~ $content ]]; then
    text=${BASH_REMATCH[1]//\\\"/\"}
    printf '%b' "${text//\\\//\/}"
  fi
  [[ $line =~ \"finish_reason\":\"([a-z]+)\" ]] && finish=${BASH_REMATCH[1]}
  [[ $line =~ \"completion_tokens\":([0-9]+) ]] && tokens=${BASH_REMATCH[1]}
  [[ $line == "data: [DONE]"* ]] && break
  [[ $line == *'"error"'* ]] && { echo "$line" >&2; exit 1; }
done
exec 3<&-
[ -n "$finish$tokens" ] || { echo "demo.sh: no answer" >&2; cat "$log" >&2; exit 1; }

# A shell reads lines more slowly than the server writes them, so the figures come from the server's
# access log.
for _ in $(seq 50); do
  grep -q '"completion_tokens"' "$log" && break
  sleep 0.02
done
awk -v why="$finish" '
  function value(name) {
    if (!match($0, "\"" name "\":[0-9.]+")) return 0
    return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0  # no text
  }
  /"completion_tokens"/ {
    n = value("completion_tokens"); ttft = value("ttft_ms"); total = value("total_ms")
    printf "\n--- TTFT %.1f ms (%d prompt tokens)", ttft, value("prompt_tokens")
    if (n > 1 && total > ttft) printf ", %.0f tokens/s", (n - 1) * 1000 / (total - ttft)
    printf ", %d tokens, finish: %s\n", n, why
    exit
  }' "$log"
echo "--- the model is $model, Sluice's own; try any Llama, Mistral or Qwen directory instead"
cat <<END
--- chat and live gauges in a browser: $url
    curl $url/v1/chat/completions -d '{"model": "$name", "stream": true,
      "messages": [{"role": "user", "content": "hello"}]}'
END
[ -z "${SLUICE_DEMO_ONCE:-}" ] || exit 0
echo "--- press Ctrl-C to stop the server"
wait "$server"
