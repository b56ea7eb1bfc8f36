# The clock beside measured rows: which rows count, a fit that finds what rows were made of, what is refused. $1 is the program.
. "$(dirname "$0")/lib.sh"

head='status,layers,hidden,heads,ffn,vocab,tied_emb,seq,gpus,tp,pp,mbs,grad_acc,zero,tok_s_gpu,gpu_mem_GB'
rows() { # of one and two nodes: tp, pp, micro-batches, ZeRO
    for nodes in 1 2; do
        for way in "1 1 1 0" "1 1 2 1" "2 1 1 1" "2 2 1 0" "4 1 2 1" "4 2 2 1" "1 4 1 0" "8 1 4 0"; do
            set -- $way
            dp=$((8 * nodes / $1 / $2))
            echo "ok,8,1024,16,2816,32000,1,1024,$((8 * nodes)),$1,$2,$3,$((32 / dp)),$4,1000,20"
        done
    done
}
{ echo "$head" && rows; } >ones.csv
expect 0 plan validate ones.csv --as athanor --rows said.csv --json
grep -q '"rows": 16, "used": 16,' out || fail "$(cat out)"
[ "$(wc -l <said.csv)" = 17 ] || fail "not a line for each row"
# Rows of a machine that is the preset, but a third slower throughout: the fit finds it.
awk -F, 'NR == FNR { if (FNR > 1) said[FNR - 1] = $12; next }
    FNR == 1 { print; next }
    { OFS = ","; $15 = sprintf("%.2f", said[FNR - 1] / 1.5); print }' said.csv ones.csv >slow.csv
expect 0 plan validate slow.csv --as athanor --json
calc "abs($(field median_abs_rel_err out) - 0.5) < 1e-3" || fail "a third slower is $(field median_abs_rel_err out)"
calc "abs($(field spearman_median out) - 1) < 1e-9" || fail "the order is not right"
grep -q '"regret": {"cells": 2, "within_5": 2, "within_10": 2}' out || fail "$(cat out)"
expect 0 plan fit slow.csv -o fit.yaml --json
calc "$(field median_abs_rel_err out) < 0.03" || fail "fitted to $(field median_abs_rel_err out)"
fitted=$(field median_abs_rel_err out)
expect 0 plan validate slow.csv --calibration fit.yaml --json
calc "abs($(field median_abs_rel_err out) - $fitted) < 1e-4" || fail "the file says other than the fit"
expect 0 plan fit slow.csv -o fit.yaml --hold-out
grep -q 'fitted to the others' out || fail "$(cat out)"
expect 0 plan validate slow.csv --as nanotron-0.5
# What cannot be reckoned is not used: another format, a pipeline of more stages than layers, nonsense.
{ echo "$head,precision" && echo 'ok,8,1024,16,2816,32000,1,1024,8,1,1,1,4,0,1000,20,int8' &&
    echo 'ok,8,1024,16,2816,32000,1,1024,16,1,16,1,4,0,1000,20,bf16' &&
    echo 'ok,x,1024,16,2816,32000,1,1024,8,1,1,1,4,0,1000,20,bf16' &&
    echo 'ok,8,1024,16,2816,32000,1,1024,8,1,1,1,4,0,1000,20,bf16'; } >odd.csv
expect 0 plan validate odd.csv --json
grep -q '"rows": 4, "used": 1,' out || fail "$(cat out)"

# Each row by the program that its source names, products of 8 bits and ranks that share a sequence among them; where no
# number of micro-batches is told a pipeline is full.
{ echo 'source,gpu,layers,hidden,heads,ffn,vocab,kv_heads,tied_emb,seq,gpus,tp,pp,cp,zero,recompute,precision,mbs,gbs_seqs,tok_s_gpu'
    echo 'torchtitan,H100,32,4096,32,14336,128256,8,0,8192,8,1,1,1,3,selective,bf16,2,16,6000'
    echo 'torchtitan,H100,32,4096,32,14336,128256,8,0,8192,8,1,1,1,3,selective,fp8,2,16,8500'
    echo 'torchtitan,H100,32,4096,32,14336,128256,8,0,65536,8,1,1,2,3,full,fp8,1,,~2400'
    echo 'Korthikanti,A100,96,12288,96,49152,51200,96,,2048,64,8,8,1,0,full,fp16,1,64,113'; } >others.csv
expect 0 plan validate others.csv --as published --rows said2.csv --json
grep -q '"rows": 4, "used": 4,' out || fail "$(cat out)"
calc "$(field median_abs_rel_err out) < 0.2" || fail "$(cat out)"
awk -F, 'NR == 2 { a = $12 } NR == 3 { b = $12 } END { exit !(b > 1.2 * a && b < 2 * a) }' said2.csv || fail "8 bits: $(cat said2.csv)"
expect 0 plan validate others.csv --as torchtitan
# Schedules of the zero-bubble paper, whose 22 layers make 24 parts with the embedding and the head; rows that tell the bubble alone.
{ echo 'layers,heads,hidden,seq,gpus_pp,mbs,microbatches,schedule,samples_per_gpu_s,bubble'
    echo '22,24,2304,1024,8,6,24,1F1B-I,13.1,0.1055'
    echo '22,24,2304,1024,8,6,24,ZB-2p,14.5,0.0433'
    echo '22,24,2304,1024,8,6,24,ZB-H2,,0.1083'; } >zero.csv
