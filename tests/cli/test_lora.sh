# Adapters (lora.rank): trained beside a frozen model, resumed, opened as a model, merged by an export,
# gone on with; and what is refused. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
expect 0 train c.yaml run=base train.steps=8
sed '/^tokenizer/d; s/^model:.*/model: {from: base}/; s/^train:.*/train: {steps: 12, seq_len: 32, global_batch_size: 8, micro_batch_size: 4, digest_every: 1, precision: fp32}\nlora: {rank: 3, alpha: 6}/' c.yaml >lora.yaml

# ---- what is planned: gradients and optimizer state of the adapters alone ----
expect 0 plan lora.yaml --json
trained=$(field trained out)
calc "$trained > 0 && $trained * 3 < $(field total out)" || fail "$trained parameters are trained"
expect 0 plan lora.yaml
has out "$trained of them trained"
has out "in the mapped file"
# Other layouts and the other stages of a pipeline are planned after the base's files are closed.
"$athanor" plan cluster h100-4 | sed 's/"kind": "cuda"/"kind": "cpu"/' >cpus.yaml
for on in h100-4 cpus.yaml; do
    expect 0 plan search lora.yaml cluster=$on
    expect 0 plan lora.yaml cluster=$on parallel.pp=2 'sample.prompts=[]'
    has out 'bubble'
done

