#!/bin/sh
# installed.sh: installs the build into a folder of its own and does what pages say with that tree alone: its command, and
# its headers through pkg-config.
# usage: installed.sh PAGES BUILD WORK CC PAGE.md...
set -e
pages=$1 build=$2 work=$3 cc=$4
shift 4
rm -rf "$work/prefix"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
"$pages" --prefix "$work/prefix" --work "$work/pages" --cc "$cc" "$@"
