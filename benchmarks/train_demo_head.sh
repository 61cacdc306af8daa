#!/usr/bin/env bash
# Trains the EAGLE head that ships for the demo model, from nothing: conversations, then training.
#
#   benchmarks/train_demo_head.sh FOLDER [MINUTES] [TOKENS]
#
# Two single-threaded processes draw conversations (TOKENS each, 900 000 unless said otherwise; about
# 550 a second and core where nothing else runs) and then train together for MINUTES (60). It can be
# stopped at any time and run again: what was captured is kept, and training goes on from its last
# checkpoint; with more TOKENS or MINUTES than before it goes further.
set -euo pipefail

folder=${1:?give a folder}
minutes=${2:-60}
tokens=${3:-900000}
python=${PYTHON:-python}
export OMP_NUM_THREADS=1
mkdir -p "$folder"
cd "$folder"

outpace() { "$python" -c 'from outpace.cli import main; main()' "$@"; }
size() { du -sb "$1" 2>/dev/null | cut -f1 || echo 0; }
# Adds what a store still lacks, at about 4.6 kB a token.
talk() { # STORE SEED TOKENS [ABOUT]
    local about=() more=$(($3 - $(size "$1") / 4630))
    [ -n "${4:-}" ] && about=(--about "$4")
    [ "$more" -lt 500 ] || outpace train converse -o "$1" --seed "$2" --tokens "$more" \
        --max-gb 40 --threads 1 "${about[@]}"
}
# Requests about a text need texts: the first conversations are what the later ones talk about.
talk first 1 $((5000 + tokens / 15))
talk talks-1 2 "$tokens" first &
other=$!
talk talks-2 3 "$tokens" first
wait "$other"

resume=()
[ -f run/training.pt ] && resume=(--resume)
"$python" -m torch.distributed.run --nproc-per-node 2 --no-python \
    "$python" -c 'from outpace.cli import main; main()' \
    train eagle first talks-1 talks-2 -o run --minutes "$minutes" --batch-tokens 1792 \
    --vary-depths --prompt-weight 0.5 --prompt-share 0.3 --look-every 600 --threads 1 "${resume[@]}"
