# A smaller model out of a larger one: layers in another order and back again, tokens by the map of tok prune. $1 is the program.
. "$(dirname "$0")/lib.sh"
golden=$(cd "$(dirname "$0")/../golden/models" && pwd)

# Turned round twice, a model of two layers is what it was, to the byte; lists of layers (windows, heads) and experts go along.
for name in llama-gqa-tied gpt2-tanh-tied qwen3-moe mixtral smollm3 openelm gemma3-pattern; do
    last=$(sed -n 's/.*"\(num_hidden_layers\|n_layer\|num_transformer_layers\)": *\([0-9]*\).*/\2/p' "$golden/$name/config.json" | head -n 1)
    order=$(seq -s, $((last - 1)) -1 0)
    expect 0 export "$golden/$name" -o plain --to hf --force
    expect 0 inherit "$golden/$name" -o turned --layers "$order" --force
    cmp -s plain/model.safetensors turned/model.safetensors && fail "$name: nothing was turned"
    expect 0 inherit turned -o back --layers "$order" --force
    cmp -s plain/model.safetensors back/model.safetensors || fail "$name is not what it was"
    cmp -s plain/config.json back/config.json || fail "$name: $(diff plain/config.json back/config.json)"
done
expect 0 inherit "$golden/llama-gqa-tied" -o one --layers 1 --json
has out '"verified": false'
grep -q '"num_hidden_layers": 1' one/config.json || fail "one layer is not one"

# Tokens: the logits of those that stay are the same, by their old rows.
make_text 600 7 >text.txt
expect 0 tok train text.txt -o bpe.json --kind bpe --vocab-size 330
expect 0 data build text.txt -o set tokenizer=bpe.json valid=0.1
write_config tiny.yaml
sed -i 's/char.json/bpe.json/; s/seq_len: 32/seq_len: 16/' tiny.yaml
expect 0 train tiny.yaml train.steps=2
echo "the fire turns the metal" >corpus.txt
expect 0 tok prune bpe.json corpus.txt -o small.json --keep 290 --map rows.json
expect 0 inherit run -o small --map rows.json --tokenizer small.json
expect 0 generate run --prompt "the fire" --logits old.npy
expect 0 generate small --prompt "the fire" --logits new.npy
n=$(grep -o '"vocab_size": [0-9]*' small/config.json | grep -o '[0-9]*$')
[ "$n" -lt 330 ] || fail "no token went"
tr -d '{}[] \n' <rows.json | sed 's/.*"rows"://; s/"//g' | tr ',' '\n' | sed 's/^.*://' >rows
logits() { # FILE: a line for each number behind the header
    tail -c +129 "$1" | od -An -v -tf4 -w4
}
logits old.npy >old
logits new.npy >new
awk -v n="$(grep -c . rows)" -v all="$(grep -o '"vocab_size": [0-9]*' run/checkpoints/*/config.json | head -n 1 | grep -o '[0-9]*$')" '
    FILENAME == "rows" { row[FNR - 1] = $1; next }
    FILENAME == "old" { x[FNR - 1] = $1; next }
    { t = int((FNR - 1) / n); k = (FNR - 1) % n; seen++; if (x[t * all + row[k]] != $1) bad = 1 }
    END { exit bad || seen < n || seen % n }' rows old new || fail "logits of tokens that stay differ"

# A model that was taught to talk keeps its template, how it writes, and where its answers end, by their new ids.
cp -r run/checkpoints/step-2 taught
rm -r taught/state
echo '{% for m in messages %}{{ m.content }}{% endfor %}' >taught/chat_template.jinja
end=$(tail -n 1 rows)
echo "{\"temperature\": 0.5, \"eos_token_id\": [$end, 0], \"suppress_tokens\": [$end]}" >taught/generation_config.json
expect 0 inherit taught -o talks --map rows.json --tokenizer small.json
tr -d ' \n' <talks/generation_config.json >out
has out "\"eos_token_id\":[$(($(grep -c . rows) - 1)),0]"
has out '"temperature":0.5'
grep -q suppress out && fail "ids of the old vocabulary are suppressed"
cmp -s taught/chat_template.jinja talks/chat_template.jinja || fail "the template was left behind"

expect 0 tok prune taught corpus.txt -o small-too.json --keep 290
has err 'the chat template of taught stays behind'
expect 0 tok prune taught corpus.txt -o small-too/ --keep 290
grep -q 'stays behind' err && fail "a folder takes the template along"
cmp -s taught/chat_template.jinja small-too/chat_template.jinja || fail "no template in the folder"

# Modules of multi-token prediction stay behind the last layer.
expect 0 inherit "$golden/llama-ahead" -o ahead --layers 0
expect 0 inherit "$golden/llama-ahead" -o same --layers 0,1
expect 0 generate "$golden/llama-ahead" --ids 1,2,3 --max-new 8 --temperature 0
cp out larger
expect 0 generate same --ids 1,2,3 --max-new 8 --temperature 0
cmp -s out larger || fail "all layers are another model"

expect 2 inherit "$golden/llama-gqa-tied" -o none --layers 2
has err 'no layer 2'
expect 2 inherit "$golden/llama-gqa-tied" -o none
expect 2 inherit run -o none --map rows.json --tokenizer bpe.json
echo '{"rows": [0, 5000]}' >wrong.json
expect 2 inherit run -o none --map wrong.json --tokenizer small.json
has err 'rows of this model'

finish
