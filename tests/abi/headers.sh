#!/bin/sh
# headers.sh: each public header compiles alone, as C99, C11 and C++17, without a warning.
# usage: headers.sh INCLUDE DLPACK-INCLUDE
failed=0
compiled=0

# try COMPILER LANGUAGE STANDARD TEXT
try() {
    command -v "$1" >/dev/null || return 0
    compiled=$((compiled + 1))
    if ! printf '%b' "$4" | "$1" -x "$2" -std="$3" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$include" \
        -isystem "$dlpack" -; then
        echo "failed: $1 -std=$3: $4"
        failed=1
    fi
}

include=$1
dlpack=$2
for header in attn module; do
    text="#include <attn/$header.h>\n"
    for compiler in "${CC:-cc}" clang; do
        try "$compiler" c c99 "${text}int main(void) { return ATTN_OK; }\n"
        try "$compiler" c c11 "${text}${text}int main(void) { return ATTN_OK; }\n"
    done
    for compiler in "${CXX:-c++}" clang++; do
        try "$compiler" c++ c++17 "${text}int main() { return ATTN_OK; }\n"
    done
done
guard='#include <attn/module.h>\nattn_status run(attn_error *e) { ATTN_GUARD(e, return ATTN_OK;) }\n'
try "${CXX:-c++}" c++ c++17 "$guard"
[ "$compiled" -ge 6 ] || { echo "only $compiled compilations: a C and a C++ compiler are needed"; exit 1; }
exit $failed
