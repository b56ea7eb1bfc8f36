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
grep -q '"regret": \[{"layers": 8, "hidden": 1024, "vocab": 32000, "nodes": 1, "regret": 0.0, .*"nodes": 2, "regret": 0.0, ' out || fail "$(cat out)"
has out '"regret_within": {"cells": 2, "5": 2, "10": 2}'
has out '"memory": {"rows": 16, "r2": null, "median_ratio": '
expect 0 plan validate slow.csv --as athanor
lacks out 'R^2'
# By hand: of three layouts the one that is predicted to be the fastest is the second of what was measured, the next the last.
{ echo "$head" && for tp in 1 2 4; do echo "ok,8,1024,16,2816,32000,1,1024,8,$tp,1,1,$tp,0,1,$((10 + tp * tp % 9))"; done; } >three.csv
expect 0 plan validate three.csv --as athanor --rows said0.csv
awk -F, 'NR == FNR { p[FNR] = $12; next }
    FNR > 1 { above = 0; for (i = 2; i <= 4; i++) above += p[i] > p[FNR]; OFS = ","; $15 = above == 0 ? 2000 : above == 1 ? 1000 : 3000 }
    { print }' said0.csv three.csv >hand.csv
expect 0 plan validate hand.csv --as athanor --json
calc "abs($(field spearman_median out) + 0.5) < 1e-9" || fail "the rank correlation is not -1/2"
grep -q '"regret": 0.3333' out || fail "a third is lost: $(cat out)"
squared=$(awk -F, 'NR == FNR { p[FNR] = $13; next }
    FNR > 1 { x = p[FNR]; y = $16; n++; sx += x; sy += y; xx += x * x; yy += y * y; xy += x * y }
    END { print (n * xy - sx * sy) ^ 2 / ((n * xx - sx ^ 2) * (n * yy - sy ^ 2)) }' said0.csv hand.csv)
calc "abs($(field r2 out) - $squared) < 1e-2" || fail "memory's squared correlation is $squared: $(cat out)"
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
# Counted, not guessed: another device of a similar name, no stage of ZeRO, the time of a step of an unknown batch. Each with a reason.
{ echo 'gpu,layers,hidden,heads,ffn,vocab,seq,gpus,zero,precision,gbs_seqs,tok_s_gpu,iter_time_s'
    echo 'L40,32,4096,32,14336,32000,4096,8,3,bf16,16,3000,'
    echo 'H100,32,4096,32,14336,32000,4096,8,HYBRID_SHARD,bf16,16,3000,'
    echo 'H100,32,4096,32,14336,32000,4096,8,4294967295,bf16,16,3000,'
    echo 'H100,32,4096,32,14336,32000,4096,8,3,bf16,,,3'
    echo 'H100,32,4096,32,14336,32000,4096,8,3,bfloat16,16,,3'; } >guesses.csv
expect 0 plan validate guesses.csv --json
grep -q '"rows": 5, "used": 2,' out || fail "$(cat out)"
expect 0 plan validate guesses.csv
has out "not used: line 2: nothing is known of 'L40'"
has out "not used: line 4: zero '4294967295' is none of 0 to 3"
has out 'not used: line 5: it tells no speed'
{ echo 'gpu,model,seq,gpus,pp,vpp,schedule,precision,gbs_seqs,tok_s_gpu'
    echo 'H100,llama-3-9b,8192,8,,,,bf16,16,3000'
    echo 'H100,llama-3-8b,8k8,8,,,,bf16,16,3000'
    echo 'H100,llama-3-8b,8192,9,2,,,bf16,16,3000'
    echo 'H100,llama-3-8b,8192,16,2,,,bf16,4,3000'
    echo 'H100,llama-3-8b,8192,8,4,2,,bf16,12,3000'
    echo 'H100,llama-3-8b,8192,8,4,,hanayo,bf16,16,3000'
    echo 'H100,llama-3-8b,8192,8,4,,hanayo,bf16,16,3000'
    echo 'H100,llama-3-8b,8192,8,,,,bf16,16,3000'; } >reasons.csv
expect 0 plan validate reasons.csv
has out '1 of 8 rows used'
has out "line 2: model 'llama-3-9b' is no preset: tell its layers"
has out "line 3: seq '8k8' is no number"
has out 'line 4: gpus 9 are no multiple of tp 1 x pp 2 x cp 1'
has out "line 5: a batch of gbs_seqs '4' is less than dp 8 x mbs 1"
has out 'line 6: interleaved stages take micro-batches by pp: 6 are no multiple of 4'
has out "line 7 and 1 more: there is no schedule 'hanayo'"
# Cells that are none of what their column holds, and rows that contradict themselves: each with its reason, none read as something near it.
{ echo 'gpu,layers,hidden,heads,ffn,vocab,tied_emb,activation,seq,gpus,nodes,tp,zero,recompute,mbs,grad_acc,gbs_seqs,tok_s_gpu'
    row() { echo "H100,36,2048,16,11008,128256,$1,$2,4096,64,$3,$4,$5,$6,$7,$8,$9"; }
    row yes '' 8 1 1 none 1 '' 128,20000
    row no SwiGLU '' 1 'ZeRO-1 in groups of 8' 'full AC' 1 2 '"1,28",20000'
    row no '' '' 1 maybe none 1 '' 128,20000
    row no '' '' 1 1.5 none 1 '' 128,20000
    row no '' '' 1 'ZeRO-1 in groups of x' none 1 '' 128,20000
    row no '' '' 1 1 banana 1 '' 128,20000
    row no '' '' 1.5 1 none 1 '' 128,20000
    row no '' '' 1 1 none 1.9 '' 128,20000
    row no '' '' 1 1 none 1 abc 128,20000
    row no '' '' 1 1 none 1 16 128,20000
    row no '' 3 1 1 none 1 '' 128,20000
    row no '' 100 1 1 none 1 '' 128,20000
    row no '' 2 1 1 none 1 '' 128,20000
    row no '' '' 1 1 none 1 '' 128,0x4E20
    row no '' '' 1 1 none 1 '' 128,-5
    row perhaps '' '' 1 1 none 1 '' 128,20000
    row no banana '' 1 1 none 1 '' 128,20000
    row no '' '' 1 1 none 1 '' 128,20000,7
    row no '' '' 1 1 "$(printf '\033[31m')" 1 '' 128,20000
    row n/a - N/A - no_shard False 1 - '"1,280","20,000"'; } >cells.csv
expect 0 plan validate cells.csv
has out '2 of 20 rows used'
has out "line 3: gbs_seqs '1,28' is no number"
has out "line 4: zero 'maybe' is none of 0 to 3"
has out "line 5: zero '1.5' is none of 0 to 3"
has out "line 6: zero 'ZeRO-1 in groups of x' does not tell how many ranks"
has out "line 7: recompute 'banana' is none of full, selective, none"
has out "line 8: tp '1.5' is no whole number"
has out "line 9: mbs '1.9' is no whole number"
has out "line 10: grad_acc 'abc' is no number"
has out 'line 11: grad_acc 16 x dp 64 x mbs 1 are a batch of 1024, where the row has 128'
has out "line 12: gpus 64 do not make nodes '3' of equally many"
has out "line 13: gpus 64 do not make nodes '100' of equally many"
has out 'line 14: gpus 64 on nodes 2 are more than the 8 of a node of h100'
has out "line 15: tok_s_gpu '0x4E20' is no number"
has out "line 16: tok_s_gpu '-5' is below 0"
has out "line 17: tied_emb 'perhaps' is neither true nor false"
has out "line 18: activation 'banana' is none of SwiGLU"
has out 'line 19: it has 19 cells, 1 more than the header'
has out "line 20: recompute '?[31m'"
# Commas in a remark at the end are part of it, and what tables say where there is nothing is nothing.
{ echo 'gpus,tp,pp,mbs,gbs_seqs,layers,hidden,heads,kv_heads,ffn,vocab,seq,recompute,tok_s_gpu,gpu,notes'
    echo '64,1,?,1,128,36,2048,16,NA,11008,128256,4096,moe_act,14000,H100,fast, but not so fast, as one may say'; } >notes.csv
expect 0 plan validate notes.csv
has out '1 of 1 rows used'
# Cells as tables write them are those of a plain row.
{ echo 'gpus, tp, pp, ep, mbs, gbs_tokens, layers, hidden, heads, ffn, vocab, seq, zero, recompute, precision, iter_time_s, mem_GB, status, gpu, source'
    echo '64,1,1,1,1,1048576,36,2048,16,11008,128256,4096,1,full,bf16,0.5,,ok,H100,x'
    echo ' 64 GPUs ,0,—,none,1[^1],1M,36,"2,048",16 (32),11008,128256*,4k,dist-opt,activation checkpointing,mixed,500 ms,39GB,Success,H100, x'
    echo '~64,0,0,0,**1**,1.048576M,36,2048,[16](there),11008,128k,4096,ZeRO-1,every layer,16-mixed,0.5 ± 0.1,OOM?,completed,H100,x'; } >cells.csv
expect 0 plan validate cells.csv --rows cells.out
has out '3 of 3 rows used'
[ "$(tail -n 3 cells.out | cut -d, -f 2-10 | sort -u)" = 8,1,1,1,64,1,1,4,1 ] || fail "not alike: $(cat cells.out)"
# A batch that ranks and micro-batches do not divide is what was published: its time is of all its tokens.
{ echo 'gpus,tp,pp,mbs,gbs_seqs,layers,hidden,heads,ffn,vocab,seq,iter_time_s,gpu,source'
    echo '64,1,1,1,100,36,2048,16,11008,128256,4096,0.2,H100,x'; } >part.csv
expect 0 plan validate part.csv --rows said14.csv
[ "$(awk -F, 'NR == 2 { print $11 }' said14.csv)" = 32000.00 ] || fail "100 x 4096 / 0.2 / 64 is not $(cat said14.csv)"
# What an error would follow is not printed: one document or the other.
expect 1 plan validate part.csv --json --rows no/such/folder.csv
lacks out median_abs_rel_err
has out '"error"'
{ echo 'tok_s_gpu' && echo 5; } >only.csv
expect 3 plan validate only.csv
has err 'its only row cannot be used: gpus'
echo 'tok_s_gpu' >bare.csv
expect 3 plan validate bare.csv
has err 'has no rows below its header'
# Many rows take no longer than they must: all pairs would be ten thousand million.
{ head -1 part.csv && yes "$(sed -n 2p part.csv)" | head -100000; } >many.csv
expect 0 plan validate many.csv --json
grep -q '"rows": 100000, "used": 100000,' out || fail "$(cat out)"
# Columns as others call them, and MFU as a share: the same rows.
{ echo 'Hardware,Num layers,hidden_size,num_attention_heads,num_key_value_heads,intermediate_size,vocab_size,Sequence length,#-GPUs,TP,zero_stage,dtype,micro_batch_size,Global batch size,tokens/s/GPU'
    echo 'H100,32,4096,32,8,14336,128256,8192,8,1,3,bf16,2,16,6000'; } >called.csv
{ echo 'gpu,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpus,tp,zero,precision,mbs,gbs_seqs,tok_s_gpu'
    echo 'H100,32,4096,32,8,14336,128256,8192,8,1,3,bf16,2,16,6000'; } >ours.csv
expect 0 plan validate called.csv --rows called
expect 0 plan validate ours.csv --rows ours
cmp called ours || fail "other names, another row: $(cat called ours)"
{ echo 'gpu,model,seq,gpus,zero,mbs,gbs_seqs,mfu,iter_time_ms'
    echo 'H100,llama-3-8b,8192,8,3,2,16,0.4,'
    echo 'H100,llama-3-8b,8192,8,3,2,16,40%,'
    echo 'H100,llama-3-8b,8192,8,3,2,16,0.4%,'
    echo 'H100,llama-3-8b,8192,8,3,2,16,,2000'; } >shares.csv
expect 0 plan validate shares.csv --rows said10.csv
awk -F, 'NR == 2 { a = $11 } NR == 3 { bad += $11 != a || a < 6000 || a > 9000 } NR == 4 { bad += $11 > a / 90 } NR == 5 { bad += $11 != 8192 }
    END { exit bad > 0 || NR != 5 }' said10.csv || fail "$(cat said10.csv)"
# What nodes are: eight GPUs of two machines send each other through the network; in groups of a node weights come by its links.
{ echo 'gpu,model,seq,gpus,nodes,tp,zero,recompute,mbs,gbs_seqs,tok_s_gpu'
    echo 'H200,llama-3-8b,4096,8,1,8,0,full,1,1,1000'
    echo 'H200,llama-3-8b,4096,8,2,8,0,full,1,1,1000'
    echo 'H100,llama-3-8b,4096,512,,1,3,none,1,512,1000'
    echo 'H100,llama-3-8b,4096,512,,1,HSDP,none,1,512,1000'
    echo 'H100,llama-3-8b,4096,512,,1,ZeRO-3 in groups of 512,none,1,512,1000'; } >nodes4.csv
expect 0 plan validate nodes4.csv --as athanor --rows said11.csv
awk -F, 'NR > 1 { p[NR] = $12 } END { exit !(p[3] < 0.8 * p[2] && p[5] > 1.02 * p[4] && p[6] == p[4]) }' said11.csv || fail "$(cat said11.csv)"
# A feed-forward part without a gate has two matrices of three: Nemotron's, and what the activation says.
{ echo 'gpu,model,activation,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpus,tied_emb,mbs,gbs_seqs,tflops_gpu'
    echo 'H100,Nemotron-15B,,32,6144,48,8,24576,256000,4096,64,no,1,64,400'
    echo 'H100,15B,squared ReLU,32,6144,48,8,24576,256000,4096,64,no,1,64,400'
    echo 'H100,15B,SwiGLU,32,6144,48,8,24576,256000,4096,64,no,1,64,400'; } >gates.csv
expect 0 plan validate gates.csv --rows said12.csv
awk -F, 'NR > 1 { t[NR] = $11 } END { exit !(t[2] == t[3] && t[4] < 0.8 * t[2]) }' said12.csv || fail "$(cat said12.csv)"
# Rows of sources that nothing was fitted to (docs/results/measurements.md says which, and names those that are worse).
{ echo 'source,gpu,model,layers,hidden,heads,kv_heads,ffn,vocab,tied_emb,seq,gpus,tp,pp,vpp,cp,ep,zero,schedule,recompute,precision,mbs,grad_acc,gbs_seqs,iter_time_s,tok_s_gpu,tflops_gpu'
    echo 'Llama 3 (arXiv:2407.21783),H100,405B,126,16384,128,8,53248,128256,,8192,8192,8,16,,1,,2,interleaved,none,bf16,1,,2048,,,430'
    echo 'Llama 3 (arXiv:2407.21783),H100,405B,126,16384,128,8,53248,128256,,131072,16384,8,16,,16,,2,interleaved,none,bf16,1,,128,,,380'
    echo 'OLMo 3,H100,7B,32,4096,32,32,11008,100352,no,8192,512,,,,,,HSDP,,selective,bf16,1,,512,,7700,'
    echo 'InternEvo,nvidia_a100-sxm4-80gb,7B,32,4096,32,32,11008,103168,no,2048,256,1,,,,,ZeRO-1 in groups of 8,,no,bf16,2,4,,,3920,'
    echo 'InternEvo,nvidia_a100-sxm4-80gb,7B,32,4096,32,32,11008,103168,no,2048,128,2,,,,,1,,no,bf16,4,4,,,3308,'
    echo 'Pythia (arXiv:2304.01373),A100 40GB,Pythia 6.9B,,,,,,,,2048,128,2,,,,,1,,full,fp16,8,2,,,2486.7,'
    echo 'MegaScale (arXiv:2402.15627),A100,175B,96,12288,128,128,49152,64000,,2048,3072,8,8,6,,,1,,,bf16,1,,6144,23.66,,'
    echo 'Megatron-LM (arXiv:2402.15627),A100,175B,96,12288,128,128,49152,64000,,2048,3072,8,8,6,,,1,,,bf16,1,,6144,29.02,,'
    echo 'Nemotron-4 340B (arXiv:2406.11704),H100,Nemotron-4 340B,96,18432,96,8,73728,256000,no,4096,3072,8,12,8,,,1,,,bf16,1,,1536,10.3,,'
    echo 'Skywork-13B (arXiv:2310.19341) Megatron-LM,A800 80GB,13B,52,4608,36,36,12288,65519,no,4096,512,,2,,,,1,,,bf16,1,,4096,,1873,'
    echo 'Hagemann et al. (arXiv:2311.05610),A100 80GB,30B,60,6656,52,52,17920,128000,no,8192,64,4,2,,,,1,,,bf16,1,,512,84.367,,'
    echo 'NeMo 24.12,H100,Nemotron-340B,96,18432,96,8,73728,256000,no,4096,128,8,8,12,1,,1,,,fp8,1,,32,,326,'
    echo 'DeepSeek-V3 (arXiv:2412.19437),H800,DeepSeek-V3,,,,,,,,4096,2048,,16,,,64,1,DualPipe,,fp8,1,,15360,,1543,'; } >unseen.csv
expect 0 plan validate unseen.csv --json --rows said13.csv
grep -q '"rows": 13, "used": 13,' out || fail "$(cat out)"
calc "$(field median_abs_rel_err out) < 0.1" || fail "unseen: $(cat out said13.csv)"
awk -F, 'NR > 1 && ($12 < 0.8 * $11 || $12 > 1.2 * $11) { bad = 1 } END { exit bad }' said13.csv || fail "unseen: $(cat said13.csv)"
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
# Memory of every twentieth row without a pipeline of the Ultra-Scale Playbook's: its loss takes a logit three times in fp32.
{ echo 'status,layers,hidden,heads,kv_heads,ffn,vocab,tied_emb,seq,gpus,tp,pp,mbs,grad_acc,zero,tok_s_gpu,gpu_mem_GB'
    echo 'ok,16,2048,32,32,8192,131072,1,4096,8,1,1,2,16,0,40149.94,50.18'
    echo 'ok,16,2048,32,32,8192,131072,1,4096,16,4,1,4,16,1,32458.57,18.01'
    echo 'ok,16,2048,32,32,8192,131072,1,4096,64,1,1,1,4,1,31296.96,23.76'
    echo 'ok,16,2048,32,32,8192,131072,1,4096,256,8,1,8,1,0,22419.22,16.19'
    echo 'ok,16,2048,32,32,8192,131072,1,4096,256,16,1,8,2,0,6772.41,13.9'
    echo 'ok,28,3072,32,32,8192,131072,1,4096,8,8,1,1,256,0,4143.69,11.71'
    echo 'ok,28,3072,32,32,8192,131072,1,4096,16,8,1,2,64,1,7675.86,12.73'
    echo 'ok,28,3072,32,32,8192,131072,1,4096,64,16,1,1,64,0,1136.98,6.86'
    echo 'ok,28,3072,32,32,8192,131072,1,4096,256,16,1,16,1,1,4995.72,38.13'
    echo 'ok,32,4096,32,32,14336,131072,0,4096,16,2,1,1,32,1,7034.88,62.2'
    echo 'ok,32,4096,32,32,14336,131072,0,4096,64,4,1,1,16,0,5608.71,51.12'
    echo 'ok,32,4096,32,32,14336,131072,0,4096,256,8,1,2,4,1,3666.12,19.45'
    echo 'ok,80,8192,64,64,28672,131072,0,4096,64,32,1,1,128,0,103.5,56.21'; } >memory.csv
expect 0 plan validate memory.csv --as nanotron-0.5 --json
calc "abs($(field median_ratio out) - 1) < 0.1 && $(field r2 out) > 0.93" || fail "memory: $(cat out)"
expect 0 plan validate memory.csv
has out 'memory: predicted over measured'
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
sed 's/^ *"runtime": {/"bogus": 1, &/' fit.yaml >keys.yaml # a key that nobody reads
expect 3 plan validate slow.csv --calibration keys.yaml
has err ': bogus is no key of what plan fit writes'
sed 's/"products"/"bogus": 1, &/' fit.yaml >keys.yaml
expect 3 plan validate slow.csv --calibration keys.yaml
has err 'runtime.bogus is no key of what plan fit writes'
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
