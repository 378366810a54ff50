# files.sh: .npy and .safetensors in and out; what is malformed is refused with a sentence and leaves nothing behind.
. "$(dirname "$0")/helpers"
cd "$work" || exit 1

# ---- good files: q = k = 0, so that every key weighs the same and out is the mean of v -------------------------

zeros 16 | npy '<f4' False '(1, 2, 1, 2)' >zero.npy
ones 4 | npy '<f4' False '(1, 2, 1, 2)' >one.npy
qkv="--q zero.npy --k zero.npy --v one.npy"
expect 0 "FLASH_ATTN" run $qkv --out out.npy -n 1
same out.npy one.npy
expect 0 "" run $qkv --out out.npy -n 1 -b TORCH_SDPA
same out.npy one.npy

# v counts 1, 3 down the keys: out is 2 everywhere. Fortran order of [1, 2, 1, 2] is key fastest.
printf '\000\000\200\077\000\000\200\077\000\000\100\100\000\000\100\100' | npy '<f4' False '(1, 2, 1, 2)' >v.npy
printf '\000\000\200\077\000\000\100\100\000\000\200\077\000\000\100\100' | npy '<f4' True '(1, 2, 1, 2)' >vf.npy
printf '\000\000\000\100\000\000\000\100\000\000\000\100\000\000\000\100' | npy '<f4' False '(1, 2, 1, 2)' >two.npy
for v in v.npy vf.npy; do
    expect 0 "" run --q zero.npy --k zero.npy --v $v --out out.npy -n 1
    same out.npy two.npy
done
# Causal: the first query sees the first key only.
printf '\000\000\200\077\000\000\200\077\000\000\000\100\000\000\000\100' | npy '<f4' False '(1, 2, 1, 2)' >causal.npy
expect 0 "" run --q zero.npy --k zero.npy --v v.npy --out out.npy --causal -n 1
same out.npy causal.npy
# A mask, a key mask and a length that hide the second key.
printf '\001\000' | npy '|b1' False '(1, 1, 1, 2)' >mask.npy
printf '\001\000' | npy '|b1' False '(1, 2)' >keys.npy
printf '\001\000\000\000' | npy '<i4' False '(1,)' >length.npy
printf '\000\000\000\000\000\000\200\377' | npy '<f4' False '(1, 1, 1, 2)' >bias.npy
printf '\007\000' | npy '|u1' False '(1, 1, 1, 2)' >bytes.npy
for option in "--mask mask.npy" "--key-mask keys.npy" "--kv-lengths length.npy" "--mask bias.npy" \
    "--mask bytes.npy --mask-kind keep"; do
    expect 0 "" run --q zero.npy --k zero.npy --v v.npy $option --out out.npy -n 1
    same out.npy one.npy
done
expect 2 "add --mask-kind keep" run $qkv --mask bytes.npy
expect 2 "invalid_dtype" run $qkv --mask bias.npy --mask-kind keep
# Log-sum-exp of two equal scores is ln 2; probabilities are one half.
printf '\030\162\061\077\030\162\061\077' | npy '<f4' False '(1, 1, 2)' >ln2.npy
printf '\000\000\000\077\000\000\000\077\000\000\000\077\000\000\000\077' | npy '<f4' False '(1, 1, 2, 2)' >half.npy
expect 0 "" run $qkv --lse lse.npy --scores scores.npy -n 1
same lse.npy ln2.npy
same scores.npy half.npy
expect 0 "" run $qkv --scores scores.npy --scores-mode scaled -n 1
zeros 16 | npy '<f4' False '(1, 1, 2, 2)' >scaled.npy
same scores.npy scaled.npy
expect 2 "expected scaled, capped, masked or probs" run $qkv --scores scores.npy --scores-mode raw
expect 3 "feature_unsupported" run $qkv --scores scores.npy -b FLASH_ATTN

# Three axes, other layouts.
zeros 16 | npy '<f4' False '(2, 1, 2)' >zero3.npy
ones 4 | npy '<f4' False '(2, 1, 2)' >one3.npy
expect 0 "" run --q zero3.npy --k zero3.npy --v one3.npy --out out.npy -n 1
same out.npy one3.npy
zeros 16 | npy '<f4' False '(1, 2, 2)' >wide0.npy
ones 4 | npy '<f4' False '(1, 2, 2)' >wide1.npy
expect 0 "[1, 2, 2, 1]" run --q wide0.npy --k wide0.npy --v wide1.npy --heads 2 --out out.npy -n 1
same out.npy wide1.npy
expect 0 "[1, 2, 1, 2]" run --q wide0.npy --k wide0.npy --v wide1.npy --layout bnsd --out out.npy -n 1
expect 2 "heads must divide the last axis" run --q wide0.npy --k wide0.npy --v wide1.npy --heads 3
expect 2 "expected bsnd or bnsd" run $qkv --layout sbhd
expect 2 "exclude each other" run --q wide0.npy --k wide0.npy --v wide1.npy --heads 2 --layout bnsd
zeros 8 | npy '<f4' False '(1, 2)' >flat.npy
expect 2 "expected 4 axes" run --q flat.npy --k flat.npy --v flat.npy
expect 2 "invalid_shape" run --q zero.npy --k zero.npy --v half.npy

