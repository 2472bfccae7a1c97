// Patterns of a policy. Pure; see pattern.h.

#include "pattern.h"

#include <string.h>

// One character, and how many bytes it has. A byte that is no UTF-8 is a character of
// its own, outside of Unicode.
static uint32_t character(const char *text, size_t *length) {
    const unsigned char *at = (const unsigned char *)text;
    uint32_t extra = at[0] >= 0xf0 && at[0] < 0xf8   ? 3
                     : at[0] >= 0xe0 && at[0] < 0xf0 ? 2
                     : at[0] >= 0xc2 && at[0] < 0xe0 ? 1
                                                     : 0;
    uint32_t value = extra ? at[0] & (0x3fu >> extra) : at[0];
    for (uint32_t i = 1; i <= extra; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            extra = 0;
            break;
        }
        value = value << 6 | (at[i] & 0x3f);
    }
    *length = extra + 1;
    return extra || at[0] < 0x80 ? value : 0x110000u + at[0];
}

// The end of the set that begins at `part`, behind its ']'; NULL if it has none.
static const char *set_end(const char *part) {
    const char *at = part + 1;
    if (*at == '!') at++;
    if (*at == ']') at++;
    const char *close = strchr(at, ']');
    return close ? close + 1 : NULL;
}

static bool set_holds(const char *part, const char *end, uint32_t value) {
    const char *at = part + 1;
    bool negated = *at == '!';
    bool held = false;
    if (negated) at++;
    while (at < end - 1) {
        size_t length = 0;
        uint32_t low = character(at, &length);
        at += length;
        uint32_t high = low;
        if (*at == '-' && at + 1 < end - 1) {
            high = character(at + 1, &length);
            at += 1 + length;
        }
        if (value >= low && value <= high) held = true;
    }
    return held != negated;
}

// Whether the first element of `part`, which is no star, stands for the first character
// of `name`. Moves both past it, and counts what it looked at.
static bool element_fits(const char **part, const char **name, uint64_t *work) {
    size_t length = 0;
    uint32_t value = character(*name, &length);
    const char *end = **part == '[' ? set_end(*part) : NULL;
    bool fits = false;
    if (**part == '[') *work += end ? (size_t)(end - *part) : strlen(*part);
    if (end) {
        fits = set_holds(*part, end, value);
        *part = end;
    } else if (**part == '?') {
        fits = true;
        ++*part;
    } else {
        size_t wanted = 0;
        fits = character(*part, &wanted) == value;
        *part += wanted;
    }
    *name += length;
    return fits;
}

static bool part_fits(const char *part, const char *name, uint64_t *work) {
    const char *star = NULL; // behind the last star
    const char *retry = NULL;
    while (*name) {
        ++*work;
        if (*part == '*') {
            star = ++part;
            retry = name;
            continue;
        }
        if (*part && element_fits(&part, &name, work)) continue;
        if (!star) return false;
        // The star takes one character more.
        size_t length = 0;
        character(retry, &length);
        retry += length;
        name = retry;
        part = star;
    }
    while (*part == '*') {
        ++*work;
        part++;
    }
    return !*part;
}

bool vj_pattern_fits(const char *part, const char *name) {
    uint64_t work = 0;
    return part_fits(part, name, &work);
}

static bool is_deep(const char *part) {
    return !strcmp(part, "**");
}

bool vj_pattern_parse(char *text, vj_pattern *pattern) {
    *pattern = (vj_pattern){0};
    while (*text) {
        if (pattern->count == VJ_PATTERN_PARTS_MAX) return false;
        pattern->parts[pattern->count++] = text;
        char *slash = strchr(text, '/');
        if (!slash) return true;
        *slash = 0;
        text = slash + 1;
    }
    return false;
}

// "**" can stand for no name at all, so the place behind it is open as well.
static uint64_t closed(const vj_pattern *pattern, uint64_t places) {
    for (uint32_t i = 0; i < pattern->count; i++) {
        if (places & UINT64_C(1) << i && is_deep(pattern->parts[i])) {
            places |= UINT64_C(1) << (i + 1);
        }
    }
    return places;
}

uint64_t vj_pattern_start(const vj_pattern *pattern) {
    return closed(pattern, 1);
}

uint64_t vj_pattern_step(const vj_pattern *pattern, uint64_t places, const char *name,
                         uint64_t *work) {
    uint64_t next = 0;
    *work += pattern->count;
    for (uint32_t i = 0; i < pattern->count; i++) {
        if (!(places & UINT64_C(1) << i)) continue;
        if (is_deep(pattern->parts[i])) {
            next |= UINT64_C(1) << i;
        } else if (part_fits(pattern->parts[i], name, work)) {
            next |= UINT64_C(1) << (i + 1);
        }
    }
    return closed(pattern, next);
}

bool vj_pattern_done(const vj_pattern *pattern, uint64_t places) {
    return places & UINT64_C(1) << pattern->count;
}
