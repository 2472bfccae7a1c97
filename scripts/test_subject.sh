#!/usr/bin/env bash
# Run the worker's and the native boundary's tests, and the documents' examples, against what is shipped, and
# not the source tree.
#
#   scripts/test_subject.sh DIST/visruntime-*.whl [PYTHON [PYTEST ARGUMENTS...]]
#   scripts/test_subject.sh DIST/visruntime-*-linux-*.tar.gz [- [PYTEST ARGUMENTS...]]
#
# A wheel is installed for PYTHON. An archive is unpacked, its uv makes the environment of its Python, and
# the wheel beside it is installed there; that it needs nothing else is tested, too. VIS_SUBJECT tells the tests, which refuse to run
# against anything else (tests/conftest.py).
set -euo pipefail
subject=$(realpath "$1")
python=${2:--}
shift $(($# < 2 ? $# : 2))
cd "$(dirname "$0")/.."

work=$(mktemp -d /var/tmp/visruntime-subject.XXXXXX)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
uv=uv
wheel=$subject
if [[ $subject == *.tar.gz ]]; then
    tar -xzf "$subject" -C "$work" --no-same-owner
    archive=$(echo "$work"/visruntime-*)
    wheels=("$(dirname "$subject")"/*.whl)
    wheel=${wheels[0]}
    uv=$archive/bin/uv
    python=$archive/python/bin/python3.13
    VIS_DIST=$(dirname "$subject")
    export VIS_DIST
    subject=$archive
elif [[ $python == - ]]; then
    python=python3
fi

export UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
"$uv" venv --quiet --no-project --python "$python" "$work/environment"
# What the tests and the documents' examples use beside it is that of the lock.
"$uv" export --quiet --frozen --no-header --only-group test --only-group interop --output-file "$work/tools.txt"
"$uv" pip install --quiet --python "$work/environment/bin/python" --require-hashes -r "$work/tools.txt"
"$uv" pip install --quiet --python "$work/environment/bin/python" "$wheel"
if (($# == 0)); then
    set -- tests/values/test_codec.py tests/values/test_codec_hostile.py tests/runtime/test_runtime.py tests/runtime/test_runtime_jailed.py tests/worker/test_worker.py \
        tests/jail/test_jail.py tests/runtime/test_pool.py tests/runtime/test_executor.py tests/policy/test_decision.py \
        tests/project/test_readme.py
    [[ ! ${archive:-} ]] || set -- "$@" tests/archive/test_extracted.py
fi
VIS_SUBJECT=$subject PYTHONDONTWRITEBYTECODE=1 "$work/environment/bin/python" -m pytest -q \
    -p no:cacheprovider --deselect tests/values/test_codec.py::test_fuzzing_under_sanitizers "$@"
