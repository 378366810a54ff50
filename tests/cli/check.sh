# check.sh: the self-test passes on this library, and finds what is wrong with a module that is wrong on purpose.
. "$(dirname "$0")/helpers"
here=$(cd "$(dirname "$0")" && pwd)

# last_line: the counts stand alone on the last line.
last_line() {
    if tail -n 1 "$work/stdout" | grep -qE "^[0-9]+ passed, $1 failed, [0-9]+ skipped\$"; then
        pass
    else
        fail "the last line is \"$(tail -n 1 "$work/stdout")\", expected $1 failures"
    fi
}

expect 0 "cpu_flash" check --problem b2h3s17x65d16:f32:mask=keep:lse
on_stdout "cpu_reference"
last_line 0
expect 0 "" check --problem b1h2s5x7d16:f32:layout=huge --problem b1h1s9d8:bf16:causal:seed=4 --backend FLASH_ATTN
not_printed "cpu_reference"
last_line 0
expect 0 '"failed": 0' check --problem b1h1s9d8:f16 --json
on_stdout '"failures": []'
expect 0 "cpu_flash takes" check --problem b1h1s9d8:f64 --backend FLASH_ATTN --isa scalar
last_line 0
expect 0 "skipped b1h1s9d8:f64" check --problem b1h1s9d8:f64 --backend FLASH_ATTN --verbose
expect 2 "column 1" check --problem nonsense
expect 2 "serves NOTHING" check --problem b1h1s9d8:f16 --backend NOTHING
expect 2 '--isa is "avx9"' check --isa avx9
expect 2 "is no kernel set of this build" check --isa avx9 --json
if [ -r /proc/meminfo ]; then
    expect 4 "out_of_memory" check --problem b1h1s9d8:f16 --problem b64h64s200000d128:f16
    on_stderr "give a smaller --problem"
fi

# ---- a module that is named and refused ------------------------------------------------------------------------

echo text >"$work/text.so"
expect 1 "module_unloadable" check --problem b1h1s9d8:f16 --module-path "$work/text.so"
on_stdout "FAIL $work/text.so"
last_line 1
expect 1 "cannot be read" check --problem b1h1s9d8:f16 --module-path "$work/missing.so" --backend SAGE_ATTN
expect 1 '"error_kind": "module_unloadable"' check --problem b1h1s9d8:f16 --module-path "$work/text.so" --json
expect 0 "cpu_flash" check --problem b1h1s9d8:f16 --module-path ""

# ---- a module that is wrong ------------------------------------------------------------------------------------

compiler=$(command -v cc || command -v gcc || command -v clang) || {
    echo "no compiler: the modules that are wrong on purpose are left out"
    finish
}

# build MODE: wrong.so in $work.
build() {
    "$compiler" -std=c11 -shared -fPIC -DMODE="$1" -I "$here/../../include" "$here/wrong.c" -o "$work/wrong.so" -lm ||
        fail "wrong.c does not compile"
}
module() {
    expect "$1" "$2" check --problem b1h2s5x9d8v6:f32:seed=3 --backend SAGE_ATTN --module-path "$work/wrong.so"
}

build 0
module 0 "wrong"
last_line 0
for mode in 1 2 3 4 5 6; do
    case $mode in
    1) text="is beyond" ;;
    2) text="memory around out was written" ;;
    3) text="differs from that of one thread in some bits" ;;
    4) text="is beyond" ;;
    5) text="nan" ;;
    6) text="internal" ;;
    esac
    build $mode
    if [ $mode -eq 4 ] && ! "$attn" info | grep -q avx; then continue; fi
    module 1 "$text"
    on_stdout "FAIL"
    # The reproducer is a command.
    on_stdout "attn check --problem b1h2s5x9d8v6:f32:seed=3 --backend SAGE_ATTN --isa"
    last_line '[1-9][0-9]*'
done
expect 1 '"error_kind": "internal"' check --problem b1h2s5x9d8v6:f32:seed=3 --backend SAGE_ATTN \
    --module-path "$work/wrong.so" --json

finish
