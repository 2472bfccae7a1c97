#!/usr/bin/env bash
# Build and run the C tests under AddressSanitizer and UndefinedBehaviorSanitizer.
#
# Each tests/native/test_*.c is a program of its own. Its lines `// sources: FILE...` name the
# files that it is linked with, relative to the repository. A line `// sanitizers: address thread`
# lets it run once under each of them; without one it runs under `address`, which is both of the
# above. With arguments, only the tests of these names run (streams, windows_jail).
set -euo pipefail
cd "$(dirname "$0")/.."

out=build/native-tests
shopt -s nullglob
tests=(tests/native/test_*.c)
if (($#)); then
    tests=("${@/#/tests/native/test_}")
    tests=("${tests[@]/%/.c}")
fi
if ((${#tests[@]} == 0)); then
    echo "no tests/native/test_*.c: nothing was tested" >&2
    exit 5
fi

declare -A flags=(
    [address]="-fsanitize=address,undefined -fno-sanitize-recover=all"
    [thread]="-fsanitize=thread"
)
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

# A file is compiled once for each sanitizer, and again when it or any header has changed.
newest_header=$(find native tests/native -name '*.h' -newer "$out/headers" 2>/dev/null | head -n 1 || true)
if [[ ! -e $out/headers || $newest_header ]]; then rm -rf "$out"; fi
mkdir -p "$out"
touch "$out/headers"
compile() {
    local sanitizer=$1 source=$2
    local object=$out/$sanitizer/${source//\//_}.o
    mkdir -p "$out/$sanitizer"
    objects+=("$object")
    [[ $object -nt $source ]] && return
    # shellcheck disable=SC2086 # several flags
    "${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -g -O1 -fno-omit-frame-pointer -Wall -Wextra -Werror \
        ${flags[$sanitizer]} -Inative/visjail -Inative/vispython -Itests/native -c -o "$object" "$source"
}

for test in "${tests[@]}"; do
    mapfile -t sources < <(sed -n 's|^// sources: ||p' "$test" | tr ' ' '\n')
    if ((${#sources[@]} == 0)); then
        echo "$test: no '// sources:' line" >&2
        exit 1
    fi
    mapfile -t sanitizers < <(sed -n 's|^// sanitizers: ||p' "$test" | tr ' ' '\n')
    for sanitizer in "${sanitizers[@]:-address}"; do
        if [[ ! ${flags[$sanitizer]:-} ]]; then
            echo "$test: no sanitizer is called '$sanitizer'" >&2
            exit 1
        fi
        objects=()
        for source in "$test" "${sources[@]}"; do compile "$sanitizer" "$source"; done
        program=$out/$sanitizer/$(basename "$test" .c)
        # shellcheck disable=SC2086 # several flags
        "${CC:-cc}" ${flags[$sanitizer]} -o "$program" "${objects[@]}" -lpthread
        "$program"
        echo "ok      $test ($sanitizer)"
    done
done
