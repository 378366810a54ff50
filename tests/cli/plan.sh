# plan.sh: attn plan says what a call would use, and computes nothing.
. "$(dirname "$0")/helpers"

expect 0 "kernel set scalar, tiles 96x384" plan b1h2s1024d64:f32 --isa scalar --threads 3
on_stdout FLASH_ATTN
on_stdout cpu_flash
on_stdout TORCH_SDPA
on_stdout cpu_reference
on_stdout "FLOP = 2 B H Sq Skv (D + Dv)"

# 2*B*H*Sq*Skv*(D + Dv); q, k, v and out once in bf16; their ratio.
expect 0 '"flop": 25769803776.0' plan b2h3s4096x1024d128v384:bf16 --json
on_stdout '"bytes": 31457280.0'
on_stdout '"flop_per_byte": 819.2'
on_stdout '"threads": '
on_stdout '"workspace_bytes": '
expect 0 '"threads": 5' plan b1h1s8d8:f32 --json --threads 5

# A terabyte of tensors has a plan.
expect 0 "kernel set" plan b1h64s16000000d128:f32 --threads 2 --backends FLASH_ATTN
not_printed TORCH_SDPA

# Lists stand for every combination, also with lengths and packed sequences.
expect 0 "b1h1s16d8:f32" plan "b1h1s8-32*2d8:f32:lengths" "b1h2s90x120d16:f32:packed=3" --markdown
on_stdout "b1h1s32d8:f32"
on_stdout "packed=3"

# Refusals are answers, unless nothing is left.
expect 0 dtype_unsupported plan b1h1s8d8:f64
on_stdout cpu_reference
expect 3 dtype_unsupported plan b1h1s8d8:f64 --backends FLASH_ATTN
expect 3 '"error_kind": "dtype_unsupported"' plan b1h1s8d8:f64 --backends FLASH_ATTN --json
expect 3 platform_unsupported plan b1h1s8d8:f32 --backends CUDNN_ATTN

expect 2 "no problem given" plan
expect 2 "syntax" plan b1h1q8d8:f32
expect 2 "unknown_name" plan b1h1s8d8:f32 --isa avx9
expect 2 "the nearest is 'FLASH_ATTN'" plan b1h1s8d8:f32 --backends FLSH_ATTN

finish
