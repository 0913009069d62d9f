#!/bin/sh
# tests/fresh/machine.sh SUITE|all [--only run|test] [--time S] [--keep] [-- ARGUMENTS OF ./squall test]
# Makes a Debian of nothing (bookworm, trixie, forky, ...; all: these three, one after the other) with python3,
# python3-venv and certificates in it, and calls the README's commands there as an ordinary user: no Java, no Go, no
# git, no root, nobody's cache. Says how long each took, how large it all became and what was skipped. As root, with
# debootstrap; the machine is removed again, whatever happens. Debian comes from where apt has it, or from
# $SQUALL_DEBIAN_MIRROR.
# Exit code 0: all passed; 1: a command failed; 3: there can be no such machine here, and why. Of all three machines,
# 2: none failed, but not each of them could be made.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd -P)
PACKAGES=python3,python3-venv,ca-certificates
# What leads pip and Go to their registries here, and must do so in the machine.
PASSED="CI PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_CERT PIP_PROXY PIP_DEFAULT_TIMEOUT PIP_CONFIG_FILE
SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE GOPROXY GOSUMDB GONOSUMDB GOINSECURE
http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY"

say() { printf 'machine: %s\n' "$*"; }
refuse() { printf 'machine: %s\n' "$*" >&2; exit 3; }
usage() { sed -n '2,9s/^# //p' "$0" >&2; exit 3; }
now() { date +%s; }
took() { printf '%d min %02d s' "$(($1 / 60))" "$(($1 % 60))"; }
size() { du -sxm "$@" 2>/dev/null | awk '{ sum += $1 } END { printf "%d MB", sum }'; }

# ------------------------------------------------------------------------------------------------- around the machine

# In namespaces of its own: mounts and processes of the machine end with it, however it ends.
start() {
    [ "$(id -u)" = 0 ] || refuse "needs root, for debootstrap and chroot"
    command -v debootstrap >/dev/null || refuse "needs debootstrap (Debian: apt-get install debootstrap)"
    command -v unshare >/dev/null || refuse "needs unshare (Debian: apt-get install util-linux)"
    unshare --mount --pid --fork true 2>/dev/null || refuse "this machine permits no namespaces of mounts and processes"
    folder=$(mktemp -d "${TMPDIR:-/var/tmp}/squall-fresh-XXXXXX")
    chmod 755 "$folder"
    trap 'end' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    SQUALL_FRESH=$folder unshare --mount --propagation private --pid --fork --kill-child "$0" "$suite" --only "$only" \
        --time "$time_s" -- "$@" &
    inner=$!
    wait "$inner"
}

end() {
    code=$?
    trap - EXIT INT TERM HUP
    # unshare itself ignores milder signals; all that is in the machine ends with it.
    kill -KILL "$inner" 2>/dev/null && wait "$inner" 2>/dev/null || true
    if [ -n "$keep" ]; then
        say "kept in $folder"
    else
        rm -rf --one-file-system "$folder"
    fi
    exit "$code"
}

# --------------------------------------------------------------------------------------------------- the machine itself

# Where this machine's own Debian packages come from; nothing where apt does not say: debootstrap's own.
mirror() {
    apt-get indextargets --format '$(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk '$1 == "Debian" && $2 == "main" { print $3; exit }'
}

