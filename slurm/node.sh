#!/usr/bin/env bash
# One node's part of a job: runs the command, and passes a signal of SLURM on to the processes that train.
#
#   node.sh COMMAND...     {machine_rank} among its words becomes the number of this node

# shellcheck disable=SC2329  # a trap calls the functions
set -uo pipefail

line=()
for word in "$@"; do
  [[ "$word" != "{machine_rank}" ]] || word="$SLURM_NODEID"
  line+=("$word")
done

# The processes of `accelerate launch` that train: the first below it that have a LOCAL_RANK.
ranks() {
  local child
  if tr '\0' '\n' <"/proc/$1/environ" 2>/dev/null | grep -q '^LOCAL_RANK='; then
    echo "$1"
  else
    for child in $(pgrep -P "$1"); do ranks "$child"; done
  fi
}

# A process that does not listen yet would die of the signal, or never learn of it.
listens() {
  local caught
  caught="$(awk '/^SigCgt:/ {print $2}' "/proc/$1/status" 2>/dev/null)"
  ((0x${caught:-0} & 1 << ($(kill -l USR1) - 1)))
}

tell() {
  until listens "$1"; do
    kill -0 "$1" 2>/dev/null || return
    sleep 1
  done
  kill -USR1 "$1"
}

told=""
pass_on() {
  [[ -z "$told" ]] || return
  told=yes
  # Some clusters (proctrack/linuxproc, pgid) signal every process of a job, others (cgroup) only its first.
  # Where the canary has died of it, training has had it too, and a second signal would end it at once.
  sleep 1
  kill -0 "$canary" 2>/dev/null || return
  local pids="$child" pid
  if [[ -n "$launcher" ]]; then
    until pids="$(ranks "$child")" && [[ -n "$pids" ]]; do
      kill -0 "$child" 2>/dev/null || return
      sleep 1
    done
  fi
  for pid in $pids; do tell "$pid" & done
}

sleep infinity &
canary=$!
trap pass_on USR1 TERM
launcher=""
[[ " $* " != *" -m accelerate.commands.launch "* ]] || launcher=yes
if [[ -n "$launcher" ]]; then
  # The launcher would die of the warning; the processes that it starts listen for themselves.
  (trap '' USR1 && exec "${line[@]}") &
else
  "${line[@]}" &
fi
child=$!
while kill -0 "$child" 2>/dev/null; do wait "$child"; done
wait "$child"
code=$?
kill "$canary" 2>/dev/null
exit "$code"
