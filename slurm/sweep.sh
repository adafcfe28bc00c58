#!/usr/bin/env bash
# Every combination of values, each run a task of one job array. From the top of the repository, either of
#
#   sbatch slurm/sweep.sh [key=value ...]
#   PARTITION=a100 bash slurm/sweep.sh seed=1,2,3 training.learning_rate=1e-6,5e-6 training=small_gpu
#
# The words, the runs and their names are those of `rlvr-vocab train --multirun`. The second submits the first with the
# array's size and your cluster's values: slurm/launch.sh lists them. Where the words do not say otherwise:
#   ARMS   "baseline reasoning", or sizes of the reasoning vocabulary among them, such as "baseline 1000 full"
#   SEEDS  "42 43"; one seed is one split of the data, the same in every arm
# The array numbers the runs from 0, the last key fastest: `sbatch --array=0-5` for six runs, `--array=0-5%2` for two at
# a time, `--array=3` for the fourth alone.
#
#SBATCH --job-name=grpo_sweep
#SBATCH --output=slurm/logs/%x-%A_%a.log
#SBATCH --array=0-3
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail

here="$(dirname "${BASH_SOURCE[0]}")"
# sbatch runs a copy of this file from a folder of its own.
[[ -e "$here/launch.sh" ]] || here="${SLURM_SUBMIT_DIR:?}/slurm"

arms="${ARMS:-baseline reasoning}" seeds="${SEEDS:-42 43}"
arms="${arms//baseline/0}" arms="${arms//reasoning/151646}" # as train_reasoning.sh
overrides=(--multirun "model.reasoning_vocab_size=${arms// /,}" "seed=${seeds// /,}")

# launch.sh calls it once Python is known: `array`, the numbers of all runs, and in a job the one of this task.
choose_run() {
  local names runs
  names="$("${python[@]}" rlvr_vocab/exp/grpo_train.py "${overrides[@]}" "$@" --show exp_name)" || exit
  runs="$(wc -l <<<"$names")"
  array="0-$((runs - 1))"
  [[ -n "${SLURM_JOB_ID:-}" ]] || return 0
  local task="${SLURM_ARRAY_TASK_ID:?sweep.sh is a job array: submit it with sbatch --array=$array}"
  ((task < runs)) || stop "array task $task has no run: the sweep has $runs runs, so --array=$array"
  ((SLURM_ARRAY_TASK_COUNT == runs)) ||
    echo "this array has $SLURM_ARRAY_TASK_COUNT tasks; the sweep has $runs runs, so --array=$array makes them all" >&2
  overrides+=(--job "$task")
}

# shellcheck source=slurm/launch.sh
source "$here/launch.sh"
