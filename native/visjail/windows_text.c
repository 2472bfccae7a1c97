// UTF-8 and UTF-16, and how Windows compares names. Pure; see windows_text.h.

#include "windows_text.h"

#include <string.h>

#include "windows_fold.h"

static const char *const fault_texts[VJ_WINDOWS_FAULT_END] = {
    [VJ_WINDOWS_FINE] = "nothing is wrong",
    [VJ_WINDOWS_NOT_UTF8] = "it is not UTF-8",
    [VJ_WINDOWS_SURROGATE] = "it has half a surrogate pair, which is no character",
    [VJ_WINDOWS_NUL] = "it has a NUL inside",
    [VJ_WINDOWS_TOO_LONG] = "it is too long for Windows",
    [VJ_WINDOWS_EMPTY] = "it is empty",
    [VJ_WINDOWS_QUOTE] = "a program's name cannot hold a quotation mark",
    [VJ_WINDOWS_NO_VALUE] = "it is not NAME=VALUE",
    [VJ_WINDOWS_DUPLICATE] = "Windows takes it and another name for the same",
    [VJ_WINDOWS_TOO_MANY] = "there are too many of them, or it lies too deep",
    [VJ_WINDOWS_MISSING] = "SystemRoot, LOCALAPPDATA, TEMP and TMP must be given",
    [VJ_WINDOWS_OUTSIDE] = "it leads out of the jail's own folders",
    [VJ_WINDOWS_DOTS] = "a dot or two are no name",
    [VJ_WINDOWS_NOT_RELATIVE] = "it must be relative",
    [VJ_WINDOWS_NOT_ABSOLUTE] = "it must be absolute, with a drive",
    [VJ_WINDOWS_FOREIGN_ROOT] = "shares and device paths are not taken",
    [VJ_WINDOWS_CHARACTER] = "it has a character that no name on Windows may have",
    [VJ_WINDOWS_STREAM] = "a colon names an alternate stream",
    [VJ_WINDOWS_TRAILING] = "it ends with a dot or a space, which Windows drops",
    [VJ_WINDOWS_DEVICE] = "it is the name of a device",
    [VJ_WINDOWS_SHORT_NAME] = "it looks like the short spelling of another name",
    [VJ_WINDOWS_NOT_EXECUTABLE] = "it is no .exe or .com; batch files are not started",
    [VJ_WINDOWS_SOCKET_TOO_LONG] = "the address of a socket in it would be too long",
    [VJ_WINDOWS_NOT_A_SID] = "it is no security identifier",
};

const char *vj_windows_fault_text(vj_windows_fault fault) {
    return fault < VJ_WINDOWS_FAULT_END && fault_texts[fault] ? fault_texts[fault]
                                                              : "unknown";
}

// One character of `text`, which is not at its end; moves `*text` past it.
static vj_windows_fault take_character(const char **text, const char *end,
                                       uint32_t *character) {
    const unsigned char *at = (const unsigned char *)*text;
    size_t left = (size_t)(end - *text);
    if (at[0] < 0x80) {
        *character = at[0];
        ++*text;
        return at[0] ? VJ_WINDOWS_FINE : VJ_WINDOWS_NUL;
    }
    size_t extra = at[0] >= 0xf0 && at[0] < 0xf5   ? 3
                   : at[0] >= 0xe0 && at[0] < 0xf0 ? 2
                   : at[0] >= 0xc2 && at[0] < 0xe0 ? 1
                                                   : 0;
    if (!extra || extra >= left) return VJ_WINDOWS_NOT_UTF8;
    uint32_t value = at[0] & (0x3fu >> extra);
    for (size_t i = 1; i <= extra; i++) {
        if ((at[i] & 0xc0) != 0x80) return VJ_WINDOWS_NOT_UTF8;
        value = value << 6 | (at[i] & 0x3fu);
    }
    if (value >= 0xd800 && value < 0xe000) return VJ_WINDOWS_SURROGATE;
    // A longer spelling than needed, or more than there is in Unicode.
    if (value > 0x10ffff || (extra == 2 && value < 0x800) ||
        (extra == 3 && value < 0x10000)) {
        return VJ_WINDOWS_NOT_UTF8;
    }
    *character = value;
    *text += extra + 1;
    return VJ_WINDOWS_FINE;
}

vj_windows_fault vj_windows_measure(const char *text, size_t length, size_t *units) {
    const char *end = text + length;
    *units = 0;
    while (text < end) {
        uint32_t character = 0;
        vj_windows_fault fault = take_character(&text, end, &character);
        if (fault != VJ_WINDOWS_FINE) return fault;
        *units += character > 0xffff ? 2 : 1;
    }
    return VJ_WINDOWS_FINE;
}

