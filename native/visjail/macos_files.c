// File operations in a sandbox; see macos_files.h.
//
// As on Linux: no link in the last place is followed, nothing but regular files is
// opened, and none is waited for.

#include "macos_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

#define PIECE 65536

static int write_all(int descriptor, const char *data, size_t size) {
    while (size) {
        ssize_t count = write(descriptor, data, size);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno;
        data += count;
        size -= (size_t)count;
    }
    return 0;
}

// A descriptor, or -1 with errno.
static int open_regular(const char *path, int flags) {
    int file = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644);
    struct stat status;
    if (file < 0) return -1;
    int why = fstat(file, &status)       ? errno
              : S_ISDIR(status.st_mode)  ? EISDIR
              : !S_ISREG(status.st_mode) ? EINVAL
                                         : 0;
    if (!why) return file;
    close(file);
    errno = why;
    return -1;
}

// From one descriptor to another, `left` bytes at most.
static int copy(int from, int to, uint64_t left) {
    static char data[PIECE];
    while (left) {
        ssize_t count = read(from, data, left < PIECE ? (size_t)left : PIECE);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno;
        if (!count) return 0;
        int why = write_all(to, data, (size_t)count);
        if (why) return why;
        left -= (uint64_t)count;
    }
    return 0;
}

static int do_read(const char *path, uint64_t limit) {
    int file = open_regular(path, O_RDONLY);
    if (file < 0) return errno;
    int why = copy(file, STDOUT_FILENO, limit);
    close(file);
    return why;
}

static int do_write(const char *path) {
    // Emptied only once it is known to be a regular file.
    int file = open_regular(path, O_WRONLY | O_CREAT);
    if (file < 0) return errno;
    int why = ftruncate(file, 0) ? errno : copy(STDIN_FILENO, file, UINT64_MAX);
    if (close(file) && !why) why = errno;
    return why;
}

static int do_stat(const char *path) {
    struct stat status;
    if (lstat(path, &status)) return errno;
    vj_file_status reply = {
        .size = (uint64_t)status.st_size,
        .modified_ns = (int64_t)status.st_mtimespec.tv_sec * 1000000000 +
                       status.st_mtimespec.tv_nsec,
        .mode = status.st_mode,
        .links = (uint32_t)status.st_nlink,
    };
    return write_all(STDOUT_FILENO, (const char *)&reply, sizeof reply);
}

static bool is_dot(const char *name) {
    return !strcmp(name, ".") || !strcmp(name, "..");
}

// Names until they are longer than `limit` together: the host then refuses them all.
static int do_list(const char *path, uint64_t limit) {
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *entries = folder < 0 ? NULL : fdopendir(folder);
    if (!entries) {
        int why = errno;
        if (folder >= 0) close(folder);
        return why;
    }
    uint64_t written = 0;
    int why = 0;
    while (!why && written <= limit) {
        errno = 0;
        const struct dirent *entry = readdir(entries);
        if (!entry) {
            why = errno;
            break;
        }
        if (is_dot(entry->d_name)) continue;
        size_t length = strlen(entry->d_name) + 1;
        why = write_all(STDOUT_FILENO, entry->d_name, length);
        written += length;
    }
    closedir(entries);
    return why;
}

// unlink(2) of macOS says EPERM of a folder, as it does of what the sandbox denies.
static int do_remove(const char *path) {
    if (!unlink(path)) return 0;
    int why = errno;
    if (why != EPERM && why != EISDIR) return why;
    if (!rmdir(path)) return 0;
    return errno == ENOTDIR ? why : errno;
}

static int do_realpath(const char *path) {
    char found[PATH_MAX];
    if (!realpath(path, found)) return errno;
    return write_all(STDOUT_FILENO, found, strlen(found));
}

int vj_file_operation(uint32_t file, const char *path, uint64_t limit) {
    // Beyond RLIMIT_FSIZE a write then fails with EFBIG, which can be told.
    signal(SIGXFSZ, SIG_IGN);
    switch ((vj_file)file) {
    case VJ_FILE_READ: return do_read(path, limit);
    case VJ_FILE_WRITE: return do_write(path);
    case VJ_FILE_STAT: return do_stat(path);
    case VJ_FILE_LIST: return do_list(path, limit);
    case VJ_FILE_MAKE_DIRECTORY: return mkdir(path, 0755) ? errno : 0;
    case VJ_FILE_REMOVE: return do_remove(path);
    case VJ_FILE_REALPATH: return do_realpath(path);
    case VJ_FILE_PROCESSES: break; // the host has its own list of them
    }
    return EINVAL;
}
