// Paths and patterns of a Seatbelt profile. Pure; see macos_profile.h.
#ifndef VJ_MACOS_PATH_H
#define VJ_MACOS_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "macos_profile.h"

bool vj_macos_is_beneath(const char *path, const char *top);

// What is wrong with a path as a filter, or NULL.
const char *vj_macos_path_flaw(const char *path);

// A pattern that fits the first `length` bytes of `path`, of which those behind `fixed`
// may be written in either case, and what is below if `and_below`. False: it gets longer
// than VJ_MACOS_STRING_MAX, or has letters whose other case is not known here.
bool vj_macos_either_case(const char *path, size_t fixed, size_t length, bool and_below,
                          char pattern[VJ_MACOS_STRING_MAX + 1]);

#endif
