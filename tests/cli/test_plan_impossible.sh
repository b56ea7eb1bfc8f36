# Requests that cannot be met, or that contradict themselves: each is one sentence and a status, never a crash, never another
# answer than to what was asked. $1 is the program.
. "$(dirname "$0")/lib.sh"

cat >m.yaml <<'Y'
model: {model_type: llama, hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 128, vocab_size: 512}
train: {seq_len: 64, global_batch_size: 32, micro_batch_size: 2, precision: bf16, steps: 10}
optim: {lr: 1e-4}
Y
asked=0
# no STATUS ARGS...: fails so, with one line that says why.
no() {
    local want=$1
    shift
    expect "$want" "$@"
    asked=$((asked + 1))
    [ ! -s out ] || fail "it answers, too"
    [ "$(grep -c '^athanor: error: .' err)" = 1 ] || fail "not one sentence"
    [ "$(grep -vc '^athanor: error: \|^  where: \|^  hint: ' err)" = 0 ] || fail "more than sentence, place and hint"
    ! head -n 1 err | grep -q '\. [A-Z]' || fail "more than one sentence"
}
small="m.yaml cluster=h100-8"
# clusters
no 2 plan m.yaml cluster=h100-0
no 2 plan m.yaml cluster=h100-12
no 2 plan m.yaml cluster=h100--8
no 2 plan m.yaml cluster=z80
no 2 plan cluster h100-1e9
no 2 plan cluster none
echo 'name: x' >empty-cluster.yaml
no 3 plan m.yaml cluster=empty-cluster.yaml
expect 0 plan cluster h100-8 -o c.yaml
# wrong MEMBER VALUE: the first member of that name has another value.
wrong() {
    sed "0,/\"$1\": [-0-9.e+]*/s//\"$1\": $2/" c.yaml >wrong.yaml
    cmp -s c.yaml wrong.yaml && fail "there is no $1"
    no 3 plan m.yaml cluster=wrong.yaml
}
wrong contention 1.5
wrong straggle -1
wrong reached 3
wrong per_node 0
wrong nodes -1
wrong memory_gib 0
wrong bf16 -2
sed 's/0\.78\b/7.8/' c.yaml >wrong.yaml
cmp -s c.yaml wrong.yaml && fail "no share was changed"
no 3 plan m.yaml cluster=wrong.yaml
echo '{name: x, device: {name: y, kind: cuda, peak_tflops: {f32: 1, bf16: 2, f16: 2}, memory_gib: 1, memory_gb_per_s: 1}}' >short.yaml
no 3 plan m.yaml cluster=short.yaml
# raw TEXT: a cluster that is no file of that form.
raw() {
    printf "$1" >raw.yaml
    no 3 plan m.yaml cluster=raw.yaml
    has err 'raw.yaml'
}
raw '['
raw '&a [*a]'
raw 'a: b\n---\nc: d\n'
raw 'a: 1\na: 2\n'
raw '\377\376'
raw 'device: {peak_tflops: 5}'
no 3 plan m.yaml cluster=.
no 3 plan m.yaml cluster=/dev/zero
# rate TEXT WHY: a first rate that is none.
rate() {
    sed "s/\"rates\": \[/&$1, /" c.yaml >wrong.yaml
    cmp -s c.yaml wrong.yaml && fail "there are no rates"
    no 3 plan m.yaml cluster=wrong.yaml
    has err "$2"
}
rate '{"off": "matmul", "share": [[1, 0.5]]}' 'rates.0.off is no key of a rate'
rate '{"of": 5, "share": [[1, 0.5]]}' 'rates.0.of is no text'
rate '7' 'rates.0 is no rate'
rate '{"of": "matmul", "share": [[1, 0.5], [1, 0.6]]}' 'rising x'
# layouts
no 2 plan $small parallel.tp=3
no 2 plan $small parallel.tp=16
no 2 plan $small parallel.dp=16
no 2 plan $small parallel.dp=0
no 2 plan $small parallel.pp=8
no 2 plan $small parallel.pp=3
no 2 plan $small parallel.pp=2 parallel.virtual=2
no 2 plan $small parallel.pp=2 parallel.pp_schedule=interleaved parallel.virtual=8
no 2 plan $small parallel.pp=2 parallel.pp_schedule=dualpipe
no 2 plan $small parallel.zero=4
no 2 plan $small parallel.tp=-1
no 2 plan $small train.global_batch_size=7
no 2 plan $small train.micro_batch_size=3
no 2 plan $small train.micro_batch_size=0
no 2 plan $small train.seq_len=0
no 2 plan $small train.precision=fp8
no 2 plan $small train.memory_limit=-1
no 2 plan $small model.num_attention_heads=5
no 2 plan $small parallel.sp=maybe
no 2 plan $small paralel.tp=2
# search
no 2 plan search m.yaml
no 2 plan search $small train.global_batch_size=7
no 2 plan search $small parallel.tp=5
no 2 plan search $small parallel.tp=8 parallel.pp=2
no 2 plan search $small parallel.dp=4 parallel.tp=4
no 2 plan search $small parallel.pp=2 parallel.offload=weights
no 2 plan search $small parallel.sp=false
no 2 plan search $small --most 0
no 2 plan $small parallel.cp=3
no 2 plan $small parallel.cp=16
no 2 plan $small parallel.cp=2 train.seq_len=62 train.micro_batch_size=1
no 2 plan $small parallel.cp=4 parallel.cp_kind=ulysses
no 2 plan $small parallel.cp_kind=spiral parallel.cp=2
no 2 plan search $small parallel.cp=3
no 2 plan search $small parallel.cp=2 train.seq_len=62
no 2 plan search $small parallel.cp=4 parallel.cp_kind=ulysses
no 2 plan search $small parallel.cp=4 parallel.tp=4
no 4 plan search llama-3.1-405b cluster=rtx4090 train.global_batch_size=1
no 4 plan search $small train.memory_limit=1 cluster=l4-4 model.hidden_size=65536 model.num_hidden_layers=100 model.num_attention_heads=64 model.num_key_value_heads=64
# costs
no 2 plan smollm2-135m --model formula parallel.offload=optimizer
no 2 plan smollm2-135m --model predictor parallel.offload=optimizer
no 2 plan cost
no 2 plan cost m.yaml
no 2 plan cost --params 3B
no 2 plan cost --params 3B --tokens 0
no 2 plan cost --params -3 --tokens 1B
no 2 plan cost --params 3B --tokens 1T --mfu 1.5
no 2 plan cost --params 3B --tokens 1T --serial 2
no 2 plan cost --params 3B --tokens 11T --hours 10
no 2 plan cost --hours 10 --mfu 0.4
no 2 plan cost --hours 10 --devices 0
no 2 plan cost m.yaml --params 3B --tokens 1T
no 1 plan cost --hours 100 --preemptions-per-day 1000
no 2 plan cost --hours 100 --checkpoint 90
no 2 plan cost --hours 100 --days 0
no 2 plan cost --hours 100 --tokens 1B
no 2 plan cost --hours 100 --params 3B
no 2 plan cost --hours 100 --restart 100
no 2 plan cost --hours 100 --checkpoint-every 5
no 2 plan cost --tokens 1B --tokens-per-second 1M
no 2 plan cost m.yaml --tokens 1B --tokens-per-second 1M
no 2 plan cost --tokens 1B --tokens-per-second 1M --devices 8 --hours 3
no 2 plan cost m.yaml cluster=h100-8 train.epochs=3
# What does not fit, but would with ranks that share more of it, and at a limit that is given.
cat >zero.yaml <<'Y'
model: {preset: smollm2-1.7b}
train: {seq_len: 2048, global_batch_size: 64, micro_batch_size: 1, precision: bf16, steps: 10, recompute: full, memory_limit: 22Gi}
optim: {lr: 1e-4}
cluster: l4-8
Y
expect 4 plan zero.yaml
has err 'set parallel.zero=1: 8 ranks share more of it'
expect 0 plan zero.yaml parallel.zero=1
stages='llama-3.1-70b cluster=h100-64 parallel.pp=2 train.seq_len=4096 train.precision=bf16 train.micro_batch_size=1 train.global_batch_size=128'
expect 4 plan $stages
has err 'set parallel.zero=3: 32 ranks share more of it; and train.recompute=full'
expect 0 plan $stages parallel.zero=3 train.recompute=full
# formulas, inference, schedules, tables
no 2 plan m.yaml --model guess
no 2 plan m.yaml --model formula --convention guess
no 2 plan m.yaml --model formula parallel.pp=9 train.global_batch_size=18
for whose in formula widget predictor; do
    no 2 plan m.yaml --model $whose parallel.tp=3
    no 2 plan m.yaml --model $whose parallel.tp=4294967297
    no 2 plan gpt2 --model $whose train.seq_len=4096
