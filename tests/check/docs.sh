#!/bin/sh
# docs.sh: the reference pages in the tree are what the program prints.
# usage: docs.sh ATTN REFERENCE-FOLDER
fresh=$(mktemp -d) || exit 1
trap 'rm -rf "$fresh"' EXIT
"$1" docs --write "$fresh" || exit 1
[ -n "$(ls "$fresh")" ] || { echo "attn docs wrote no page"; exit 1; }
if ! diff -r "$2" "$fresh"; then
    echo "docs/reference is stale; run: attn docs --write docs/reference"
    exit 1
fi
