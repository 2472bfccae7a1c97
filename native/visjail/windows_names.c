// Names of files on Windows. Pure; see windows_names.h.

#include "windows_names.h"

#include <stdlib.h>
#include <string.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static char upper(char c) {
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static bool is_separator(char c) {
    return c == '/' || c == '\\';
}

static bool begins_with(const char *name, size_t length, const char *word) {
    for (size_t i = 0; word[i]; i++) {
        if (i == length || upper(name[i]) != word[i]) return false;
    }
    return true;
}

// Whether what stands behind "COM" or "LPT" is a digit, also a raised one.
static bool is_port_number(const char *text, size_t length) {
    static const char *const raised[] = {"\xc2\xb9", "\xc2\xb2", "\xc2\xb3"};
    if (length == 1) return is_digit(text[0]);
    for (size_t i = 0; i < sizeof raised / sizeof *raised; i++) {
        if (length == 2 && !memcmp(text, raised[i], 2)) return true;
    }
    return false;
}

// Devices of DOS are everywhere, with any extension and any spaces in front of it.
// (Documentation: "Naming Files, Paths, and Namespaces".)
static bool is_device(const char *name, size_t length) {
    static const char *const devices[] = {"CON", "PRN",    "AUX",
                                          "NUL", "CONIN$", "CONOUT$"};
    const char *dot = memchr(name, '.', length);
    size_t base = dot ? (size_t)(dot - name) : length;
    while (base && name[base - 1] == ' ') base--;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (base == strlen(devices[i]) && begins_with(name, base, devices[i])) {
            return true;
        }
    }
    return (begins_with(name, base, "COM") || begins_with(name, base, "LPT")) &&
           is_port_number(name + 3, base - 3);
}

// Six characters, a tilde and a number, as file systems make them up: NAME~1.EXT.
static bool is_short_spelling(const char *name, size_t length) {
    const char *dot = memchr(name, '.', length);
    size_t base = dot ? (size_t)(dot - name) : length;
    size_t extension = dot ? length - base - 1 : 0;
    if (base > 8 || extension > 3) return false;
    size_t tilde = base;
    while (tilde && is_digit(name[tilde - 1])) tilde--;
    return tilde > 1 && tilde < base && name[tilde - 1] == '~';
}

// What holds for each name of a path, of the host's too.
static vj_windows_fault plain_name_fault(const char *name, size_t length) {
    size_t units = 0;
    if (!length) return VJ_WINDOWS_EMPTY;
    vj_windows_fault fault = vj_windows_measure(name, length, &units);
    if (fault != VJ_WINDOWS_FINE) return fault;
    if (name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.'))) {
        return VJ_WINDOWS_DOTS;
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)name[i];
        if (byte == ':') return VJ_WINDOWS_STREAM;
        if (byte < 0x20 || byte == 0x7f || strchr("<>\"/\\|?*", byte)) {
            return VJ_WINDOWS_CHARACTER;
        }
        // U+0080 to U+009F, control characters too; 0xc2 begins no other text.
        if (byte == 0xc2 && (unsigned char)name[i + 1] < 0xa0)
            return VJ_WINDOWS_CHARACTER;
    }
    if (name[length - 1] == '.' || name[length - 1] == ' ') return VJ_WINDOWS_TRAILING;
    if (is_device(name, length)) return VJ_WINDOWS_DEVICE;
    return units > VJ_WINDOWS_NAME_UNITS_MAX ? VJ_WINDOWS_TOO_LONG : VJ_WINDOWS_FINE;
}

vj_windows_fault vj_windows_name_fault(const char *name, size_t length) {
    vj_windows_fault fault = plain_name_fault(name, length);
    if (fault == VJ_WINDOWS_FINE && is_short_spelling(name, length)) {
        fault = VJ_WINDOWS_SHORT_NAME;
    }
    return fault;
}

static bool has_drive(const char *path) {
    return upper(path[0]) >= 'A' && upper(path[0]) <= 'Z' && path[1] == ':';
}

vj_windows_fault vj_windows_destination_fault(const char *path, size_t folder_units) {
    size_t depth = 0, units = 0;
    if (!path[0]) return VJ_WINDOWS_EMPTY;
    if (is_separator(path[0]) || has_drive(path)) return VJ_WINDOWS_NOT_RELATIVE;
    vj_windows_fault fault = vj_windows_measure(path, strlen(path), &units);
    if (fault != VJ_WINDOWS_FINE) return fault;
    for (const char *name = path;;) {
        const char *slash = strchr(name, '/');
        size_t length = slash ? (size_t)(slash - name) : strlen(name);
        fault = vj_windows_name_fault(name, length);
        if (fault != VJ_WINDOWS_FINE) return fault;
        if (++depth > VJ_WINDOWS_DEPTH_MAX) return VJ_WINDOWS_TOO_MANY;
        if (!slash) break;
        name = slash + 1;
    }
    // The separator between the folder and this, too.
    if (folder_units >= VJ_WINDOWS_PATH_UNITS_MAX ||
        units + 1 > VJ_WINDOWS_PATH_UNITS_MAX - folder_units) {
        return VJ_WINDOWS_TOO_LONG;
    }
    return VJ_WINDOWS_FINE;
}

