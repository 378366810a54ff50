#!/bin/sh
# harness.sh: the conformance program notices what is wrong with a folder.
# usage: harness.sh PROGRAM FOLDER
program=$1
folder=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

# try NAME EXIT-CODE LAST-LINE [WORD]: runs over $work/NAME.
try() {
    text=$("$program" "$work/$1")
    code=$?
    last=$(printf '%s\n' "$text" | tail -n 1)
    case $text in
    *"$4"*) ;;
    *) echo "$1: no word of \"$4\" in: $text" && failed=1 ;;
    esac
    if [ "$code" -ne "$2" ] || [ "$last" != "$3" ]; then
        echo "$1: expected \"$3\" and exit code $2, found \"$last\" and $code"
        failed=1
    fi
}

# folder NAME CASE: a folder with one case of the real one.
folder() {
    mkdir -p "$work/$1"
    cp -r "$folder/$2" "$work/$1/"
    awk -v name="$2" '$1 == "case" { on = $2 == name } on' "$folder/cases.txt" >"$work/$1/cases.txt"
}

folder good attention_4d
try good 0 "1 passed, 0 failed, 0 skipped" ""

folder other rotary_embedding
try other 1 "0 passed, 0 failed, 1 skipped" "RotaryEmbedding"

mkdir "$work/empty"
: >"$work/empty/cases.txt"
try empty 1 "0 passed, 0 failed, 0 skipped" ""
try absent 1 "0 passed, 1 failed, 0 skipped" "cannot be read"

# One wrong value.
folder wrong attention_4d
printf '\100' | dd of="$work/wrong/attention_4d/out_Y.npy" bs=1 seek=131 conv=notrunc 2>/dev/null
try wrong 1 "0 passed, 1 failed, 0 skipped" "Y element 0"

# A file that ends early, one that is absent, one of another shape.
folder cut attention_4d
head -c 200 "$folder/attention_4d/in_K.npy" >"$work/cut/attention_4d/in_K.npy"
try cut 1 "0 passed, 1 failed, 0 skipped" "in_K.npy"
folder lost attention_4d
rm "$work/lost/attention_4d/in_V.npy"
try lost 1 "0 passed, 1 failed, 0 skipped" "in_V.npy"
folder shape attention_4d
sed 's/^\(in Q float32 \)[0-9]*/\199/' "$work/shape/cases.txt" >"$work/t" && mv "$work/t" "$work/shape/cases.txt"
try shape 1 "0 passed, 1 failed, 0 skipped" "another shape"

# An index that ends inside a case, and one with a line that nobody knows.
folder torn attention_4d
sed '/^end/d' "$work/torn/cases.txt" >"$work/t" && mv "$work/t" "$work/torn/cases.txt"
try torn 1 "0 passed, 1 failed, 0 skipped" "ends inside"
folder strange attention_4d
sed 's/^op /operator /' "$work/strange/cases.txt" >"$work/t" && mv "$work/t" "$work/strange/cases.txt"
try strange 1 "0 passed, 1 failed, 0 skipped" "operator"
exit $failed