# bf16 in uint16, versions 2.0 and 3.0, f16, f64.
zeros 8 | npy '<u2' False '(1, 2, 1, 2)' >zerob.npy
printf '\200\077\200\077\200\077\200\077' | npy '<u2' False '(1, 2, 1, 2)' >oneb.npy
expect 2 "--dtype bf16 reads them as bf16" run --q zerob.npy --k zerob.npy --v oneb.npy
expect 0 "bf16" run --q zerob.npy --k zerob.npy --v oneb.npy --dtype bf16 --out out.npy -n 1
same out.npy oneb.npy
expect 0 "" run --q zerob.npy --k zerob.npy --v oneb.npy --dtype bf16 --out-dtype f32 --out out.npy -n 1
same out.npy one.npy
expect 2 "holds f32, expected bf16" run $qkv --dtype bf16
expect 2 '--dtype is "bf17"' run $qkv --dtype bf17
for version in 2 3; do
    {
        printf "\\223NUMPY\\00$version\\000\\164\\000\\000\\000"
        printf '%-115s\n' '{"shape": (1, 2, 1, 2), "fortran_order": False, "descr": "<f4"}'
        ones 4
    } >one$version.npy
    expect 0 "" run --q zero.npy --k zero.npy --v one$version.npy --out out.npy -n 1
    same out.npy one.npy
done
zeros 32 | npy '<f8' False '(1, 2, 1, 2)' >zero8.npy
expect 0 "TORCH_SDPA" run --q zero8.npy --k zero8.npy --v zero8.npy --out out.npy -n 1
same out.npy zero8.npy
zeros 8 | npy '<f2' False '(1, 2, 1, 2)' >zero2.npy
expect 0 "f16" run --q zero2.npy --k zero2.npy --v zero2.npy --out out.npy -n 1
same out.npy zero2.npy
expect 2 "invalid_dtype" run --q zero.npy --k zero2.npy --v one.npy

# No keys: zeros out. No queries: an empty file.
npy '<f4' False '(1, 0, 1, 2)' </dev/null >none.npy
expect 0 "" run --q zero.npy --k none.npy --v none.npy --out out.npy -n 1
same out.npy zero.npy
expect 0 "" run --q none.npy --k zero.npy --v one.npy --out out.npy -n 1
same out.npy none.npy

expect 2 "--scale is 0" run $qkv --scale 0
expect 0 "" run $qkv --scale -0.5 --softcap 2 --left 1 --right 1 --out out.npy -n 1
same out.npy one.npy

# ---- malformed .npy --------------------------------------------------------------------------------------------

# bad CODE TEXT: the file x.npy is refused.
bad() {
    expect "$1" "$2" run --q x.npy --k zero.npy --v one.npy --out never.npy
    on_stderr "x.npy"
    absent never.npy*
}
: >x.npy
bad 4 "truncated"
printf 'PK\003\004plainly no array' >x.npy
bad 2 "does not start with"
printf '\223NUMPY\004\000\166\000' >x.npy
bad 2 "npy version 4.0"
printf '\223NUMPY\001\000\166\000{' >x.npy
bad 4 "truncated"
printf '\223NUMPY\002\000\377\377\377\177{' >x.npy
bad 2 "too large"
zeros 15 | npy '<f4' False '(1, 2, 1, 2)' >x.npy
bad 4 "truncated"
zeros 17 | npy '<f4' False '(1, 2, 1, 2)' >x.npy
bad 2 "bytes behind its elements"
zeros 16 | npy '>f4' False '(1, 2, 1, 2)' >x.npy
bad 2 "big-endian"
zeros 16 | npy '<c8' False '(1, 2, 1, 2)' >x.npy
bad 2 "holds elements <c8"
zeros 16 | npy '<f4' False '(1, 2, 1, 4294967296)' >x.npy
bad 4 "truncated"
zeros 16 | npy '<f4' False '(4294967296, 4294967296, 4294967296, 2)' >x.npy
bad 2 "overflows"
zeros 16 | npy '<f4' False '(1, 2, 1, 99999999999999999999)' >x.npy
bad 2 "a size"
zeros 16 | npy '<f4' False '(1, -2, 1, 2)' >x.npy
bad 2 "a size"
zeros 16 | npy '<f4' False '(1, 2, 1, 2' >x.npy
bad 2 "expected a size"
zeros 16 | npy '<f4' False '(4)' >x.npy
bad 2 "expected ,"
zeros 16 | npy '<f4' False '(1,1,1,1,1,1,1,2,2)' >x.npy
bad 2 "at most 8 axes"
zeros 16 | npy '<f4' Maybe '(1, 2, 1, 2)' >x.npy
bad 2 "True or False"
zeros 16 | npy "<f4', 'descr': '<f4" False '(1, 2, 1, 2)' >x.npy
bad 2 "each once"
zeros 16 | npy "<f4', 'extra': '<f4" False '(1, 2, 1, 2)' >x.npy
bad 2 "each once"
{
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1, 2, 1, 2), }"
    zeros 16
} >x.npy
bad 2 "one simple element type"
{
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '<f4', 'shape': (1, 2, 1, 2), }"
    zeros 16
} >x.npy
bad 2 "the keys descr, fortran_order and shape"
rm x.npy
bad 4 "cannot be opened"
mkdir x.npy
bad 4 "is no regular file"
rmdir x.npy

