#!/bin/sh
# layers.sh: the layer script finds what is out of place, also behind other headers, and passes what is not.
# usage: layers.sh CHECK-LAYERS
script=$1
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/include/attn" "$tree/src/core" "$tree/src/kernels" "$tree/src/backends" "$tree/src/registry" \
    "$tree/cli" "$tree/modules/one" "$tree/modules/two"
echo '#include <dlpack/dlpack.h>' >"$tree/include/attn/attn.h"
echo '#include <attn/attn.h>' >"$tree/include/attn/module.h"
printf '#include <attn/module.h>\n#include <stdio.h>\n' >"$tree/src/core/plain.h"
printf '#include "core/plain.h"\n' >"$tree/src/registry/fine.c"
printf '#include <attn/attn.h>\n' >"$tree/cli/fine.c"
echo '#include <stdint.h>' >"$tree/src/kernels/leaf.h"
echo '#include "kernels/leaf.h"' >"$tree/src/backends/fine.c"
echo '#include <attn/module.h>' >"$tree/modules/one/own.h"
echo '#include "own.h"' >"$tree/modules/one/fine.c"
"$script" "$tree" || { echo "an orderly tree was refused"; exit 1; }

failed=0
# bite FILE TEXT WORD: with this file in the tree the script fails and says the word.
bite() {
    printf '%b' "$2" >"$tree/$1"
    text=$("$script" "$tree") && { echo "$1 was not refused"; failed=1; }
    case $text in
    *"$3"*) ;;
    *) echo "$1: no word of \"$3\" in: $text" && failed=1 ;;
    esac
    rm "$tree/$1"
}
bite src/kernels/bad.c '#include <attn/attn.h>\n' 'src/kernels/bad.c:1'
bite src/core/bad.c '#include "registry/fine.c"\n' 'src/core/bad.c:1'
bite src/backends/bad.c '#include "core/plain.h"\n' 'src/backends/bad.c:1'
bite src/core/vendor.c '#include <cuda_runtime.h>\n' 'vendor header cuda_runtime.h'
bite src/core/vendor.h '#  include <acl/acl.h>\n' 'vendor header acl/acl.h'
bite cli/bad.c '#include "core/plain.h"\n' 'cli/bad.c:1'
bite cli/module.c '#include <attn/module.h>\n' 'cli/module.c:1'
bite modules/two/bad.c '#include "../one/own.h"\n' 'modules/two/bad.c:1'
bite modules/two/deep.c '#include "core/plain.h"\n' 'modules/two/deep.c:1'
bite src/core/dlpack.c '#include <dlpack/dlpack.h>\n' 'dlpack/dlpack.h'
# Transitively: the file itself names only its own room's header.
printf '#include "core/plain.h"\n' >"$tree/src/backends/through.h"
bite src/backends/deep.c '#include "backends/through.h"\n' 'src/backends/deep.c -> src/backends/through.h:1'
exit $failed
