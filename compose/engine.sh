#!/bin/sh
# Has a Docker engine answer on this machine: nothing to do where one does, else Debian's is installed and started.
# As root. What it says goes to $SQUALL_ENGINE_LOG (default /var/log/squall-dockerd.log). Exit code 3: there is none, and why.
set -eu
log=${SQUALL_ENGINE_LOG:-/var/log/squall-dockerd.log}
socket=/var/run/docker.sock

say() { printf 'engine: %s\n' "$*" >&2; }
fail() { say "$*"; exit 3; }

answers() {
    [ -S "$socket" ] && python3 -c '
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(5)
    s.connect(sys.argv[1])
    s.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
    sys.exit(b" 200 " not in s.recv(100))' "$socket" 2>/dev/null
}

install() {
    command -v apt-get >/dev/null || fail "no Docker engine, and no apt-get to install one: see your system's packages"
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update >"$log" 2>&1 || say "apt-get update had trouble: $(tail -n 1 "$log")"
    apt-get -qq install -y --no-install-recommends "$@" >"$log" 2>&1 \
        || fail "apt-get install $* failed: $(tail -n 3 "$log")"
}

# start OPTIONS: whether an engine came up. It stays when this script has ended.
start() {
    setsid dockerd "$@" </dev/null >"$log" 2>&1 &
    pid=$!
    waited=0
    while [ "$waited" -lt 120 ]; do
        if answers; then
            say "started dockerd $* (pid $pid)"
            return 0
        fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.5
        waited=$((waited + 1))
    done
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    say "dockerd $* did not come up: $(grep -v level=info "$log" | tail -n 1)"
    return 1
}

if answers; then
    exit 0
fi
[ "$(id -u)" = 0 ] || fail "no Docker engine answers at $socket, and starting one needs root: sudo $0"
missing=
command -v dockerd >/dev/null || missing="docker.io"
command -v iptables >/dev/null || missing="$missing iptables"
command -v debootstrap >/dev/null || missing="$missing debootstrap"
# shellcheck disable=SC2086  # one word for each package
[ -z "$missing" ] || install $missing
if answers; then
    exit 0
fi
if [ -d /run/systemd/system ] && systemctl start docker 2>/dev/null && answers; then
    exit 0
fi
rm -f /var/run/docker.pid
# The file system may be an overlay already, and the rules of the network may not be ours to set.
start || start --storage-driver=vfs || start --storage-driver=vfs --iptables=false \
    || fail "no Docker engine can be started here: see $log"
