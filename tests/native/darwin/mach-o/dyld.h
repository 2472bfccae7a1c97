// Loaded programs and libraries; see darwin.h.
#ifndef VJ_TEST_DYLD_H
#define VJ_TEST_DYLD_H

#include <stdint.h>

// One library, whose path the variable DARWIN_IMAGE has.
uint32_t _dyld_image_count(void);
const char *_dyld_get_image_name(uint32_t number);

#endif
