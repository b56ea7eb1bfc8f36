# Stages of one run: what changes at a border, resuming around it, data that grows meanwhile. $1 is
# the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/stages.sh"
make_stages

expect 0 train stages.yaml run=want --json
cp out want.out
computed want >want.events
grep -F '"event": "stage"' want.out >borders
[ "$(wc -l <borders)" = 3 ] || fail "not three stage events"
last="the borders"
for stage in 'short.*"seq_len": 32, .*"rope_theta": 10000' 'middle.*"seq_len": 64, .*"rope_theta": 50000' \
    'long.*"seq_len": 128, .*"rope_theta": 200000'; do
    [ "$(grep -c "\"name\": \"$stage" borders)" = 1 ] || fail "no stage $stage: $(cat borders)"
done

# Tokens count batch and length of each stage; the batch grows in the first one, the schedule begins
# anew in the second and lasts to the end of the third.
tokens_at() { event step want.out | grep -F "\"step\": $1," | grep -o '"tokens": [0-9]*' | grep -o '[0-9]*'; }
lr_at() { event step want.out | grep -F "\"step\": $1," | grep -o '"lr": [^,}]*' | sed 's/.* //'; }
last="the steps"
[ "$(tokens_at 3)" = $((3 * 2 * 32)) ] || fail "tokens after step 3: $(tokens_at 3)"
[ "$(tokens_at 12)" = $(((2 + 4 + 6 + 8) * 3 * 32)) ] || fail "tokens after step 12: $(tokens_at 12)"
[ "$(tokens_at 13)" = $((1920 + 4 * 64)) ] || fail "tokens after step 13: $(tokens_at 13)"
[ "$(tokens_at 24)" = 4992 ] || fail "tokens after step 24: $(tokens_at 24)"
[ "$(tokens_at 36)" = $((4992 + 12 * 2 * 128)) ] || fail "tokens after step 36: $(tokens_at 36)"
calc "$(lr_at 12) < 1e-4" || fail "the first schedule has not ended by step 12: $(lr_at 12)"
calc "$(lr_at 13) == 0.0025 && $(lr_at 14) == 0.005 && $(lr_at 25) > 2e-3" || fail "the second schedule: $(lr_at 13) $(lr_at 14) $(lr_at 25)"
calc "$(lr_at 36) < 1e-3" || fail "the second schedule does not end with the run: $(lr_at 36)"
expect 0 train stages.yaml run=auto stages.1.optim.schedule.decay_steps=auto
computed auto | cmp want.events - || fail "a decay of its own accord does not last to the run's end"

# Interrupted at borders and at random moments.
bash "$root/tools/interrupt_test.sh" 17 "$athanor" >out 2>&1 || { last="interrupt_test.sh" && fail "a difference"; }
grep -v 'all passed' out

# What a stage begins with is decided when it begins: its keys and its data may change until then.
train_to 9 early
expect 2 train stages.yaml run=early stages.0.train.seq_len=16
has err 'stages.0.train'
expect 2 train stages.yaml run=early optim.lr=1e-3
cp -r early other
expect 0 train stages.yaml run=other stages.1.optim.lr=1e-3 stages.2.train.seq_len=64
results step other | head -n 12 >other.got
results step want | head -n 12 | cmp - other.got || fail "a change of later stages changed the first"
results step want | sed -n 13p >want.13
results step other | sed -n 13p | cmp -s - want.13 && fail "a change of the second stage has no effect"
train_to 15 begun
expect 2 train stages.yaml run=begun stages.1.optim.lr=1e-3
has err 'stages.1.optim.lr'
expect 0 train stages.yaml run=begun stages.2.train.seq_len=64

# Shards appended to c: the third stage, which has not begun, reads them as a run does that finds
# them there from the beginning; the second, which has, goes on with what it began with.
train_to 15 middle
train_to 15 late
for s in a b c; do cp -r $s $s.before; done
make_text 200 99 | sed 's/^/c: /' >more.txt
expect 0 data build more.txt -o c tokenizer=char.json append=true
expect 0 train stages.yaml run=middle
results step middle | head -n 24 >middle.got
results step want | head -n 24 | cmp - middle.got || fail "appended shards changed a stage that had begun"
results step want | sed -n 25,36p >want.third
results step middle | sed -n 25,36p | cmp -s - want.third && fail "appended shards are not read by a later stage"
for step in $(seq 25 36); do expect 0 data show --run middle --step $step --json && cat out >>third; done
cp third out
has out '"source": "more.txt"'
expect 0 data show --run middle --step 15 --json
lacks out '"source": "more.txt"'