make_machine() {
    script=/usr/share/debootstrap/scripts/$suite
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
    where=${SQUALL_DEBIAN_MIRROR:-$(mirror)}
    debootstrap --variant=minbase --include="$PACKAGES" "$suite" "$machine" ${where:+"$where" "$script"} \
        >"$folder/debootstrap.log" 2>&1 || {
        tail -n 20 "$folder/debootstrap.log" >&2
        refuse "debootstrap made no $suite, see above"
    }
    rm -rf "$machine"/var/cache/apt/archives/*.deb
    for each in java go git mvn docker sudo; do
        if chroot "$machine" /bin/sh -c "command -v $each" >/dev/null; then
            refuse "$each is in a machine that should not have it"
        fi
    done
    mount -t proc proc "$machine/proc"
    mount -t sysfs -o ro sysfs "$machine/sys"
    mount --rbind /dev "$machine/dev"
    cp /etc/resolv.conf /etc/hosts "$machine/etc/"
    chroot "$machine" useradd --create-home --shell /bin/sh newcomer
    lead_to_registries
}

# The user's environment in the machine, and the files of certificates and settings that it names.
lead_to_registries() {
    environment=$folder/environment
    printf '%s\n' HOME=/home/newcomer USER=newcomer PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 TERM=dumb \
        COLUMNS=140 >"$environment"
    for name in $PASSED; do
        eval "value=\${$name-}"
        [ -n "$value" ] || continue
        printf '%s=%s\n' "$name" "$value" >>"$environment"
        copy_in "$value"
    done
    for each in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
        if [ -f "$each" ]; then cat "$each" >>"$machine/etc/pip.conf"; fi
    done
}

copy_in() {
    case $1 in /*) [ -f "$1" ] || return 0 ;; *) return 0 ;; esac
    mkdir -p "$machine/$(dirname "$1")"
    rm -f "$machine/$1"
    cp "$1" "$machine/$1"
    chmod 644 "$machine/$1"
}

# The checkout as it is now, without what git ignores.
copy_checkout() {
    (
        cd "$root"
        if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
            git ls-files -z --cached --others --exclude-standard |
                xargs -0 sh -c 'for each; do [ ! -e "$each" ] || printf "%s\0" "$each"; done' sh
        else
            find . \( -name .venv -o -name .cache -o -name .hypothesis -o -name __pycache__ -o -path ./runs \
                -o -path ./nights -o -path ./data \) -prune -o -type f -print0
        fi | tar --create --null --files-from=- --file="$folder/checkout.tar"
    )
    mkdir "$machine/home/newcomer/squall"
    tar --extract --file="$folder/checkout.tar" --directory="$machine/home/newcomer/squall"
    rm "$folder/checkout.tar"
    chroot "$machine" chown -R newcomer:newcomer /home/newcomer
}

# as_newcomer COMMAND...: in the checkout, with the newcomer's rights and environment and nothing of ours: a shell has its
# background jobs ignore Ctrl-C, and so would everything in the machine.
as_newcomer() {
    set -- /bin/sh -c 'cd /home/newcomer/squall && exec "$@"' sh "$@"
    while IFS= read -r line; do set -- "$line" "$@"; done <"$folder/environment"
    chroot --userspec=newcomer:newcomer --groups= "$machine" /usr/bin/env --default-signal -i "$@"
}

# called NAME COMMAND...: its code, with what it says shown and kept, and how long it took.
called() {
    name=$1
    shift
    say "$suite: $*"
    began=$(now)
    { as_newcomer "$@" </dev/null 2>&1 && echo 0 >"$folder/code" || echo $? >"$folder/code"; } | tee "$folder/$name.log"
    code=$(cat "$folder/code")
    spent=$(took $(($(now) - began)))
    say "$suite: $* ended with $code after $spent"
    return "$code"
}

# Exit code 2: a fault did not land, so nothing is known of the broker. That is worth one more try; a finding is not.
run() {
    set -- ./squall run --time "$time_s" --seed 7
    called run "$@" && return 0
    [ "$code" -eq 2 ] || return 1
    say "$suite: unknown: once more"
    called run "$@"
}

# The last line of the gate ("12369 passed, 0 failed, 0 skipped"), or of pytest, which says how long it took, too.
counts_of() {
    sed -nE 's/^[= ]*([0-9]+ (passed|failed|skipped|error).*)/\1/p' "$1" | tail -n 1 | sed -E 's/ in [0-9.]+s.*//'
}

inside() {
    machine=$folder/$suite
    began=$(now)
    make_machine
    copy_checkout
    python=$(as_newcomer python3 -c 'import platform; print(platform.python_version())')
    made="$suite: Python $python, made in $(took $(($(now) - began))), $(size "$machine")"
    say "$made"
    failed=0 ran='not called' tested='not called'
    if [ "$only" != test ]; then
        run || failed=1
        ran="$(grep -oE '^(VALID|INVALID|UNKNOWN)' "$folder/run.log" | tail -n 1) in $spent, exit code $code"
    fi
    if [ "$only" != run ]; then
        called test ./squall test "$@" || failed=1
        counts=$(counts_of "$folder/test.log")
        tested="${counts:-no test} in $spent, exit code $code"
    fi
    say "$made"
    say "  run: $ran"
    say "  test: $tested"
    sed -nE 's/^[0-9,]+ tests? (was|were) skipped: /machine:   &/p' "$folder/test.log" 2>/dev/null || true
    sizes=".venv $(size "$machine/home/newcomer/squall/.venv"), cache $(size "$machine/home/newcomer/.cache/squall")"
    say "  size afterwards: $sizes, all $(size "$machine")"
    say "| Debian $suite ($python) | $ran | $tested | $sizes |"
    return "$failed"
}

# Each of the three, whatever becomes of the others, and a table of them.
every() {
    failed='' passed='' lacking=''
    table=$(mktemp)
    for each in bookworm trixie forky; do
        code=0
        { "$0" "$each" "$@" && echo 0 >"$table.code" || echo $? >"$table.code"; } | tee "$table.log"
        code=$(cat "$table.code")
        grep '^machine: |' "$table.log" >>"$table" || say "| Debian $each | no machine: exit code $code | | |" >>"$table"
        case $code in 0) passed=yes ;; 3) lacking=yes ;; *) failed=yes ;; esac
    done
    say "| machine | ./squall run | ./squall test | size |"
    cat "$table"
    rm -f "$table" "$table.code" "$table.log"
    [ -z "$failed" ] || return 1
    [ -n "$lacking" ] || return 0
    [ -z "$passed" ] || return 2
    return 3
}

suite=${1-}
case $suite in '' | -*) usage ;; esac
shift
if [ "$suite" = all ]; then
    every "$@"
    exit
fi
only='' keep='' time_s=20
while [ $# -gt 0 ]; do
    case $1 in
        --only) only=${2-} && shift 2 ;;
        --time) time_s=${2-} && shift 2 ;;
        --keep) keep=yes && shift ;;
        --) shift && break ;;
        *) usage ;;
    esac
done
case $only in '' | run | test) ;; *) usage ;; esac
if [ -n "${SQUALL_FRESH-}" ]; then
    folder=$SQUALL_FRESH
    inside "$@"
else
    start "$@"
fi
