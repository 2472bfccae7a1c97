// What a path means that a guest gave. See linux_broker_target.h.

#include "linux_broker_target.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>

static int starts_with(const char *text, const char *start) {
    return !memcmp(text, start, strlen(start));
}

// "/proc/self" would be this process. The folders and files that a guest has open are
// reached by the descriptor; links of /proc that lead elsewhere are followed by no one.
long vj_target_start(uint32_t thread, int directory, const char **path) {
    static const char *const own[] = {"/proc/self/fd/", "/dev/fd/"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (!starts_with(*path, own[i])) continue;
        const char *at = *path + strlen(own[i]);
        int number = 0;
        const char *digits = at;
        while (*at >= '0' && *at <= '9' && at - digits < 9) {
            number = number * 10 + (*at++ - '0');
        }
        if (at == digits || (*at && *at != '/')) return -ELOOP;
        while (*at == '/') at++;
        *path = at;
        return vj_guest_directory(thread, number);
    }
    if ((*path)[0] == '/') {
        while (**path == '/') (*path)++;
        return sys(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0);
    }
    return vj_guest_directory(thread, directory);
}

long vj_target_open(int start, const char *path, uint64_t flags) {
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC | flags,
        .resolve = RESOLVE_NO_MAGICLINKS,
    };
    return sys(SYS_openat2, start, path[0] ? path : ".", &how, sizeof how);
}

// Split off the last name. 0, or a negative errno for a path that has none.
static long split(vj_target *wanted) {
    size_t end = strlen(wanted->text);
    while (end > 1 && wanted->text[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && wanted->text[start - 1] != '/') start--;
    wanted->name = wanted->text + start;
    wanted->length = end - start;
    int dots = wanted->name[0] == '.' &&
               (wanted->length == 1 || (wanted->length == 2 && wanted->name[1] == '.'));
    return wanted->length && !dots ? 0 : -EINVAL;
}

long vj_target_find(uint32_t thread, int directory, vj_target *wanted) {
    wanted->place.folder = -1;
    long result = split(wanted);
    if (result < 0) return result;
    char kept = wanted->name[0];
    // The folder's path ends where the name begins.
    wanted->text[wanted->name - wanted->text] = 0;
    const char *path = wanted->text;
    VJ_AUTO_FD start = (int)vj_target_start(thread, directory, &path);
    long folder = start < 0 ? start : vj_target_open(start, path, O_DIRECTORY);
    wanted->text[wanted->name - wanted->text] = kept;
    if (folder < 0) return folder;
    wanted->place.folder = (int)folder;
    result = vj_place_look_up(&wanted->place);
    if (result < 0) vj_target_forget(wanted);
    return result;
}

void vj_target_forget(vj_target *wanted) {
    vj_close_slot(&wanted->place.folder);
    wanted->place.folder = -1;
}

vj_name vj_target_verdict(const vj_target *wanted) {
    return vj_place_name(&wanted->place, wanted->name, wanted->length);
}

vj_refused vj_target_refused(const vj_target *wanted, vj_refusal_kind kind) {
    return (vj_refused){
        .kind = kind,
        .error = EACCES,
        .folder = wanted->place.path,
        .folder_length = wanted->place.length,
        .name = wanted->name,
        .name_length = wanted->length,
    };
}

int vj_target_has_slash(const vj_target *wanted) {
    return wanted->name[wanted->length] != 0;
}
