# athanor bench layouts: every combination is a row, failures too; started again it goes on; plan fit reads the rows. $1 is the program.
. "$(dirname "$0")/lib.sh"
write_config c.yaml
sweep="bench layouts c.yaml model.vocab_size=300 train.threads=1 --steps 2 --warmup 1 -o rows.csv"
column() { # of rows.csv by its name; notes may have commas
    sed 's/"[^"]*"//g' rows.csv |
        awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } { print $c }'
}

# ---- 1 and 2 ranks: of one rank no ZeRO and no pipeline; what the config says (its micro-batch) is kept ----
expect 0 $sweep --ranks 1,2 --recompute none
has out "7 layouts of c.yaml; 0 in rows.csv already, 7 to run"
[ "$(column gpus | tr '\n' ' ')" = "1 2 2 2 2 2 2 " ] || fail "ranks: $(column gpus)"
[ "$(column zero | sort | tr '\n' ' ')" = "0 0 0 0 1 2 3 " ] || fail "ZeRO: $(column zero)"
[ "$(column status | sort -u)" = ok ] || fail "$(cat rows.csv)"
[ "$(column mbs | sort -u)" = 4 ] || fail "the config's micro-batch is not kept"
column tok_s | awk '!($1 > 0) { exit 1 }' || fail "a row without a rate"
expect 0 plan validate rows.csv cluster=h100 --json
grep -q '"rows": 7, "used": 7,' out || fail "$(cat out)"
# Rows of small runs: their memory is found, too, though a fit begins with that of large ones.
expect 0 plan fit rows.csv cluster=h100 -o fit.yaml --json
calc "abs($(field median_ratio out) - 1) < 0.1" || fail "memory: $(cat out)"

has_next() { "$athanor" $sweep --ranks 1,2 --recompute none 2>/dev/null | grep -q "cluster=local-2"; }
has_next || fail "it does not say by which cluster rows are to be reckoned"

# ---- started again: only what is missing is run, also after a row that was cut off ----
cp rows.csv whole.csv
expect 0 $sweep --ranks 1,2 --recompute none
has out "7 in rows.csv already, 0 to run"
cmp -s rows.csv whole.csv || fail "the rows have changed"
head -c $(($(wc -c <whole.csv) - 20)) whole.csv >rows.csv
expect 0 $sweep --ranks 1,2 --recompute none --json
[ "$(grep -o '"unit"' out | wc -l)" = 1 ] || fail "not one row: $(cat out)"
[ "$(wc -l <rows.csv)" = 8 ] || fail "$(cat rows.csv)"
# Another config has rows of its own in the same file.
expect 0 $sweep --ranks 1 --recompute none optim.eps=1e-7
[ "$(wc -l <rows.csv)" = 9 ] || fail "$(cat rows.csv)"

rm rows.csv
expect 0 $sweep --ranks 2 --cp 2 --recompute none --zero 0,1
has out "dp 1, cp 2 (allgather), ZeRO-1"
[ "$(column dp | tr '\n' ' ')" = "1 1 " ] || fail "dp beside cp: $(column dp)"
rm rows.csv
expect 0 $sweep --ranks 2 --tp 1 --pp 1 --ep 1,2 --recompute none --zero 0 model.num_experts=4
[ "$(column ep | tr '\n' ' ')" = "1 2 " ] || fail "experts: $(column ep)"
has out "dp 2, ep 2"

# ---- failures are rows: what does not fit is not run; what takes too long or dies is told as such ----
rm rows.csv
expect 0 $sweep --ranks 1 --recompute none train.memory_limit=1Mi
has out "0 to run"
[ "$(column status)" = oom ] || fail "$(cat rows.csv)"
expect 0 $sweep --ranks 2 --recompute none --tp 2 --steps 100000 --limit 1
[ "$(column status | tail -n 1)" = timeout ] || fail "$(cat rows.csv)"
"$athanor" $sweep --ranks 2 --recompute none --zero 1 --tp 1 --pp 1 --steps 100000 >out 2>err &
pid=$! launch= rank=
child_of() { cut -d ' ' -f 1 "/proc/$1/task/$1/children" 2>/dev/null; }
is_running() { launch=$(child_of $pid) && [ "$launch" ] && rank=$(child_of $launch) && [ "$rank" ]; }
await is_running || fail "no rank is there"
kill -KILL $rank
wait $pid || fail "a crash ended the sweep"
[ "$(column status | tail -n 1)" = crash ] || fail "$(cat rows.csv)"
grep -q "killed by signal 9" rows.csv || fail "the row does not say why: $(cat rows.csv)"
{ cat whole.csv && tail -n 3 rows.csv; } >both.csv
expect 0 plan validate both.csv cluster=h100 --json
grep -q '"rows": 10, "used": 7,' out || fail "$(cat out)"

# ---- an array of Slurm's jobs: the shares are all of them, each once ----
mkdir bin && ln -s "$athanor" bin/athanor
keys=${sweep#bench layouts }
for k in 1 2; do
    SLURM_ARRAY_TASK_ID=$k SLURM_ARRAY_TASK_COUNT=2 SLURM_PROCID=0 SLURM_NTASKS=1 PATH=$work/bin:$PATH \
        bash "$root/docs/slurm/layouts.sbatch" ${keys%-o rows.csv} --ranks 1,2 --recompute none >out 2>err ||
        fail "share $k"
done
awk 'FNR > 1 || NR == 1' rows.[12].csv >rows.csv
[ "$(column status | grep -c ok)" = 7 ] || fail "shares do not make the whole: $(cat rows.csv)"
[ "$(column config | sort -u | wc -l)" = 7 ] || fail "a layout is in both shares"
bash "$root/docs/slurm/layouts.sbatch" c.yaml >out 2>err && fail "no array, and no error"

# ---- what is refused ----
expect 2 $sweep --ranks 3
has err "none of"
expect 2 $sweep --ranks 0
expect 2 $sweep --tp 2x
has err "--tp: '2x' is no number of ranks"
expect 2 $sweep --tp ''
has err "--tp: a list of at most"
expect 2 $sweep --ranks 1 --micro-batch 2 train.micro_batch_size=4
has err '--micro-batch 2 and train.micro_batch_size=4 both say what is tried'
expect 2 $sweep --share 3/2
expect 2 $sweep --zero 7 --ranks 2
expect 2 $sweep --ranks 1 parallel.tp=2
echo 'a,b' >other.csv
expect 2 ${sweep/rows.csv/other.csv} --ranks 1
has err "no file of this command"
[ "$(cat other.csv)" = a,b ] || fail "another file was written over"
finish
