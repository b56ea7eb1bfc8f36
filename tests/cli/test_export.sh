# athanor import and export: every golden model there and back bit for bit, shards, GGUF, refusals
# of damaged and hostile sources, and results that appear only when they are whole. $1 is the
# program.
. "$(dirname "$0")/lib.sh"
golden=$root/tests/golden/models
export OMP_NUM_THREADS=1

# data FILE: the bytes after the header of a safetensors file.
data() { tail -c +$((9 + $(od -An -tu8 -N8 "$1"))) "$1"; }

# Every family: what is imported is exported again, the same file of weights, and computes the same.
for m in "$golden"/*/; do
    name=$(basename "$m")
    expect 0 import "$m" -o "in/$name" --json
    [ "$(field verified out)" = true ] || fail "not verified"
    calc "$(field max_rel_logit_diff out) <= 1e-5" || fail "logits"
    for file in config.json generation_config.json README.md; do
        [ -s "in/$name/$file" ] || fail "no $file"
    done
    expect 0 export "in/$name" -o "out-$name" --to hf --no-verify --json
    [ "$(field verified out)" = null ] || fail "verified without being asked"
    cmp "in/$name/model.safetensors" "out-$name/model.safetensors" || fail "other weights"
    cmp "in/$name/config.json" "out-$name/config.json" || fail "another config.json"
done
[ -z "$(ls -A | grep '^\.tmp')" ] || fail "hidden folders are left"

# Shards: as many as asked, an index with the size of all, and the way back to one file.
m=$golden/llama-gqa-tied
expect 0 export "$m" -o sharded --to hf --max-shard-size 20KB --json
[ "$(field files out)" = "$(ls sharded/model-*.safetensors | wc -l)" ] || fail "files"
[ "$(field files out)" -ge 4 ] || fail "few shards"
[ "$(field total_size sharded/model.safetensors.index.json)" = "$(field bytes out)" ] || fail "total_size"
expect 0 export sharded -o whole --to hf
cmp <(data whole/model.safetensors) <(data in/llama-gqa-tied/model.safetensors) || fail "from shards"
[ ! -e whole/model.safetensors.index.json ] || fail "an index without shards"

# Formats: rounded weights are verified within what rounding does, and take the room they should.
expect 0 export "$m" -o bf16 --to hf --dtype BF16 --json
[ "$(field bytes out)" = $((21816 * 2)) ] || fail "bytes"
grep -q '"torch_dtype": "bfloat16"' bf16/config.json || fail "torch_dtype"
calc "$(field max_abs_logit_diff out) > 0" || fail "rounding changes nothing?"
expect 2 export "$m" -o x --to hf --dtype Q4_0
has err "use F32, F16 or BF16"
expect 2 export "$m" -o x --to onnx
expect 2 export "$m" -o x
expect 2 export "$m" --to hf
has err "needs -o"

# A path may be any bytes, also in JSON; -o must name something.
bytes=$(printf 'path-\377')
expect 0 export "$m" -o "$bytes" --to hf --json
[ "$(field verified out)" = true ] || fail "a path that is not UTF-8"
expect 0 export "$bytes" -o again --to hf
expect 2 export "$bytes-none" -o x --to hf --json
has out '"kind": "usage"'
expect 2 export "$m" -o '' --to hf
has err "needs -o"

# Keys that change nothing are named at once or one by one.
cp -r in/llama-gqa-tied keys
sed -i '0,/{/s//{"first_key": 1, "second_key": 2,/' keys/config.json
expect 2 import keys -o x --ignore-key first_key
has err second_key
expect 0 import keys -o from-keys --ignore-key first_key --ignore-key second_key

# GGUF and back; a file is known by its content.
expect 0 export "$m" -o model.gguf --to gguf --dtype F32 --json
calc "$(field max_rel_logit_diff out) <= 1e-4" || fail "logits of the file"
expect 0 plan model.gguf;                                has out "generation of"
expect 2 plan model.gguf train.seq_len=8;                has err "'train.seq_len=8' does nothing: a GGUF file is planned as it is"
! grep -q "values as f16" out || fail "a cache of f16 for weights that are not quantised"
expect 0 generate model.gguf --ids 1,2,3,4 --max-new 4 --temperature 0 --cache f16
expect 2 generate model.gguf --ids 1 --cache f64;        has err "no cache format f64"; has err "auto, f32 or f16"
cp model.gguf model-without-ending
expect 0 generate model-without-ending --ids 1,2 --max-new 2
expect 0 import model.gguf -o from-gguf --json
[ "$(field verified out)" = true ] || fail "not verified"
cmp <(data from-gguf/model.safetensors) <(data in/llama-gqa-tied/model.safetensors) || fail "by way of GGUF"

# An encoder and a decoder; llama.cpp's biases end at a distance of 128, and its decoder is not longer than its encoder.
for name in t5-relu-tied t5-gated-untied; do
    cp -r "$root/tests/golden/encoder/$name" "$name"
    chmod -R u+w "$name"
done
expect 2 export t5-relu-tied -o t5.gguf --to gguf;       has err "cannot express the model's num_hidden_layers"
expect 2 export t5-gated-untied -o t5.gguf --to gguf;    has err "cannot express the model's relative_attention_max_distance"
sed -i 's/"relative_attention_max_distance": 20/"relative_attention_max_distance": 128/' t5-gated-untied/config.json
expect 0 export t5-gated-untied -o t5.gguf --to gguf --dtype F32;  has out "verified: "
expect 0 import t5.gguf -o t5-back;                                has out "verified: "
expect 0 import t5-gated-untied -o t5-copy
cmp <(data t5-back/model.safetensors) <(data t5-copy/model.safetensors) || fail "T5 by way of GGUF"

# Linear layers: rows that a file has in another order, and decays in place of their logarithms.
for type in F32 F16 Q8_0; do
    expect 0 export "$golden/qwen3-next-experts" -o next-$type.gguf --to gguf --dtype $type;  has out "verified: "
    expect 0 import next-$type.gguf -o next-$type --dtype F32;                                has out "verified: "
done
expect 0 export "$golden/deepseek-v3-ahead" -o ahead.gguf --to gguf --dtype F32 --json
[ "$(field params out)" = 15127 ] || fail "modules are counted that the file does not hold"
has out "20176 parameters are left out"
expect 2 export "$golden/qwen3-next" -o no.gguf --to gguf
has err "cannot express the model's linear_value_head_dim"

# What stands there stays, unless --force; and --force replaces models only.
expect 2 export "$m" -o whole --to hf
has err "exists already"
expect 0 export "$m" -o whole --to hf --force
mkdir precious && echo x >precious/thesis.tex
cp "$m/config.json" precious # does not make it a model
expect 2 export "$m" -o precious --to hf --force
[ -e precious/thesis.tex ] || fail "a folder that is no model was replaced"
cp -r whole folder && mkdir empty
expect 0 export "$m" -o folder --to gguf --force # a file in place of a folder
[ -f folder ] && [ -s folder.ledger.json ] || fail "no file in place of a folder"
expect 2 export "$m" -o empty --to gguf
has err "exists already"
[ -z "$(ls -A empty)" ] || fail "something is in the folder"

# The tokenizer of a folder has one of many names.
tok=$root/tests/golden/tok/formats
for name in tokenizer.model spiece.model sentencepiece.bpe.model; do
    rm -rf named && cp -r "$m" named && cp "$tok/unigram.model" "named/$name"
    expect 0 import named -o "from-$name"
    cmp "from-$name/$name" "$tok/unigram.model" || fail "$name is not copied"
    [ -s "from-$name/tokenizer.json" ] || fail "no tokenizer.json of $name"
done
cp "$tok/ours.tiktoken" named/tiktoken.model && rm named/sentencepiece.bpe.model
expect 3 import named -o never
has err "put the tokenizer.json beside it that \`athanor tok convert\` makes so"
expect 0 tok convert named/tiktoken.model --pattern cl100k -o named/tokenizer.json
expect 0 import named -o from-tiktoken

# A file and its ledger get their names together, or neither does.
cp model.gguf kept.gguf && cp model.gguf.ledger.json kept.gguf.ledger.json
before=$(cat kept.gguf kept.gguf.ledger.json | cksum)
for n in 1 2 3; do
    last="export with a failure of renaming $n"
    ATHANOR_FAULT=rename:$n "$athanor" export "$golden/qwen3-tied" -o fresh.gguf --to gguf --no-verify >out 2>err && fail "no error"
    ATHANOR_FAULT=rename:$n "$athanor" export "$golden/qwen3-tied" -o kept.gguf --to gguf --force --no-verify >out 2>err && fail "no error"
    [ "$(cat kept.gguf kept.gguf.ledger.json | cksum)" = "$before" ] || fail "the old file and another ledger"
    [ -z "$(ls -A | grep -e fresh -e '^\.tmp')" ] || fail "something is left"
done
expect 0 export "$golden/qwen3-tied" -o kept.gguf --to gguf --force --no-verify
grep -q '"model_type": "qwen3"' kept.gguf.ledger.json || fail "the ledger of the old file"
[ -z "$(ls -A | grep '^\.tmp')" ] || fail "something is left"

# Training goes on from what was imported.
printf 'model: {from: in/llama-gqa-tied}\ntrain: {seq_len: 16}\n' >from.yaml
expect 0 plan from.yaml --json
has out 21816
has out '"runs": {"transformers": {"runs": true, "why": "", "basis": "compared", "of": "5.'
has out '"vLLM": {"runs": true, "why": "", "basis": "listed", "of": "registry of models at '
expect 0 plan from.yaml
grep -qE '^  transformers +yes \(compared with 5\.' out || fail "transformers was run"
grep -qE '^  llama.cpp +yes, as a GGUF file \(compared with ' out || fail "llama.cpp was run"
grep -qE '^  vLLM +listed \(its registry .* 20[0-9]*; not run here\)$' out || fail "vLLM was never run"
grep -qE '^  Ollama +listed, .*\(its converter .* 20[0-9]*; not run here\)$' out || fail "Ollama was never run"

# ---- sources that are refused, with the reason; nothing appears ----

# damaged NAME: a copy of the model to damage.
damaged() { rm -rf bad && cp -r "$m" bad && chmod -R u+w bad; }
# refused STATUS TEXT: importing it fails so.
refused() {
    expect "$1" import bad -o never
    has err "$2"
    [ ! -e never ] || fail "a result of a failed import"
    [ -z "$(ls -A | grep '^\.tmp')" ] || fail "a hidden folder is left"
}
damaged; sed -i 's/"model_type"/"mystery_gate": 3, "model_type"/' bad/config.json
refused 2 "--ignore-key mystery_gate"
expect 2 generate bad --ids 1
has err "athanor import bad -o NEW --ignore-key mystery_gate"
expect 0 import bad -o ignored --ignore-key mystery_gate --no-verify
damaged; sed -i 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 4/' bad/config.json
refused 3 "model.layers."
damaged; sed -i 's/"intermediate_size": [0-9]*/"intermediate_size": 999/' bad/config.json
refused 3 "the config asks for [999,"
damaged; truncate -s -100 bad/model.safetensors
refused 3 "bad/model.safetensors"
damaged; rm bad/model.safetensors
refused 3 "holds neither"
damaged; sed -i 's/"model_type"/"quantization_config": {"quant_method": "gptq"}, "model_type"/' bad/config.json
refused 3 "gptq"
expect 3 generate bad --ids 1,2 # nor is it called a key that might be ignored
has err "quantised by 'gptq'"
lacks err ignore_keys
fp8='"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}'
damaged; sed -i "s/\"model_type\"/$fp8, \"model_type\"/" bad/config.json
expect 3 generate bad --ids 1,2
has err "other than e4m3"
refused 3 "other than e4m3"
sed -i "s/e5m2/e4m3/" bad/config.json # its tensors are plain
expect 0 generate bad --ids 1,2 --max-new 1
damaged; echo '[]' >bad/config.json
refused 3 "bad/config.json"
has err "fetch it again"
# Nothing waits for a pipe without a writer, nor reads a device without end.
for file in config.json model.safetensors; do
    damaged; rm bad/$file && mkfifo bad/$file
    expect 3 generate bad --ids 1,2
    has err "bad/$file: not a regular file"
