#!/bin/sh
# selection.sh: facts, configuration and bulk resolving on the command line. usage: selection.sh PATH-OF-ATTN
attn=$1
failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# want CODE WORD... -- ARGUMENT...: runs attn, holds its exit code, and finds each word in all that it prints.
want() {
    code=$1
    shift
    : > "$scratch/words"
    while [ "$1" != "--" ]; do
        printf '%s\n' "$1" >> "$scratch/words"
        shift
    done
    shift
    "$attn" "$@" > "$scratch/text" 2>&1 < /dev/null
    got=$?
    if [ $got -ne $code ]; then
        echo "exit code $got instead of $code: attn $*"
        failed=1
    fi
    while read -r word; do
        grep -qF -- "$word" "$scratch/text" || { echo "no '$word' from: attn $*"; failed=1; }
    done < "$scratch/words"
}

unset DIFFUSION_ATTENTION_BACKEND
mixed='{"default": "CUDNN_ATTN", "per_role": {"cross": "SAGE_ATTN_3", "joint": "auto"}}'
want 0 "choice      CUDNN_ATTN" "choice      SAGE_ATTN_3" "per_role['cross']" "has builds for sm_9x" -- \
    explain --facts preset:b200 -dac "$mixed"
want 0 "choice      TRTLLM_ATTN" -- explain --facts preset:b200 --pipeline WanPipeline
want 0 "choice      CUDNN_ATTN" "TRTLLM_ATTN was passed over" -- explain --facts preset:b200
want 3 capability_unsupported sm_100 "usable instead" -- explain --facts preset:b200 -b SAGE_ATTN
want 2 "did you mean" FLASH_ATTN -- explain -b FLASH_ATN
want 2 "did you mean b200" -- explain --facts preset:b20
want 2 --diffusion-attention-backend default.backend -- explain -b FLASH_ATTN -dac '{"default": "TORCH_SDPA"}'
want 2 "default.skip_softmx" "skip_softmax" -- explain -dac '{"default": {"backend": "TRTLLM_ATTN", "skip_softmx": 1}}'
want 2 block_backend_mismatch skip_softmax -- explain -dac '{"default": {"backend": "TORCH_SDPA", "skip_softmax": {}}}'
want 2 "line 2, column" -- explain -dac '{
    "default": }'
want 4 "cannot be read" -- explain --config "$scratch/none.json"
want 4 "cannot be read" -- explain --facts "$scratch/none.json"

# dotted paths, their forms, and what they replace
want 0 'diffusion-attention-config.PATH VALUE' -- explain --help
want 0 '"fastvideo_vsa_topk": 1000' '"backend": "FASTVIDEO_VSA"' -- explain --show-config \
    --diffusion-attention-config.default.backend FASTVIDEO_VSA --diffusion-attention-config.default.fastvideo_vsa_topk=1k
want 0 '"default": null' '"cross"' -- explain --show-config -dac '{"default": "FLASH_ATTN"}' \
    --diffusion-attention-config.per_role.cross TORCH_SDPA
want 0 '"backend": "auto"' 'auto was said by --diffusion-attention-backend' -- explain --show-config -b auto
want 2 "fastvideo-vsa-topk" -- explain --show-config --fastvideo-vsa-topk 64
want 2 "expected a whole number" -- explain --fastvideo-vsa-topk 0

"$attn" explain --show-config -dac '{"default": {"backend": "RAINFUSION_ATTN", "block_sparse": {"skip_layers": "0-3"}}}' > "$scratch/canonical.json"
"$attn" explain --show-config -dac "@$scratch/canonical.json" | cmp -s - "$scratch/canonical.json" ||
    { echo "the canonical form does not parse back to itself"; failed=1; }
want 0 '"backend": "FLASH_ATTN"' -- explain --show-config -b FLASH_ATTN -dac '{"default": "auto"}'
printf '{"platform": "CUDA"}' > "$scratch/facts.json"
want 2 "did you mean cuda" -- explain --facts "$scratch/facts.json"
want 4 "it is a folder" -- explain --facts "$scratch"
want 2 "UTF-8" -- explain "--diffusion-attention-config.per_role.$(printf '\377').backend" X

# a configuration file, alone
printf '{"diffusion_attention_config": {"per_role": {"self": "TORCH_SDPA"}}}' > "$scratch/config.json"
want 0 "choice      TORCH_SDPA" "per_role['self']" -- explain --role self --config "$scratch/config.json"
want 2 mutually_exclusive -- explain --config "$scratch/config.json" -b FLASH_ATTN
printf '{"diffusion_attention_config":\n {"default": "FLASH_ATTN",}}' > "$scratch/config.json"
want 2 "line 2, column" -- explain --config "$scratch/config.json"
printf '{"diffusion_atention_backend": "FLASH_ATTN"}' > "$scratch/config.json"
want 2 "did you mean diffusion_attention_backend" -- explain --config "$scratch/config.json"

# facts of this machine, read back
"$attn" info --json > "$scratch/facts.json"
want 0 "choice      FLASH_ATTN" -- explain --role self --facts "$scratch/facts.json"

# in bulk
cat > "$scratch/questions.jsonl" <<'LINES'
{"id": 1, "facts": "preset:h200", "query": {"role": "self", "head_size": 128}}
{"id": 2, "facts": "preset:h200", "config": {"flag_backend": "SAGE_ATTN_3"}, "query": {"role": "self", "head_size": 128}}

{"id": 3, "facts":
LINES
want 0 '{"id":1,"ok":true,"backend":"FLASH_ATTN"' '{"id":2,"ok":false' '"error_kind":"capability_unsupported"' \
    '"error_kind":"syntax"' -- resolve --jsonl "$scratch/questions.jsonl"
want 0 '"reasons":[{' -- resolve --reasons --jsonl "$scratch/questions.jsonl"
want 4 "cannot be read" -- resolve --jsonl "$scratch/none.jsonl"
exit $failed
