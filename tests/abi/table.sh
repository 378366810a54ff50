#!/bin/sh
# table.sh: abi.def names every struct and field of the headers, as they are.
# usage: table.sh FOLDER-OF-ABI INCLUDE DLPACK-INCLUDE
fresh=$(mktemp) || exit 1
trap 'rm -f "$fresh"' EXIT
"$1/generate" "$2" "$3" >"$fresh" || exit 1
if ! diff "$1/abi.def" "$fresh"; then
    echo "the public structs have changed; if only their ends have, run: tests/abi/generate > tests/abi/abi.def"
    exit 1
fi
