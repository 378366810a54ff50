# tune.sh: attn tune measures, stores a profile that the other commands follow, and stores nothing unasked.
. "$(dirname "$0")/helpers"

profile=$work/profile.json
expect 0 "Nothing was stored" tune b1h1s48x64d16:f32 -r 1 -t 1
on_stdout "default"
on_stdout "scalar"
on_stdout "GFLOP/s (default "
expect 0 "The profile is in $profile" tune b1h1s48x64d16:f32 b1h2s60x60d16v32:bf16 -r 1 -t 1 -o "$profile"
absent "$profile.part"
for word in '"version": 1' '"cpu": "' '"dtype": "f32"' '"dtype": "bf16"' '"value_head_dim": 32' '"q_up_to": 64' \
    '"default_gflops": ' '"isa": "' '"threads": 1'; do
    if grep -qF "$word" "$profile"; then pass; else fail "no $word in the profile"; fi
done

# Only who asks for it gets it, and only where a row holds.
expect 0 "(profile)" plan b1h1s48x64d16:f32 --backends FLASH_ATTN --profile "$profile"
expect 0 "kernel set" plan b1h1s32x64d16:f32 --backends FLASH_ATTN --profile "$profile"
not_printed "(profile)"
expect 0 "kernel set" plan b1h1s48x64d16:f32 --backends FLASH_ATTN
not_printed "(profile)"
ATTN_PROFILE=$profile
export ATTN_PROFILE
expect 0 "(profile)" plan b1h1s48x64d16:f32 --backends FLASH_ATTN
expect 0 "kernel set" plan b1h1s48x64d16:f32 --backends FLASH_ATTN --profile ""
not_printed "(profile)"
expect 0 "with 2 rows is in force" explain
expect 0 "profile     $profile" info
# What is in force is not what it is compared with.
expect 0 "profile" tune b1h1s48x64d16:f32 -r 1 -t 1 --json
grep -A1 '"name": "default"' "$work/stdout" | grep -q '(profile)' && fail "the default was measured under a profile"
unset ATTN_PROFILE
expect 0 "profile     none" info

# Rows of one class of lengths: the first stays, and the user is told.
expect 0 "its row stays" tune b1h1s48d16:f32 b1h1s50d16:f32 -r 1 -t 1 -o "$profile"
[ "$(grep -c '"dtype"' "$profile")" -eq 1 ] || fail "two rows hold for the same calls"

# A profile of another CPU is refused with both names, a broken one with its place.
sed 's/"cpu": "[^"]*"/"cpu": "Another 9000"/' "$profile" >"$work/other.json"
expect 2 "was measured on 'Another 9000' and this CPU is '" plan b1h1s8d8:f32 --profile "$work/other.json"
head -n 3 "$profile" >"$work/half.json"
expect 2 "is not JSON at line" plan b1h1s8d8:f32 --profile "$work/half.json"
expect 4 "cannot be read" plan b1h1s8d8:f32 --profile "$work/none.json"

# Nothing to choose from is a refusal; a place that cannot be written is told before measuring.
expect 3 "refused: b1h1s8d8:f64" tune b1h1s8d8:f64 -r 1 -t 1
expect 3 '"error_kind": "dtype_unsupported"' tune b1h1s8d8:f64 -r 1 -t 1 --json
expect 4 "No such file" tune b1h1s8d8:f32 -r 1 -o "$work/none/profile.json"
expect 2 "no problem given" tune
expect 2 "syntax" tune b1h1
# The cap holds for candidates too.
expect 0 "scalar 96x192" tune b1h1s48d16:f32 -r 1 -t 1 --isa scalar
not_printed avx2

finish
