// Names of files that hold secrets. Pure; see secret_names.h.

#include "secret_names.h"

#include <string.h>

// Longest header of a private key, in bytes. Without a bound a line of many beginnings
// would be looked through from each of them.
#define LABEL_MAX 96u

static uint32_t pair(const char *at) {
    return (uint32_t)(unsigned char)at[0] << 8 | (unsigned char)at[1];
}

// A to Z only: names are bytes.
static unsigned char lower(char character) {
    return (unsigned char)(character >= 'A' && character <= 'Z' ? character | 0x20
                                                                : character);
}

void vj_secret_prepare(const char *table, size_t size, vj_secret_hints *hints) {
    *hints = (vj_secret_hints){0};
    for (size_t i = 0; i < size; i += strlen(table + i) + 1) {
        if (strlen(table + i) < 3) continue;
        const char *slash = strchr(table + i, '/');
        const char *name = slash ? slash + 1 : table + i + 1;
        uint32_t begin = pair(name);
        const char *last = table + i + strlen(table + i) - 2;
        uint32_t end = (uint32_t)lower(last[0]) << 8 | lower(last[1]);
        if (strchr("dnp", table[i]))
            hints->begins[begin / 8] |= (uint8_t)(1u << begin % 8);
        if (strchr("sk", table[i])) hints->ends[end / 8] |= (uint8_t)(1u << end % 8);
    }
}

bool vj_secret_worth(const vj_secret_hints *hints, const char *name, size_t length) {
    if (length < 2) return false;
    uint32_t begin = pair(name);
    uint32_t end = (uint32_t)lower(name[length - 2]) << 8 | lower(name[length - 1]);
    return hints->begins[begin / 8] & 1u << begin % 8 ||
           hints->ends[end / 8] & 1u << end % 8;
}

// The last two parts of a path.
typedef struct {
    const char *name;
    size_t length;
    const char *above; // without its '/'
    size_t above_length;
} tail;

static tail tail_of(const char *path, size_t length) {
    size_t name = length;
    while (name && path[name - 1] != '/') name--;
    size_t above_end = name ? name - 1 : 0;
    size_t above = above_end;
    while (above && path[above - 1] != '/') above--;
    return (tail){.name = path + name,
                  .length = length - name,
                  .above = path + above,
                  .above_length = above_end - above};
}

static bool same(const char *left, size_t length, const char *right,
                 size_t right_length) {
    return length == right_length && !memcmp(left, right, length);
}

// Whether the part of an entry before its '/' is the folder above; `*entry` is moved to
// the part that names the file.
static bool above_fits(const char **entry, size_t *length, const tail *at) {
    const char *slash = memchr(*entry, '/', *length);
    if (!slash) return true;
    size_t before = (size_t)(slash - *entry);
    if (!same(*entry, before, at->above, at->above_length)) return false;
    *entry = slash + 1;
    *length -= before + 1;
    return true;
}

static bool starts(const tail *at, const char *with, size_t length) {
    return at->length >= length && !memcmp(at->name, with, length);
}

static bool ends(const tail *at, const char *with, size_t length) {
    return at->length > length && !memcmp(at->name + at->length - length, with, length);
}

static bool ends_in_any_case(const tail *at, const char *with, size_t length) {
    if (at->length <= length) return false;
    const char *end = at->name + at->length - length;
    for (size_t i = 0; i < length; i++) {
        if (lower(end[i]) != lower(with[i])) return false;
    }
    return true;
}

static bool is_public(const char *table, size_t size, const tail *at) {
    for (size_t i = 0; i < size; i += strlen(table + i) + 1) {
        if (table[i] == 'o' && ends(at, table + i + 1, strlen(table + i + 1)))
            return true;
    }
    return false;
}

static bool entry_fits(char kind, const char *name, size_t length, const tail *at,
                       int what) {
    switch (kind) {
    case 'd':
        return what & VJ_SECRET_FOLDER && above_fits(&name, &length, at) &&
               same(name, length, at->name, at->length);
    case 'n':
        return what & VJ_SECRET_FILE && above_fits(&name, &length, at) &&
               same(name, length, at->name, at->length);
    case 'p': return what & VJ_SECRET_FILE && starts(at, name, length);
    case 's':
    case 'k': return what & VJ_SECRET_FILE && ends_in_any_case(at, name, length);
    default: return false;
    }
}

vj_secret_found vj_secret_match(const char *table, size_t size, const char *path,
                                size_t length, int what) {
    tail at = tail_of(path, length);
    vj_secret_found found = {.length = (uint32_t)length};
    for (size_t i = 0; i < size; found.entry++) {
        size_t entry = strlen(table + i);
        char kind = table[i];
        if (entry && entry_fits(kind, table + i + 1, entry - 1, &at, what) &&
            (kind != 'p' || !is_public(table, size, &at))) {
            found.by_content = kind == 'k';
            return found;
        }
        i += entry + 1;
    }
    found.entry = -1;
    return found;
}

vj_secret_found vj_secret_find(const char *table, size_t size, const char *path,
                               size_t after, int what) {
    vj_secret_found none = {.entry = -1};
    for (size_t length = 1; path[length - 1]; length++) {
        bool last = !path[length];
        if ((path[length] != '/' && !last) || path[length - 1] == '/') continue;
        if (vj_secret_installed(table, size, path, length)) return none;
        if (length <= after) continue;
        vj_secret_found found =
            vj_secret_match(table, size, path, length, last ? what : VJ_SECRET_FOLDER);
        if (found.entry >= 0) return found;
    }
    return none;
}

bool vj_secret_installed(const char *table, size_t size, const char *path,
                         size_t length) {
    tail at = tail_of(path, length);
    for (size_t i = 0; i < size;) {
        const char *name = table + i + 1;
        size_t entry = strlen(table + i);
        size_t name_length = entry ? entry - 1 : 0;
        switch (table[i]) {
        case 'i':
            if (same(name, name_length, at.name, at.length)) return true;
            break;
        case 'l':
            if (above_fits(&name, &name_length, &at) && starts(&at, name, name_length)) {
                return true;
            }
            break;
        case 't':
            if (same(name, name_length, path, length)) return true;
            break;
        default: break;
        }
        i += entry + 1;
    }
    return false;
}

static bool is_at(const char *bytes, size_t left, const char *text, size_t length) {
    return left >= length && !memcmp(bytes, text, length);
}

// In one pass, whatever the bytes are: a guest chooses them, and how many files have
// them.
bool vj_secret_is_key(const char *bytes, size_t size) {
    static const char begin[] = "-----BEGIN ";
    static const char private_key[] = "PRIVATE KEY";
    static const char putty[] = "PuTTY-User-Key-File-";
    if (size > VJ_SECRET_KEY_BYTES) size = VJ_SECRET_KEY_BYTES;
    size_t label_end = 0; // of the last header that has begun in this line
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] == '\n') {
            label_end = 0;
        } else if (bytes[i] == '-') {
            if (is_at(bytes + i, size - i, begin, sizeof begin - 1)) {
                label_end = size - i < LABEL_MAX ? size : i + LABEL_MAX;
            }
        } else if (bytes[i] == 'P') {
            if (is_at(bytes + i, size - i, putty, sizeof putty - 1)) return true;
            if (label_end > i &&
                is_at(bytes + i, label_end - i, private_key, sizeof private_key - 1)) {
                return true;
            }
        }
    }
    return false;
}