done
damaged; mkfifo bad/tokenizer.json
expect 3 generate bad --prompt hi
has err "bad/tokenizer.json: not a regular file"
damaged; ln -sf /dev/zero bad/config.json
refused 3 "not a regular file"
rm -rf bad && cp -r sharded bad && sed -i 's#"model-00002-of[^"]*"#"../../etc/passwd"#' bad/model.safetensors.index.json
refused 3 "which is no plain file name"
rm -rf bad && cp -r sharded bad && truncate -s -8 bad/model-00001-of-*.safetensors
refused 3 "model-00001-of-"
rm -rf bad && cp -r sharded bad && rm bad/model-00003-of-*.safetensors
refused 3 "model-00003-of-"
echo "no model" >bad.bin
expect 3 import bad.bin -o never
has err "is no model that is read here"
expect 2 import nothing-there -o never
expect 3 import "$work" -o never

# A head that is stored: equal to the embedding it is left out, different it is kept.
m=$golden/llama-bias-untied
damaged; sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' bad/config.json
expect 0 import bad -o untied --json
has out "a head of its own"
grep -q '"tie_word_embeddings": false' untied/config.json || fail "the flag"
cmp <(data untied/model.safetensors) <(data in/llama-bias-untied/model.safetensors) || fail "the head"

