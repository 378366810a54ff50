# plugin.sh: attn plugin lists, checks and begins sparse plugins; what is wrong with one is found.
. "$(dirname "$0")/helpers"
here=$(cd "$(dirname "$0")" && pwd)
CPATH=$here/../../include:${CPATH:-}
export CPATH
cd "$work" || exit 1
ulimit -c 0

# compiled FILE OUT WORD...: one command, as for a user, with all warnings
compiled() {
    file=$1 out=$2
    shift 2
    case $file in *.cpp) set -- ${CXX:-c++} -std=c++17 "$@" ;; *) set -- ${CC:-cc} "$@" ;; esac
    if "$@" -Wall -Wextra -Wpedantic -Werror -O1 -fPIC -shared "$file" -o "$out" -lm; then pass; else fail "$file"; fi
}

# What `new` writes builds and holds, and no file is overwritten.
expect 0 "pkg-config --cflags attn" plugin new near
expect 0 "band.c was written" plugin new band --form kernel
compiled near.c near.so
compiled band.c band.so
expect 0 "6 passed, 0 failed, 0 refused" plugin check ./near.so
on_stdout "its map holds"
expect 0 "23.4 %" plugin check ./near.so --problem b1h2s512d64:bf16 --params '{"near": 0}'
expect 0 "6 passed, 0 failed, 0 refused" plugin check ./band.so
expect 0 '"passed": 6' plugin check ./band.so --json
# A band that covers all keys is dense attention.
expect 0 "1.000000" plugin check ./band.so --problem b1h2s256d64:f16 --params '{"reach": 256}'
expect 1 "'rich' is no parameter here" plugin check ./band.so --params '{"rich": 1}'
if command -v "${CXX:-c++}" >/dev/null; then
    expect 0 "c++ -std=c++17" plugin new guarded --form cpp
    compiled guarded.cpp guarded.so
    expect 0 "6 passed, 0 failed, 0 refused" plugin check ./guarded.so
    expect 1 "a C++ exception left the module: reach is below 0" plugin check ./guarded.so --params '{"reach": -1}'
fi
cp near.c before.c
expect 4 "is there already and stays as it is" plugin new near --form kernel
expect 4 "is there already and stays as it is" plugin new band
same near.c before.c
expect 2 "expected selector, kernel or cpp" plugin new other --form rust
expect 2 "cannot be called" plugin new ../other
expect 2 "lib and attn_" plugin new libother
expect 2 "wins over a plugin" plugin new flash_attn
absent other.c libother.c flash_attn.c

# Those that come with the library; two of them are for self-attention over a video.
selectors=$(dirname "$attn")/../modules/selectors.so
[ ! -e "$selectors" ] || expect 0 "20 passed, 0 failed, 4 refused" plugin check "$selectors"

# Only the file's own plugins are checked; a module without any is no plugin.
ATTN_MODULE_PATH=$work/band.so
export ATTN_MODULE_PATH
expect 0 "6 passed, 0 failed, 0 refused" plugin check ./near.so
unset ATTN_MODULE_PATH
compiled "$here/../../modules/template/template.c" template.so
expect 3 "is a module without sparse plugins" plugin check ./template.so
# A built-in name wins in a configuration; the explicit form still reaches the plugin.
cp near.so torch_sdpa.so
expect 0 "6 passed, 0 failed, 0 refused" plugin check ./torch_sdpa.so

# What is found, and what was refused.
echo "no shared object" >broken.so
expect 0 "selector" plugin list --module-path "$work/near.so:$work/broken.so"
on_stdout "module_unloadable: "
expect 0 '"form": "kernel"' plugin list --module-path "$work/band.so" --json
expect 0 "no sparse plugin was found" plugin list --module-path ""
ATTN_PLUGINS=other
export ATTN_PLUGINS
expect 0 "was not loaded: the list of allowed modules" plugin list --module-path "$work/near.so"
unset ATTN_PLUGINS
expect 3 "invalid ELF header" plugin check ./near.c
expect 3 "cannot be read" plugin check ./nowhere.so
expect 3 "file too short" plugin check ./broken.so
expect 2 "takes one file" plugin check
expect 2 "no folder" plugin check .
expect 2 "expected list, check FILE or new NAME" plugin
expect 2 "expected list, check FILE or new NAME" plugin chek near.so

# wrong CASE CODE TEXT WORD...
wrong() {
    compiled "$here/plugin_cases.c" "case$1.so" -DCASE="$1"
    number=$1 code=$2 text=$3
    shift 3
    expect "$code" "$text" plugin check "./case$number.so" "$@"
}
wrong 1 1 "every element must be written and finite"
wrong 2 1 "two runs over the same inputs differ"
wrong 3 1 "0 passed, 6 failed"
wrong 4 1 "failed with 7: it gave no reason"
wrong 5 0 "4 passed, 0 failed, 2 refused"
on_stdout "only as many keys as queries"
wrong 6 0 "6 passed"
wrong 7 139 "crashed in --problem b1h2s256d64:bf16"
wrong 8 3 "0 passed, 0 failed, 6 refused"
expect 3 '"cosine": null' plugin check ./case8.so --json
wrong 10 1 "filled a block map that does not hold"
wrong 11 1 "under the map that it chose"
wrong 12 0 "6 passed"
finish