vj_windows_fault vj_windows_utf16(const char *text, size_t length, uint16_t *to,
                                  size_t room, size_t *written) {
    const char *end = text + length;
    size_t count = 0;
    *written = 0;
    if (!room) return VJ_WINDOWS_TOO_LONG;
    to[0] = 0;
    while (text < end) {
        uint32_t character = 0;
        vj_windows_fault fault = take_character(&text, end, &character);
        size_t units = character > 0xffff ? 2 : 1;
        if (fault == VJ_WINDOWS_FINE && units >= room - count) {
            fault = VJ_WINDOWS_TOO_LONG;
        }
        if (fault != VJ_WINDOWS_FINE) {
            to[0] = 0;
            return fault;
        }
        if (units == 2) {
            to[count++] = (uint16_t)(0xd7c0 + (character >> 10));
            to[count++] = (uint16_t)(0xdc00 | (character & 0x3ff));
        } else {
            to[count++] = (uint16_t)character;
        }
    }
    to[count] = 0;
    *written = count;
    return VJ_WINDOWS_FINE;
}

// How many bytes `character` has in UTF-8; written to `to` if there is room for them.
static size_t put_character(uint32_t character, char *to, size_t room) {
    static const unsigned char leads[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
    size_t bytes = character < 0x80      ? 1
                   : character < 0x800   ? 2
                   : character < 0x10000 ? 3
                                         : 4;
    if (bytes > room) return bytes;
    for (size_t i = bytes - 1; i > 0; i--) {
        to[i] = (char)(0x80 | (character & 0x3f));
        character >>= 6;
    }
    to[0] = (char)(leads[bytes] | character);
    return bytes;
}

vj_windows_fault vj_windows_utf8(const uint16_t *text, size_t length, char *to,
                                 size_t room, size_t *written) {
    size_t count = 0;
    *written = 0;
    if (!room) return VJ_WINDOWS_TOO_LONG;
    to[0] = 0;
    for (size_t i = 0; i < length; i++) {
        uint32_t character = text[i];
        vj_windows_fault fault = character ? VJ_WINDOWS_FINE : VJ_WINDOWS_NUL;
        if (character >= 0xd800 && character < 0xe000) {
            bool pair = character < 0xdc00 && i + 1 < length && text[i + 1] >= 0xdc00 &&
                        text[i + 1] < 0xe000;
            if (pair) {
                i++;
                character = ((character - 0xd7c0) << 10) + (text[i] & 0x3ffu);
            } else {
                fault = VJ_WINDOWS_SURROGATE;
            }
        }
        if (fault == VJ_WINDOWS_FINE) {
            size_t bytes = put_character(character, to + count, room - count - 1);
            if (bytes >= room - count) fault = VJ_WINDOWS_TOO_LONG;
            else count += bytes;
        }
        if (fault != VJ_WINDOWS_FINE) {
            to[0] = 0;
            return fault;
        }
    }
    to[count] = 0;
    *written = count;
    return VJ_WINDOWS_FINE;
}

uint16_t vj_windows_fold(uint16_t unit) {
    size_t low = 0, high = sizeof fold_ranges / sizeof *fold_ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const fold_range *range = &fold_ranges[middle];
        if (unit < range->first) high = middle;
        else if (unit > range->last) low = middle + 1;
        else if ((unit - range->first) % range->step) return unit;
        else return (uint16_t)(unit + range->distance);
    }
    return unit;
}

vj_windows_units vj_windows_units_of(const char *text, size_t length) {
    return (vj_windows_units){.at = text, .end = text + length};
}

bool vj_windows_next_unit(vj_windows_units *units, uint16_t *unit) {
    *unit = units->low;
    units->low = 0;
    if (*unit) return true;
    uint32_t character = 0;
    if (units->at >= units->end ||
        take_character(&units->at, units->end, &character) != VJ_WINDOWS_FINE) {
        return false;
    }
    if (character > 0xffff) {
        units->low = (uint16_t)(0xdc00 | (character & 0x3ff));
        character = 0xd7c0 + (character >> 10);
    }
    *unit = (uint16_t)character;
    return true;
}

int vj_windows_compare(const char *left, size_t left_length, const char *right,
                       size_t right_length) {
    vj_windows_units lefts = vj_windows_units_of(left, left_length);
    vj_windows_units rights = vj_windows_units_of(right, right_length);
    for (;;) {
        uint16_t one = 0, other = 0;
        bool more = vj_windows_next_unit(&lefts, &one);
        bool others = vj_windows_next_unit(&rights, &other);
        if (!more || !others) return more - others;
        one = vj_windows_fold(one);
        other = vj_windows_fold(other);
        if (one != other) return one < other ? -1 : 1;
    }
}