# A disk that fails in the middle: the old result stays, nothing else does.
m=$golden/llama-gqa-tied
before=$(cksum <whole/model.safetensors)
for fault in create:2 write:3 fsync:2 rename:1 mkdir:1; do
    last="export with $fault"
    ATHANOR_FAULT=$fault "$athanor" export "$m" -o whole --to hf --force --no-verify >out 2>err && fail "no error"
    [ "$(cksum <whole/model.safetensors)" = "$before" ] || fail "the old result"
    ATHANOR_FAULT=$fault "$athanor" export "$m" -o new --to hf --no-verify >out 2>err && fail "no error"
    [ ! -e new ] || fail "half a result"
done

# What cannot be written is told by its own name. (As root, too: nobody writes there.)
expect 1 export "$m" -o /proc/new --to hf;   has err "cannot make folder /proc/new: "; lacks err tmp-
expect 1 export "$m" -o /proc/new.gguf --to gguf;  has err "cannot create /proc/new.gguf: "; lacks err tmp-

make_data
# Killed at any moment it leaves the old result, or the new one, whole.
for n in 2 5 8 12 16 20 24; do
    last="export killed at $n"
    { ATHANOR_FAULT=kill:$n "$athanor" export "$m" -o whole --to hf --force --no-verify >out 2>err; } 2>/dev/null
    [ ! -e whole ] || cmp -s whole/model.safetensors in/llama-gqa-tied/model.safetensors || fail "another result"
    [ -e whole ] || ls -A | grep -q '^\.old-' || fail "the old result is gone"
