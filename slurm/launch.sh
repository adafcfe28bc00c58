# shellcheck shell=bash disable=SC2154
# What the scripts share: submit the script when there is no job yet, train when there is.
# They source it with `here` (the slurm folder), `overrides` (their arm) and their own arguments,
# which reach rlvr_vocab/exp/grpo_train.py as they stand. docs/distributed.md says what a job does.

# --- your cluster: edit here, or set in the environment --------------------------------------
# Read when a script is started with `bash`. Empty leaves the #SBATCH line of the script, which
# is also all that a bare `sbatch slurm/train_….sh` sees, in charge.
PARTITION="${PARTITION:-}"  # such as a100
ACCOUNT="${ACCOUNT:-}"
TIME="${TIME:-}"            # such as 12:00:00; auto: the longest that `rlvr-vocab plan` reckons with, on CARD
CARD="${CARD:-}"            # for TIME=auto, a card that plan knows, such as a100_40
NODES="${NODES:-}"
GPUS="${GPUS:-}"            # on each node: a number, or type:number, such as a100:4
CPUS="${CPUS:-}"            # on each node
MEM="${MEM:-}"              # on each node, such as 128G
# Read inside the job, however it was submitted.
MODULES="${MODULES:-}"      # for `module load`, such as "cuda/12.8 python/3.12"
PROXY="${PROXY:-}"          # a web proxy, where compute nodes reach the hub through one
VENV="${VENV:-.venv}"       # the environment that `uv sync` or `make setup` made
CONTAINER="${CONTAINER:-}"  # an Apptainer image that holds the environment, used in place of VENV
ACCELERATE_CONFIG="${ACCELERATE_CONFIG:-}"  # for several GPUs: a file for `accelerate launch`
LAUNCH_PYTHON="${LAUNCH_PYTHON:-}"          # any other command that starts Python
# ----------------------------------------------------------------------------------------------

stop() {
  echo "$*" >&2
  exit 2
}

submit() {
  command -v sbatch >/dev/null ||
    stop "no sbatch here. Without SLURM: $VENV/bin/python rlvr_vocab/exp/grpo_train.py ${overrides[*]} $*"
  [[ "$TIME" != auto ]] || forecast_time "$@"
  local flags=()
  [[ -z "$PARTITION" ]] || flags+=(--partition="$PARTITION")
  [[ -z "$ACCOUNT" ]] || flags+=(--account="$ACCOUNT")
  [[ -z "$TIME" ]] || flags+=(--time="$TIME")
  [[ -z "$NODES" ]] || flags+=(--nodes="$NODES")
  [[ -z "$GPUS" ]] || flags+=(--gres="gpu:$GPUS")
  [[ -z "$CPUS" ]] || flags+=(--cpus-per-task="$CPUS")
  [[ -z "$MEM" ]] || flags+=(--mem="$MEM")
  [[ -z "${array:-}" ]] || flags+=(--array="$array")
  exec sbatch "${flags[@]}" "slurm/$(basename "$0")" "$@"
}

forecast_time() {
  [[ -n "$CARD" ]] || stop "TIME=auto: name the card too, CARD=a100_40 for instance (rlvr-vocab plan --help)"
  choose_python
  local cards="${GPUS##*:}" sharding=()
  cards=$((${cards:-1} * ${NODES:-1}))
  case "$(basename "$ACCELERATE_CONFIG" .yaml)" in
    fsdp2 | deepspeed_zero3) sharding=("sharding=$(basename "$ACCELERATE_CONFIG" .yaml)") ;;
  esac
  TIME="$("${python[@]}" -m rlvr_vocab.cli plan "${overrides[@]}" "$@" gpu="$CARD" gpus="$cards" \
    "${sharding[@]}" format=slurm_time)" || stop "TIME=auto: rlvr-vocab plan could not tell, see above"
}

load_modules() {
  # Their start-up files touch unset variables.
  set +u
  # shellcheck disable=SC1091
  type module >/dev/null 2>&1 || source /etc/profile
  # shellcheck disable=SC2086
  module load $MODULES || stop "module load $MODULES failed"
  set -u
}

choose_python() {
  if [[ -n "$LAUNCH_PYTHON" ]]; then
    python=("$LAUNCH_PYTHON")
  elif [[ -n "$CONTAINER" ]]; then
    python=(apptainer exec --nv "$CONTAINER" python)
  else
    [[ -x "$VENV/bin/python" ]] || stop "$VENV/bin/python is not there: run \`uv sync\` or \`make setup\` once, where there is a network"
    python=("$VENV/bin/python")
  fi
}

# The name or address under which the other nodes reach the first one.
first_host() {
  local first
  first="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
  # A node's name in SLURM need not be a name on the network; its address is.
  [[ "$(scontrol show node "$first")" =~ NodeAddr=([^[:space:]]+) ]] && first="${BASH_REMATCH[1]}"
  echo "$first"
}

# `line`: what one node runs. node.sh puts its own number in the place of {machine_rank}.
compose_line() {
  local nodes="$SLURM_JOB_NUM_NODES" gpus="${SLURM_GPUS_ON_NODE:-${GPUS##*:}}"
  local processes=$((nodes * ${gpus:-1}))
  line=("${python[@]}")
  if ((processes > 1)); then
    # Two jobs on one node must not meet on one port.
    line+=(-m accelerate.commands.launch --num_processes "$processes" --num_machines "$nodes"
      --main_process_port "$((20000 + SLURM_JOB_ID % 20000))")
    ((nodes == 1)) || line+=(--machine_rank "{machine_rank}" --main_process_ip "$(first_host)")
    if [[ -n "$ACCELERATE_CONFIG" ]]; then
      line+=(--config_file "$ACCELERATE_CONFIG")
    else
      line+=(--multi_gpu --mixed_precision no --dynamo_backend no) # training.bf16 decides, not the launcher
    fi
  fi
  line+=(rlvr_vocab/exp/grpo_train.py "${overrides[@]}")
}

# Only a sweep has several runs to choose from.
is_sweep() {
  [[ "$(type -t choose_run)" == function ]]
}

cd "$here/.." || exit
for word in "$@"; do
  case "$word" in
    -m | --multirun | --job*) stop "$word: a job trains one run; slurm/sweep.sh takes the words of a sweep" ;;
  esac
done
if [[ -z "${SLURM_JOB_ID:-}" ]]; then
  if is_sweep; then choose_python && choose_run "$@"; fi
  submit "$@"
fi
# shellcheck source=slurm/job.sh
source slurm/job.sh
listen_to_slurm
SLURM_JOB_NUM_NODES="${SLURM_JOB_NUM_NODES:-1}"
[[ -z "$MODULES" ]] || load_modules
if [[ -n "$PROXY" ]]; then
  export http_proxy="$PROXY" https_proxy="$PROXY" HTTP_PROXY="$PROXY" HTTPS_PROXY="$PROXY"
fi
choose_python
if is_sweep; then choose_run "$@"; fi
overrides+=("$@")
# A requeued job goes on with its run: what the first start was told about an earlier one is done.
((${SLURM_RESTART_COUNT:-0} == 0)) || overrides+=(overwrite=false resume=auto)
open_log
compose_line
train
end_job
