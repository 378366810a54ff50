# bench.sh: attn bench over all backends that have code here.
. "$(dirname "$0")/helpers"

# 1 is a void run: a machine or a build that is too slow for its own ceiling. Everything is measured and told all the same.
"$attn" bench b1h2s600d32:f32 --rounds 2 >"$work/both" 2>&1 </dev/null
code=$?
cp "$work/both" "$work/stdout"
[ $code -le 1 ] || fail "attn bench: exit code $code: $(cat "$work/both")"
for word in cpu_flash cpu_reference "refused: FASTVIDEO_VSA" "RAINFUSION_ATTN on b1h2s600d32:f32: dense:"; do on_stdout "$word"; done
# A backend that is named and cannot run is what the command is about.
expect 3 "was not told the grid" bench --backends FASTVIDEO_VSA b1h2s600d32:f32 --rounds 2
finish