done
no 2 plan m.yaml --model formula parallel.cp=3
no 2 plan m.yaml --model formula parallel.ep=2 parallel.dp=2
no 2 plan infer m.yaml
no 2 plan infer $small --context 1
no 2 plan infer $small --texts 0
no 2 plan infer $small --store Q9
no 2 plan infer $small train.seq_len=32
no 2 plan schedule round-robin
no 2 plan schedule --stages 0
no 2 plan schedule interleaved --stages 4 --micro-batches 5
no 2 plan schedule --times 1,2
no 2 plan schedule zb-v --virtual 3
no 2 plan schedule --stages 1024 --micro-batches 65536
no 2 plan schedule 1f1b --stages 1025
no 2 plan schedule 1f1b --micro-batches 99999999999999999999
no 2 plan schedule 1f1b --times nan,1,1
no 2 plan schedule 1f1b -o picture.png
no 2 plan schedule 1f1b -o .svg
no 2 plan schedule 1f1b -o folder/.json
no 2 plan schedule 1f1b --times 1,1,1,0,5
no 2 plan schedule 1f1b --times 0x1,1,1
no 2 plan schedule 1f1b --times 1,1
no 2 plan schedule 1f1b --times 1,1,1,0,1,1 dualpipe
no 2 plan schedule 1f1b --times 1,1,1,
no 2 plan $small train.global_batch_size=9223372036854775808
no 2 plan $small parallel.tp=4294967297
no 2 plan $small model.hidden_size=1099511627776
no 2 plan cost --params 3B --tokens 1T --days 1e-7
no 2 plan cost --params nan --tokens 1T
no 2 plan infer $small --context 99999999999
no 2 decide --prompting no --device-hours 1e400
no 2 decide --prompting yes --device-hours 5
no 2 decide --prompting no --tuning no --reason best --device-hours 5
no 3 plan validate m.yaml
no 3 plan validate nowhere.csv
[ $asked -ge 80 ] || fail "only $asked requests"
finish
