# shellcheck shell=bash disable=SC2154
# A job from its log to its end: it passes SLURM's warning on, and requeues itself when a run was
# interrupted and saved. launch.sh sources it and calls, in this order:
# listen_to_slurm, open_log, train, end_job.

BAD_INPUT=2
NO_ROOM=74     # the disk or the memory was full
RESUME_ME=75 # and saved: the same command goes on
STARTS_WITHOUT_A_CHECKPOINT=3 # in a row; then the job is not requeued any more

# The task of an array is named by its two numbers: the array's last task has the job id of the whole array.
job="$SLURM_JOB_ID"
[[ -z "${SLURM_ARRAY_TASK_ID:-}" ]] || job="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
log=/dev/null
warned='' terminated='' training='' passed_on='' requeued=''
exec 3>&1

# Into SLURM's own output and into the log of the run.
say() {
  echo "$(date '+%F %T') $*" | tee -a "$log" >&3
}

listen_to_slurm() {
  # USR1 is the warning of #SBATCH --signal, TERM the beginning of the end: by scancel, at preemption, at the limit.
  trap 'warned=yes; pass_on' USR1
  trap 'terminated=yes; pass_on; go_on_if_time_is_up' TERM
}

# To node.sh, or to srun, which hands it to node.sh on every node; once, since a second signal ends training at once.
pass_on() {
  if [[ -n "$training" && -z "$passed_on" ]]; then
    passed_on=yes
    kill -USR1 "$training" 2>/dev/null || true
  fi
}

# From here on everything goes into the folder of the run; what is wrong with the input is said before.
open_log() {
  folder="$("${python[@]}" rlvr_vocab/exp/grpo_train.py "${overrides[@]}" --show output_dir)" || exit
  [[ -n "$folder" ]] || stop "rlvr_vocab/exp/grpo_train.py --show output_dir named no folder"
  mkdir -p "$folder" || stop "output_dir=$folder cannot be made"
  log="$folder/slurm-$job.log"
  idle_starts="$folder/slurm-$job-idle.log"
  touch "$log" || stop "$log cannot be written"
  first_line=$(($(wc -l <"$log") + 1))
  say "${SLURM_JOB_NAME:-job} $job on ${SLURM_JOB_NODELIST:-$(hostname)}, start $((${SLURM_RESTART_COUNT:-0} + 1)): $log"
  exec >>"$log" 2>&1
}

train() {
  local nodes="$SLURM_JOB_NUM_NODES" on_each_node=()
  # `accelerate launch` makes 1 of every exit code; the main process leaves its own here.
  export RLVR_VOCAB_EXIT_CODE_FILE="$PWD/slurm/logs/exit-code-$job"
  rm -f "$RLVR_VOCAB_EXIT_CODE_FILE"
  # Once a node has ended, the others have five minutes to end too, and are not killed while they save.
  ((nodes == 1)) || on_each_node=(srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1
    --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=0 --wait=300)
  checkpoints_before="$(checkpoints)"
  code=$RESUME_ME
  [[ -z "$warned$terminated" ]] || return 0
  echo "${line[*]}"
  "${on_each_node[@]}" bash slurm/node.sh "${line[@]}" &
  training=$!
  # A signal ends `wait`, not training.
  while kill -0 "$training" 2>/dev/null; do wait "$training" || true; done
  code=0
  wait "$training" || code=$?
  if [[ -s "$RLVR_VOCAB_EXIT_CODE_FILE" ]]; then code="$(<"$RLVR_VOCAB_EXIT_CODE_FILE")"; fi
  rm -f "$RLVR_VOCAB_EXIT_CODE_FILE"
}

end_job() {
  if [[ -z "$warned" && "$(field PreemptTime)" == [0-9]* ]]; then warned=yes; fi
  if [[ -n "$warned" ]] && ((code != 0 && code != BAD_INPUT && code != NO_ROOM && code != RESUME_ME)); then
    say "training ended with code $code after the warning: the checkpoint before counts"
    code=$RESUME_ME
  fi
  if ((code == RESUME_ME)); then
    requeue
  elif ((code == 0)); then
    say "done"
  else
    say "training ended with code $code; more in $log:"
    reasons >&3
  fi
  exit "$code"
}

# What this start says of its failure. Under `accelerate launch` the launcher's own account comes last.
reasons() {
  tail -n +"$first_line" "$log" | grep -aE '^(\[rank[0-9]+\]: *)?([A-Za-z_.]+Error|error):' | grep -av ChildFailedError |
    tail -n 3 | grep -a . || tail -n 5 "$log"
}

checkpoints() {
  compgen -G "$folder/checkpoint-*/manifest.json" || true
  compgen -G "$folder/stages/*/checkpoint-*/manifest.json" || true
}

# A field of the job as SLURM has it now.
field() {
  [[ "$(scontrol show job "$job" 2>/dev/null)" =~ (^|[[:space:]])$1=([^[:space:]]*) ]] && echo "${BASH_REMATCH[2]}" || true
}

requeue() {
  local state reason
  state="$(field JobState)" reason="$(field Reason)"
  if [[ -n "$requeued" ]]; then
    return
  elif [[ "$state" != RUNNING && "$reason" != TimeLimit && -n "$state" ]]; then
    say "interrupted; SLURM has ended the job (cancelled, or preempted and requeued by itself)"
  elif [[ -n "$terminated" && -z "$warned" ]]; then
    say "interrupted by SIGTERM: not requeued; the same command goes on"
  elif no_progress; then
    say "$STARTS_WITHOUT_A_CHECKPOINT starts in a row ended without a new checkpoint: not requeued." \
      "Is the time limit longer than the warning before it (#SBATCH --signal) and a step?"
  else
    # Said before it is done: SLURM ends this shell at once.
    if [[ -n "$idle" ]]; then
      say "interrupted without a new checkpoint ($idle of $STARTS_WITHOUT_A_CHECKPOINT in a row): requeued"
    else
      say "interrupted and saved: requeued, to go on from there"
    fi
    scontrol requeue "$job" || say "SLURM does not requeue job $job; the same command goes on"
    requeued=yes
  fi
}

# `idle` counts the starts in a row that left no new checkpoint, this one among them.
no_progress() {
  idle=""
  if [[ "$(checkpoints)" != "$checkpoints_before" ]]; then
    rm -f "$idle_starts"
    return 1
  fi
  echo "$(date '+%F %T') start $((${SLURM_RESTART_COUNT:-0} + 1)) ended without a new checkpoint" >>"$idle_starts"
  idle="$(wc -l <"$idle_starts")"
  ((idle >= STARTS_WITHOUT_A_CHECKPOINT))
}

# The last moment to requeue: SLURM kills this shell too, KillWait seconds from now, whether or not training has saved.
go_on_if_time_is_up() {
  if [[ -n "$warned" && -n "$training" && -z "$requeued" && "$(field Reason)" == TimeLimit ]]; then requeue; fi
}
