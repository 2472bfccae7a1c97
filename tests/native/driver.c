// Drive a fuzz target with random inputs, where there is no libFuzzer.
//
// Understands the one option of libFuzzer that the script uses, -max_total_time.
#include <time.h>

#include "fuzz.h"

#define INPUT_MAX 4096

static uint64_t state = 88172645463325252u;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int main(int argument_count, char **arguments) {
    static const char option[] = "-max_total_time=";
    long seconds = 1;
    for (int i = 1; i < argument_count; i++) {
        if (!strncmp(arguments[i], option, sizeof option - 1)) {
            seconds = atol(arguments[i] + sizeof option - 1);
        }
    }
    time_t end = time(NULL) + seconds;
    uint64_t runs = 0;
    while (time(NULL) < end) {
        size_t size = draw() % INPUT_MAX;
        // Its exact size, so that one byte too far is seen.
        uint8_t *data = malloc(size ? size : 1);
        if (!data) abort();
        // Few bits set at times: counts and kinds are small numbers.
        uint64_t mask = draw() % 2 ? UINT64_MAX : draw() & draw();
        for (size_t i = 0; i < size; i++) data[i] = (uint8_t)((draw() & mask) >> 32);
        LLVMFuzzerTestOneInput(data, size);
        free(data);
        runs++;
    }
    printf("Done %llu runs\n", (unsigned long long)runs);
    return 0;
}
