// The marker of a context: whose it is, in lines of text. Pure.
//
//     visjail context 1
//     vj-0123456789abcdef
//     visruntime.vj-0123456789abcdef
//     1234 133444736000000000 0
//
// The name of the root stands in it, so that a marker that was copied elsewhere says
// nothing; guests cannot write into the root.

#include "windows_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE "visjail context 1"

size_t vj_windows_marker_write(const vj_windows_marker *marker, char *to, size_t room) {
    int length =
        snprintf(to, room, FIRST_LINE "\n%s\n%s\n%lu %llu %lu\n", marker->nonce,
                 marker->package, (unsigned long)marker->pid,
                 (unsigned long long)marker->created, (unsigned long)marker->flags);
    return length > 0 && (size_t)length < room ? (size_t)length : 0;
}

// Take one line, without its end.
static bool take_line(const char **at, const char *end, char *to, size_t room) {
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    if (!stop || (size_t)(stop - *at) >= room) return false;
    size_t length = (size_t)(stop - *at);
    if (memchr(*at, 0, length)) return false;
    memcpy(to, *at, length);
    to[length] = 0;
    *at = stop + 1;
    return true;
}

static bool take_number(const char **at, char behind, uint64_t most, uint64_t *number) {
    uint64_t value = 0;
    const char *digit = *at;
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        uint64_t add = (uint64_t)(*digit - '0');
        if (value > (most - add) / 10) return false;
        value = value * 10 + add;
    }
    if (digit == *at || *digit != behind) return false;
    *at = digit + (behind ? 1 : 0);
    *number = value;
    return true;
}

bool vj_windows_marker_read(const char *text, size_t size, vj_windows_marker *marker) {
    char line[VJ_WINDOWS_MARKER_SIZE];
    const char *at = text;
    const char *end = text + size;
    uint64_t pid = 0, flags = 0;
    memset(marker, 0, sizeof *marker);
    if (!take_line(&at, end, line, sizeof line) || strcmp(line, FIRST_LINE) != 0) {
        return false;
    }
    if (!take_line(&at, end, marker->nonce, sizeof marker->nonce)) return false;
    if (!take_line(&at, end, marker->package, sizeof marker->package)) return false;
    if (!take_line(&at, end, line, sizeof line) || at != end) return false;
    const char *numbers = line;
    if (!take_number(&numbers, ' ', UINT32_MAX, &pid) ||
        !take_number(&numbers, ' ', UINT64_MAX, &marker->created) ||
        !take_number(&numbers, 0, UINT32_MAX, &flags)) {
        return false;
    }
    marker->pid = (uint32_t)pid;
    marker->flags = (uint32_t)flags;
    return true;
}
