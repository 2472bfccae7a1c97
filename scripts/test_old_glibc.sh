#!/usr/bin/env bash
# Build everything for glibc 2.31, and test that there, here and with glibc 2.41; and see that what is released
# is refused by name where glibc is older than it needs.
#
#   scripts/test_old_glibc.sh DIST [WORK]
#
# DIST holds the wheel, the source distribution and the archive of a release. debootstrap makes the root file
# systems of Debian 11 and 13 in WORK (/var/tmp/visruntime-old-glibc), so it needs root; what was interrupted
# goes on there, and no mount is left behind. Nothing that comes out is released: nobody mends the OpenSSL of
# Debian 11 any more. VIS_PYTHON_SOURCE names the tarball of CPython where it was fetched already, and
# VIS_DEBIAN_MIRROR the mirror where debootstrap's own no longer has one of the two.
set -euo pipefail
((EUID == 0)) || { echo "debootstrap needs root" >&2; exit 1; }
dist=$(realpath "$1")
cd "$(dirname "$0")/.."
roots=$(realpath -m "${2:-/var/tmp/visruntime-old-glibc}")/roots
# Not above the roots, and neither are other folders that the roots see: a jail refuses a second way to a file.
work=$(dirname "$roots")/work
mkdir -p "$roots" "$work"
SOURCE_DATE_EPOCH=$(git -c safe.directory="$PWD" log -1 --format=%ct)
export SOURCE_DATE_EPOCH UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
cache=$(uv cache dir)
packaging=(uv run --quiet --frozen --isolated --only-group packaging)

make_root() { # suite, packages
    [[ ! -e $roots/$1 ]] || return 0
    rm -rf "$roots/$1.partial"
    # It mounts in the new root: in a namespace of its own, which ends with it however that is.
    unshare --mount --propagation private \
        debootstrap --variant=minbase --include="$2" "$1" "$roots/$1.partial" ${VIS_DEBIAN_MIRROR:+"$VIS_DEBIAN_MIRROR"}
    mv "$roots/$1.partial" "$roots/$1"
}
inside() { # suite, command...
    scripts/in_root.sh "$roots/$1" "$PWD" "$work" "$dist" "$cache" -- \
        env UV_CACHE_DIR="$cache" XDG_CACHE_HOME="$work/state" PATH="$work:/usr/sbin:/usr/bin" "${@:2}"
}

tested=bubblewrap,ca-certificates,gcc,git,libc6-dev,python3
compiled=libbz2-dev,libffi-dev,liblzma-dev,libsqlite3-dev,libssl-dev,make,pkg-config,uuid-dev,xz-utils,zlib1g-dev
make_root bullseye "$tested,$compiled"
make_root trixie "$tested"

# The uv of the lock, which runs everywhere; the old system has no other tool of this one.
# shellcheck disable=SC2016 # for the other shell
uv run --quiet --frozen --isolated --only-group archive sh -c 'cp "$(command -v uv)" "$0"' "$work/uv"
python=$work/python
rm -rf "$python"
"${packaging[@]}" scripts/build_python.py --out "$python" --work "$work/compiled" \
    --system "$roots/bullseye" ${VIS_PYTHON_SOURCE:+--source "$VIS_PYTHON_SOURCE"}

# Built there from the source distribution, as pip does where no wheel fits.
rm -rf "$work/dist" "$work/state"
mkdir "$work/dist" "$work/state"
pins=scripts/build-constraints.txt
inside bullseye uv build --quiet --wheel --python "$python/bin/python3" --build-constraints "$pins" \
    --require-hashes --out-dir "$work/dist" "$(find "$dist" -name 'visruntime-*.tar.gz' ! -name '*-linux-*')"
inside bullseye "${packaging[@]}" --python "$python/bin/python3" --with-requirements "$pins" \
    scripts/pack_archive.py --wheel "$work"/dist/*.whl --python "$python" --out "$work/dist" --glibc 2.31
scripts/gates/elf.py "$work"/dist/*.whl "$work"/dist/*.tar.gz --glibc 2.31

# What is released says there what it needs; what was built there is taken.
refused() { # what it says, command...
    local said
    if said=$(inside bullseye "${@:2}" 2>&1) || ! grep -qF "$1" <<<"$said"; then
        printf 'not refused by name: %s\n%s\n' "${*:2}" "$said" >&2
        exit 1
    fi
}
install=(uv pip install --quiet --python "$work/environment/bin/python")
inside bullseye uv venv --quiet --clear --python "$python/bin/python3" "$work/environment"
refused manylinux_2_35 "${install[@]}" "$(echo "$dist"/*.whl)"
inside bullseye "${install[@]}" "$(echo "$work"/dist/*.whl)"
bundle=("$work/environment/bin/visruntime" bundle)
refused "it needs glibc 2.35, and this machine has 2.31" "${bundle[@]}" install "$(echo "$dist"/*-linux-*.tar.gz)"
unset VIS_FULL # what it adds, another glibc, is what this is about
archive=$(echo "$work"/dist/*-linux-*.tar.gz)
inside bullseye "${bundle[@]}" install --quiet "$archive"

inside bullseye scripts/test_subject.sh "$archive"
scripts/test_subject.sh "$archive"
inside trixie scripts/test_subject.sh "$archive"
