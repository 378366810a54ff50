#!/bin/sh
# needed.sh: the shared library links the C library and jansson alone.
# usage: needed.sh LIBRARY SANITIZER
if [ -n "$2" ]; then
    echo "skipped: a sanitizer links its own run-time library"
    exit 77
fi
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || { echo "$1 has no dynamic section"; exit 1; }
failed=0
for name in $needed; do
    case $name in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | libjansson.so.* | ld-linux*) ;;
    *) echo "$1 needs $name" && failed=1 ;;
    esac
done
readelf -d "$1" | grep -q '(SONAME).*\[libattn.so.[0-9]*\]' || { echo "$1 has no SONAME libattn.so.N"; failed=1; }
exit $failed