# ---- safetensors -----------------------------------------------------------------------------------------------

q='"q":{"dtype":"F32","shape":[1,2,1,2],"data_offsets":[0,16]}'
v='"v":{"dtype":"F32","shape":[1,2,1,2],"data_offsets":[16,32]}'
{
    zeros 16
    ones 4
} >both
safetensors "{\"__metadata__\":{\"a\":\"b\"},$v,$q}" <both >x.safetensors
expect 0 "" run --q x.safetensors:q --k x.safetensors:q --v x.safetensors:v --out out.npy -n 1
same out.npy one.npy
expect 0 "" run --q x.safetensors:q --k x.safetensors:q --v x.safetensors:v --out y.safetensors:a --lse y.safetensors:b -n 1
expect 0 "[1, 2, 1, 2]" run --q y.safetensors:a --k zero.npy --v one.npy -n 1
expect 2 'has no tensor "c"; it has a, b' run --q y.safetensors:c --k zero.npy --v one.npy
expect 2 "name one with FILE:TENSOR" run --q x.safetensors --k zero.npy --v one.npy
expect 2 "no tensor is named after the colon" run --q x.safetensors: --k zero.npy --v one.npy
expect 0 "" run $qkv --out z.safetensors -n 1
expect 0 "" run --q z.safetensors --k zero.npy --v one.npy -n 1
expect 2 "two outputs have this name" run $qkv --out z.safetensors:a --lse z.safetensors:a -n 1
expect 2 "two outputs have this name" run $qkv --out z.npy --lse z.npy -n 1
absent z.npy
printf '\200\077\200\077\200\077\200\077' >half_ones
safetensors '{"q":{"dtype":"BF16","shape":[1,2,1,2],"data_offsets":[0,8]}}' <half_ones >b.safetensors
expect 0 "bf16" run --q b.safetensors --k b.safetensors --v b.safetensors --out out.npy -n 1
same out.npy oneb.npy

# An output joins the tensors that the file holds, or takes the place of one; metadata stay.
expect 0 "" run $qkv --out x.safetensors:out -n 1
expect 0 "" run --q x.safetensors:q --k zero.npy --v x.safetensors:v --out out.npy -n 1
same out.npy one.npy
expect 0 "" run --q zero.npy --k zero.npy --v x.safetensors:out --out out.npy -n 1
same out.npy one.npy
if grep -q '"__metadata__":{"a":"b"}' x.safetensors; then pass; else fail "the metadata are lost"; fi
bytes=$(wc -c <x.safetensors)
expect 0 "" run --q zero.npy --k zero.npy --v v.npy --out x.safetensors:v -n 1
[ "$(wc -c <x.safetensors)" -eq "$bytes" ] && pass || fail "a tensor that is replaced changes the file's size"
expect 0 "" run --q zero.npy --k zero.npy --v x.safetensors:v --out out.npy -n 1
same out.npy two.npy
expect 0 "" run --q x.safetensors:q --k zero.npy --v x.safetensors:out --out out.npy -n 1
same out.npy one.npy
absent x.safetensors.*
: >empty.safetensors
expect 0 "" run $qkv --out empty.safetensors:a -n 1
expect 0 "" run --q empty.safetensors:a --k zero.npy --v one.npy -n 1
printf 'no tensors, but somebody wants to keep this' >text.safetensors
cp text.safetensors kept
expect 2 "remove it or name another" run $qkv --out text.safetensors:a -n 1
same text.safetensors kept
expect 2 "is no name of a tensor" run $qkv --out x.safetensors:__metadata__ -n 1

