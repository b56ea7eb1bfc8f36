#!/usr/bin/env bash
# The documents tell the truth: README's examples run, --help names every option, recipes plan.
. "$(dirname "$0")/strict.sh"

mkdir bin
ln -s "$athanor" bin/athanor
PATH=$work/bin:$PATH

awk 'BEGIN {
    srand(3)
    split("The A No One", d); split("furnace fire metal salt flame", s); split("feeds turns keeps", v)
    for (i = 0; i < 1200; i++)
        printf "%s %s %s the %s.\n", d[int(rand()*4)+1], s[int(rand()*5)+1], v[int(rand()*3)+1],
            s[int(rand()*5)+1]
}' >my.txt

# Fences after "<!-- test: sh -->" are run, those after "<!-- test: file NAME -->" written; the pages in this order.
awk '
    /^<!-- test: / { kind = $3; name = $4; next }
    /^```/ && open { open = 0; close(out); next }
    /^```/ && kind != "" {
        open = 1; n++
        if (kind == "sh") { out = sprintf("%02d.sh", n); print "set -e" >out }
        else if (kind == "file") { out = sprintf("%02d.file", n); print name >(out ".name"); printf "" >out }
        else out = "/dev/null"
        kind = ""; next
    }
    open { print >out }
' "$root/README.md" "$root/docs/tokenizers.md" "$root/docs/data.md" "$root/docs/teaching.md" "$root/docs/runs.md" "$root/docs/interchange.md" "$root/docs/models.md" "$root/docs/chat.md" "$root/docs/schemas.md" "$root/docs/parallelism.md" "$root/docs/evaluation.md" "$root/docs/merging.md" "$root/docs/planning.md"
examples=0
for part in [0-9][0-9].sh [0-9][0-9].file; do [ -e "$part" ] && examples=$((examples + 1)); done
[ "$examples" -ge 19 ] || fail "there are only $examples marked examples"
for name in [0-9][0-9].file.name; do cp "${name%.name}" "$(cat "$name")"; done
for script in [0-9][0-9].sh; do
    bash "$script" >out 2>&1 || fail "example: $(cat "$script" out)"
done
[ -e runs/tiny/report.html ] || fail "the example run has no report"
[ -e runs/tiny/checkpoints/step-60/model.safetensors ] || fail "the example did not go on"

# Links of the documents lead somewhere.
for page in README.md CONTRIBUTING.md $(cd "$root" && ls docs/*.md docs/results/*.md); do
    { grep -oE '\]\([^)#]+' "$root/$page" || true; } | sed 's/^](//' | while read -r link; do
        case $link in http*) continue ;; esac
        [ -e "$(dirname "$root/$page")/$link" ] || fail "$page links to $link, which is not there"
    done || exit 1
done

# The number of presets that the README tells of.
sizes=$(athanor config presets | tail -n +2 | wc -l)
grep -q " $sizes published sizes" "$root/README.md" || fail "README.md does not tell of $sizes published sizes"

# --help of every command: status 0, usage, and the options that all have.
athanor --help >help
sed -n '/^commands:/,/^$/p' help | sed -n 's/^  \([a-z]\+\( [a-z]\+\)\?\) .*/\1/p' >commands
[ "$(wc -l <commands)" -ge 15 ] || fail "--help lists few commands: $(cat help)"
while read -r command; do
    # shellcheck disable=SC2086 # a command may be two words
    athanor $command --help >out || fail "athanor $command --help fails"
    for word in "^athanor $command: " "^usage: athanor $command" "--json" "--help"; do
        grep -q -- "$word" out || fail "athanor $command --help lacks \"$word\""
    done
    sed -n 's/^usage: //p' out | sed 's/--option value//' | { grep -oE -- '--[a-z][a-z-]*' || true; } | while read -r option; do
        grep -q -- "^  $option" out || fail "athanor $command --help does not explain $option"
    done || exit 1
done <commands

# Recipes: each plans; the small one also runs. Their tokenizers stand outside the repository.
athanor tok train my.txt -o char.json --kind char >out
athanor data build my.txt -o char tokenizer=char.json valid=0.1 >out
for recipe in "$root"/recipes/*.yaml; do
    vocab=()
    grep -q 'preset:' "$recipe" || vocab=(model.vocab_size=65)
    athanor plan "$recipe" tokenizer=null sample.prompts=[] "${vocab[@]}" --json >out 2>err ||
        [ $? = 4 ] || fail "$(basename "$recipe") does not plan: $(cat err out)"
    grep -q '"peak_bytes":' out || fail "$(basename "$recipe"): no plan: $(cat err out)"
done
# That with an encoder has a tokenizer of its own.
athanor tok train my.txt -o t5.json --kind unigram --vocab-size 200 \
    --special "<pad>,</s>,<unk>,$(seq -s, -f '<extra_id_%g>' 0 19)" >out
athanor data build my.txt -o t5 tokenizer=t5.json valid=0.1 >out
# Each recipe trains, with its own optimizer, schedule and precision, at a small size.
for recipe in "$root"/recipes/*.yaml; do
    name=$(basename "$recipe" .yaml)
    small=(model.num_hidden_layers=1 model.hidden_size=32 model.num_attention_heads=2
        model.intermediate_size=64 model.max_position_embeddings=32 model.vocab_size=65)
    grep -qE 'preset: (smollm2|tinyllama)' "$recipe" && small+=(model.num_key_value_heads=1)
    set=char
    if grep -q num_encoder_layers "$recipe"; then
        set=t5
        small+=(model.num_encoder_layers=1 model.num_hidden_layers=2 model.vocab_size=auto train.source_len=24)
    fi
    athanor train "$recipe" "run=recipe-$name" tokenizer=$set.json "${small[@]}" \
        "data.train=[{path: $set/train}]" data.valid=$set/valid train.seq_len=16 train.steps=3 \
        train.global_batch_size=4 train.micro_batch_size=2 eval.batches=2 \
        'sample.prompts=["The"]' sample.max_new=8 >out 2>&1 || fail "$name: $(cat out)"
    grep -q "validation loss" out || fail "$name: $(cat out)"
done
echo ok
