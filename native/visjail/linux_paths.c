// Paths of a plan: opened without following any link, and compared with the plan.

#include "linux_init.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>

// With O_PATH and O_NOFOLLOW a link that stands last is opened itself (openat2(2)).
#define ITSELF (O_PATH | O_CLOEXEC | O_NOFOLLOW)

// Component by component: a link on the way is opened itself, and is no folder.
static long walk(int directory, const char *path) {
    char name[256];
    const char *first = path[0] == '/' ? "/" : ".";
    long here = sys(SYS_openat, directory, first, ITSELF, 0);
    while (here >= 0 && *path) {
        size_t length = 0;
        while (path[length] && path[length] != '/') length++;
        if (length >= sizeof name) {
            sys(SYS_close, here);
            return -ENAMETOOLONG;
        }
        memcpy(name, path, length);
        name[length] = 0;
        path += length + (path[length] == '/');
        if (!length) continue;
        long next = sys(SYS_openat, here, name, ITSELF, 0);
        sys(SYS_close, here);
        here = next;
    }
    return here;
}

static long open_itself(int directory, const char *path, int is_link, long otherwise) {
    struct open_how how = {
        .flags = ITSELF,
        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long place = sys(SYS_openat2, directory, path, &how, sizeof how);
    // Inside another jail the filter says that there is no such call.
    if (place == -ENOSYS) place = walk(directory, path);
    if (place < 0) return place;
    struct statx status = {0};
    long result = sys(SYS_statx, place, "", AT_EMPTY_PATH, STATX_TYPE, &status);
    if (result == 0 && ((status.stx_mode & S_IFMT) == S_IFLNK) == is_link) return place;
    sys(SYS_close, place);
    return result < 0 ? result : otherwise;
}

long vj_open_no_links(int directory, const char *path) {
    return open_itself(directory, path, 0, -ELOOP);
}

long vj_open_link(int directory, const char *path) {
    return open_itself(directory, path, 1, -ESTALE);
}

long vj_open_above(int directory, const char *path, const char **name) {
    char above[VJ_PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof above) return -ENAMETOOLONG;
    while (length && path[length - 1] != '/') length--;
    *name = path + length;
    while (length > 1 && path[length - 1] == '/') length--;
    memcpy(above, path, length);
    above[length] = 0;
    return vj_open_no_links(directory, length ? above : ".");
}

long vj_same_object(int descriptor, uint64_t device, uint64_t inode) {
    struct statx status = {0};
    long result =
        sys(SYS_statx, descriptor, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &status);
    if (result < 0) return result;
    uint64_t present = (uint64_t)status.stx_dev_major << 32 | status.stx_dev_minor;
    return device == present && status.stx_ino == inode ? 0 : -ESTALE;
}

// For the bytes of a file that everybody may read. A name can be exchanged at any time,
// so what was opened must be what stands there without any link.
long vj_open_public_file(const char *path) {
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;
    struct statx status = {0};
    VJ_AUTO_FD place = (int)vj_open_no_links(AT_FDCWD, path);
    if (place < 0) return place;
    long result = sys(SYS_statx, place, "", AT_EMPTY_PATH,
                      STATX_TYPE | STATX_MODE | STATX_INO, &status);
    if (result < 0) return result;
    if (!S_ISREG(status.stx_mode) || !(status.stx_mode & S_IROTH)) return -EACCES;
    long file = sys(SYS_openat, AT_FDCWD, path, flags, 0);
    if (file < 0) return file;
    uint64_t device = (uint64_t)status.stx_dev_major << 32 | status.stx_dev_minor;
    result = vj_same_object((int)file, device, status.stx_ino);
    if (result == 0) return file;
    sys(SYS_close, file);
    return result;
}
