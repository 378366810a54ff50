# device.sh: run, compare, bench and check on a device, with a module whose device is none (tests/modules/fake_gpu.c): its memory
# cannot be touched by the host, so that whatever skips the copies ends the program.
. "$(dirname "$0")/helpers"
ATTN_MODULE_PATH=$(dirname "$attn")/../tests/modules/fake_gpu.so
FAKE_GPU=2
export ATTN_MODULE_PATH FAKE_GPU

expect 0 "fake_gpu_all" run --problem b2h4kvh2s33x65d64:bf16:causal:lse --device cuda
on_stdout "by its own clock"
expect 0 '"device": "cuda:1"' run --problem b1h2s5x7d16:f32:mask=keep --device cuda:1 --json
expect 2 "there is no fake device 9" run --problem b1h1s4d8:f32 --device cuda:9
expect 2 "expected cpu, cuda or rocm" run --problem b1h1s4d8:f32 --device cuda:x
expect 2 "expected cpu, cuda or rocm" run --problem b1h1s4d8:f32 --device gpu
# A question without facts is about this machine and its modules; its configuration is its own.
printf '%s\n' '{"id": 1, "query": {"role": "self", "head_size": 64}}' >"$work/questions"
expect 0 '"backend":"FLASH_ATTN"' resolve --jsonl "$work/questions" --reasons
on_stdout "fake_gpu"
DIFFUSION_ATTENTION_BACKEND=TORCH_SDPA
export DIFFUSION_ATTENTION_BACKEND
expect 0 '"backend":"FLASH_ATTN"' resolve --jsonl "$work/questions"
unset DIFFUSION_ATTENTION_BACKEND
# Without --device the tensors stay on the host.
expect 0 "cpu_flash" run --problem b1h2s5x7d16:f32

expect 0 "fake_gpu_all" compare --problem b2h4s33x65d64:f32:mask=key --device cuda --backends TORCH_SDPA,FLASH_ATTN --max-rel-l2 1e-6
FAKE_GPU_BREAK=value expect 1 "beyond the limits" compare --problem b1h2s9x5d8:f32 --device cuda --backends FLASH_ATTN --max-rel-l2 1e-6

expect 0 "Fake device 0" bench --device cuda b1h2s64d32:bf16 --rounds 2
on_stdout "burst"
on_stdout "fake_gpu_all"
expect 0 '"burst_seconds": 0.' bench --device cuda b1h2s64d32:bf16 --rounds 2 --json

expect 0 " 0 failed" check --device cuda --problem b2h3s17x65d16:f32:mask=keep:lse --problem b1h4s9x11d64:f16:joint=3:layout=bnsd
on_stdout "fake_gpu_all"
not_printed "cpu_flash"
expect 0 " 0 failed" check --device cuda --problem b2h3s100x200d16:f32:sparse=0.5/32x16:lse
expect 0 "fake_gpu_all" run --problem b1h2s128d16:f32:sparse=0.75/32 --device cuda
expect 2 "give one of them" check --device cuda --isa avx2 --problem b1h1s4d8:f32
for how in unwritten value; do
    FAKE_GPU_BREAK=$how expect 1 "1 failed" check --device cuda --problem b2h3s17x65d16:f32:lse
done
FAKE_GPU_BREAK=guard expect 1 "memory around out was written on the device" check --device cuda --problem b2h3s17x65d16:f32:lse
FAKE_GPU=0 expect 2 "there is no fake device 0" check --device cuda --problem b1h1s4d8:f32

ATTN_MODULE_PATH='' expect 3 "no loaded module offers memory" check --device cuda --problem b1h1s4d8:f32

finish
