#!/usr/bin/env bash
# Every arm with every seed, each run a task of one job array. From the top of the repository, either of
#
#   sbatch slurm/sweep.sh [key=value ...]
#   SEEDS="1 2 3" PARTITION=a100 bash slurm/sweep.sh training=small_gpu
#
# The second submits the first with the array's size and your cluster's values: slurm/launch.sh lists them.
# From the environment:
#   ARMS   "baseline reasoning", or sizes of the reasoning vocabulary among them, such as "baseline 1000 full"
#   SEEDS  "42 43"; one seed is one split of the data, the same in every arm
#   NAME   what each run is called: "grpo_{arm}_seed{seed}"
# The array numbers the seeds of the first arm, then those of the second, from 0: `sbatch --array=0-5` for six runs,
# `--array=0-5%2` for two at a time, `--array=3` for the fourth alone.
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

read -ra arms <<<"${ARMS:-baseline reasoning}"
read -ra seeds <<<"${SEEDS:-42 43}"
runs=$((${#arms[@]} * ${#seeds[@]}))

refuse() {
  echo "$*" >&2
  exit 2
}

# Words that every run would share, so that all wrote one folder, or none was the run that it is called.
for word in "$@"; do
  case "$word" in
    exp_name=* | output_dir=*) refuse "$word: each run of a sweep has its own; set NAME, such as NAME='mine_{arm}_{seed}'" ;;
    seed=*) refuse "$word: the seeds of a sweep are in SEEDS" ;;
    model.reasoning_vocab_size=*) refuse "$word: the arms of a sweep are in ARMS" ;;
  esac
done

overrides=()
array="0-$((runs - 1))"
if [[ -n "${SLURM_JOB_ID:-}" ]]; then
  task="${SLURM_ARRAY_TASK_ID:?sweep.sh is a job array: submit it with sbatch --array=$array}"
  about="ARMS and SEEDS are $runs runs (${#arms[@]} by ${#seeds[@]}), so --array=$array"
  ((task < runs)) || refuse "array task $task has no run: $about"
  ((SLURM_ARRAY_TASK_COUNT == runs)) || echo "this array has $SLURM_ARRAY_TASK_COUNT tasks; $about makes them all" >&2
  arm="${arms[task / ${#seeds[@]}]}" seed="${seeds[task % ${#seeds[@]}]}"
  case "$arm" in
    baseline) size=0 ;;
    reasoning) size=full ;;
    *) size="$arm" ;;
  esac
  name="${NAME:-grpo_{arm\}_seed{seed\}}"
  name="${name//\{arm\}/$arm}"
  overrides=("exp_name=${name//\{seed\}/$seed}" "seed=$seed" "model.reasoning_vocab_size=$size")
fi
# shellcheck source=slurm/launch.sh
source "$here/launch.sh"
