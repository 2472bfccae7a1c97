// Paths and patterns of a Seatbelt profile. Pure; see macos_path.h.

#include "macos_path.h"

#include <stdio.h>
#include <string.h>

// Links of every macOS, and where they lead. A filter on one of them never fits.
static const struct {
    const char *link;
    const char *leads;
} system_links[] = {
    {"/tmp", "/private/tmp"},
    {"/var", "/private/var"},
    {"/etc", "/private/etc"},
    {"/home", "/System/Volumes/Data/home"},
};

bool vj_macos_is_beneath(const char *path, const char *top) {
    size_t length = strlen(top);
    return !strncmp(path, top, length) && (path[length] == 0 || path[length] == '/');
}

const char *vj_macos_path_flaw(const char *path) {
    size_t length = strnlen(path, VJ_MACOS_STRING_MAX + 1);
    if (path[0] != '/') return "a path in a profile is absolute";
    if (length > VJ_MACOS_STRING_MAX) return "Seatbelt takes paths of 1024 bytes at most";
    if (length > 1 && path[length - 1] == '/')
        return "the kernel finds no path with a slash at its end";
    if (strstr(path, "//")) return "the kernel finds no path with two slashes in a row";
    for (const char *at = path; at; at = strchr(at + 1, '/')) {
        const char *name = at + 1;
        size_t size = strcspn(name, "/");
        if ((size == 1 && name[0] == '.') || (size == 2 && !strncmp(name, "..", 2)))
            return "the kernel finds no path with . or .. in it";
    }
    for (const unsigned char *at = (const unsigned char *)path; *at; at++) {
        if (*at < 0x20 || *at == 0x7f)
            return "a control character in a path is refused on macOS";
    }
    return NULL;
}

// Whether bytes are UTF-8, as all names of APFS and HFS+ are: others never fit.
static bool is_utf8(const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        uint32_t lead = *at++;
        if (lead < 0x80) continue;
        uint32_t more = lead >= 0xf0 && lead < 0xf5   ? 3
                        : lead >= 0xe0 && lead < 0xf0 ? 2
                        : lead >= 0xc2 && lead < 0xe0 ? 1
                                                      : 0;
        if (!more) return false;
        uint32_t value = lead & (0x3fu >> more);
        uint32_t least = more == 1 ? 0x80 : more == 2 ? 0x800 : 0x10000;
        for (; more; more--) {
            if ((*at & 0xc0) != 0x80) return false;
            value = value << 6 | (*at++ & 0x3f);
        }
        if (value < least || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
            return false;
    }
    return true;
}

vj_status vj_macos_path(const char *path, char *resolved, uint64_t capacity,
                        vj_error *error) {
    const char *wrong = vj_macos_path_flaw(path);
    if (!wrong && !is_utf8(path)) wrong = "names on macOS are UTF-8, and this is not";
    if (wrong) return vj_fail(error, VJ_REFUSED, VJ_STAGE_PLAN, 0, wrong);
    const char *start = "";
    const char *rest = path;
    for (size_t i = 0; i < sizeof system_links / sizeof *system_links; i++) {
        if (!vj_macos_is_beneath(path, system_links[i].link)) continue;
        start = system_links[i].leads;
        rest = path + strlen(system_links[i].link);
        break;
    }
    // The volume of users' files is seen through links in the root's, and the kernel
    // names a file as it is seen there.
    if (!*start && vj_macos_is_beneath(path, "/System/Volumes/Data") &&
        !vj_macos_is_beneath(path, "/System/Volumes/Data/home"))
        return vj_fail(
            error, VJ_REFUSED, VJ_STAGE_PLAN, 0,
            "the kernel does not find files by /System/Volumes/Data; write the "
            "path without that");
    size_t size = strlen(start) + strlen(rest);
    if (size > VJ_MACOS_STRING_MAX || size >= capacity)
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_PLAN, 0,
                       "Seatbelt takes paths of 1024 bytes at most");
    snprintf(resolved, capacity, "%s%s", start, rest);
    return VJ_OK;
}

bool vj_macos_either_case(const char *path, size_t fixed, size_t length, bool and_below,
                          char pattern[VJ_MACOS_STRING_MAX + 1]) {
    size_t size = 0;
    pattern[size++] = '^';
    for (size_t i = 0; i < length; i++) {
        if (size + 16 > VJ_MACOS_STRING_MAX) return false;
        char byte = path[i];
        bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
        if (i >= fixed && (unsigned char)byte >= 0x80) return false;
        if (i >= fixed && is_letter) {
            pattern[size++] = '[';
            pattern[size++] = (char)(byte & ~0x20);
            pattern[size++] = (char)(byte | 0x20);
            pattern[size++] = ']';
        } else {
            if (strchr(".^$*+?()[]{}|\\", byte)) pattern[size++] = '\\';
            pattern[size++] = byte;
        }
    }
    snprintf(pattern + size, VJ_MACOS_STRING_MAX + 1 - size, "%s",
             and_below ? "(/|$)" : "$");
    return true;
}
