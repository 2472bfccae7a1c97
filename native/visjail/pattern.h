// Patterns of a policy: how one part of a path is compared. Pure.
//
//   *      any bytes of one name, also none and also a leading dot
//   ?      one character (UTF-8; a byte that is no UTF-8 counts as one)
//   [a-z]  one character of the set, [!a-z] one that is not; ']' comes first or not at
//   all
//
// There is no escape: [*] is a star. A '[' without its ']' stands for itself.
#ifndef VJ_PATTERN_H
#define VJ_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// As many parts as fit into the set of places in a pattern.
#define VJ_PATTERN_PARTS_MAX 60u

typedef struct {
    const char *parts[VJ_PATTERN_PARTS_MAX]; // "**" stands for any number of names
    uint32_t count;
} vj_pattern;

// Cut `text` (parts with '/' between) in place. False: no part, or too many.
bool vj_pattern_parse(char *text, vj_pattern *pattern);

// The set of places where a path can stand before its first name.
uint64_t vj_pattern_start(const vj_pattern *pattern);

// The set after one more name; empty when nothing can match any more. `*work` grows by
// what was compared, in characters: a short pattern can cost their square.
uint64_t vj_pattern_step(const vj_pattern *pattern, uint64_t places, const char *name,
                         uint64_t *work);

// Whether what was read so far is a match.
bool vj_pattern_done(const vj_pattern *pattern, uint64_t places);

bool vj_pattern_fits(const char *part, const char *name);

#endif
