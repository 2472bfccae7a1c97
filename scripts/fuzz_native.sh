#!/usr/bin/env bash
# Fuzz the C code under AddressSanitizer and UndefinedBehaviorSanitizer: each target for $1
# seconds (5), only those named after it if any are. With clang by libFuzzer; with another
# compiler (CC=gcc, or no clang here) by random inputs. A target names what it needs in lines
# "// sources:", relative to the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-5}
shift || true
targets=("$@")
if ((${#targets[@]} == 0)); then
    shopt -s nullglob
    targets=(tests/native/fuzz_*.c)
fi
if ((${#targets[@]} == 0)); then
    echo "no tests/native/fuzz_*.c: nothing was fuzzed" >&2
    exit 5
fi

out=build/native-tests
mkdir -p "$out"
flags=(-std=gnu11 -D_GNU_SOURCE -g -O1 -fno-omit-frame-pointer -Wall -Wextra -Werror
    -fno-sanitize-recover=all -Inative/visjail)
compiler=${CC:-$(command -v clang >/dev/null && echo clang || echo cc)}
if [[ $(basename "$compiler") == clang* ]]; then
    flags+=("-fsanitize=address,undefined,fuzzer")
    driver=()
else
    flags+=("-fsanitize=address,undefined")
    driver=(tests/native/driver.c)
fi
for target in "${targets[@]}"; do
    name=$(basename "$target" .c)
    mapfile -t sources < <(sed -n 's|^// sources: ||p' "$target" | tr ' ' '\n')
    mapfile -t libraries < <(sed -n 's|^// libraries: ||p' "$target" | tr ' ' '\n')
    "$compiler" "${flags[@]}" -o "$out/$name" "$target" "${sources[@]}" "${driver[@]}" \
        "${libraries[@]}"
    corpus=$out/corpus-$name
    mkdir -p "$corpus"
    if ! ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
        "$out/$name" -max_total_time="$seconds" -max_len=4096 -print_final_stats=1 \
        -artifact_prefix="$out/$name-" "$corpus" >"$out/$name.log" 2>&1; then
        tail -n 60 "$out/$name.log" >&2
        echo "FAILED  $target ($compiler)" >&2
        exit 1
    fi
    runs=$(grep -oE '^Done [0-9]+ runs' "$out/$name.log" | grep -oE '[0-9]+')
    echo "ok      $target: $runs runs in $seconds s ($compiler)"
done
