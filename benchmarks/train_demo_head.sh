#!/usr/bin/env bash
# Trains the EAGLE head that ships for the demo model, from nothing: prompts, answers, training.
#
#   benchmarks/train_demo_head.sh FOLDER [MINUTES]
#
# Two single-threaded processes train together. It can be stopped at any time and run again: what
# was captured is kept, and training goes on from its last checkpoint.
set -euo pipefail

folder=${1:?give a folder}
minutes=${2:-60}
python=${PYTHON:-python}
export OMP_NUM_THREADS=1
mkdir -p "$folder"
cd "$folder"

outpace() { "$python" -c 'from outpace.cli import main; main()' "$@"; }

[ -f open.jsonl ] || outpace train prompts --count 4200 --seed 1 -o open.jsonl
[ -f drawn.jsonl ] || outpace train prompts --drawn --count 1600 --seed 1000000 --threads 1 -o drawn.jsonl
outpace train capture open.jsonl -o answers --tokens 120000 --threads 1
outpace train capture drawn.jsonl -o answers --threads 1
# Requests about a text need texts: those that the model wrote by now.
[ -f about.jsonl ] || outpace train prompts --count 800 --seed 7 --about answers -o about.jsonl
outpace train capture about.jsonl -o answers --threads 1
outpace train capture open.jsonl -o answers --threads 1

resume=()
[ -f run/training.pt ] && resume=(--resume)
"$python" -m torch.distributed.run --nproc-per-node 2 --no-python \
    "$python" -c 'from outpace.cli import main; main()' \
    train eagle answers -o run --minutes "$minutes" --batch-tokens 1792 --threads 1 "${resume[@]}"
