#!/bin/sh
# The example on a device that is none (tests/modules/fake_gpu.c), with a stand-in for cuBLAS: the same clip.
# usage: video_dit_device.sh ATTN (the example stands beside the command)
set -u
dit=$(dirname "$1")/video-dit built=$(dirname "$1")/../tests
[ -x "$dit" ] || { echo "SKIPPED: $dit is not built"; exit 77; }
FAKE_GPU=1 ATTN_MODULE_PATH=$built/modules/fake_gpu.so VIDEO_DIT_CUBLAS=$built/conformance/fakes/libcublas.so.13
export FAKE_GPU ATTN_MODULE_PATH VIDEO_DIT_CUBLAS
text=$("$dit" --device cuda --verify small --quiet 2>&1) || { echo "FAILED: $text"; exit 1; }
for word in "run by fake_gpu_all" "good"; do
    case $text in *"$word"*) ;; *) echo "FAILED: no '$word' in: $text"; exit 1 ;; esac
done
text=$(VIDEO_DIT_CUBLAS=$built/none "$dit" --device cuda --verify small 2>&1)
[ $? -eq 3 ] || { echo "FAILED: without cuBLAS: $text"; exit 1; }
case $text in *"cuBLAS was not found"*) ;; *) echo "FAILED: $text"; exit 1 ;; esac
echo "video-dit on a device: all good"
