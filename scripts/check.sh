#!/usr/bin/env bash
# Run every linter over the whole repository; needs `uv sync` first. Fails if any of them does.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

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
    run clang-tidy --quiet -p "${database#* }" --extra-arg=-Wno-unknown-warning-option \
        --removed-arg=-fno-tree-loop-distribute-patterns "$@"
}

mapfile -t c_files < <(listed 'native/*.c' 'native/*.h' 'tests/native/*.c' 'examples/*.[ch]')
# Without what only another system's headers compile; .github/workflows judge that.
mapfile -t compiled < <(listed 'native/*.c' ':!native/*/macos_init.c' ':!native/*/macos_seatbelt.c')
mapfile -t shell < <(listed '*.sh' .ci/run)
mapfile -t workflows < <(listed '.github/workflows/*.yml')

check "ruff" run ruff check
check "ruff format" run ruff format --check
check "mypy" run mypy
check "clang-format" run clang-format --dry-run --Werror "${c_files[@]}"
check "clang-tidy" lint_c "${compiled[@]}"
check "shellcheck" run shellcheck "${shell[@]}"
check "policy schema" run python scripts/generate_policy_schema.py --check
check "case of names" run python scripts/generate_windows_fold.py --check
check "API reference" run python scripts/generate_api_reference.py --check
check "generated documents" run python scripts/generate_documents.py --check
check "documentation site" run python scripts/build_docs.py
check "workflow schema" run check-jsonschema --builtin-schema vendor.github-workflows "${workflows[@]}"
check "zizmor" run zizmor --offline --quiet --persona=pedantic .github/workflows
check "lock file" uv lock --check --offline

if ((${#failed[@]})); then
    printf '%d of the checks failed: %s\n' "${#failed[@]}" "${failed[*]}"
    exit 1
fi
