# Sourced after lib.sh: training on several ranks.
export OMP_NUM_THREADS=1

# write_ranks_config FILE: a run that computes the same bits under every data-parallel layout of up
# to 8 ranks, and divides by tensor parallelism of 2.
write_ranks_config() {
    write_config "$1"
    sed -i 's/precision: fp32/precision: fp32, deterministic: true/
        s/steps: 40/steps: 12/
        s/micro_batch_size: 4/micro_batch_size: 1/' "$1"
    echo "parallel: {verify: false}" >>"$1"
}

# train_on STATUS "RANKS KEYS..." KEYS...: trains d.yaml under a layout.
train_on() {
    local want=$1 layout=($2)
    shift 2
    if [ "${layout[0]}" = 1 ]; then
        expect "$want" train d.yaml "${layout[@]:1}" "$@"
    else
        expect "$want" launch --ranks "${layout[0]}" --timeout 30 -- train d.yaml "${layout[@]:1}" "$@"
    fi
}

# newest_step RUN: of its checkpoints; 0: there is none.
newest_step() { { echo 0; ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step-0*//p'; } | sort -n | tail -n 1; }
# rank_ids LAUNCHER: the processes of its ranks, in order.
rank_ids() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
