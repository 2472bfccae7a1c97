#!/usr/bin/env bash
# Compile the CPython of a release twice, in two folders; compare; pack the archive; and test it unpacked.
#
#   scripts/test_from_source.sh DIST [WORK]
#
# DIST holds the wheel. VIS_PYTHON_SOURCE names the tarball where it was fetched already. In WORK
# (build/from-source) what was interrupted goes on, and `dist` below it has the wheel and the archive.
set -euo pipefail
dist=$(realpath "$1")
cd "$(dirname "$0")/.."
work=$(realpath -m "${2:-build/from-source}")
mkdir -p "$work/elsewhere"

packaging() { uv run --quiet --frozen --isolated --only-group packaging "$@"; }
compile() { # prefix, folder of the build
    rm -rf "$1"
    packaging scripts/build_python.py --out "$1" --work "$2" ${VIS_PYTHON_SOURCE:+--source "$VIS_PYTHON_SOURCE"}
}
pack() { # prefix, folder of the archive
    rm -rf "$2"
    mkdir "$2"
    cp "$dist"/visruntime-*.whl "$2"
    packaging scripts/pack_archive.py --wheel "$2"/*.whl --python "$1" --out "$2"
}
listing() { (cd "$1" && find . -printf '%y %m %p %l\n' | LC_ALL=C sort); }

compile "$work/python" "$work/one"
compile "$work/elsewhere/python" "$work/elsewhere/with/a/longer/name"
# Neither the folder nor the hour is seen in a single byte, run bit or link.
diff --recursive --no-dereference "$work/python" "$work/elsewhere/python"
diff <(listing "$work/python") <(listing "$work/elsewhere/python")

pack "$work/python" "$work/dist"
pack "$work/elsewhere/python" "$work/elsewhere/dist"
diff --recursive "$work/dist" "$work/elsewhere/dist"
VIS_DIST=$work/dist uv run --frozen pytest -q tests/archive/test_extracted.py tests/archive/test_c_host.py
for archive in "$work"/dist/*-linux-*.tar.gz; do
    scripts/test_subject.sh "$archive"
done
