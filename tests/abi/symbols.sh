#!/bin/sh
# symbols.sh: the shared library exports what the headers declare, and nothing else.
# usage: symbols.sh LIBRARY INCLUDE
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u >"$work/exported"
# A declaration is ATTN_API ... name(
for header in attn module; do
    tr '\n' ' ' <"$2/attn/$header.h" | grep -oE 'ATTN_API [a-zA-Z_0-9 *]*\<attn_[a-z_0-9]+\('
done | sed -E 's/.*[ *](attn_[a-z_0-9]+)\($/\1/' | sort -u >"$work/declared"
if ! diff "$work/declared" "$work/exported"; then
    echo "< is declared in a header and not exported, > is exported and not declared"
    exit 1
fi
count=$(wc -l <"$work/declared")
echo "$count symbols"
[ "$count" -ge 20 ]
