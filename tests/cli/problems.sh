# problems.sh: the grammar of problem strings: what is taken, what it becomes, what is refused and where.
. "$(dirname "$0")/helpers"

# canonical TEXT CANONICAL: a problem and how it is printed back; printing is stable.
canonical() {
    for text in "$1" "$2"; do
        expect 0 "\"problem\": \"$2\"," run --problem "$text" -n 1 --json
    done
}

canonical b1h2s3d4:f32 b1h2s3d4:f32
canonical b1h2kvh2s3x3d4v4:f32 b1h2s3d4:f32
canonical b2h4kvh2s3x5d4v6:bf16 b2h4kvh2s3x5d4v6:bf16
canonical b01h002s3d4:f16 b1h2s3d4:f16
canonical b0h1s3d4:f32 b0h1s3d4:f32
canonical b1h1s0x3d4:f32 b1h1s0x3d4:f32
canonical b1h1s3x0d4:f32:lse b1h1s3x0d4:f32:lse
canonical b1h1s3d4:f32:causal=bottom-right b1h1s3d4:f32:causal
canonical b1h1s3d4:f32:causal=top-left:start=2 b1h1s3d4:f32:causal=top-left:start=2
canonical b1h1s3d4:f32:lse:causal b1h1s3d4:f32:causal:lse
canonical b1h1s3d4:f32:left=0:right=7 b1h1s3d4:f32:left=0:right=7
canonical b1h1s3d4:f32:left=1:align=top-left b1h1s3d4:f32:left=1:align=top-left
canonical b2h2s3d4:f32:mask=keep@bhsk:maskdtype=bool b2h2s3d4:f32:mask=keep
canonical b2h2s3d4:f32:mask=keep@bk:maskdtype=i8 b2h2s3d4:f32:mask=keep@bk:maskdtype=i8
canonical b2h2s3d4:f32:mask=additive@hs:maskdtype=f16 b2h2s3d4:f32:mask=additive@hs:maskdtype=f16
canonical b2h2s3d4:f32:mask=key@bk b2h2s3d4:f32:mask=key
canonical b2h2s3d4:f32:mask=holes@k:nan b2h2s3d4:f32:mask=holes@k:nan
canonical b2h2s3d4:f32:lengths b2h2s3d4:f32:lengths
canonical b2h2s3d4:f32:lengths=2 b2h2s3d4:f32:lengths=2
canonical b1h2s9d4:f32:packed=3 b1h2s9d4:f32:packed=3
canonical b1h2s9d4:f32:spans b1h2s9d4:f32:spans=1
canonical b1h2s9d4:f32:causal:ranges=2 b1h2s9d4:f32:causal:ranges=2
canonical b1h2s9d4:f32:joint=3@front b1h2s9d4:f32:joint=3
canonical b1h2s9d4:f32:joint=3@rear b1h2s9d4:f32:joint=3@rear
canonical b1h2s9d4:f32:softcap=50:scale=1.250e-1:sinks b1h2s9d4:f32:softcap=50:scale=0.125:sinks
canonical b1h2s9d4:bf16:out=f32 b1h2s9d4:bf16:out=f32
canonical b1h2s9d4:f32:layout=bsnd:seed=1 b1h2s9d4:f32
canonical b1h2s9d4:f32:layout=qkv:seed=18 b1h2s9d4:f32:layout=qkv:seed=18
canonical b1h2s9d4:f32:layout=padded b1h2s9d4:f32:layout=padded

# Numbers do not follow the locale.
for locale in de_DE.UTF-8 fr_FR.UTF-8 C; do
    LC_ALL=$locale expect 0 '"problem": "b1h2s9d4:f32:softcap=0.5"' run --problem b1h2s9d4:f32:softcap=0.5 -n 1 --json
done

# Lists and doubling ranges: the leftmost varies slowest.
expect 0 "" compare --problem b1h1s2,3d4,5:f32,f16 --backends TORCH_SDPA
grep -o '^b1h1[^,]*' "$work/stdout" | tr '\n' ' ' >"$work/found"
echo "b1h1s2d4:f32 b1h1s2d4:f16 b1h1s2d5:f32 b1h1s2d5:f16 b1h1s3d4:f32 b1h1s3d4:f16 b1h1s3d5:f32 b1h1s3d5:f16 " |
    tr -d '\n' >"$work/expected"
