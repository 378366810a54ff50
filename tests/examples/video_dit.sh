#!/bin/sh
# video_dit.sh: the example publishes what sparse backends ask for, and says how near two clips are.
# usage: video_dit.sh PROGRAM FOLDER
set -eu
program=$1 folder=$2
mkdir -p "$folder"
draw() { "$program" --quiet --no-check --size 8x32x32 --steps 2 --attention-dtype bf16 --json "$@"; }
fail() { echo "video_dit: $1" >&2; exit 1; }

draw --out "$folder/dense.gif" --video "$folder/dense.npy" >"$folder/dense.json"
draw --out "$folder/again.gif" --against "$folder/dense.npy" >"$folder/again.json"
grep -q '"ssim": 1.0' "$folder/again.json" || fail "a clip is not like itself"
grep -q '"psnr_db": null' "$folder/again.json" || fail "a clip differs from itself"

draw --out "$folder/sparse.gif" --against "$folder/dense.npy" --self-params '{"block_size": [4, 4, 4], "topk": 4}' \
    -dac '{"per_role": {"self": {"backend": "FASTVIDEO_VSA"}}}' >"$folder/sparse.json"
grep -q '"all": 0.5' "$folder/sparse.json" || fail "4 of 8 cubes are not half of the blocks"
grep -q '"sparse_calls": 2' "$folder/sparse.json" || fail "two steps are not two sparse calls"
grep -Eq '"psnr_db": [1-9]' "$folder/sparse.json" || fail "the sparse clip has no PSNR"

draw --out "$folder/start.gif" \
    -dac '{"per_role": {"self": {"backend": "RAINFUSION_ATTN", "block_sparse": {"start_step": 1}}}}' \
    >"$folder/start.json"
grep -q '"last_call": "dense:' "$folder/start.json" || fail "512 tokens are not dense by definition"

if draw --out "$folder/wrong.gif" --against "$0" >"$folder/wrong.json" 2>&1; then fail "a script is no clip"; fi
if draw --self-params '{"topk"' >"$folder/wrong.json" 2>&1; then fail "broken JSON was taken"; fi
grep -q 'self-params' "$folder/wrong.json" || fail "broken JSON is not told"
