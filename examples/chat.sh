#!/bin/sh
# Ask a server that `outpace serve` started. $OUTPACE_URL and $OUTPACE_KEY say where and with which key.
url=${OUTPACE_URL:-http://127.0.0.1:8000}

curl -sS "$url/v1/chat/completions" \
  -H "Content-Type: application/json" \
  -H "Authorization: Bearer ${OUTPACE_KEY:-none}" \
  -d '{"messages": [{"role": "user", "content": "Name three rivers in Africa."}],
       "max_tokens": 60, "temperature": 0}'
echo

# The same as a stream, without speculation.
curl -sSN "$url/v1/chat/completions" \
  -H "Content-Type: application/json" \
  -H "Authorization: Bearer ${OUTPACE_KEY:-none}" \
  -d '{"messages": [{"role": "user", "content": "Name three rivers in Africa."}],
       "max_tokens": 60, "temperature": 0, "stream": true,
       "stream_options": {"include_usage": true}, "speculative": {"enabled": false}}'
