// The canary of a name that must not be made: every way to make one is tried.
//
// What is made although it must not be is taken away at once; the answer then ends
// the jail. Where the name is held, nothing is ever there to be seen by the host.

#include "linux_canary.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/stat.h>

#define SOURCES_MAX 4 // entries beside the name that are tried as its source

static int is_dot(const char *name) {
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

static long make_file(const char *path) {
    long file = sys(SYS_openat, AT_FDCWD, path,
                    O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return file;
    sys(SYS_close, file);
    sys(SYS_unlinkat, AT_FDCWD, path, 0);
    return 0;
}

static long make_directory(const char *path) {
    long result = sys(SYS_mkdirat, AT_FDCWD, path, 0700);
    if (result == 0) sys(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
    return result;
}

static long make_link(const char *path) {
    long result = sys(SYS_symlinkat, ".", AT_FDCWD, path);
    if (result == 0) sys(SYS_unlinkat, AT_FDCWD, path, 0);
    return result;
}

static long make_node(const char *path, unsigned type) {
    long result = sys(SYS_mknodat, AT_FDCWD, path, type | 0600, 0);
    if (result == 0) sys(SYS_unlinkat, AT_FDCWD, path, 0);
    return result;
}

// A second name for what stands beside it, and that thing moved to it. An entry that
// is mounted, or that is another user's, is refused for reasons of its own.
static long take_entry(int folder, const char *entry, int is_directory,
                       const char *name) {
    long result =
        is_directory ? -EACCES : sys(SYS_linkat, folder, entry, folder, name, 0);
    if (result == 0) sys(SYS_unlinkat, folder, name, 0);
    if (result == 0) return 0;
    result = sys(SYS_renameat2, folder, entry, folder, name, RENAME_NOREPLACE);
    if (result == 0) sys(SYS_renameat2, folder, name, folder, entry, RENAME_NOREPLACE);
    return result == 0 ? 0 : -EACCES;
}

static long take_entries(const char *path) {
    static char data[32768] __attribute__((aligned(8)));
    char above[VJ_PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof above) return -ENAMETOOLONG;
    memcpy(above, path, length + 1);
    while (length > 1 && above[length - 1] != '/') length--;
    above[length] = 0;
    VJ_AUTO_FD folder = (int)sys(SYS_openat, AT_FDCWD, above,
                                 O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (folder < 0) return -EACCES; // a folder that the guest may not list
    long size = sys(SYS_getdents64, folder, data, sizeof data);
    int tried = 0;
    for (long at = 0; at < size && tried < SOURCES_MAX;) {
        const vj_directory_entry *entry = (const void *)(data + at);
        at += entry->d_reclen;
        int is_directory = entry->d_type == VJ_ENTRY_DIRECTORY;
        if (is_dot(entry->d_name) || (!is_directory && entry->d_type != VJ_ENTRY_REGULAR))
            continue;
        tried++;
        if (take_entry(folder, entry->d_name, is_directory, path + length) == 0) return 0;
    }
    return -EACCES;
}

static int is_denied(long answer) {
    return answer == -EACCES || answer == -EROFS;
}

long vj_canary_make_simply(const char *path) {
    long file = make_file(path);
    return is_denied(file) ? make_directory(path) : file;
}

long vj_canary_make(const char *path) {
    const long answers[] = {
        make_file(path),          make_directory(path),     make_link(path),
        make_node(path, S_IFIFO), make_node(path, S_IFREG), make_node(path, S_IFSOCK),
        take_entries(path),
    };
    long answer = answers[0];
    for (size_t i = 1; i < sizeof answers / sizeof *answers; i++) {
        if (!is_denied(answers[i])) answer = answers[i];
    }
    return answer;
}
