#!/bin/sh
# found.sh: a stand-in for an NVIDIA machine: its facts are told, host tensors still run, and what has no implementation
# here is refused. usage: found.sh ATTN FOLDER
attn=$1
failed=0
export LD_LIBRARY_PATH=$2 FAKE_CUDA=2
unset DIFFUSION_ATTENTION_BACKEND
want() {
    code=$1 word=$2
    shift 2
    text=$("$attn" "$@" 2>&1)
    got=$?
    [ $got -eq "$code" ] || { echo "exit code $got instead of $code: attn $*"; failed=1; }
    printf '%s\n' "$text" | grep -qF -- "$word" || { echo "no '$word' from attn $*: $text"; failed=1; }
}
want 0 "NVML reports 2 devices" info
want 0 '"device_name": "Fake GPU"' info --json
want 0 '"cudnn_version": 91002' info --json
want 0 "cuda:0  Fake GPU, capability 9.0, cuDNN 9.10.2" info
want 0 "cpu_flash" run --problem b1h2s16d32:f32
want 3 "package_missing" explain --role self --device cuda
want 0 "choice      FLASH_ATTN" explain --role self
want 3 "its probe says no" explain --platform rocm
FAKE_CUDA=init_error
want 0 "a fake failure of init" info
exit $failed
