#!/bin/sh
# selection.sh: facts, configuration and bulk resolving on the command line. usage: selection.sh PATH-OF-ATTN
. "$(dirname "$0")/helpers"

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
want 4 "cannot be read" -- explain --config "$work/none.json"
want 4 "cannot be read" -- explain --facts "$work/none.json"

# dotted paths, their forms, and what they replace
want 0 'diffusion-attention-config.PATH VALUE' -- explain --help
want 0 '"fastvideo_vsa_topk": 1000' '"backend": "FASTVIDEO_VSA"' -- explain --show-config \
    --diffusion-attention-config.default.backend FASTVIDEO_VSA --diffusion-attention-config.default.fastvideo_vsa_topk=1k
want 0 '"default": null' '"cross"' -- explain --show-config -dac '{"default": "FLASH_ATTN"}' \
    --diffusion-attention-config.per_role.cross TORCH_SDPA
want 0 '"backend": "auto"' 'auto was said by --diffusion-attention-backend' -- explain --show-config -b auto
want 2 "fastvideo-vsa-topk" -- explain --show-config --fastvideo-vsa-topk 64
want 2 "expected a whole number" -- explain --fastvideo-vsa-topk 0

"$attn" explain --show-config -dac '{"default": {"backend": "RAINFUSION_ATTN", "block_sparse": {"skip_layers": "0-3"}}}' > "$work/canonical.json"
"$attn" explain --show-config -dac "@$work/canonical.json" | cmp -s - "$work/canonical.json" ||
    fail "the canonical form does not parse back to itself"
want 0 '"backend": "FLASH_ATTN"' -- explain --show-config -b FLASH_ATTN -dac '{"default": "auto"}'
printf '{"platform": "CUDA"}' > "$work/facts.json"
want 2 "did you mean cuda" -- explain --facts "$work/facts.json"
want 4 "it is a folder" -- explain --facts "$work"
want 2 "UTF-8" -- explain "--diffusion-attention-config.per_role.$(printf '\377').backend" X

# a configuration file, alone
printf '{"diffusion_attention_config": {"per_role": {"self": "TORCH_SDPA"}}}' > "$work/config.json"
want 0 "choice      TORCH_SDPA" "per_role['self']" -- explain --role self --config "$work/config.json"
want 2 mutually_exclusive -- explain --config "$work/config.json" -b FLASH_ATTN
printf '{"diffusion_attention_config":\n {"default": "FLASH_ATTN",}}' > "$work/config.json"
want 2 "line 2, column" -- explain --config "$work/config.json"
printf '{"diffusion_atention_backend": "FLASH_ATTN"}' > "$work/config.json"
want 2 "did you mean diffusion_attention_backend" -- explain --config "$work/config.json"

# facts of this machine, read back
"$attn" info --json > "$work/facts.json"
want 0 "choice      FLASH_ATTN" -- explain --role self --facts "$work/facts.json"

# in bulk
cat > "$work/questions.jsonl" <<'LINES'
{"id": 1, "facts": "preset:h200", "query": {"role": "self", "head_size": 128}}
{"id": 2, "facts": "preset:h200", "config": {"flag_backend": "SAGE_ATTN_3"}, "query": {"role": "self", "head_size": 128}}

