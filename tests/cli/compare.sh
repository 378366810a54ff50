# compare.sh: errors against the exact result, limits as exit status, refusals listed.
. "$(dirname "$0")/helpers"

problem=b2h4kvh2s40x70d32:bf16:mask=key:causal
expect 0 "FLASH_ATTN" compare --problem $problem
on_stdout "TORCH_SDPA"
on_stdout "refused: CUDNN_ATTN: platform_unsupported"
expect 0 "FLASH_ATTN" compare --problem $problem --max-rel-l2 0.01 --max-abs 0.1 --min-cosine 0.999
expect 1 "beyond the limits" compare --problem $problem --max-rel-l2 1e-6
expect 1 "beyond the limits" compare --problem $problem --max-abs 1e-6
expect 1 "beyond the limits" compare --problem $problem --min-cosine 1
expect 0 "cpu_flash" compare --problem $problem --backends FLASH_ATTN
not_printed "cpu_reference"
expect 0 "cpu_flash" compare --problem $problem -b FLASH_ATTN
not_printed "cpu_reference"
expect 3 "CUDNN_ATTN" compare --problem $problem --backends FLASH_ATTN,CUDNN_ATTN
on_stdout "cpu_flash"
expect 2 "unknown_backend" compare --problem $problem --backends NOTHING
expect 2 "names between commas" compare --problem $problem --backends FLASH_ATTN,,TORCH_SDPA
expect 2 "--problem excludes the other options" compare --problem $problem --q q.npy
expect 2 "--q is missing" compare
expect 2 "not with a configuration" compare --problem $problem -dac '{}'

# f32 against f64: the error is that of f32, and none of it is hidden by the reference.
expect 0 "" compare --problem b1h2s64d64:f32 --max-rel-l2 2e-6 --json
on_stdout '"passed": true'
on_stdout '"error_kind": "platform_unsupported"'
expect 1 "" compare --problem b1h2s64d64:f32 --max-rel-l2 1e-12 --json --backends TORCH_SDPA
on_stdout '"within_limits": false'
on_stdout '"passed": false'
expect 0 "" compare --problem b1h2s64d64:f64 --max-rel-l2 1e-12 --backends TORCH_SDPA
expect 0 "cpu_flash" compare --problem b1h2s64d64:f16:joint=9:seed=1,2 --backends FLASH_ATTN --max-rel-l2 0.01
expect 2 '"error_kind": "syntax"' compare --problem nonsense --json
expect 4 '"error_kind": "io"' compare --q none.npy --k none.npy --v none.npy --json

finish
