#!/bin/sh
# consumer.sh: installs the build into a folder of its own and builds an outside project against it, once with
# find_package, once with pkg-config.
# usage: consumer.sh BUILD SOURCE SANITIZER
set -e
build=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=
[ -z "$3" ] || flags="-fsanitize=$3"
# The installed tree is all that counts, whatever the environment names.
unset ATTN_MODULE_PATH ATTN_PLUGINS DIFFUSION_ATTENTION_BACKEND PKG_CONFIG_PATH CMAKE_PREFIX_PATH

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
header=$(find "$work/prefix" -name attn.h)
pc=$(find "$work/prefix" -name attn.pc)
[ -n "$header" ] || { echo "attn.h was not installed"; exit 1; }
[ -n "$pc" ] || { echo "attn.pc was not installed"; exit 1; }

cmake -S "$source" -B "$work/cmake" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DCMAKE_C_FLAGS="$flags" >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/cmake" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
"$work/cmake/with_shared"
"$work/cmake/with_static"
readelf -d "$work/cmake/with_shared" | grep -q 'NEEDED.*libattn\.so\.' || { echo "with_shared does not load the shared library"; exit 1; }
if readelf -d "$work/cmake/with_static" | grep -q 'NEEDED.*libattn'; then
    echo "with_static loads the shared library"
    exit 1
fi

PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
libdir=$(dirname "$(find "$work/prefix" -name 'libattn.so' | head -n 1)")
# shellcheck disable=SC2086,SC2046
${CC:-cc} $flags "$source/main.c" -o "$work/plain" $(pkg-config --cflags --libs attn) "-Wl,-rpath,$libdir"
"$work/plain"
want=$(pkg-config --modversion attn)
"$work/plain" | grep -q "attn $want:" || { echo "attn.pc says version $want"; exit 1; }
