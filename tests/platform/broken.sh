#!/bin/sh
# broken.sh: vendors' libraries without their symbols are no platform, and attn info says why. usage: broken.sh ATTN FOLDER
text=$(LD_LIBRARY_PATH=$2 "$1" info) || { echo "attn info fails"; exit 1; }
failed=0
for symbol in nvmlInit_v2 amdsmi_init aclInit zeInit mtmlLibraryInit; do
    printf '%s\n' "$text" | grep -q "lacks the symbol $symbol" || { echo "no word of $symbol"; failed=1; }
done
printf '%s\n' "$text" | grep -q '^platform *cpu$' || { echo "the platform is not cpu"; failed=1; }
exit $failed