same "$work/found" "$work/expected"
expect 0 "" compare --problem b1h1s1,4-40*2d4:f32:softcap=2,3.5 --backends TORCH_SDPA
[ "$(grep -c '^b1h1' "$work/stdout")" -eq 10 ] || fail "1,4-40*2 with two softcaps is not 10 problems"
expect 2 "stands for 2 problems" run --problem b1h1s2,3d4:f32
expect 2 "more than 4096 problems" compare --problem b1-1024*2h1-1024*2s1-1024*2d1-64*2:f32

# Errors name the column, what was found and what was expected.
expect 2 'column 1: found the end, expected b' run --problem ""
expect 2 'column 9: found the end, expected : and the element type' run --problem b1h1s1d1
expect 2 'column 10: found "f33", expected one of f32' run --problem b1h1s1d1:f33
expect 2 'column 3: found " h1s1d1", expected h' run --problem "b1 h1s1d1:f32"
expect 2 'column 3: found "s1d1", expected h' run --problem b1s1d1:f32
expect 2 'column 2: found "-1h1s1d1", expected a whole number' run --problem b-1h1s1d1:f32
expect 2 'column 6: found "99999999999999999999d1"' run --problem b1h1s99999999999999999999d1:f32
expect 2 'column 8: found "1*2d1", expected a whole number from 4' run --problem b1h1s4-1*2d1:f32
expect 2 'column 10: found "1d1", expected a whole number from 2' run --problem b1h1s1-4*1d1:f32
expect 2 'expected * and the factor' run --problem b1h1s1-4d1:f32
expect 2 'a range cannot start from 0' run --problem b1h1s0-4*2d1:f32
expect 2 'column 14: found "casual", expected a key (the nearest is causal)' run --problem b1h1s1d1:f32:casual
expect 2 'column 21: found "left", expected one of bottom-right, top-left' run --problem b1h1s1d1:f32:causal=left
expect 2 'column 14: found the end, expected a key' run --problem b1h1s1d1:f32:
expect 2 'column 18: found "lse", expected each key once' run --problem b1h1s1d1:f32:lse:lse
expect 2 'column 22: found "-1", expected a number above 0' run --problem b1h1s1d1:f32:softcap=-1
expect 2 'found "nan", expected a number above 0' run --problem b1h1s1d1:f32:softcap=nan
expect 2 'found "x", expected a whole number' run --problem b1h1s1d1:f32:seed=1,x
expect 2 'some of the letters bhsk' run --problem b1h1s1d1:f32:mask=keep@kb
expect 2 'expected k or bk' run --problem b1h1s1d1:f32:mask=key@h
expect 2 'expected = and a value' run --problem b1h1s1d1:f32:left
expect 2 'expected : and a key, or the end' run --problem b1h1s1d1:f32:lse=1

# What excludes what.
expect 2 'kvh must divide h' run --problem b1h3kvh2s1d1:f32
expect 2 'the output has' run --problem b1h1s4d1:f64:out=f32
expect 2 'the output has' run --problem b1h1s4d1:f32 --out-dtype bf16
expect 2 'packed needs b1' run --problem b2h1s4d1:f32:packed=2
expect 2 'packed excludes' run --problem b1h1s4d1:f32:packed=2:lengths
expect 2 'maskdtype does not fit' run --problem b1h1s4d1:f32:mask=keep:maskdtype=f32
expect 2 'maskdtype does not fit' run --problem b1h1s4d1:f32:maskdtype=f32
expect 2 'an f64 mask needs f64' run --problem b1h1s4d1:f32:mask=additive:maskdtype=f64
expect 2 'lengths is beyond' run --problem b1h1s4d1:f32:lengths=5
expect 2 'start needs' run --problem b1h1s4d1:f32:causal:start=1
expect 2 'align needs' run --problem b1h1s4d1:f32:align=top-left
expect 2 'as many keys as queries' run --problem b1h1s4x5d1:f32:layout=qkv
expect 2 'layout=huge takes at most' run --problem b1h1s400d1:f32:layout=huge
expect 2 '2^56' run --problem b1099511627776h1099511627776s1d1:f32
expect 2 '2^56' run --problem b1h1s1099511627776d1:f32:mask=keep

finish