done
rm -rf .tmp-* .old-*

# Where it runs is said before the first step of a model that runs nowhere else.
write_config c.yaml
expect 0 train c.yaml run=r1 train.steps=2 --json
has out '"runs": {"transformers": {"runs": true'
lacks err "no other program"
expect 0 train c.yaml run=r2 train.steps=2 model.qk_norm=head --json
has err "no other program will load this model"
has err "qk_norm"
expect 0 plan c.yaml
has out "llama.cpp     "
# A tokenizer that GGUF has no words for.
expect 2 export r1 -o no.gguf --to gguf
has err "--to hf keeps it as it is"
# Logits that are large move by more than the limits when weights are rounded: that is no mistake of the file, and is said.
expect 0 train c.yaml run=large train.steps=1 optim.lr=1.0e-6 optim.schedule.min_lr=0 model.initializer_range=2 model.tie_word_embeddings=false
for format in F16 BF16; do
    expect 0 export large -o large-$format --to hf --dtype $format --json
    calc "$(field mean_kl out) > $(field tolerance_kl out)" || fail "within the limits"
    [ "$(field verified out)" = true ] || fail "not verified"
    has out "Rounding to $format alone changes what this model computes"
done
expect 0 export large -o large-F32 --to hf --dtype F32
lacks out "Rounding"

# A run is exported by its newest checkpoint, with its tokenizer.
expect 0 export r1 -o from-run --to hf --json
[ "$(field ids_equal out)" = true ] || fail "the tokenizer"
[ -s from-run/tokenizer.json ] && [ -s from-run/tokenizer_config.json ] || fail "no tokenizer"
finish