{"id": 3, "facts":
LINES
want 0 '{"id":1,"ok":true,"backend":"FLASH_ATTN"' '{"id":2,"ok":false' '"error_kind":"capability_unsupported"' \
    '"error_kind":"syntax"' -- resolve --jsonl "$work/questions.jsonl"
want 0 '"reasons":[{' -- resolve --reasons --jsonl "$work/questions.jsonl"
want 4 "cannot be read" -- resolve --jsonl "$work/none.jsonl"

# what a line may hold: known keys of known types
answer() { # KIND WORD LINE: the one answer has ok false, KIND and WORD
    printf '%s\n' "$3" > "$work/line.jsonl"
    want 0 '"ok":false' "\"error_kind\":\"$1\"" "$2" -- resolve --jsonl "$work/line.jsonl"
}
answer invalid_type "expected an object" '[1]'
answer invalid_type "expected an object" '7'
answer unknown_or_missing_key "'confg', did you mean 'config'" '{"confg": {}}'
answer unknown_or_missing_key "'flag_backnd', did you mean 'flag_backend'" '{"config": {"flag_backnd": "SAGE_ATTN"}}'
answer unknown_or_missing_key "'head_sise', did you mean 'head_size'" '{"query": {"role": "self", "head_sise": 64}}'
answer unknown_or_missing_key "'sequence'" '{"query": {"role": "self", "sequence": 64}}'
answer invalid_type "query is an array" '{"query": []}'
answer invalid_type "config is a text" '{"config": "x", "query": {"role": "self"}}'
answer invalid_type "facts is a whole number" '{"facts": 1, "query": {"role": "self"}}'
answer invalid_type "config.flag_backend is a whole number" '{"config": {"flag_backend": 1}, "query": {"role": "self"}}'
answer invalid_type "config.env is an object" '{"config": {"env": {}}, "query": {"role": "self"}}'
answer invalid_type "config.flag_vsa_topk is a text" '{"config": {"flag_vsa_topk": "4"}, "query": {"role": "self"}}'
answer invalid_type "config.dotted is an array" '{"config": {"dotted": []}, "query": {"role": "self"}}'
answer invalid_type "config.dotted.default is null" '{"config": {"dotted": {"default": null}}, "query": {"role": "self"}}'
answer invalid_type "query.role is null" '{"query": {"role": null}}'
answer invalid_type "query.role_category is true" '{"query": {"role": "self", "role_category": true}}'
answer invalid_type "query.head_size is a real number" '{"query": {"role": "self", "head_size": 64.0}}'
answer invalid_type "query.allow_trtllm_default is null" '{"query": {"role": "self", "allow_trtllm_default": null}}'
answer invalid_type "query.mode is a whole number" '{"query": {"role": "self", "mode": 1}}'
printf '{"query": {"role": "self"}}\0\n' > "$work/zero.jsonl"
want 0 '"error_kind":"syntax"' -- resolve --jsonl "$work/zero.jsonl"
printf '{"id": 4, "query": {"role": "self"}}' > "$work/last.jsonl"
want 0 '{"id":4,"ok":true' -- resolve --jsonl "$work/last.jsonl"

# reading: the cap of a line, failures, and SIGINT while waiting
{ printf '{"id": 5, "query": {"role": "self"}}\n'; head -c 16777217 /dev/zero | tr '\0' ' '; } > "$work/long.jsonl"
want 4 '{"id":5,"ok":true' "line 2 has more than 16 MiB" -- resolve --jsonl "$work/long.jsonl"
want 4 "reading stopped in line 1" -- resolve --jsonl "$work"
if timeout --version > /dev/null 2>&1 && mkfifo "$work/fifo"; then
    # Open for both, so that reading waits for a line.
    timeout --preserve-status -s INT -k 20 1 "$attn" resolve <> "$work/fifo" > "$work/text" 2>&1
    got=$?
    [ $got -eq 130 ] || fail "exit code $got instead of 130: attn resolve, interrupted"
fi

# a refused module is told once, without -v, when its path was named
: > "$work/refused.so"
for arguments in "explain --role self" "list" "run --problem b1h1s1d8:f32 -n 1"; do
    # The arguments are words.
    want 0 "warning: module $work/refused.so cannot be loaded" -- $arguments --module-path "$work/refused.so"
    ATTN_MODULE_PATH="$work/refused.so" "$attn" $arguments 2>&1 > /dev/null | grep -c warning > "$work/text"
    [ "$(cat "$work/text")" = 1 ] || fail "ATTN_MODULE_PATH: not one warning from attn $arguments"
done
want 0 "refused" "$work/refused.so" -- info --module-path "$work/refused.so"
grep -q warning "$work/text" && fail "attn info warns of a module that it lists"
mkdir "$work/empty"
want 0 "none found in $work/empty" -- info --module-path "$work/empty"
odd="$work/empty/$(printf 'b\377').so"
if : > "$odd"; then
    want 0 'b\\xFF.so"' '"kind": "module_unloadable"' -- info --json --module-path "$work/empty"
fi

# options that exclude each other, and failures that come before any choice
want 2 "--facts excludes --override" -- explain --facts preset:b200 --override FLASH_ATTN=cpu_flash
want 2 "--facts excludes --platform" -- explain --facts preset:b200 --platform cpu
for option in "--heads 2" "--kv-heads 1" "--head-size 64" "--value-head-size 64" "--dtype bf16"; do
    want 2 "--problem excludes ${option%% *}" -- explain --problem b1h2s8d64:f32 $option
done
want 0 "causal" -- explain --problem b1h2s8d64:f32 --causal --role self
want 2 "refused     " -- explain --heads 3 --kv-heads 2 --role self
grep -qE "^(asked|candidates)" "$work/text" && fail "explain tells of a choice that was not made"

# configuration files name the file and the reason
want 4 "$work/none.json: cannot be read: No such file" -- explain -dac "@$work/none.json"
printf '{"default":' > "$work/bad.json"
want 2 "$work/bad.json: " "line 1, column" -- explain -dac "@$work/bad.json"
finish
