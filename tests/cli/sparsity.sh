# sparsity.sh: attn sparsity counts, draws, converts and times block maps; problems carry maps.
. "$(dirname "$0")/helpers"

expect 0 "25.00 %" sparsity b1h2s1024d64:f32:sparse=0.75/64
expect 0 "all                128        512  25.00 %" sparsity b1h2s1024d64:f32:sparse=0.75/64
expect 0 '"kept": 64' sparsity b1h1s1024d64:f32:sparse=0.75/64 --json
# The last blocks hold 36 queries and 44 keys: shares are of scores, not of blocks.
expect 0 '"share": 1.0' sparsity b2h1s100x300d16:f32:sparse=0/64x128 --json
expect 0 '"empty": 2' sparsity b1h1s100d16:f32:sparse=1/64 --json
expect 0 "##" sparsity b1h1s128d16:f32:sparse=0/64 --text
expect 0 '"exact": true' sparsity b1h1s300d16:f32:sparse=0.5/128 --convert 64 --json
expect 0 "which keep more pairs" sparsity b1h1s300d16:f32:sparse=0.5/64 --convert 128x64
expect 0 "without the map" sparsity b1h2s300d16:bf16:sparse=0.5/64 --time --rounds 1
expect 2 "has no block map" sparsity b1h1s64d16:f32
expect 2 "0 problems were given" sparsity
expect 2 "head 9" sparsity b1h1s64d16:f32:sparse=0.5/64 --head 9
expect 2 "expected the size of a block" sparsity b1h1s64d16:f32:sparse=0.5/64 --convert 0x3
expect 2 "give --time too" sparsity b1h1s64d16:f32:sparse=0.5/64 --rounds 3
expect 2 "a share from 0 to 1" sparsity b1h1s64d16:f32:sparse=1.5/64
expect 2 "/ and the size of a block" sparsity b1h1s64d16:f32:sparse=0.5
expect 2 "sparse excludes packed" compare --problem b1h1s64d16:f32:sparse=0.5/64:packed=2
expect 4 "could not be written" sparsity b1h1s64d16:f32:sparse=0.5/64 --png /nowhere/map.png
expect 0 "all" sparsity b1h3s500d16:f32:sparse=0.5/64 --png "$work/map.png"
case $(head -c 4 "$work/map.png" | tail -c 3) in PNG) pass ;; *) fail "$work/map.png is no PNG" ;; esac

expect 0 "keeps 25.0 % of the scores" compare --problem b1h2s300x500d64v40:f32:sparse=0.7/64x128 --max-rel-l2 1e-5
expect 0 '"kept": 0.5' compare --problem b1h2s256d64:bf16:sparse=0.5/64 --json
finish
