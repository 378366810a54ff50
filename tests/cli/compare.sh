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

# ---- results that are not finite: counted, never perfect -------------------------------------------------------

cd "$work" || exit 1
zeros 16 | npy '<f4' False '(1, 2, 1, 2)' >zero.npy
ones 4 | npy '<f4' False '(1, 2, 1, 2)' >one.npy
nan='\000\000\300\177'
printf "$nan$nan$nan$nan" | npy '<f4' False '(1, 2, 1, 2)' >nan.npy
printf "\000\000\200\077$nan\000\000\200\077$nan" | npy '<f4' False '(1, 2, 1, 2)' >some.npy
expect 0 "4 not finite in both" compare --q zero.npy --k zero.npy --v nan.npy -n 1
expect 1 "beyond the limits, 4 not finite in both" compare --q zero.npy --k zero.npy --v nan.npy -n 1 --max-rel-l2 1
not_printed "1.000000000"
expect 1 '"not_finite_both": 4' compare --q zero.npy --k zero.npy --v nan.npy -n 1 --min-cosine -1 --json
on_stdout '"cosine": null'
on_stdout '"within_limits": false'
expect 0 "2 not finite in both" compare --q zero.npy --k zero.npy --v some.npy -n 1 --max-rel-l2 1e-3
expect 0 '"not_finite": 2' compare --q zero.npy --k zero.npy --v some.npy -n 1 --max-rel-l2 1e-3 --json
on_stdout '"not_finite_exact": 2'
expect 0 '"not_finite_both": 0' compare --q zero.npy --k zero.npy --v one.npy -n 1 --max-rel-l2 1e-3 --json
# Scores of 1e76 are finite in f64, where the exact result comes from, and infinite in f32.
printf '\231\166\226\176\231\166\226\176\231\166\226\176\231\166\226\176' | npy '<f4' False '(1, 2, 1, 2)' >large.npy
expect 1 "not finite here, 0 in the exact result" compare --q large.npy --k large.npy --v one.npy -n 1 --min-cosine -1 \
    -b FLASH_ATTN

# ---- parameters of backends that take some ----------------------------------------------------------------------

cubes='{"vsa_dit_seq_shape": [4, 16, 16], "block_size": [4, 4, 4], "topk": 4}'
expect 0 "4 of 16 cubes (25.0 %), chosen in " compare --problem b1h1s1024d32:f32 -b FASTVIDEO_VSA -n 1 --params "$cubes"
expect 0 '"kept_share": 0.25' compare --problem b1h1s1024d32:f32 -b FASTVIDEO_VSA -n 1 --params "$cubes" --json
on_stdout '"map_seconds": '
not_printed '"map_seconds": 0.0,'
expect 2 "--params" compare --problem b1h1s64d32:f32 --params '{"topk": '
expect 2 '"error_kind": "syntax"' compare --problem b1h1s64d32:f32 --params '{"topk": ' --json

# ---- more memory than there is ---------------------------------------------------------------------------------

if [ -r /proc/meminfo ]; then
    expect 4 "give a smaller --problem" compare --problem b64h64s200000d128:bf16:mask=key
    expect 4 '"error_kind": "out_of_memory"' compare --problem b64h64s200000d128:bf16 --json
fi

finish
