#!/usr/bin/env bash
# GRPO with a reasoning vocabulary. From the top of the repository, either of
#
#   sbatch slurm/train_reasoning.sh [key=value ...]
#   GPUS=4 PARTITION=a100 bash slurm/train_reasoning.sh training=small_gpu
#
# The second submits the first with your cluster's values: slurm/launch.sh lists them.
# REASONING_VOCAB_SIZE, from the environment, is a number of tokens: by default 151646, as experiment=gsm8k_reasoning has
# for Qwen's models. For another model take "full", a copy of every token.
#
#SBATCH --job-name=grpo_reasoning
#SBATCH --output=slurm/logs/%x-%j.log
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

overrides=("model.reasoning_vocab_size=${REASONING_VOCAB_SIZE:-151646}")
# shellcheck source=slurm/launch.sh
source "$here/launch.sh"