# A .npy output never replaces an input, whatever its name.
cp one.npy input.npy
ln input.npy other_name.npy
for out in input.npy ./input.npy other_name.npy; do
    expect 2 "name another file" run --q zero.npy --k zero.npy --v input.npy --out $out -n 1
    expect 2 "name another file" run --q zero.npy --k zero.npy --v input.npy --lse $out -n 1
done
same input.npy one.npy

# Words that need another option, pipes, more memory than there is.
expect 2 "give --mask too" run $qkv --mask-kind keep
expect 2 "give --scores too" run $qkv --scores-mode probs
if mkfifo pipe.npy 2>/dev/null; then
    expect 4 "pipe.npy: is no regular file" run --q pipe.npy --k zero.npy --v one.npy
    rm pipe.npy
fi
if [ -r /proc/meminfo ]; then
    expect 4 "give a smaller --problem" run --problem b64h64s200000d128:bf16
    expect 4 "out_of_memory" run --problem b1h64s1000000d64:bf16 --scores scores.npy
fi

# refused CODE TEXT HEADER DATA-BYTES: a file of this header is refused.
refused() {
    zeros "$4" | safetensors "$3" >bad.safetensors
    expect "$1" "$2" run --q bad.safetensors:q --k zero.npy --v one.npy --out never.npy
    on_stderr "bad.safetensors"
    absent never.npy*
}
refused 2 "line 1, column" '{"q":' 0
refused 2 "duplicate" "{$q,$q}" 32
refused 2 "no JSON object" '[1]' 0
refused 2 "out of the bounds of the data" "{$q}" 15
refused 2 "the tensors end at 16, the data at 17" "{$q}" 17
refused 2 "two tensors overlap" "{$q,\"v\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[12,28]}}" 28
refused 2 "there is a hole" "{$q,\"v\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[20,36]}}" 36
refused 2 "there is a hole" '{"q":{"dtype":"F32","shape":[4],"data_offsets":[4,20]}}' 20
refused 2 "out of the bounds" '{"q":{"dtype":"F32","shape":[4],"data_offsets":[-16,0]}}' 16
refused 2 "out of the bounds" '{"q":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}}' 16
refused 2 "two whole numbers" '{"q":{"dtype":"F32","shape":[4],"data_offsets":[0,16.0]}}' 16
refused 2 "two whole numbers" '{"q":{"dtype":"F32","shape":[4],"data_offsets":[0,16,32]}}' 16
refused 2 "its shape and F32 need 20" '{"q":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}}' 16
refused 2 "overflows 64 bits" \
    '{"q":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,16]}}' 16
refused 2 "whole numbers from 0" '{"q":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}' 16
refused 2 "more than 8 axes" '{"q":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]}}' 16
refused 2 "which the format does not know" '{"q":{"dtype":"F33","shape":[4],"data_offsets":[0,16]}}' 16
refused 2 "holds U32" '{"q":{"dtype":"U32","shape":[4],"data_offsets":[0,16]}}' 16
refused 2 "no object of dtype, shape and data_offsets" '{"q":[0,16]}' 16
refused 2 "no object of dtype, shape and data_offsets" \
    '{"q":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"more":1}}' 16
refused 2 "__metadata__ is no object of texts" "{\"__metadata__\":{\"a\":1},$q}" 16
refused 2 'it has none' '{}' 0
printf '\001\002\003' >bad.safetensors
expect 4 "truncated" run --q bad.safetensors:q --k zero.npy --v one.npy
printf '\377\000\000\000\000\000\000\000{}' >bad.safetensors
expect 4 "truncated: a header of 255 bytes" run --q bad.safetensors:q --k zero.npy --v one.npy
printf '\377\377\377\377\377\377\377\377{}' >bad.safetensors
expect 2 "too large" run --q bad.safetensors:q --k zero.npy --v one.npy

# ---- what cannot be written ------------------------------------------------------------------------------------

expect 2 "expected a name that ends in" run $qkv --out out.txt
expect 4 "its folder cannot be written" run $qkv --out no/such/folder/out.npy
mkdir folder.npy
expect 4 "is no regular file" run $qkv --out folder.npy
cp one.npy kept.npy
(
    ulimit -f 1
    "$attn" run --problem b1h1s400d64:f32 -n 1 --out kept.npy >stdout 2>stderr
    echo $? >code
)
[ "$(cat code)" = 4 ] || fail "a file beyond the size limit does not give exit code 4"
grep -q "kept.npy: cannot be written" stderr || fail "the file at fault is not named"
same kept.npy one.npy
absent kept.npy.*

finish
