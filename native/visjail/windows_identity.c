// Identifiers and descriptors of a jail on Windows. Pure; see windows_identity.h.

#include "windows_identity.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sha256.h"

// Rights by number, since two-letter words of SDDL stand for more than they seem to.
#define TRAVERSE     "0x1000a0" // SYNCHRONIZE, FILE_TRAVERSE, FILE_READ_ATTRIBUTES
#define READ_EXECUTE "0x1200a9" // FILE_GENERIC_READ and FILE_GENERIC_EXECUTE
#define MODIFY_IN    "0x1201bf" // that and FILE_GENERIC_WRITE; no DELETE, no WRITE_DAC
#define MODIFY       "0x1301bf" // the same with DELETE, for what is made inside
// PROCESS_ALL_ACCESS, which is THREAD_ALL_ACCESS, without DELETE, WRITE_DAC and
// WRITE_OWNER.
#define PROGRAM_ALL     "0x12ffff"
#define DESKTOP_WINDOWS "0x81" // DESKTOP_READOBJECTS and DESKTOP_WRITEOBJECTS

static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '.' || c == '-' || c == '_';
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static char upper(char c) {
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

vj_windows_fault vj_windows_package_name(const char *root_name, char *name, size_t size) {
    int length = snprintf(name, size, "%s%s", VJ_WINDOWS_PACKAGE_PREFIX, root_name);
    if (length < 0 || (size_t)length >= size ||
        (size_t)length > VJ_WINDOWS_PACKAGE_UNITS_MAX) {
        if (size) name[0] = 0;
        return VJ_WINDOWS_TOO_LONG;
    }
    return VJ_WINDOWS_FINE;
}

// `prefix`, and `count` numbers of the hash of the name in UTF-16, all in one case.
static vj_windows_fault name_sid(const char *name, char (*to_case)(char),
                                 const char *prefix, size_t count,
                                 char sid[VJ_WINDOWS_SID_SIZE]) {
    uint8_t units[2 * VJ_WINDOWS_PACKAGE_UNITS_MAX];
    uint8_t digest[VJ_SHA256_SIZE];
    size_t length = strlen(name);
    sid[0] = 0;
    if (!length) return VJ_WINDOWS_EMPTY;
    if (length > VJ_WINDOWS_PACKAGE_UNITS_MAX) return VJ_WINDOWS_TOO_LONG;
    for (size_t i = 0; i < length; i++) {
        if (!is_name_character(name[i])) return VJ_WINDOWS_CHARACTER;
        units[2 * i] = (uint8_t)to_case(name[i]);
        units[2 * i + 1] = 0;
    }
    vj_sha256(units, 2 * length, digest);
    size_t at = (size_t)snprintf(sid, VJ_WINDOWS_SID_SIZE, "%s", prefix);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *part = digest + 4 * i;
        uint32_t number = part[0] | (uint32_t)part[1] << 8 | (uint32_t)part[2] << 16 |
                          (uint32_t)part[3] << 24;
        at += (size_t)snprintf(sid + at, VJ_WINDOWS_SID_SIZE - at, "-%lu",
                               (unsigned long)number);
    }
    return VJ_WINDOWS_FINE;
}

vj_windows_fault vj_windows_package_sid(const char *name, char sid[VJ_WINDOWS_SID_SIZE]) {
    return name_sid(name, lower, "S-1-15-2", 7, sid);
}

vj_windows_fault vj_windows_capability_sid(const char *name,
                                           char sid[VJ_WINDOWS_SID_SIZE]) {
    return name_sid(name, upper, "S-1-15-3-1024", 8, sid);
}

size_t vj_windows_capabilities(const char *const **names) {
    static const char *const only[] = {"registryRead"};
    *names = only;
    return sizeof only / sizeof *only;
}

// Of text that goes into a descriptor unquoted.
static bool is_sid(const char *sid) {
    size_t length = strlen(sid);
    if (length >= VJ_WINDOWS_SID_SIZE || strncmp(sid, "S-1-", 4) != 0) return false;
    bool number = false;
    for (const char *at = sid + 4; *at; at++) {
        bool digit = *at >= '0' && *at <= '9';
        if (!digit && (*at != '-' || !number)) return false;
        number = digit;
    }
    return number;
}

// A guest's token is of low integrity, and the check of that comes before the list of
// rights. So what it may change has the low label; what it only reads keeps the medium
// one.
#define LOW_FOLDER "S:(ML;OICI;NW;;;LW)"
#define LOW_OBJECT "S:(ML;;NW;;;LW)"

vj_windows_fault vj_windows_sddl(vj_windows_object object, const char *owner,
                                 const char *package, char *sddl, size_t size) {
    int length = 0;
    if (!size) return VJ_WINDOWS_TOO_LONG;
    sddl[0] = 0;
    if (!is_sid(owner)) return VJ_WINDOWS_NOT_A_SID;
    bool is_hosts = object == VJ_WINDOWS_PRIVATE || object == VJ_WINDOWS_RECLAIMED;
    if (!is_hosts && !is_sid(package)) return VJ_WINDOWS_NOT_A_SID;
    switch (object) {
    case VJ_WINDOWS_ROOT:
        length =
            snprintf(sddl, size, "O:%sD:P(A;;FA;;;SY)(A;;FA;;;%s)(A;;" TRAVERSE ";;;%s)",
                     owner, owner, package);
        break;
    case VJ_WINDOWS_APP:
        length = snprintf(sddl, size,
                          "O:%sD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;%s)(A;OICI;" READ_EXECUTE
                          ";;;%s)",
                          owner, owner, package);
        break;
    case VJ_WINDOWS_WORK:
        length = snprintf(sddl, size,
                          "O:%sD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;%s)(A;;" MODIFY_IN
                          ";;;%s)(A;OICIIO;" MODIFY ";;;%s)" LOW_FOLDER,
                          owner, owner, package, package);
        break;
    case VJ_WINDOWS_DESKTOP:
        length = snprintf(sddl, size,
                          "O:%sD:P(A;;GA;;;SY)(A;;GA;;;%s)(A;;" DESKTOP_WINDOWS
                          ";;;%s)" LOW_OBJECT,
                          owner, owner, package);
        break;
    case VJ_WINDOWS_PROGRAM:
        // No label: Windows gives a process that of its token.
        length = snprintf(sddl, size,
                          "O:%sD:P(A;;GA;;;SY)(A;;GA;;;%s)(A;;" PROGRAM_ALL ";;;%s)",
                          owner, owner, package);
        break;
    case VJ_WINDOWS_PRIVATE:
        length = snprintf(sddl, size, "O:%sD:P(A;;GA;;;SY)(A;;GA;;;%s)", owner, owner);
        break;
    case VJ_WINDOWS_RECLAIMED:
        length = snprintf(sddl, size, "O:%sD:P(A;;FA;;;SY)(A;;FA;;;%s)", owner, owner);
        break;
    case VJ_WINDOWS_OBJECT_END: break;
    }
    if (length <= 0 || (size_t)length >= size) {
        sddl[0] = 0;
        return VJ_WINDOWS_TOO_LONG;
    }
    return VJ_WINDOWS_FINE;
}
