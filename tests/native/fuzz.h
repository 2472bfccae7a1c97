// What the fuzz targets share: choices drawn from the bytes of one input.
//
// A target is LLVMFuzzerTestOneInput, so that libFuzzer can drive it; where there is no
// clang, driver.c does with random inputs. See scripts/fuzz_native.sh.
#ifndef VJ_FUZZ_H
#define VJ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    const uint8_t *at;
    size_t left;
} fuzz_input;

// The next `size` bytes; zeros once there are no more.
static inline void fuzz_take(fuzz_input *input, void *to, size_t size) {
    size_t taken = size < input->left ? size : input->left;
    memset(to, 0, size);
    if (taken) memcpy(to, input->at, taken);
    input->at += taken;
    input->left -= taken;
}

static inline uint32_t fuzz_below(fuzz_input *input, uint32_t below) {
    uint16_t value;
    fuzz_take(input, &value, sizeof value);
    return value % below;
}

#define FUZZ_CHECK(condition)                                                            \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);              \
            abort();                                                                     \
        }                                                                                \
    } while (0)

#endif
