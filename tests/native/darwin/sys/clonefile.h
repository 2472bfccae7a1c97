// Clones of files; see darwin.h.
#ifndef VJ_TEST_CLONEFILE_H
#define VJ_TEST_CLONEFILE_H

#include <stdint.h>

// Makes an empty file.
int clonefile(const char *source, const char *target, uint32_t flags);

#endif
