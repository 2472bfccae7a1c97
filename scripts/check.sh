#!/usr/bin/env bash
# Run every linter over the whole repository; needs `uv sync` first. Fails if any of them does.
# With --quick all but the path-sensitive analysis of the C code, which takes longer than all the rest.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

quick=()
[[ ${1:-} != --quick ]] || quick=(--checks=-clang-analyzer-*)

failed=()
check() {
    local name=$1 output status
    shift
    output=$("$@" 2>&1)
    status=$?
    if ((status == 0)); then
        printf 'ok      %s\n' "$name"
    else
        printf 'FAILED  %s\n%s\n' "$name" "$output"
        failed+=("$name")
    fi
}

run() { uv run --frozen --no-sync "$@"; }
listed() { git -c safe.directory="$PWD" ls-files --cached --others --exclude-standard -- "$@"; }

# clang-tidy judges a file with the flags that the build used for it.
lint_c() {
    local database
    database=$(find build -name compile_commands.json -printf '%T@ %h\n' | sort -rn | head -n 1)
    [[ $database ]] || { echo "no build/*/compile_commands.json: run uv sync"; return 1; }
    run clang-tidy --quiet "${quick[@]}" -p "${database#* }" --extra-arg=-Wno-unknown-warning-option \
        --removed-arg=-fno-tree-loop-distribute-patterns "$@"
}

# The headers of the mingw compiler, where it is installed.
windows_headers=/usr/x86_64-w64-mingw32/include
lint_windows_c() {
    # The worker's files need CPython's headers, with the sizes of Windows.
    local python headers code
    python=$(run python -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [[ -f $python/Python.h ]] || { echo "no headers of CPython: '$python'"; return 1; }
    headers=$(mktemp -d)
    cp -r "$python/." "$headers"
    cp tests/native/windows/python/pyconfig.h "$headers"
    run clang-tidy --quiet "${quick[@]}" "$@" -- -std=c11 -DUNICODE -D_UNICODE -target x86_64-w64-windows-gnu \
        -DPy_LIMITED_API=0x030b0000 -DVIS_VERSION='"0"' -Inative/visjail \
        -isystem "$headers" -isystem "$windows_headers"
    code=$?
    rm -rf "$headers"
    return "$code"
}

mapfile -t c_files < <(listed 'native/*.c' 'native/*.h' 'tests/native/*.c' 'examples/*.[ch]')
# What includes windows.h, or headers of macOS, is in no build of this system.
windows_only='/windows_(os|os_[a-z]+|desktop_helper|monitor|boot|clock|console_guard|confine|control|link|loader)\.c$'
macos_only='/macos_(end|files|init|process|seatbelt|spelling|status|try|watch)\.c$'
mapfile -t compiled < <(listed 'native/*.c' | grep -vE "$windows_only|$macos_only")
mapfile -t for_windows < <(listed 'native/*.c' | grep -E "$windows_only")
mapfile -t shell < <(listed '*.sh' .ci/run)
mapfile -t workflows < <(listed '.github/workflows/*.yml')

check "ruff" run ruff check
check "ruff format" run ruff format --check
check "mypy" run mypy
check "mypy for macOS" run mypy --platform darwin src/visruntime/{jail,doctor,_doctor_macos}.py \
    src/visruntime/_{jail,native,host,policy}
check "clang-format" run clang-format --dry-run --Werror "${c_files[@]}"
check "clang-tidy" lint_c "${compiled[@]}"
if [[ -d $windows_headers ]]; then
    check "clang-tidy for Windows" lint_windows_c "${for_windows[@]}"
else
    echo "SKIPPED clang-tidy for Windows: gcc-mingw-w64-x86-64 is not installed"
fi
check "shellcheck" run shellcheck "${shell[@]}"
check "policy schema" run python scripts/generate_policy_schema.py --check
check "case of names" run python scripts/generate_windows_fold.py --check
check "API reference" run python scripts/generate_api_reference.py --check
check "generated documents" run python scripts/generate_documents.py --check
check "documentation site" run python scripts/build_docs.py
check "workflow schema" run check-jsonschema --builtin-schema vendor.github-workflows "${workflows[@]}"
check "actionlint" run actionlint "${workflows[@]}"
check "zizmor" run zizmor --offline --quiet --persona=pedantic .github/workflows
check "lock file" uv lock --check --offline

if ((${#failed[@]})); then
    printf '%d of the checks failed: %s\n' "${#failed[@]}" "${failed[*]}"
    exit 1
fi
