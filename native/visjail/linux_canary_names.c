// The canary of a name that must not be made: every way to make one is tried.
//
// What is made although it must not be is taken away at once; the answer then ends
// the jail. Where the name is held, nothing is ever there to be seen by the host.
//
// Guests of other jails may write on the way and exchange a folder for a link at any
// time. So the folder is opened once, without links, and nothing is made or removed but
// by its descriptor and the last name: what they reach so, they may write themselves.

#include "linux_canary.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/stat.h>

#define SOURCES_MAX  4 // entries beside the name that are tried as its source
#define RANDOM_BYTES 8

static int is_dot(const char *name) {
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

// 0: it was made, and is gone again.
static long take_away(int folder, const char *name, int flags) {
    long result = sys(SYS_unlinkat, folder, name, flags);
    return result < 0 && result != -ENOENT ? -result : 0;
}

static long make_file(int folder, const char *name) {
    long file = sys(SYS_openat, folder, name,
                    O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return file;
    sys(SYS_close, file);
    return take_away(folder, name, 0);
}

static long make_directory(int folder, const char *name) {
    long result = sys(SYS_mkdirat, folder, name, 0700);
    return result < 0 ? result : take_away(folder, name, AT_REMOVEDIR);
}

static long make_link(int folder, const char *name) {
    long result = sys(SYS_symlinkat, ".", folder, name);
    return result < 0 ? result : take_away(folder, name, 0);
}

static long make_node(int folder, const char *name, unsigned type) {
    long result = sys(SYS_mknodat, folder, name, type | 0600, 0);
    return result < 0 ? result : take_away(folder, name, 0);
}

// A second name for what stands beside it, and that thing moved to it. An entry that
// is mounted, or that is another user's, is refused for reasons of its own.
static long take_entry(int folder, const char *entry, int is_directory,
                       const char *name) {
    long result =
        is_directory ? -EACCES : sys(SYS_linkat, folder, entry, folder, name, 0);
    if (result == 0) return take_away(folder, name, 0);
    result = sys(SYS_renameat2, folder, entry, folder, name, RENAME_NOREPLACE);
    if (result < 0) return -EACCES;
    result = sys(SYS_renameat2, folder, name, folder, entry, RENAME_NOREPLACE);
    return result < 0 && result != -ENOENT ? -result : 0;
}

static long take_entries(int folder, const char *name) {
    static char data[32768] __attribute__((aligned(8)));
    VJ_AUTO_FD list =
        (int)sys(SYS_openat, folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (list < 0) return -EACCES; // a folder that the guest may not list
    long size = sys(SYS_getdents64, list, data, sizeof data);
    int tried = 0;
    for (long at = 0; at < size && tried < SOURCES_MAX;) {
        const vj_directory_entry *entry = (const void *)(data + at);
        at += entry->d_reclen;
        int is_directory = entry->d_type == VJ_ENTRY_DIRECTORY;
        if (is_dot(entry->d_name) || (!is_directory && entry->d_type != VJ_ENTRY_REGULAR))
            continue;
        tried++;
        long result = take_entry(folder, entry->d_name, is_directory, name);
        if (result >= 0) return result;
    }
    return -EACCES;
}

static int is_denied(long answer) {
    return answer == -EACCES || answer == -EROFS;
}

// A folder that is gone, or a link now, was there when the host looked.
static long open_folder(const char *path, const char **name) {
    long folder = vj_open_above(AT_FDCWD, path, name);
    int is_moved = folder == -ELOOP || folder == -ENOTDIR || folder == -ENOENT;
    return is_moved ? -ESTALE : folder;
}

long vj_canary_make_simply(const char *path) {
    const char *name = 0;
    VJ_AUTO_FD folder = (int)open_folder(path, &name);
    if (folder < 0) return folder;
    long file = make_file(folder, name);
    return is_denied(file) ? make_directory(folder, name) : file;
}

long vj_canary_make(const char *path) {
    const char *name = 0;
    VJ_AUTO_FD folder = (int)open_folder(path, &name);
    if (folder < 0) return folder;
    const long answers[] = {
        make_file(folder, name),          make_directory(folder, name),
        make_link(folder, name),          make_node(folder, name, S_IFIFO),
        make_node(folder, name, S_IFREG), make_node(folder, name, S_IFSOCK),
        take_entries(folder, name),
    };
    long answer = answers[0];
    for (size_t i = 1; i < sizeof answers / sizeof *answers; i++) {
        if (answer <= 0 && !is_denied(answers[i])) answer = answers[i];
    }
    return answer;
}

long vj_canary_make_directory_in(int folder) {
    vj_canary_name name;
    long result = vj_canary_name_choose(&name);
    return result < 0 ? result : make_directory(folder, name.text);
}

long vj_canary_name_choose(vj_canary_name *name) {
    uint64_t number = 0;
    long size = sys(SYS_getrandom, &number, RANDOM_BYTES, 0);
    if (size != RANDOM_BYTES) return size < 0 ? size : -EIO;
    vj_text text = {.data = name->text, .capacity = sizeof name->text};
    vj_text_string(&text, ".visruntime-");
    vj_text_number(&text, number, 16);
    return text.overflow ? -ENAMETOOLONG : 0;
}
