#!/usr/bin/env bash
# Run a command in the root file system of another Linux, with the rights of the caller.
#
#   scripts/in_root.sh ROOT [FOLDER...] -- COMMAND...
#
# FOLDERs are there at their own places, and so are the processes and devices of this machine. The mounts are
# bubblewrap's and of that command alone: none is left behind, however it ends. It changes its root by
# pivot_root, since the kernel lets nobody in a chroot make user namespaces, which jails need.
set -euo pipefail
root=$(realpath "$1")
shift
mounts=(--bind "$root" / --dev-bind /dev /dev --bind /proc /proc --bind /sys /sys)
# As this system trusts certificates, where it is said so.
[[ ! ${SSL_CERT_FILE:-} ]] || mounts+=(--ro-bind "$SSL_CERT_FILE" "$SSL_CERT_FILE")
while [[ $1 != -- ]]; do
    folder=$(realpath "$1")
    mounts+=(--bind "$folder" "$folder")
    shift
done
((EUID != 0)) || mounts+=(--cap-add ALL)
exec bwrap "${mounts[@]}" --chdir "$PWD" --die-with-parent "$@"