# Data that was changed is refused, and the set is named.
rm -rf c && cp -r a c
expect 3 train stages.yaml run=late
has err 'c'
results step late | head -n 15 >late.got
results step want | head -n 15 | cmp - late.got || fail "a refused resume harmed the run"
rm -rf c && mv c.before c
expect 0 train stages.yaml run=late
computed late | cmp want.events - || fail "with its data back the run differs"

# A fork out of a later stage goes on as the run would have, also when it stops before its first
# step; what it says of the time before it need not be what was.
train_to 15 root
expect 0 train stages.yaml run=root --fork=fork
results step want | sed 1,15d >want.rest
results step fork | cmp -s want.rest - || fail "a fork out of the second stage differs"
mv b b.away
expect 2 train stages.yaml run=root --fork=half
mv b.away b
expect 0 train stages.yaml run=half
results step half | cmp -s want.rest - || fail "a fork that ended before its first step differs"
expect 0 train stages.yaml run=root --fork=elsewhere stages.0.data.train=c
has err 'before the fork'

# Any key may change, the precision too: the masters are fp32 in all of them.
for first in fp32 bf16 fp16; do
    expect 0 train stages.yaml run=p.$first train.precision=$first train.steps=12
    for then in fp32 bf16 fp16; do
        expect 0 train stages.yaml run=p.$first --fork=p.$first.$then train.precision=$then train.steps=14
        [ "$(grep -c '"event": "step"' p.$first.$then/metrics.jsonl)" = 2 ] || fail "not two steps"
        "$athanor" verify checkpoint p.$first.$then/checkpoints/step-14 >out 2>err || fail "a checkpoint is damaged"
    done
done
digests() { grep -o '"start".*"digest": "[^"]*"' "$1/metrics.jsonl" | sed 's/.*"digest"//'; }
[ "$(digests p.bf16.fp32)" = "$(digests p.bf16.bf16)" ] || fail "a fork in fp32 begins with other weights"
[ "$(digests p.fp32.bf16)" = "$(digests p.fp32.fp32)" ] || fail "a fork in bf16 begins with other weights"

# A fork that is refused has left nothing: neither in a folder of something else, nor a new folder.
mkdir notrun && echo '{"model_type": "llama"}' >notrun/config.json
expect 2 train stages.yaml run=root --fork=notrun
has err "notrun already holds something else"
[ "$(ls -A notrun)" = config.json ] || fail "a refused fork left $(ls -A notrun | tr '\n' ' ')"
expect 2 train stages.yaml run=root --fork=none train.seq_len=1000000
for key in optim.name=adafactor lora.rank=4; do
    expect 2 train stages.yaml run=root --fork=none $key
    has err "${key%=*} is another one than that of the run"
done
expect 2 train stages.yaml run=root --fork=none model.hidden_size=64
has err "model.embed_tokens.weight has"
expect 2 train stages.yaml run=root --fork=none model.num_hidden_layers=1
has err "only one of them has model.layers.1."
expect 2 train stages.yaml run=root --fork=none model.num_hidden_layers=3 --dry-run
has err "only one of them has model.layers.2."
expect 2 train stages.yaml run=root --fork=none model.tie_word_embeddings=false
has err "lm_head.weight"
[ ! -e none ] || fail "a fork with a key that cannot be left a folder"

# Data of a stage that is over may go.
sed -E 's/path: a, weight: (1|8)/path: b, weight: 1/; s/\[\{path: a, weight: 3.*\], valid/a, valid/' stages.yaml >gone.yaml
expect 0 train gone.yaml run=gone train.steps=15
mv a a.gone
expect 0 train gone.yaml run=gone
mv a.gone a

# A record that says something else.
cp -r begun strange
for text in '{"stages": 3}' '{"stages": [{"sources": 7}]}' '[]' ''; do
    echo "$text" >strange/data.json
    expect 3 train stages.yaml run=strange stages.2.train.seq_len=64
    has err 'strange/data.json'
done

# Mistakes.
expect 2 train stages.yaml run=bad stages.1.until.tokens=100
has err 'stages.1.until'
expect 2 train stages.yaml run=bad stages.1.name=null
expect 2 train stages.yaml run=bad stages.0.checkpoint.every=3
has err "a stage cannot change 'stages.0.checkpoint'"
finish
