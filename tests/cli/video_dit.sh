#!/bin/sh
# The example: it reproduces the reference, draws whole files, and fails in one clear sentence.
# usage: video_dit.sh ATTN (the example stands beside the command)
set -u
dit=$(dirname "$1")/video-dit
[ -x "$dit" ] || { echo "SKIPPED: $dit is not built"; exit 77; }
model=$(cd "$(dirname "$0")/../../examples/video-dit/model" && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

bad() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# expect CODE TEXT ARGUMENTS...: the exit code, and the text on stderr in exactly one line, with nothing on stdout.
expect() {
    code=$1 text=$2
    shift 2
    "$dit" "$@" >stdout 2>stderr
    found=$?
    [ $found -eq "$code" ] || bad "video-dit $* ends with $found, expected $code: $(cat stderr)"
    grep -qF -- "$text" stderr || bad "video-dit $* does not say '$text': $(cat stderr)"
    [ "$(wc -l <stderr)" -eq 1 ] || bad "video-dit $* does not explain itself in one line: $(cat stderr)"
    [ ! -s stdout ] || bad "video-dit $* prints a report although it failed"
}

# says FILE TEXT...: every text stands in the file.
says() {
    file=$1
    shift
    for text; do
        grep -qF -- "$text" "$file" || bad "there is no '$text' in: $(cat "$file")"
    done
}

draw="--size 8x32x32 --steps 2 --no-check --quiet"

# ---- it is the reference model
"$dit" --verify small --quiet >report 2>&1 || bad "--verify small: $(cat report)"
says report "PSNR" "block0_self_q" "x_final" "good"
"$dit" --verify small --quiet --attention-dtype bf16 >report 2>&1 || bad "--verify small in bf16: $(cat report)"
says report "bf16 inputs" "good"

# A weight that differs must be noticed: the last 64 KiB hold the tensors read last.
cp "$model/emoji-dit.safetensors" other.safetensors && chmod u+w other.safetensors
bytes=$(wc -c <other.safetensors)
head -c 65536 "$model/emoji-dit.safetensors" | tail -c 4096 >part
dd if=part of=other.safetensors bs=1 seek=$((bytes - 8192)) conv=notrunc 2>/dev/null
"$dit" --verify small --quiet --weights other.safetensors >report 2>&1
[ $? -eq 1 ] || bad "--verify small passes with other weights"

# ---- it draws, the same for any number of threads, and names what ran
"$dit" $draw --threads 1 --out one.gif --sheet one.png --video one.npy >report 2>&1 || bad "drawing: $(cat report)"
says report "self-attention" "matrix products" "relative L2" "one.gif" "one.png" "one.npy"
"$dit" $draw --threads 3 --out three.gif --video three.npy >report 2>&1 || bad "drawing with three threads: $(cat report)"
cmp -s one.npy three.npy || bad "the clip depends on the number of threads"
cmp -s one.gif three.gif || bad "the GIF depends on the number of threads"
[ "$(head -c 6 one.gif)" = GIF89a ] || bad "one.gif is no GIF"
[ "$(tail -c 1 one.gif)" = ";" ] || bad "one.gif has no end"
[ "$(head -c 4 one.png | tail -c 3)" = PNG ] || bad "one.png is no PNG"
[ "$(wc -c <one.npy)" -eq $((128 + 8 * 32 * 32 * 3)) ] || bad "one.npy has $(wc -c <one.npy) bytes"
"$dit" $draw --seed 12 --object any:16,16,1,1,18 --video two.npy >report 2>&1 || bad "any: $(cat report)"
cmp -s one.npy two.npy && bad "another scene gives the same clip"
"$dit" $draw --no-condition --out three.gif >report 2>&1 || bad "--no-condition: $(cat report)"

"$dit" $draw --json --diffusion-attention-config \
    '{"per_role": {"self": {"backend": "TORCH_SDPA"}, "cross": {"backend": "FLASH_ATTN"}}}' >report 2>stderr ||
    bad "two backends: $(cat stderr)"
says report '"backend": "TORCH_SDPA"' '"backend": "FLASH_ATTN"' '"error": null' '"self_attention"' \
    "per_role['self']" "per_role['cross']"
[ ! -s stderr ] || bad "--quiet is not quiet: $(cat stderr)"
"$dit" --help >report 2>&1 || bad "--help fails"
says report "--diffusion-attention-backend" "-dac, --diffusion-attention-config" "examples:"
"$dit" -h >brief 2>&1 || bad "-h fails"
cmp -s brief report || bad "-h prints something else than --help"
"$dit" $draw --json -dac '{"per_role": {"self": {"backend": "TORCH_SDPA"}}}' >report 2>&1 || bad "-dac: $(cat report)"
says report '"backend": "TORCH_SDPA"'
"$dit" --version >report 2>&1 || bad "--version fails"

# ---- one sentence for each failure
rm -f clip.gif
expect 2 "no option --colour" --colour red
expect 2 "no option -x here" -x --steps 2
expect 2 "no option -dax here" --steps 2 -dax '{}'
expect 2 "-dac needs a value" -dac
expect 2 "libattn" $draw -dac '{"per_role": '
expect 2 "'clip' is no option" clip
expect 2 "--psnr-only says" --psnr-only
for option in "--out a.gif" "--size 8x32x32" "--steps 2" "--seed 3" "--object cat:9,9,1,1,9" "--background ffffff" \
    "--sheet a.png" "--video a.npy" "--scale 2" "--no-condition"; do
    expect 2 "leave out ${option%% *}" --verify small $option
done
expect 2 "name the same file" $draw --out same --sheet same
expect 2 "--out and --video name the same file" $draw --out same --video ./same
: >there && ln there linked
expect 2 "--sheet and --video name the same file" $draw --sheet there --video linked
expect 2 "--steps needs a value" --steps
expect 2 "multiples of 4" --size 8x30x32
expect 2 "multiples of 4" --size 8x32
expect 2 "whole number" --steps 0
expect 2 "whole number" --seed -1
expect 2 "f32 or bf16" --attention-dtype f16
expect 2 "small or large" --verify medium
expect 2 "RRGGBB" --background green
expect 2 "NAME:X,Y,VX,VY,SIZE" --object cat:1,2,3
expect 2 "NAME:X,Y,VX,VY,SIZE" --object cat:1,2,3,nan,20
expect 2 "there are: dog, cat, panda" --object unicorn:10,10,1,1,20
expect 2 "shorter side" --size 8x32x32 --object cat:10,10,1,1,32
expect 2 "one too many" --object cat:9,9,1,1,9 --object cat:9,9,1,1,9 --object cat:9,9,1,1,9 --object cat:9,9,1,1,9
expect 2 "leave out --object" --no-condition --object cat:9,9,1,1,9
expect 2 "NO_SUCH_ATTN" $draw --diffusion-attention-backend NO_SUCH_ATTN
expect 2 "libattn" $draw --diffusion-attention-config '{"per_role": '
expect 3 "CUDNN_ATTN" $draw --diffusion-attention-backend CUDNN_ATTN
expect 4 "folder" $draw --out nowhere/clip.gif
expect 4 "it is a folder" $draw --out .
expect 4 "--weights FILE" $draw --weights missing.safetensors
expect 4 "No space left" $draw --out /dev/full
(ulimit -f 1 && "$dit" $draw --out full.gif) >stdout 2>stderr
[ $? -eq 4 ] || bad "a file that may not grow: another exit code than 4: $(cat stderr)"
says stderr "File too large" "full.gif"
[ ! -e full.gif ] && [ -z "$(ls | grep '\.part$')" ] || bad "half a file is left: $(ls)"
expect 4 "is no regular file" $draw --weights /dev/zero
mkfifo pipe && expect 4 "is no regular file" $draw --weights pipe
head -c 1000000 /dev/urandom >random.safetensors
expect 4 "the header should take" $draw --weights random.safetensors
head -c 1000 "$model/emoji-dit.safetensors" >cut.safetensors
expect 4 "cut off" $draw --weights cut.safetensors
head -c 100000 "$model/emoji-dit.safetensors" >cut.safetensors
expect 4 "lies outside" $draw --weights cut.safetensors
printf '\002\000\000\000\000\000\000\000[]' >cut.safetensors
expect 4 "no JSON object" $draw --weights cut.safetensors
"$dit" --json --steps 0 >report 2>/dev/null
[ $? -eq 2 ] || bad "--json changes the exit code"
says report '"error_kind": "invalid_value"' '"error": "--steps'
[ ! -e clip.gif ] || bad "a run that failed left a GIF"

# ---- ^C: exit 130, and neither a file nor a part of one. A signal that comes before the program listens is lost,
# since the shell starts background jobs deaf to it; hence more than one.
for size in 8x32x32 16x64x64; do
    "$dit" --size $size --steps 1000 --no-check --quiet --out clip.gif --sheet clip.png >stdout 2>stderr &
    pid=$!
    (for try in 1 2 3 4 5 6 7 8 9; do sleep 1 && kill -INT $pid || exit 0; done) 2>/dev/null &
    wait $pid
    [ $? -eq 130 ] || bad "^C at $size: another exit code than 130: $(cat stderr)"
    grep -q "interrupted" stderr || bad "^C at $size is not named: $(cat stderr)"
done
for file in clip*; do
    [ ! -e "$file" ] || bad "^C left $file"
done

expect 2 "cpu or cuda" --device gpu --verify small

[ $failures -eq 0 ] && echo "video-dit: all good"
exit $((failures > 0))
