#!/bin/sh
# expect.sh: runs a conformance program and holds its last line and its exit code to what is expected.
# usage: expect.sh LAST-LINE PROGRAM ARGUMENT...
want=$1
shift
text=$("$@")
code=$?
printf '%s\n' "$text"
last=$(printf '%s\n' "$text" | tail -n 1)
if [ "$last" != "$want" ] || [ "$code" -ne 0 ]; then
    echo "expected the last line \"$want\" and exit code 0, found \"$last\" and $code"
    exit 1
fi
