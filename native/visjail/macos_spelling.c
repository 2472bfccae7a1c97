// How macOS spells paths; see macos_seatbelt.h.

#include <errno.h>
#include <fcntl.h>
#include <mach-o/dyld.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/attr.h>
#include <sys/param.h>
#include <unistd.h>

#include "macos_seatbelt.h"

static vj_status failed(vj_error *error, const char *text) {
    return vj_fail(error, VJ_SYSTEM, VJ_STAGE_SOURCE, errno, text);
}

// By attributes: needs no right on the file itself, and a socket has them, too.
static vj_status ask_attributes(const char *path, char found[MAXPATHLEN],
                                vj_error *error) {
    struct {
        uint32_t size; // of what was written
        attrreference_t path;
        char bytes[MAXPATHLEN];
    } answer = {0};
    struct attrlist asked = {.bitmapcount = ATTR_BIT_MAP_COUNT,
                             .commonattr = ATTR_CMN_FULLPATH};
    if (getattrlist(path, &asked, &answer, sizeof answer, 0))
        return failed(error, "asking for the spelling of a path of the policy");
    const char *start = (const char *)&answer.path + answer.path.attr_dataoffset;
    const char *end = (const char *)&answer + sizeof answer;
    // The kernel's own numbers, used only if they stay inside of what it was given.
    if (start < answer.bytes || start >= end || !memchr(start, 0, (size_t)(end - start)))
        return vj_fail(error, VJ_SYSTEM, VJ_STAGE_SOURCE, EIO,
                       "the spelling of a path is not where it was said to be");
    if (snprintf(found, MAXPATHLEN, "%s", start) < MAXPATHLEN) return VJ_OK;
    return vj_fail(error, VJ_REFUSED, VJ_STAGE_SOURCE, ENAMETOOLONG,
                   "Seatbelt takes paths of 1024 bytes at most");
}

// By a descriptor. `*is_open` is false for what cannot be opened by this user or at all.
static vj_status ask_descriptor(const char *path, char found[MAXPATHLEN], bool *is_open,
                                vj_error *error) {
    // Only for events: what is there is neither read nor, if it is a device, touched.
    int file = open(path, O_EVTONLY | O_NONBLOCK | O_CLOEXEC);
    *is_open = file >= 0;
    if (file < 0 && (errno == EACCES || errno == EPERM || errno == EOPNOTSUPP))
        return VJ_OK;
    if (file < 0) return failed(error, "opening a path of the policy");
    int result = fcntl(file, F_GETPATH, found);
    int why = errno;
    close(file);
    errno = why;
    return result ? failed(error, "asking for a path") : VJ_OK;
}

// Which of the two a filter is compared with is not documented, so both must be the same.
vj_status vj_macos_real_path(const char *path, char *resolved, vj_error *error) {
    char named[MAXPATHLEN] = "";
    char opened[MAXPATHLEN] = "";
    bool is_open = false;
    vj_status status = ask_attributes(path, named, error);
    if (status == VJ_OK) status = ask_descriptor(path, opened, &is_open, error);
    if (status != VJ_OK) return status;
    if (is_open && strcmp(named, opened) != 0)
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_SOURCE, 0,
                       "macOS spells this path in two ways (the file may have several "
                       "names), and a rule would hold for one of them; grant a folder "
                       "above it");
    return vj_macos_path(named, resolved, VJ_MACOS_STRING_MAX + 1, error);
}

const char *vj_macos_image(uint32_t number) {
    return number < _dyld_image_count() ? _dyld_get_image_name(number) : NULL;
}

vj_status vj_macos_ignores_case(const char *path, bool *ignores, vj_error *error) {
    *ignores = true;
    errno = 0;
    long answer = pathconf(path, _PC_CASE_SENSITIVE);
    if (answer < 0 && errno) return failed(error, "asking for a volume");
    *ignores = answer != 1;
    return VJ_OK;
}
