// Attributes of files, as far as paths are asked for; see darwin.h.
#ifndef VJ_TEST_ATTR_H
#define VJ_TEST_ATTR_H

#include <stddef.h>
#include <stdint.h>

#define ATTR_BIT_MAP_COUNT 5
#define ATTR_CMN_FULLPATH  0x08000000

struct attrlist {
    uint16_t bitmapcount;
    uint16_t reserved;
    uint32_t commonattr;
    uint32_t volattr;
    uint32_t dirattr;
    uint32_t fileattr;
    uint32_t forkattr;
};

typedef struct {
    int32_t attr_dataoffset;
    uint32_t attr_length;
} attrreference_t;

// A path with `two-spellings` in it has another one than its descriptor has.
int getattrlist(const char *path, void *asked, void *answer, size_t size,
                unsigned options);

#endif
