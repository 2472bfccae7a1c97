#!/usr/bin/env bash
# Build and run the C tests under AddressSanitizer and UndefinedBehaviorSanitizer.
#
# Each tests/native/test_*.c is a program of its own. Its lines `// sources: FILE...` name the
# files of the library that it is linked with, relative to the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

out=build/native-tests
mkdir -p "$out"
shopt -s nullglob
tests=(tests/native/test_*.c)
if ((${#tests[@]} == 0)); then
    echo "no tests/native/test_*.c: nothing was tested" >&2
    exit 5
fi
for test in "${tests[@]}"; do
    mapfile -t sources < <(sed -n 's|^// sources: ||p' "$test" | tr ' ' '\n')
    if ((${#sources[@]} == 0)); then
        echo "$test: no '// sources:' line" >&2
        exit 1
    fi
    program=$out/$(basename "$test" .c)
    "${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -g -O1 -fno-omit-frame-pointer -Wall -Wextra -Werror \
        -fsanitize=address,undefined -fno-sanitize-recover=all \
        -Inative/visjail -Inative/vispython -o "$program" "$test" "${sources[@]}"
    ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 "$program"
    echo "ok      $test"
done
