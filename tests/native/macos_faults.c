// Each call of the system that starting a program makes fails once: nothing may be left.
//
//   macos-faults HELPER WATCHER
//
// The calls come here by the linker's --wrap. They fail only while vj_macos_start runs,
// in this process, and each start lets one more of them go well than the one before.
// Prints how many failed.

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/event.h>
#include <sys/wait.h>
#include <unistd.h>

#include "macos_seatbelt.h"

#define BOUND_NS 10000000000u

static long left_to_go = -1; // calls that go well before one fails; -1: none fails

static bool fails(int number) {
    if (left_to_go < 0 || left_to_go--) return false;
    errno = number;
    return true;
}

int __real_pipe(int ends[2]);
int __wrap_pipe(int ends[2]);
int __wrap_pipe(int ends[2]) {
    return fails(EMFILE) ? -1 : __real_pipe(ends);
}

int __real_darwin_fcntl(int file, int command, void *argument);
int __wrap_darwin_fcntl(int file, int command, void *argument);
int __wrap_darwin_fcntl(int file, int command, void *argument) {
    return fails(EMFILE) ? -1 : __real_darwin_fcntl(file, command, argument);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) {
    return fails(ENOMEM) ? NULL : __real_calloc(count, size);
}

int __real_kqueue(void);
int __wrap_kqueue(void);
int __wrap_kqueue(void) {
    return fails(EMFILE) ? -1 : __real_kqueue();
}

int __real_kevent(int queue, const struct kevent *changes, int count,
                  struct kevent *events, int room, const struct timespec *time);
int __wrap_kevent(int queue, const struct kevent *changes, int count,
                  struct kevent *events, int room, const struct timespec *time);
int __wrap_kevent(int queue, const struct kevent *changes, int count,
                  struct kevent *events, int room, const struct timespec *time) {
    if (fails(ENOMEM)) return -1;
    return __real_kevent(queue, changes, count, events, room, time);
}

ssize_t __real_write(int file, const void *data, size_t size);
ssize_t __wrap_write(int file, const void *data, size_t size);
ssize_t __wrap_write(int file, const void *data, size_t size) {
    return fails(EPIPE) ? -1 : __real_write(file, data, size);
}

ssize_t __real_read(int file, void *data, size_t size);
ssize_t __wrap_read(int file, void *data, size_t size);
ssize_t __wrap_read(int file, void *data, size_t size) {
    return fails(EIO) ? -1 : __real_read(file, data, size);
}

int __real_posix_spawn(pid_t *process, const char *path,
                       const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const arguments[],
                       char *const variables[]);
int __wrap_posix_spawn(pid_t *process, const char *path,
                       const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const arguments[],
                       char *const variables[]);
int __wrap_posix_spawn(pid_t *process, const char *path,
                       const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const arguments[],
                       char *const variables[]) {
    if (fails(EAGAIN)) return EAGAIN;
    return __real_posix_spawn(process, path, actions, attributes, arguments, variables);
}

int __real_posix_spawnattr_init(posix_spawnattr_t *attributes);
int __wrap_posix_spawnattr_init(posix_spawnattr_t *attributes);
int __wrap_posix_spawnattr_init(posix_spawnattr_t *attributes) {
    return fails(ENOMEM) ? ENOMEM : __real_posix_spawnattr_init(attributes);
}

int __real_posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from,
                                            int to);
int __wrap_posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from,
                                            int to);
int __wrap_posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from,
                                            int to) {
    if (fails(ENOMEM)) return ENOMEM;
    return __real_posix_spawn_file_actions_adddup2(actions, from, to);
}

// Descriptors, but for those of the queues that are made of Linux, which closes fewer.
static int count_descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry;
         entry = readdir(folder)) {
        char path[300];
        char target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) < 0) continue;
        count += !strstr(target, "pidfd") && !strstr(target, "eventfd");
    }
    if (folder) closedir(folder);
    return count;
}

static int wrong(long number, const char *what, const vj_error *error) {
    fprintf(stderr, "call %ld: %s: %s\n", number, what, error->text);
    return 1;
}

// Start a program with the call `number` failing. 0: as it must be, `*is_over` if no call
// failed; 1: not.
static int start_once(const vj_macos_spawn *spawn, long number, bool *is_over) {
    vj_macos_run *run = NULL;
    vj_error error = {0};
    int before = count_descriptors();
    left_to_go = number;
    vj_status status = vj_macos_start(spawn, &run, &error);
    *is_over = left_to_go >= 0;
    left_to_go = -1;
    if (status == VJ_OK) {
        uint32_t left = 0;
        if (vj_macos_run_end(run, 0, BOUND_NS, &left, &error) != VJ_OK || left)
            return wrong(number, "the jail was not ended", &error);
        vj_macos_run_free(run);
    } else if (run || !error.text[0]) {
        return wrong(number, "a failure without a word", &error);
    }
    if (*is_over && status != VJ_OK) return wrong(number, "nothing failed", &error);
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
        return wrong(number, "a process is left", &error);
    if (count_descriptors() != before)
        return wrong(number, "a descriptor is left", &error);
    return 0;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    char marker[VJ_MARKER_SIZE];
    vj_macos_marker(marker);
    const char *services[] = {marker};
    vj_macos_settings settings = {.size = sizeof settings,
                                  .version = VJ_MACOS_PROFILE_VERSION,
                                  .services = services,
                                  .service_count = 1};
    vj_macos_profile profile;
    vj_error error;
    if (vj_macos_profile_build(&settings, NULL, 0, &profile, &error) != VJ_OK) return 2;
    const char *program[] = {"/bin/sleep", "60"};
    vj_macos_spawn spawn = {.size = sizeof spawn,
                            .version = VJ_MACOS_SPAWN_VERSION,
                            .argument_count = 2,
                            .helper = arguments[1],
                            .watcher = arguments[2],
                            .profile = &profile,
                            .marker = marker,
                            .arguments = program,
                            .directory = "/",
                            .timeout_ns = BOUND_NS};
    for (int i = 0; i < VJ_BRIEF_DESCRIPTORS; i++) spawn.descriptors[i] = i < 3 ? i : -1;
    long number = 0;
    for (bool is_over = false; !is_over; number++) {
        if (start_once(&spawn, number, &is_over)) return 1;
    }
    printf("%ld\n", number - 1);
    vj_macos_profile_free(&profile);
    return 0;
}