// Of an absolute path behind its drive.
static vj_windows_fault absolute_fault(const char *path, bool short_names) {
    size_t units = 0;
    if (!path[0]) return VJ_WINDOWS_EMPTY;
    if (is_separator(path[0]) && (is_separator(path[1]) || path[1] == '?')) {
        return VJ_WINDOWS_FOREIGN_ROOT;
    }
    if (!has_drive(path) || !is_separator(path[2])) return VJ_WINDOWS_NOT_ABSOLUTE;
    vj_windows_fault fault = vj_windows_measure(path, strlen(path), &units);
    if (fault != VJ_WINDOWS_FINE) return fault;
    if (units > VJ_WINDOWS_PATH_UNITS_MAX) return VJ_WINDOWS_TOO_LONG;
    for (const char *name = path + 3; *name;) {
        size_t length = strcspn(name, "/\\");
        fault = short_names ? plain_name_fault(name, length)
                            : vj_windows_name_fault(name, length);
        if (fault != VJ_WINDOWS_FINE) return fault;
        name += length;
        if (*name) name++;
    }
    return VJ_WINDOWS_FINE;
}

vj_windows_fault vj_windows_source_fault(const char *path) {
    return absolute_fault(path, true);
}

vj_windows_fault vj_windows_program_fault(const char *path) {
    size_t length = strlen(path);
    vj_windows_fault fault = absolute_fault(path, true);
    if (fault != VJ_WINDOWS_FINE) return fault;
    if (length < 4 || !(begins_with(path + length - 4, 4, ".EXE") ||
                        begins_with(path + length - 4, 4, ".COM"))) {
        return VJ_WINDOWS_NOT_EXECUTABLE;
    }
    return VJ_WINDOWS_FINE;
}

bool vj_windows_is_within(const char *path, const char *folder) {
    size_t length = strlen(folder);
    if (absolute_fault(path, true) != VJ_WINDOWS_FINE) return false;
    while (length && is_separator(folder[length - 1])) length--;
    if (!length || strlen(path) < length) return false;
    for (size_t i = 0; i < length; i++) {
        bool separators = is_separator(path[i]) && is_separator(folder[i]);
        if (!separators && upper(path[i]) != upper(folder[i])) return false;
    }
    return !path[length] || is_separator(path[length]);
}

// ---- names that Windows takes for one

// As vj_windows_compare, with a separator in front of everything else, so that what lies
// in one folder stands together.
static uint16_t path_unit(vj_windows_units *units) {
    uint16_t unit = 0;
    if (!vj_windows_next_unit(units, &unit)) return 0;
    return unit == '/' ? 1 : vj_windows_fold(unit);
}

static int order_paths(const void *left, const void *right) {
    const char *one = *(const char *const *)left;
    const char *other = *(const char *const *)right;
    vj_windows_units ones = vj_windows_units_of(one, strlen(one));
    vj_windows_units others = vj_windows_units_of(other, strlen(other));
    for (;;) {
        uint16_t first = path_unit(&ones);
        uint16_t second = path_unit(&others);
        if (first != second) return first < second ? -1 : 1;
        if (!first) return strcmp(one, other);
    }
}

// Whether a name of both at the same place, below the same names, is the same one in
// another spelling; or all of them are the same.
static bool clash(const char *one, const char *other) {
    for (;;) {
        size_t length = strcspn(one, "/"), others = strcspn(other, "/");
        if (vj_windows_compare(one, length, other, others)) return false;
        if (length != others || memcmp(one, other, length) != 0) return true;
        if (!one[length] || !other[length]) return one[length] == other[length];
        one += length + 1;
        other += length + 1;
    }
}

size_t vj_windows_find_clash(const char **paths, size_t count) {
    if (count) qsort(paths, count, sizeof *paths, order_paths);
    for (size_t i = 1; i < count; i++) {
        if (clash(paths[i - 1], paths[i])) return i;
    }
    return count;
}

// ---- the root folder

void vj_windows_root_name(const uint8_t random[8], char name[VJ_WINDOWS_ROOT_NAME_SIZE]) {
    static const char digits[] = "0123456789abcdef";
    memcpy(name, "vj-", 3);
    for (size_t i = 0; i < 8; i++) {
        name[3 + 2 * i] = digits[random[i] >> 4];
        name[4 + 2 * i] = digits[random[i] & 15];
    }
    name[VJ_WINDOWS_ROOT_NAME_SIZE - 1] = 0;
}

size_t vj_windows_socket_bytes(const char *parent) {
    size_t length = strlen(parent);
    while (length && is_separator(parent[length - 1])) length--;
    // A separator, the root's name, and its NUL for the separator behind it.
    return length + 1 + VJ_WINDOWS_ROOT_NAME_SIZE +
           sizeof "work\\" VJ_WINDOWS_SOCKET_NAME;
}

vj_windows_fault vj_windows_parent_fault(const char *parent) {
    vj_windows_fault fault = vj_windows_source_fault(parent);
    if (fault == VJ_WINDOWS_FINE &&
        vj_windows_socket_bytes(parent) > VJ_WINDOWS_SOCKET_BYTES_MAX) {
        fault = VJ_WINDOWS_SOCKET_TOO_LONG;
    }
    return fault;
}
