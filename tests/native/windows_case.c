// See windows_case.h.

#include "windows_case.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];

void check(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "not so: %s\n", what);
    abort();
}

vj_windows_error *case_error(void) {
    static _Thread_local vj_windows_error error;
    error = (vj_windows_error){.size = sizeof error, .version = VJ_WINDOWS_VERSION};
    return &error;
}

static _Thread_local vj_windows_error *last;

void check_status(vj_windows_status is, vj_windows_status wanted, const char *what) {
    if (is == wanted) return;
    fprintf(stderr, "%s: status %d, not %d (%s: %s)\n", what, (int)is, (int)wanted,
            last ? last->step : "", last ? last->text : "");
    abort();
}

vj_windows_text text_of(const char *text) {
    return (vj_windows_text){text, strlen(text)};
}

const char *case_path(const char *below) {
    static _Thread_local char paths[4][512];
    static _Thread_local unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, below);
    return path;
}

void case_write(const char *below, const char *content) {
    int file = open(case_path(below), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(file >= 0 && write(file, content, strlen(content)) == (ssize_t)strlen(content),
          below);
    close(file);
}

char *case_read(const char *below, char *to, size_t room) {
    int file = open(case_path(below), O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, to, room - 1);
    to[size < 0 ? 0 : size] = 0;
    if (file >= 0) close(file);
    return to;
}

bool case_exists(const char *below) {
    struct stat status;
    return !lstat(case_path(below), &status);
}

static unsigned count_below(const char *path) {
    unsigned count = 0;
    DIR *listing = opendir(path);
    const struct dirent *entry;
    while (listing && (entry = readdir(listing))) {
        char below[1024];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        count += 1 + (entry->d_type == DT_DIR ? count_below(below) : 0);
    }
    if (listing) closedir(listing);
    return count;
}

unsigned case_files(void) {
    return count_below(case_path("jails"));
}

static void remove_below(const char *path) {
    DIR *listing = opendir(path);
    const struct dirent *entry;
    while (listing && (entry = readdir(listing))) {
        char below[1024];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR) remove_below(below);
        else unlink(below);
    }
    if (listing) closedir(listing);
    rmdir(path);
}

void case_begin(void) {
    // In memory where there is such a place: hundreds of contexts come and go here.
    const char *folder = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(directory, sizeof directory, "%s/visjail-XXXXXX", folder);
    check(mkdtemp(directory) != NULL, "a directory");
    mkdir(case_path("jails"), 0700);
    mkdir(case_path("sources"), 0700);
    mkdir(case_path("sources/lib"), 0700);
    mkdir(case_path("sources/lib/deep"), 0700);
    case_write("sources/guest.exe", "a program");
    case_write("sources/lib/one.py", "one = 1");
    case_write("sources/lib/deep/two.py", "two = 2");
    fake_begin(directory);
}

void case_end(void) {
    check(!fake_left(true), "nothing is left of any jail");
    fake_end();
    remove_below(directory);
}

vj_windows_status create(vj_windows_id *context, vj_windows_context_info *info,
                         uint32_t flags) {
    vj_windows_context_info own = {.size = sizeof own, .version = VJ_WINDOWS_VERSION};
    const vj_windows_create_options options = {.size = sizeof options,
                                               .version = VJ_WINDOWS_VERSION,
                                               .parent = text_of("C:\\jails"),
                                               .flags = flags};
    last = case_error();
    vj_windows_status status = vj_windows_create(&options, context, &own, last);
    if (info) *info = own;
    return status;
}

vj_windows_status stage(vj_windows_id context, const char *source,
                        const char *destination) {
    const vj_windows_source one = {text_of(source), text_of(destination)};
    const vj_windows_stage_request request = {.size = sizeof request,
                                              .version = VJ_WINDOWS_VERSION,
                                              .sources = &one,
                                              .source_count = 1};
    vj_windows_stage_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    last = case_error();
    return vj_windows_stage(context, &request, &info, last);
}

vj_windows_status spawn(vj_windows_id context, const char *script, uint32_t flags,
                        vj_windows_spawn_info *info) {
    char arguments[128] = "guest";
    size_t size = 6;
    uint32_t count = 1;
    char words[64];
    snprintf(words, sizeof words, "%s", script);
    char *rest = NULL;
    for (char *word = strtok_r(words, " ", &rest); word;
         word = strtok_r(NULL, " ", &rest)) {
        size +=
            (size_t)snprintf(arguments + size, sizeof arguments - size, "%s", word) + 1;
        count++;
    }
    const vj_windows_spawn_request request = {
        .size = sizeof request,
        .version = VJ_WINDOWS_VERSION,
        .application = text_of("C:\\sources\\guest.exe"),
        .arguments = {arguments, size},
        .argument_count = count,
        .flags = flags,
        .columns = 80,
        .rows = 25,
    };
    info->size = sizeof *info;
    info->version = VJ_WINDOWS_VERSION;
    last = case_error();
    return vj_windows_spawn(context, &request, info, last);
}

vj_windows_id sealed_context(uint32_t flags) {
    vj_windows_id context = 0;
    check_status(create(&context, NULL, flags), VJ_WINDOWS_OK, "create");
    last = case_error();
    check_status(vj_windows_seal(context, last), VJ_WINDOWS_OK, "seal");
    return context;
}

const char *below_jails(const vj_windows_context_info *info, const char *name) {
    static _Thread_local char paths[4][512];
    static _Thread_local unsigned turn;
    char *path = paths[turn++ % 4];
    // "C:\jails\vj-..." is jails/vj-...
    snprintf(path, sizeof paths[0], "jails/%s%s%s", strrchr(info->root, '\\') + 1,
             name[0] ? "/" : "", name);
    return path;
}

void close_context(vj_windows_id context) {
    check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_OK, "close");
}
