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
# What is held out has not been seen: rows of two nodes that are as slow again are not found from those of one. Of one cell nothing is left.
awk -F, 'FNR > 1 && $9 == 16 { OFS = ","; $15 /= 2 } { print }' slow.csv >apart.csv
expect 0 plan fit apart.csv -o fit2.yaml --hold-out --json
calc "$(field median_abs_rel_err out) > 0.4" || fail "held out, and yet $(field median_abs_rel_err out)"
awk -F, 'FNR == 1 || $9 == 8' slow.csv >cell.csv
expect 2 plan fit cell.csv -o fit2.yaml --hold-out
has err 'nothing is left to fit to'
expect 0 plan validate slow.csv --as nanotron-0.5
# Rows of CPUs ran on what the calibration is of.
sed '1s/$/,gpu/; 2,$s/$/,cpu/' slow.csv >cpus.csv
"$athanor" plan cluster h100-16 >cpus.yaml
sed -i 's/"kind": "cuda"/"kind": "cpu"/' cpus.yaml
expect 2 plan validate cpus.csv
expect 0 plan fit cpus.csv -o fit3.yaml cluster=cpus.yaml --json
fitted=$(field median_abs_rel_err out)
expect 0 plan validate cpus.csv --calibration fit3.yaml --json
calc "abs($(field median_abs_rel_err out) - $fitted) < 1e-4" || fail "the file says other than the fit"
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
# Mixtures of experts: some of the rows that megatron-core was fitted to (NVIDIA Megatron Bridge 25.11 and 26.02.01, performance summary), and some
# that it was not (26.04.01, NeMo AutoModel 2025-10, Mixtral of the Megatron MoE Model Zoo). All are used, and as near.
head='source,gpu,model,seq,gpus,tp,pp,vpp,ep,zero,recompute,precision,mbs,gbs_seqs,tok_s_gpu,tflops_gpu,flops_kind'
{ echo "$head"
    echo 'Megatron Bridge,GB300,DeepSeekV3 (w/o MTP),4096,256,1,2,4,32,1,,BF16,1,4096,3848'
    echo 'Megatron Bridge,GB200,DeepSeekV3,4096,256,1,4,4,64,1,,MXFP8,1,4096,4021'
    echo 'Megatron Bridge,B200,Qwen3_30B_a3B,4096,8,1,1,,8,1,,MXFP8,4,512,26695'
    echo 'Megatron Bridge,B200,Qwen3_235B_a22B,4096,64,1,8,2,8,1,,FP8-MX,1,1024,3269'
    echo 'Megatron Bridge,H100,Qwen3_235B_a22B,4096,256,2,8,4,32,1,,FP8-CS,1,2048,1575'; } >fitted.csv
{ echo "$head"
    echo 'Megatron Bridge,H100,Qwen3_30B_a3B,4096,16,1,1,,16,1,,FP8,1,1024,8960'
    echo 'Megatron Bridge,B300,Qwen3_235B_a22B,4096,256,1,8,,8,1,,MXFP8,2,8192,5936'
    echo 'NeMo AutoModel,H100,Qwen3 MoE 30B,4096,8,1,1,,8,3,full,bf16,4,512,12040'
    echo 'NeMo AutoModel,H100,DeepSeek V3 671B,4096,256,1,4,8,64,2,full,bf16,1,512,1002'
    echo 'Megatron MoE Model Zoo,H100,Mixtral-8x22B,4096,128,2,8,7,8,1,,bf16,1,256,,465,causal'; } >held.csv
expect 0 plan validate fitted.csv --as published --json
grep -q '"rows": 5, "used": 5,' out || fail "$(cat out)"
calc "$(field median_abs_rel_err out) < 0.05" || fail "fitted: $(cat out)"
expect 0 plan validate held.csv --as published --rows said9.csv --json
grep -q '"rows": 5, "used": 5,' out || fail "$(cat out)"
calc "$(field median_abs_rel_err out) < 0.08" || fail "held out: $(cat out)"
awk -F, 'NR > 1 && ($12 < 0.8 * $11 || $12 > 1.25 * $11) { bad = 1 } END { exit bad }' said9.csv || fail "held out: $(cat said9.csv)"
# ZeRO-3 of MosaicML's (llm-foundry, scripts/train/benchmarking) on A100: every second row of its tables was fitted with torchtitan's.
{ echo 'source,gpu,layers,hidden,heads,vocab,seq,gpus,zero,recompute,precision,mbs,grad_acc,tok_s_gpu'
    echo 'MosaicML,a100_80gb,32,4096,32,50368,2048,8,FULL_SHARD,False,bf16,6,2,4641'
    echo 'MosaicML,a100_80gb,80,8192,64,50368,2048,64,FULL_SHARD,True,bf16,8,4,410'
    echo 'MosaicML,a100_80gb,24,2048,16,50368,2048,8,FULL_SHARD,False,bf16,14,4,20513'; } >a100.csv
expect 0 plan validate a100.csv --as published --json
calc "$(field median_abs_rel_err out) < 0.13" || fail "$(cat out)"
# Schedules of which the row tells no chunks: two in a stage.
{ echo 'gpu,layers,hidden,heads,ffn,vocab,seq,gpus,pp,schedule,gbs_seqs,tok_s_gpu'
    echo 'H100,32,4096,32,14336,32000,4096,8,4,Interleaved 1F1B,16,3000'
    echo 'H100,32,4096,32,14336,32000,4096,8,4,zb-v,16,3000'; } >chunks.csv
expect 0 plan validate chunks.csv --as athanor --rows said6.csv --json
grep -q '"rows": 2, "used": 2,' out || fail "$(cat out)"
# GB200 is no B200: what 64 ranks of a rack send each other does not leave it.
sed -n '1p; /,GB200,DeepSeekV3/p' fitted.csv >rack.csv
expect 0 plan validate rack.csv --as published --rows said7.csv
sed 's/,GB200,/,B200,/' rack.csv >nodes.csv
expect 0 plan validate nodes.csv --as published --rows said8.csv
calc "$(awk -F, 'NR == 2 { print $12 }' said7.csv) > 1.2 * $(awk -F, 'NR == 2 { print $12 }' said8.csv)" || fail "a rack is as slow as nodes"
echo 'a,b' >none.csv
expect 3 plan validate none.csv
grep -q tok_s_gpu err || fail "$(cat err)"
sed 's/"casts": [0-9.e-]*,//' fit.yaml >older.yaml
expect 3 plan validate slow.csv --calibration older.yaml
has err 'runtime.casts is no number'
has err 'run athanor plan fit again'
sed -i 's/"products": [0-9.e-]*/"products": 99/' fit.yaml
expect 3 plan validate slow.csv --calibration fit.yaml
grep -q 'runtime.products' err || fail "$(cat err)"
lacks err 'plan fit again'
expect 2 plan fit slow.csv
finish
