#!/bin/sh
# domains.sh: domains llm and vision on the command line. usage: domains.sh PATH-OF-ATTN
. "$(dirname "$0")/helpers"

unset VLLM_ATTENTION_BACKEND VLLM_KV_CACHE_LAYOUT
b200="--facts preset:b200"
h100="--facts preset:h100"

# ---- the forms of an option

want 0 'choice      FLASHINFER' 'by --attention-backend' -- explain --domain llm $b200 --attention-backend FLASHINFER
want 0 'choice      FLASHINFER' 'by attention_config.backend' -- explain --domain llm $b200 --attention-config.backend FLASHINFER
want 0 'choice      FLASHINFER' -- explain --domain llm $b200 --attention-config.backend=FLASHINFER
want 0 'choice      FLASHINFER' -- explain --domain llm $b200 --attention_config.backend flashinfer
want 0 'choice      FLASHINFER' -- explain --domain llm $b200 -ac.backend FLASHINFER
want 0 'choice      FLASHINFER' -- explain --domain llm $b200 -ac '{"backend": "FLASHINFER"}'
want 0 'choice      FLASHINFER' -- explain --domain llm $b200 '-ac={"backend": "FLASHINFER"}'
echo '{"backend": "FLASHINFER"}' > "$work/ac.json"
want 0 'choice      FLASHINFER' -- explain --domain llm $b200 --attention-config "@$work/ac.json"
echo '{"attention_backend": "TRITON_ATTN", "attention_config": {"flash_attn_version": 2}}' > "$work/all.json"
want 0 'choice      TRITON_ATTN' -- explain --domain llm $b200 --config "$work/all.json"
want 2 '--attention-backend' -- explain --domain llm $b200 --config "$work/all.json" --attention-backend FLASHINFER

# All forms merge in the order in which they stand, and a key that is said twice is told.
want 0 '"backend": "TRITON_ATTN"' '"flash_attn_version": 3' '"use_cudnn_prefill": true' -- explain --domain llm \
    --show-config -ac '{"backend": "FLASHINFER", "use_cudnn_prefill": 1}' -ac.flash_attn_version 3 \
    --attention-config.backend TRITON_ATTN
want 0 "warning: --attention-config: 'backend' was given more than once" 'choice      FLASHINFER' -- explain \
    --domain llm $b200 -ac.backend TRITON_ATTN -ac '{"backend": "FLASHINFER"}'
want 2 'mutually_exclusive_backend_options' -- explain --domain llm $b200 --json --attention-backend FLASH_ATTN \
    -ac.backend FLASH_ATTN
want 2 'unknown_backend' 'FLASH_ATTN' -- explain --domain llm $b200 --json --attention-backend FLASH_ATN
want 2 'use_cudnn_prefill' -- explain --domain llm $b200 -ac.use_cudnn_prefil 1

# ---- what a question gets

want 0 'choice      FLASH_ATTN' 'variant FA3' 'block_size 16' 'kv_layout NHD' -- explain --domain llm $h100
want 0 'variant FA2' -- explain --domain llm $h100 -ac.flash_attn_version 2
want 3 'selected_backend_invalid' "Reason: ['attention sinks not supported']" -- explain --domain llm $h100 \
    --attention-backend FLASH_ATTN -ac.flash_attn_version 2 --query has_sink
want 0 'choice      FLASHINFER_MLA' 'mla_prefill TRT-LLM Ragged' -- explain --domain llm $b200 --query \
    'use_mla,head_size=576,qk_nope_head_dim=128,qk_rope_head_dim=64,v_head_dim=128'
want 0 'choice      FLASHINFER_MLA' -- explain --domain llm $b200 --query '{"use_mla": true, "head_size": 576}'
want 3 'no_valid_backend' 'Reasons: {FLASH_ATTN_MLA: [' -- explain --domain llm --facts preset:t4 --query \
    'use_mla,use_sparse,head_size=576'
want 2 'block_size' -- explain --domain llm $h100 --query block_sise=16
want 2 'invalid_kv_cache_dtype' -- explain --domain llm $h100 --query kv_cache_dtype=fp4
want 2 '--domain llm' -- explain $h100 --query use_mla
want 2 'expected diffusion, llm or vision' -- explain --domain lm
VLLM_KV_CACHE_LAYOUT=HND want 0 'kv_layout HND' -- explain --domain llm $h100
VLLM_KV_CACHE_LAYOUT=NDH want 2 'VLLM_KV_CACHE_LAYOUT' -- explain --domain llm $h100
VLLM_ATTENTION_BACKEND=TRITON_ATTN want 0 'choice      FLASH_ATTN' 'warning: VLLM_ATTENTION_BACKEND is set and ignored' -- explain --domain llm $h100

# ---- vision

want 0 'choice      fa4' -- explain --domain vision $b200
want 0 'choice      triton_attn' 'own wish' -- explain --domain vision $b200 --model-backend triton_attn
want 0 'choice      sdpa' -- explain --domain vision $b200 --model-backend triton_attn --mm-attention-backend sdpa
want 3 'fa3' '10.x-12.x' -- explain --domain vision $b200 --model-backend fa3
want 2 'unknown_backend' -- explain --domain vision $b200 --json --mm-attention-backend fa5

# ---- lists and bulk

want 0 '`FLASHMLA_SPARSE`' '## MLA prefill' '## Priorities' 'fn-sparse-mla' -- list --domain llm --format markdown
want 0 '"mla_decode"' -- list --domain llm --json
want 0 'triton_attn' -- list --domain vision
printf '%s\n' '{"id": 1, "facts": "preset:b200", "query": {"head_size": 576, "use_mla": true, "block_size": 128}}' \
    '{"id": 2, "facts": "preset:h100", "config": {"backend": "FLASHINFER", "flash_attn_version": 2}, "query": {"has_sink": true, "head_size": 128}}' \
    '{"id": 3, "facts": "preset:h100", "query": {"head_sise": 576}}' 'nonsense' > "$work/lines"
want 0 '"id":1,"ok":true,"backend":"FLASHINFER_MLA"' '"block_size":128' '"FLASH_ATTN_MLA":["compute capability not supported"]' \
    '"id":2,"ok":false,"backend":null' '"reasons":{"FLASHINFER":["attention sinks not supported"]}' \
    '"error_kind":"selected_backend_invalid"' '"error_kind":"unknown_or_missing_key"' '"error_kind":"syntax"' -- \
    resolve --domain llm --jsonl "$work/lines"
printf '%s\n' '{"facts": "preset:h200", "query": {}}' '{"facts": "preset:h200", "config": {"mm_attention_backend": "sdpa"}, "query": {"model_backend": "fa4"}}' > "$work/lines"
want 0 '"backend":"fa3"' '"backend":"sdpa"' -- resolve --domain vision --jsonl "$work/lines"
finish
