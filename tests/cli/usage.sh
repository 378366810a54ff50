# usage.sh: exit codes and sentences of the command line itself.
. "$(dirname "$0")/helpers"

expect 0 "attn " --version
on_stdout "attn "
expect 0 "Usage: attn COMMAND" --help
expect 0 "Examples" -h
expect 0 "Usage: attn run" help run
expect 2 "no command given"
expect 2 'the nearest is check' chekc
expect 2 'unknown command "frobnicate"' frobnicate
not_printed nearest
expect 2 'unknown option "--frob"' --frob
expect 2 'unknown command "nothing"' help nothing

# Every command has help with examples, and takes no unknown option.
"$attn" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' >"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 8 ] || fail "--help lists fewer than 8 commands"
while read -r command; do
    expect 0 "Usage: attn $command" "$command" --help
    on_stdout "Examples"
    on_stdout "--help"
    on_stdout "Exit status: 0 ok"
    expect 2 "unknown option --no-such-option" "$command" --no-such-option
    on_stderr "see attn $command --help"
done <"$work/commands"

# Options.
expect 2 "the nearest is --problem" run --prolem b1h1s1d1:f32
expect 2 "unknown option -Z" run -Z
expect 2 "--problem needs STRING" run --problem
expect 2 'unexpected word "word"' run --problem b1h1s1d1:f32 word
expect 2 "--json takes no value" run --problem b1h1s1d1:f32 --json=1
expect 2 "a whole number from 1 to 4096" run --problem b1h1s1d1:f32 --threads 0
expect 2 "a whole number from 1 to 1000" run --problem b1h1s1d1:f32 --repeat 1e3
expect 2 "expected a number" run --problem b1h1s1d1:f32 --scale 0x10
expect 2 "--problem excludes the other options" run --problem b1h1s1d1:f32 --scale 1
expect 2 "--problem excludes the other options" run --problem b1h1s1d1:f32 --causal
expect 2 "expected a number" compare --problem b1h1s1d1:f32 --min-cosine nan
expect 2 "a number from -1 to 1" compare --problem b1h1s1d1:f32 --min-cosine 2
expect 0 "TORCH_SDPA" run --problem b1h1s1d1:f32 -dac '{"default": {"backend": "TORCH_SDPA"}}' -n 1
expect 0 "TORCH_SDPA" run --problem b1h1s1d1:f32 '-dac={"default": {"backend": "TORCH_SDPA"}}' -n 1
echo '{"default": {"backend": "TORCH_SDPA"}}' >"$work/config.json"
expect 0 "TORCH_SDPA" run --problem b1h1s1d1:f32 -dac "@$work/config.json" -n 1
expect 4 "cannot be read" run --problem b1h1s1d1:f32 -dac "@$work/none.json"
expect 2 "line 1" run --problem b1h1s1d1:f32 -dac '{"default":'
expect 2 "unknown_backend" run --problem b1h1s1d1:f32 -b NO_SUCH_BACKEND
expect 2 "no-such-impl" run --problem b1h1s1d1:f32 --override FLASH_ATTN=no-such-impl
expect 2 "unknown_name" run --problem b1h1s1d1:f32 --isa avx9
expect 2 '--device is "tpu"' run --problem b1h1s1d1:f32 --device tpu

# Refusals: 3, with the reason; in JSON as well.
expect 3 "platform_unsupported" run --problem b1h1s1d1:f32 -b CUDNN_ATTN
expect 3 '"error_kind": "platform_unsupported"' run --problem b1h1s1d1:f32 -b CUDNN_ATTN --json
expect 3 "dtype_unsupported" run --problem b1h1s1d1:f64 -b FLASH_ATTN

# Control characters of arguments do not reach the terminal.
expect 2 "?[31m" run --problem "$(printf 'b1\033[31m')"

# A result that cannot be written is a failure.
if [ -w /dev/full ]; then
    # The page and the JSON text are longer than a buffer: their write fails long before the end.
    for arguments in "--version" "--help" "check --help" "docs commands" "info --json" "run --problem b1h1s1d1:f32 -n 1"; do
        # The arguments are words.
        "$attn" $arguments >/dev/full 2>"$work/stderr"
        [ $? -eq 4 ] || fail "attn $arguments >/dev/full: exit code is not 4"
        on_stderr "could not be written: No space left on device"
    done
fi
{ "$attn" check --problem b1h1s1-64d8:f32 2>/dev/null; "$attn" run --help; echo $? >"$work/code"; } 2>"$work/stderr" | head -c 0
sleep 0.2
[ -s "$work/stderr" ] && fail "a closed pipe is told of: $(cat "$work/stderr")"
{ sleep 0.3; "$attn" info --json; echo $? >"$work/json"; } 2>"$work/stderr" | head -c 0
sleep 0.6
[ "$(cat "$work/json" 2>/dev/null)" = 4 ] || fail "a closed pipe does not give exit code 4 for JSON"
[ -s "$work/stderr" ] && fail "a closed pipe is told of: $(cat "$work/stderr")"
[ "$(cat "$work/code" 2>/dev/null)" = 4 ] || fail "a closed pipe does not give exit code 4"

# SIGINT: 130, soon.
if timeout --version >/dev/null 2>&1; then
    timeout --foreground --preserve-status -s INT -k 60 1 "$attn" run --problem b1h8s20000d64:f32 -b TORCH_SDPA \
        >"$work/stdout" 2>"$work/stderr"
    [ $? -eq 130 ] || fail "an interrupted run does not give exit code 130"
    on_stderr "cancelled"
    timeout --foreground --preserve-status -s INT -k 60 1 "$attn" compare --problem b1h8s20000d64:f32 \
        >"$work/stdout" 2>"$work/stderr"
    [ $? -eq 130 ] || fail "an interrupted comparison does not give exit code 130"
    # While tensors of 1.6 GB are drawn, and by the signal of service managers: the same.
    timeout --foreground --preserve-status -s TERM -k 60 0.3 "$attn" run --problem b1h8s64x200000d128:f32 \
        >"$work/stdout" 2>"$work/stderr"
    [ $? -eq 130 ] || fail "a run that is ended while it makes tensors does not give exit code 130: $(cat "$work/stderr")"
    on_stderr "cancelled"
fi

# A run of more than a second says on a terminal that it lives; a short one and one that is redirected say nothing.
long=b1h4s5000d64:f32
script -qec "$attn run --problem $long -b TORCH_SDPA --threads 1" /dev/null >"$work/terminal" </dev/null
if grep -qF 'run: computing 1 s' "$work/terminal"; then pass; else fail "attn run $long shows no progress: $(cat -v "$work/terminal")"; fi
script -qec "$attn run --problem b1h1s8d8:f32" /dev/null >"$work/terminal" </dev/null
if grep -qF 'run: ' "$work/terminal"; then fail "a short attn run shows progress"; else pass; fi
expect 0 'cpu_flash' run --problem b1h1s8d8:f32
not_printed 'run: '

finish