# ---- a run, a resumed run, and what a checkpoint holds ----
for kind in "train.precision=fp32" "train.precision=bf16 lora.dropout=0.1" \
    "train.deterministic=true train.recompute=full lora.targets=[q_proj,down_proj] lora.rslora=true"; do
    rm -rf whole parts
    expect 0 train lora.yaml run=whole $kind
    expect 0 train lora.yaml run=parts $kind train.steps=7
    expect 0 train lora.yaml run=parts $kind
    results step whole >want
    results step parts | cmp -s want - || fail "a resumed run differs ($kind)"
    [ "$(grep -o '"digest": "[^"]*"' want | sort -u | wc -l)" = 12 ] || fail "digests repeat"
done
rm -rf lora
expect 0 train lora.yaml run=lora
at=lora/checkpoints/step-12
for f in adapter_config.json adapter_model.safetensors tokenizer.json state/optimizer.safetensors; do
    [ -f $at/$f ] || fail "no $f"
done
for f in config.json model.safetensors state/master.safetensors; do
    [ ! -e $at/$f ] || fail "there is a $f"
done
expect 0 verify checkpoint $at

# ---- a model everywhere; merged it is the same ----
ask="--ids 3,1,4,1,5,9 --max-new 20 --temperature 0 --json"
expect 0 generate lora $ask
cp out adapted
expect 0 generate $at $ask
cmp out adapted || fail "a run and its checkpoint differ"
for m in base lora; do expect 0 generate $m --ids 3,1,4,1,5,9 --logits $m.npy; done
cmp -s base.npy lora.npy && fail "the adapter changes nothing"
expect 0 export lora -o merged --to hf
has out "verified: logits differ by at most"
expect 0 generate merged $ask
[ "$(ids_of ids out)" = "$(ids_of ids adapted)" ] || fail "merged it says something else"
# From other folders, and with its base model moved.
(cd / && "$athanor" generate "$work/lora" $ask) >elsewhere || fail "not found from elsewhere"
cmp elsewhere adapted || fail "from elsewhere it differs"
# A base model is named from the folder that the adapter is in, however that is written.
mkdir -p beside/adapter && cp $at/adapter_* $at/tokenizer.json beside/adapter && ln -s ../base beside/model
sed -i 's/\("base_model_name_or_path": \)"[^"]*"/\1"model"/' beside/adapter/adapter_config.json
for name in beside/adapter beside/adapter/ beside/adapter//. beside/adapter/../adapter; do
    expect 0 generate $name $ask
    cmp out adapted || fail "by the name $name it differs"
done
(cd beside/adapter && "$athanor" generate . $ask) >elsewhere || fail "not found from inside"
mv base moved
expect 2 generate lora $ask
has out "is no folder here"
has out "--base FOLDER"
expect 0 generate lora --base moved $ask
cmp out adapted || fail "with --base it differs"
expect 0 export lora --base moved -o merged --to hf --force
mv moved base
expect 2 generate merged --base base $ask
has out "is no adapter, and has no base model"

# ---- going on with an adapter: the first loss is that of its end ----
expect 0 train lora.yaml run=more lora.rank=0 lora.from=lora train.steps=1
grep -o '"loss": [^,]*' more/metrics.jsonl | head -n 1 >loss
expect 0 train c.yaml run=same "model={from: merged}" train.steps=1
grep -o '"loss": [^,]*' same/metrics.jsonl | head -n 1 >>loss
awk '{ x[NR] = $2 } END { d = x[1] - x[2]; exit !(NR == 2 && d * d < 1e-8) }' loss || fail "it begins with another loss than the merged model"
expect 2 train lora.yaml run=other lora.rank=5 lora.from=lora
has err "lora.rank is 5, the adapter of lora.from has rank 3"
expect 2 train lora.yaml run=other lora.alpha=600 lora.from=lora
has err "lora.alpha is given, but the adapter of lora.from says that itself"
# A fork goes on with the weights of its run, which has no adapter.
expect 2 train c.yaml run=base --fork forked "model={from: base}" lora.from=lora train.steps=12
has err "lora.from is another one than that of the run"
[ ! -e forked ] || fail "a fork that was refused left a folder"
# What adapters do not run with they do not run with either way: begun here, or gone on with.
for keys in "parallel.tp=2 parallel.tp_async=true" "parallel.zero=3 parallel.offload=weights"; do
    expect 2 launch --ranks 2 -- train lora.yaml run=other lora.rank=0 lora.from=lora $keys
    has err "adapters"
    expect 2 launch --ranks 2 -- train lora.yaml run=other $keys
    has err "adapters"
done

# ---- ranks: every layout learns what one rank does; with embedding and head, which are tied here ----
expect 0 verify layouts lora.yaml --ranks 4 --steps 4 lora.train_embeddings=always
has out "ok: 54 layouts"
expect 0 launch --ranks 2 -- train lora.yaml run=split parallel.tp=2 lora.train_embeddings=always train.steps=6
grep -q base_model.model.lm_head.weight split/checkpoints/step-6/adapter_model.safetensors || fail "no head"
expect 0 train lora.yaml run=split lora.train_embeddings=always train.steps=8
expect 0 export split -o merged --to hf --force
has out "verified: logits differ by at most"
expect 2 train lora.yaml run=no lora.dropout=0.1 parallel.virtual=2
has err "lora.dropout does not run with parallel.virtual"

# ---- base models as they are stored: as beside the same numbers in fp32 ----
# losses_of RUN: a line each; as_in_fp32 BASE FOLDER KEYS...: FOLDER holds the numbers of BASE in fp32.
losses_of() { grep '"event": "step"' "$1/metrics.jsonl" | sed 's/.*"loss": \([^,]*\),.*/\1/'; }
as_in_fp32() {
    local base=$1 folder=$2
    shift 2
    rm -rf stored wide
    expect 0 train lora.yaml run=stored model.from="$base" "$@"
    expect 0 train lora.yaml run=wide model.from="$folder" "$@"
    paste <(losses_of stored) <(losses_of wide) >pairs
    awk '{ d = $1 - $2; bad += !(d * d < 1e-10) } END { exit bad || NR != 12 }' pairs ||
        { fail "beside $base it learns otherwise than in fp32"; cat pairs; }
}
expect 0 export base -o bf16 --to hf --dtype BF16
expect 0 import bf16 -o bf16-wide --dtype F32
as_in_fp32 bf16 bf16-wide train.precision=fp32
expect 0 plan lora.yaml model.from=bf16 train.precision=fp32
has out "in the mapped file"
expect 0 tok train text.txt -o bpe.json --vocab-size 300 # what GGUF files can hold
expect 0 data build text.txt -o bpe tokenizer=bpe.json valid=0.1
expect 0 train c.yaml run=wider tokenizer=bpe.json data.train=bpe/train data.valid=bpe/valid \
    "model={model_type: llama, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 128, vocab_size: auto, max_position_embeddings: 64, tie_word_embeddings: true}"
for type in Q8_0 Q4_0; do
    expect 0 export wider -o $type.gguf --to gguf --dtype $type
    rm -rf $type
    expect 0 import $type.gguf -o $type --dtype F32
    as_in_fp32 $type.gguf $type tokenizer=bpe.json data.train=bpe/train data.valid=bpe/valid
done
expect 0 train lora.yaml run=stored model.from=Q4_0.gguf tokenizer=bpe.json data.train=bpe/train data.valid=bpe/valid train.steps=13
expect 0 generate stored $ask
expect 0 export stored -o merged --to hf --force
has out "verified: logits differ by at most"
expect 2 train c.yaml run=no "model={from: Q4_0.gguf}"
has err "is a GGUF file, whose weights are not trained"
expect 2 train lora.yaml run=no model.from=Q4_0.gguf train.precision=bf16
has err "a base model in a GGUF file is read as fp32"

expect 0 tok train "$root/README.md" -o else.json --vocab-size 300
expect 2 train lora.yaml run=no model.from=Q4_0.gguf tokenizer=else.json data.train=bpe/train data.valid=bpe/valid
has err "else.json is no extension of the tokenizer of Q4_0.gguf: id"

# ---- new tokens: embedding and head are trained, too, and grow ----
expect 0 tok add bpe.json --special '<|im_start|>,<|im_end|>' -o more.json
expect 0 data build text.txt -o more tokenizer=more.json valid=0.1
expect 0 train lora.yaml run=grown model.from=wider tokenizer=more.json data.train=more/train data.valid=more/valid train.steps=3
grep -q embed_tokens grown/checkpoints/step-3/adapter_config.json || fail "the embedding is not trained"
expect 0 train lora.yaml run=grown model.from=wider tokenizer=more.json data.train=more/train data.valid=more/valid train.steps=4
expect 0 generate grown --ids 3,300,301 --max-new 2
expect 0 export grown -o merged --to hf --force
has out "verified: logits differ by at most"

more=(model.from=wider tokenizer=more.json data.train=more/train data.valid=more/valid)
expect 0 train lora.yaml run=longer "${more[@]}" lora.rank=0 lora.from=grown train.steps=2
expect 0 generate longer --ids 3,300,301 --max-new 2
# As many of other names: what the adapter has learned is not of them.
expect 0 tok add bpe.json --special '<one>,<two>' -o same-size.json
expect 0 data build text.txt -o named tokenizer=same-size.json valid=0.1
expect 2 train lora.yaml run=no model.from=wider tokenizer=same-size.json data.train=named/train data.valid=named/valid lora.rank=0 lora.from=grown
has err "same-size.json is no extension of the tokenizer of grown/checkpoints/step-4: id 300 is another token"
# An adapter without an embedding has no rows for them.
expect 0 train lora.yaml run=narrow model.from=wider tokenizer=bpe.json data.train=bpe/train data.valid=bpe/valid train.steps=1
expect 2 train lora.yaml run=no "${more[@]}" lora.rank=0 lora.from=narrow
has err "the adapter of lora.from is of 300 tokens, and the tokenizer has 302"
has err "merge it: athanor export narrow"
expect 2 train lora.yaml run=no "${more[@]}" lora.train_embeddings=never
has err "the tokenizer has 2 tokens more than the base model"

expect 2 train lora.yaml run=no "${more[@]}" model.from=Q4_0.gguf
has err "a GGUF file gets no new rows: athanor import Q4_0.gguf -o FOLDER"

# ---- refused, each by its name ----
expect 2 train lora.yaml run=no lora.targets=[]
has err "lora.targets names no matrix"
expect 2 train lora.yaml run=no lora.targets=[query]
has err "no matrix of the model's layers is called query"
has err "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"
expect 2 train c.yaml run=no lora.rank=2
has err "the config names none"
expect 2 train lora.yaml run=no model.from=lora
has err "is an adapter, not a whole model"
has err "athanor export lora"
refuse() { # EDIT MESSAGE
    rm -rf bad
    cp -r $at bad
    sed -i "$1" bad/adapter_config.json
    expect 3 generate bad $ask
    has out "$2"
}
refuse 's/"LORA"/"IA3"/' "peft_type IA3"
refuse 's/"task_type"/"use_dora": true, "task_type"/' "use_dora true"
refuse 's/"r": 3/"r": 4/' "has another rank than adapter_config.json says"
refuse 's/"r": 3/"r": 0/' "has no r and lora_alpha"
refuse 's/"bias": "none"/"bias": "all"/' 'bias \"all'
expect 0 train c.yaml run=broad train.steps=1 model.hidden_size=48
expect 3 generate lora --base broad $ask
has out "it belongs to another base model"
# A run that goes on needs the weights that it began with; newer ones of the same run are others.
expect 0 train c.yaml run=base train.steps=9
mv base/checkpoints/step-8 pruned
expect 2 train lora.yaml run=lora train.steps=13
has err "base/checkpoints/step-8, with which lora began, is gone, and its adapter needs it"
# ---- T5, whose embedding is called `shared` ----
expect 0 tok add char.json -o t5.json --special "$(echo \<extra_id_{0..5}\> | tr ' ' ,)"
expect 0 data build text.txt -o t5 tokenizer=t5.json valid=0.1
sed 's/^model:.*/model: {model_type: t5, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4, intermediate_size: 64, vocab_size: auto}/; s/char.json/t5.json/; s|set/|t5/|g' c.yaml >t5.yaml
expect 0 train t5.yaml run=t5-base train.steps=2
sed '/^tokenizer/d; s/^model:.*/model: {from: t5-base}\nlora: {rank: 3, train_embeddings: always}/' t5.yaml >t5-lora.yaml
expect 0 train t5-lora.yaml run=t5-lora train.steps=2
grep -q base_model.model.shared.weight t5-lora/checkpoints/step-2/adapter_model.safetensors || fail "no embedding"
expect 0 train t5-lora.yaml run=t5-lora train.steps=3
expect 0 export t5-lora -o t5-merged --to hf
has out "verified: logits differ by at most"
finish
