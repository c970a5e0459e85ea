#!/usr/bin/env bash
# docker.sh start|stop: a Docker Engine for the simulation, whatever the machine.
#
#   one that answers is used as it is and never stopped;
#   where systemd runs, docker.service is started;
#   else (a container, a CI runner) dockerd is started by hand, and `stop` ends it.
#
# Images live in $TANDEM_DOCKER_ROOT, outside the clone; pid file, sockets and log in /run.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
data=${TANDEM_DOCKER_ROOT:-/var/lib/tandem-docker}
run=/run/tandem-docker

answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# dockerd leaves its network namespace mounted, and containers' file systems where it was killed.
unmount_leftovers() {
  local target
  awk -v run="$run/" -v data="$data/" 'index($2 "/", run) == 1 || index($2 "/", data) == 1 { print $2 }' /proc/mounts | sort -r \
    | while read -r target; do umount "$target"; done
}

# What a run that was cut short left behind: a pid file makes dockerd refuse to start for as long as /proc/PID
# exists, which a zombie and a foreign process satisfy too.
clear_leftovers() {
  local file pid
  for file in "$run/docker.pid" "$run/exec/containerd/containerd.pid"; do
    [ -e "$file" ] || continue
    pid=$(cat "$file")
    case $(cat "/proc/$pid/comm" 2>/dev/null) in dockerd | containerd) kill -9 "$pid" 2>/dev/null || true ;; esac
    rm -f "$file"
  done
  rm -f /var/run/docker.sock "$run/exec/containerd/containerd.sock"
  unmount_leftovers
}

start() {
  answers && return
  if [ "$(id -u)" != 0 ] && [ -S /var/run/docker.sock ]; then
    die "Docker runs here, but you may not use it: sudo usermod -aG docker $(id -un), log in again, and run this again"
  fi
  [ "$(id -u)" = 0 ] || die "no Docker Engine answers, and starting one needs root: run as root, or start Docker and add yourself to its group"
  if [ -d /run/systemd/system ]; then
    systemctl start docker
  else
    mkdir -p "$data" "$run"
    clear_leftovers
    setsid dockerd --data-root "$data" --exec-root "$run/exec" --pidfile "$run/docker.pid" \
      --host unix:///var/run/docker.sock --log-level warn >"$run/log" 2>&1 </dev/null &
    touch "$run/ours"
  fi
  for _ in $(seq 120); do
    if answers; then
      say "docker: started $(docker version --format '{{.Server.Version}}')"
      return
    fi
    sleep 0.5
  done
  [ ! -e "$run/log" ] || tail -n 30 "$run/log" >&2
  die "dockerd did not answer within 60 s; its log is $run/log"
}

stop() {
  [ -e "$run/ours" ] || return 0
  local pid
  pid=$(cat "$run/docker.pid" 2>/dev/null) && kill "$pid" 2>/dev/null || true
  for _ in $(seq 80); do [ -e "$run/docker.pid" ] || break; sleep 0.25; done
  [ ! -e "$run/docker.pid" ] || die "dockerd (pid $pid) did not end within 20 s"
  unmount_leftovers
  rm -rf "$run"
  say "docker: stopped"
}

case ${1:-} in start | stop) "$1" ;; *) die "usage: sim/docker.sh start|stop" ;; esac
