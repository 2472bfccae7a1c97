#!/usr/bin/env bash
# Run the tests of limits on cgroup v2, as root and as an ordinary uid with a cgroup of its own,
# in a User-Mode Linux of Debian (package user-mode-linux). It needs neither root nor KVM: the
# machine boots in seconds from this one's files, read-only. `uv sync` comes first.
#
# LINUX_UML names the program where it is not in PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
linux=${LINUX_UML:-$(command -v linux.uml || command -v linux)} || {
    echo "linux.uml is not installed: apt-get install user-mode-linux" >&2
    exit 1
}
ordinary_uid=1000
tests=(tests/jail/test_usage.py tests/escape/test_memory.py)

work=$(mktemp -d /var/tmp/visruntime-uml.XXXXXX)
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT

# What runs as pid 1 of the machine.
cat >"$work/init" <<INIT
#!/bin/bash
exec 2>&1
export PATH=$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for place in /run /dev/shm; do
    mkdir -p "\$place"
    mount -t tmpfs -o mode=1777 none "\$place"
done
# A clone below /tmp would be hidden by what is mounted there.
mkdir /run/source
mount --bind $PWD /run/source
mount -t tmpfs -o mode=1777 none /tmp
mkdir -p $PWD
mount --bind /run/source $PWD
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
ulimit -n 4096
cd $PWD
lane() {
    echo "=== cgroup v2, \$1"
    shift
    "\$@"
    echo "RESULT \$?"
}
pytest=(.venv/bin/python -m pytest -q -p no:cacheprovider --color=no --timeout=240 ${tests[*]})
groups=/sys/fs/cgroup
echo "+memory +pids +cpu" >\$groups/cgroup.subtree_control
lane root "\${pytest[@]}"

# A cgroup that an ordinary uid may divide, as systemd gives with Delegate=yes.
mkdir \$groups/delegated
chown $ordinary_uid \$groups/delegated \$groups/delegated/cgroup.{procs,subtree_control,threads}
as_ordinary() { setpriv --reuid=$ordinary_uid --regid=$ordinary_uid --clear-groups -- "\$@"; }
# The first process there has to move itself, and the shell that waits for it, before it can
# divide it; beside a process that it does not know it is refused.
alone() {
    (
        echo \$BASHPID >\$groups/delegated/cgroup.procs
        sleep 1000 &
        as_ordinary .venv/bin/python $work/alone.py refused || exit
        kill \$!
        wait \$!
        as_ordinary sh -c '.venv/bin/python $work/alone.py; exit \$?'
    )
}
lane "the first process of uid $ordinary_uid" alone
beside() {
    (
        echo \$BASHPID >\$groups/delegated/visruntime-host/cgroup.procs
        as_ordinary "\${pytest[@]}"
    )
}
lane "uid $ordinary_uid" beside
echo o >/proc/sysrq-trigger
sleep 10
INIT
chmod 755 "$work/init"

cat >"$work/alone.py" <<'PYTHON'
import sys

import visruntime as vr

policy = vr.JailPolicy(limits=vr.Limits(memory=64 << 20))
if "refused" in sys.argv:
    try:
        vr.Jail(policy)
    except vr.PolicyUnsupported as error:
        print(error, flush=True)
        sys.exit("holds 1 processes that did not start this one" not in str(error))
    sys.exit(1)
with vr.Jail(policy) as jail:
    result = jail.run(["sh", "-c", "head -c 200000000 /dev/zero | tail"])
    print(result, jail.report.mechanisms("limits.memory"), flush=True)
assert result.stopped_by == "memory"
assert result.usage.source == "cgroup"
PYTHON

# HOME, because it keeps the sockets of its console there.
HOME=$work timeout 1500 "$linux" mem=2048M rootfstype=hostfs rootflags=/ ro quiet \
    init="$work/init" con=null con0=null,fd:1 ssl=null umid="visruntime$$" </dev/null |
    tee "$work/log"
if (($(grep -c '^RESULT 0' "$work/log") != 3)); then
    echo "a lane on cgroup v2 failed" >&2
    exit 1
fi