expect 0 plan validate zero.csv --json --rows said3.csv
grep -q '"rows": 3, "used": 3,' out || fail "$(cat out)"
awk -F, 'NR > 1 { e = $12 / $11 - 1; if (e > 0.1 || e < -0.1) bad = 1 } NR == 4 { if ($11 != 0.89) bad = 1 } END { exit bad }' said3.csv ||
    fail "not within a tenth: $(cat said3.csv)"
expect 2 plan validate slow.csv --as hopes
expect 2 plan validate slow.csv --as athanor --calibration fit.yaml
sed 's/torchtitan,H100/athanor,AMD EPYC 9754/; s/Korthikanti,A100/athanor,AMD EPYC 9754/' others.csv >cpu.csv
expect 2 plan validate cpu.csv
has err "nothing is known of 'AMD EPYC 9754'"
has err 'cluster=local or local-N'
# Words and names as tables write them; a model without sizes by its preset; rows that tell the time of a step.
{ echo 'source,gpu,model,layers,hidden,heads,ffn,vocab,experts,experts_per_token,seq,gpus,tp,pp,vpp,ep,zero,recompute,precision,mbs,gbs_seqs,tok_s_gpu,tok_s,iter_time_s'
    echo 'FSDP,h100_80gb,LLAMA3_8B,,,,,,,,8192,8,,,n/a,,FULL_SHARD,True,amp_bf16,2,16,5000,,'
    echo 'FSDP,h100_80gb,Llama 3 8B,,,,,,,,8192,8,,,,,ZeRO-3,full,BF16,2,16,,"40,000",'
    echo 'FSDP,h100_80gb,llama-3-8b,,,,,,,,8192,8,,,,,FSDP,full,"bf16, fp32 grad acc",2,16,,,3.2768'
    echo 'Megatron,A100,,32,4096,32,14336,32000,8,2,4096,64,1,4,,8,1,none,bf16,1,256,2000,,'
    echo 'Megatron,A100,,32,4096,32,14336,32000,8,2,4096,64,1,4,,3,1,none,bf16,1,256,2000,,'; } >words.csv
expect 0 plan validate words.csv --rows said4.csv --json
grep -q '"rows": 5, "used": 4,' out || fail "$(cat out)"
awk -F, 'NR > 1 && NR < 5 { if ($12 != a && a) bad = 1; a = $12 } NR == 3 || NR == 4 { if ($11 != 5000) bad = 1 } END { exit bad }' said4.csv ||
    fail "the same row is said otherwise: $(cat said4.csv)"
# Counted, not guessed: another device of a similar name, ZeRO-3 in groups, the time of a step of an unknown batch.
{ echo 'gpu,layers,hidden,heads,ffn,vocab,seq,gpus,zero,precision,gbs_seqs,tok_s_gpu,iter_time_s'
    echo 'L40,32,4096,32,14336,32000,4096,8,3,bf16,16,3000,'
    echo 'H100,32,4096,32,14336,32000,4096,8,HYBRID_SHARD,bf16,16,3000,'
    echo 'H100,32,4096,32,14336,32000,4096,8,4294967295,bf16,16,3000,'
    echo 'H100,32,4096,32,14336,32000,4096,8,3,bf16,,,3'
    echo 'H100,32,4096,32,14336,32000,4096,8,3,bfloat16,16,,3'; } >guesses.csv
expect 0 plan validate guesses.csv --json
grep -q '"rows": 5, "used": 1,' out || fail "$(cat out)"
# Rows that tell FLOPs or MFU: 530B on A100 at 56.0 % took 54.1 tokens a second (Korthikanti et al. 2022), at 163 TFLOP/s with recompute 37.9 (Narayanan et al. 2021).
{ echo 'source,gpu,layers,hidden,heads,ffn,vocab,seq,gpus,tp,pp,recompute,precision,gbs_seqs,peak_tf,mfu_pct,tflops_gpu,flops_kind'
    echo 'Korthikanti,A100,105,20480,128,81920,51200,2048,280,8,35,selective,fp16,280,312,56.0,,'
    echo 'Narayanan,A100,105,20480,128,81920,51200,2048,2520,8,35,full,fp16,2520,,,163,hardware'; } >flops.csv
expect 0 plan validate flops.csv --rows said5.csv
awk -F, 'NR == 2 { bad += $11 < 53.9 || $11 > 54.3 } NR == 3 { bad += $11 < 37.6 || $11 > 38.1 } END { exit bad > 0 || NR != 3 }' said5.csv ||
    fail "$(cat said5.csv)"
echo 'a,b' >none.csv
expect 3 plan validate none.csv
grep -q tok_s_gpu err || fail "$(cat err)"
sed -i 's/"products": [0-9.e-]*/"products": 99/' fit.yaml
expect 3 plan validate slow.csv --calibration fit.yaml
grep -q 'runtime.products' err || fail "$(cat err)"
expect 2 plan fit slow.csv
finish
