// File operations that the host asks for, run inside the jail.
//
// The host never opens a path that a guest could have prepared: a confined
// child of a keeper does, with the rights of any program in this jail. It
// follows no link in the last place, opens nothing but regular files and
// never waits for one. The exit code is 0 or an errno.

#include "linux_init.h"
#include "linux_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <signal.h>
#include <sys/stat.h>

#define SIGNAL_SET_SIZE 8

static long write_all(int descriptor, const char *data, size_t size) {
    while (size) {
        long count = sys(SYS_write, descriptor, data, size);
        if (count == -EINTR) continue;
        if (count < 0) return count;
        data += count;
        size -= (size_t)count;
    }
    return 0;
}

static long status_of(int directory, const char *path, int flags, struct statx *status) {
    return sys(SYS_statx, directory, path, flags,
               STATX_TYPE | STATX_MODE | STATX_SIZE | STATX_MTIME | STATX_NLINK, status);
}

static long open_regular(const char *path, int flags) {
    long file = sys(SYS_openat, AT_FDCWD, path,
                    flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644);
    if (file < 0) return file;
    struct statx status = {0};
    long result = status_of((int)file, "", AT_EMPTY_PATH, &status);
    if (result == 0) {
        int type = status.stx_mode & S_IFMT;
        if (type == S_IFDIR) result = -EISDIR;
        else if (type != S_IFREG) result = -EINVAL;
    }
    if (result < 0) {
        sys(SYS_close, file);
        return result;
    }
    return file;
}

static long do_read(const char *path, uint64_t limit) {
    static char data[65536];
    VJ_AUTO_FD file = (int)open_regular(path, O_RDONLY);
    if (file < 0) return file;
    uint64_t left = limit;
    while (left) {
        size_t wanted = left < sizeof data ? (size_t)left : sizeof data;
        long count = sys(SYS_read, file, data, wanted);
        if (count <= 0) return count;
        long result = write_all(1, data, (size_t)count);
        if (result < 0) return result;
        left -= (uint64_t)count;
    }
    return 0;
}

static long do_write(const char *path) {
    static char data[65536];
    // Emptied only once it is known to be a regular file.
    VJ_AUTO_FD file = (int)open_regular(path, O_WRONLY | O_CREAT);
    if (file < 0) return file;
    long result = sys(SYS_ftruncate, file, 0);
    while (result == 0) {
        long count = sys(SYS_read, 0, data, sizeof data);
        if (count == -EINTR) continue;
        if (count <= 0) return count;
        result = write_all(file, data, (size_t)count);
    }
    return result;
}

static long do_stat(const char *path) {
    struct statx status = {0};
    long result = status_of(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &status);
    if (result < 0) return result;
    vj_file_status reply = {
        .size = status.stx_size,
        .modified_ns = status.stx_mtime.tv_sec * 1000000000 + status.stx_mtime.tv_nsec,
        .mode = status.stx_mode,
        .links = status.stx_nlink,
    };
    return write_all(1, (const char *)&reply, sizeof reply);
}

static int is_dot(const char *name) {
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

// Names until they are longer than `limit` together: the host then refuses them all.
static long do_list(const char *path, uint64_t limit) {
    static char data[65536] __attribute__((aligned(8)));
    VJ_AUTO_FD directory = (int)sys(SYS_openat, AT_FDCWD, path,
                                    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (directory < 0) return directory;
    uint64_t written = 0;
    for (;;) {
        long size = sys(SYS_getdents64, directory, data, sizeof data);
        if (size <= 0) return size;
        for (long at = 0; at < size;) {
            const vj_directory_entry *entry = (const void *)(data + at);
            if (!is_dot(entry->d_name)) {
                size_t length = strlen(entry->d_name) + 1;
                long result = write_all(1, entry->d_name, length);
                if (result < 0) return result;
                written += length;
                if (written > limit) return 0;
            }
            at += entry->d_reclen;
        }
    }
}

static long do_remove(const char *path) {
    long result = sys(SYS_unlinkat, AT_FDCWD, path, 0);
    if (result == -EISDIR) result = sys(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
    return result;
}

static long do_realpath(const char *path) {
    VJ_AUTO_FD place = (int)sys(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
    if (place < 0) return place;
    char link[64];
    vj_text text = {.data = link, .capacity = sizeof link};
    vj_text_string(&text, "/proc/self/fd/");
    vj_text_number(&text, (uint64_t)place, 10);
    char target[VJ_PATH_MAX];
    long size = sys(SYS_readlinkat, AT_FDCWD, link, target, sizeof target);
    return size < 0 ? size : write_all(1, target, (size_t)size);
}

// Beyond RLIMIT_FSIZE a write then fails with EFBIG, which can be told.
static long ignore_size_signal(void) {
    struct {
        void (*handler)(int);
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } action = {.handler = SIG_IGN};
    return sys(SYS_rt_sigaction, SIGXFSZ, &action, 0, SIGNAL_SET_SIZE);
}

static long do_operation(const vj_request *request) {
    // The path is the only argument; it stands behind the directory.
    const char *path = request->data + strlen(request->data) + 1;
    switch ((vj_file)request->message.file) {
    case VJ_FILE_READ: return do_read(path, request->message.limit);
    case VJ_FILE_WRITE: return do_write(path);
    case VJ_FILE_STAT: return do_stat(path);
    case VJ_FILE_LIST: return do_list(path, request->message.limit);
    case VJ_FILE_MAKE_DIRECTORY: return sys(SYS_mkdirat, AT_FDCWD, path, 0755);
    case VJ_FILE_REMOVE: return do_remove(path);
    case VJ_FILE_REALPATH: return do_realpath(path);
    case VJ_FILE_PROCESSES: return vj_tree_list(1, request->message.limit);
    }
    return -EINVAL;
}

int vj_file_operation(const vj_setup *setup, const vj_request *request) {
    // The broker must read the path that is about to be made. Where there is none, no
    // guest may look either: on a kernel without Landlock nothing else keeps it from
    // that.
    int looked_at = (setup->plan->flags & VJ_PLAN_BROKER_NAMES) != 0;
    long result = looked_at ? sys(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0) : 0;
    if (result == 0) result = ignore_size_signal();
    if (result == 0) result = do_operation(request);
    return result < 0 ? (int)-result : 0;
}
