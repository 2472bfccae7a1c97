// From a spawn request to a running program.
//
// The program's process is made with vfork semantics: it shares the keeper's
// memory until it executes, so a failure is simply written down where the
// keeper reads it, and no copy of anything is made.

#include "linux_init.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/resource.h>

// Above every number that a program's descriptors can get.
#define DESCRIPTOR_PARKING   512
#define STANDARD_DESCRIPTORS 3
#define SIGNAL_SET_SIZE      8

typedef struct {
    const vj_setup *setup;
    vj_request *request;
    const char *directory;
    char **arguments;
    char **environment;
    vj_stage stage;
    long error;
} vj_start;

static long set_limit(int resource, uint64_t soft, uint64_t hard) {
    if (!soft) return 0;
    struct rlimit64 limit = {soft, hard};
    struct rlimit64 present = {0};
    long result = sys(SYS_prlimit64, 0, resource, 0, &present);
    // Only ever down: raising may need a capability, and is not ours to do.
    if (result == 0) {
        if (limit.rlim_max > present.rlim_max) limit.rlim_max = present.rlim_max;
        if (limit.rlim_cur > limit.rlim_max) limit.rlim_cur = limit.rlim_max;
        result = sys(SYS_prlimit64, 0, resource, &limit, 0);
    }
    return result;
}

// Stacks are outside of RLIMIT_DATA, and a program may raise its own soft limit.
static long bound_stack(uint64_t most) {
    struct rlimit64 limit = {0};
    long result = sys(SYS_prlimit64, 0, RLIMIT_STACK, 0, &limit);
    if (result < 0 || !most) return result;
    return set_limit(RLIMIT_STACK, limit.rlim_cur < most ? limit.rlim_cur : most, most);
}

static long apply_limits(const vj_process_limits *limits) {
    long result = set_limit(RLIMIT_NOFILE, limits->open_files, limits->open_files);
    if (result == 0)
        result = set_limit(RLIMIT_NPROC, limits->processes, limits->processes);
    if (result == 0)
        result = set_limit(RLIMIT_FSIZE, limits->file_size, limits->file_size);
    if (result == 0) result = set_limit(RLIMIT_DATA, limits->data, limits->data);
    if (result == 0) result = bound_stack(limits->data);
    // SIGXCPU at the limit, SIGKILL a second later for a guest that ignores it.
    if (result == 0) {
        result = set_limit(RLIMIT_CPU, limits->cpu_seconds, limits->cpu_seconds + 1);
    }
    if (result == 0) result = set_limit(RLIMIT_MEMLOCK, 65536, 65536);
    // It counts for the user: three queues of the usual size, a third of what there is.
    if (result == 0) result = set_limit(RLIMIT_MSGQUEUE, 262144, 262144);
    return result;
}

long vj_confine(const vj_setup *setup, vj_stage *stage) {
    *stage = VJ_STAGE_LIMITS;
    long result = apply_limits(&setup->plan->limits);
    if (result == 0 && setup->ruleset >= 0) {
        *stage = VJ_STAGE_LANDLOCK;
        result = sys(SYS_landlock_restrict_self, setup->ruleset, 0);
    }
    return result;
}

// Give each descriptor its number. They are parked high first, so that no
// target is overwritten before it has been copied. Of 0 to 2, those that the
// host does not give stay the keeper's: the jail's own /dev/null.
static long place_descriptors(const vj_request *request) {
    // Not in the request: the memory is the keeper's, the descriptors are not.
    int place[VJ_DESCRIPTORS_MAX];
    for (uint32_t i = 0; i < request->descriptor_count; i++) {
        long parked =
            sys(SYS_fcntl, request->descriptors[i], F_DUPFD_CLOEXEC, DESCRIPTOR_PARKING);
        // A caller with few descriptors: any free number above the targets.
        if (parked == -EINVAL) {
            parked = sys(SYS_fcntl, request->descriptors[i], F_DUPFD_CLOEXEC,
                         VJ_DESCRIPTORS_MAX);
        }
        if (parked < 0) return parked;
        place[i] = (int)parked;
    }
    long result = sys(SYS_close_range, STANDARD_DESCRIPTORS, ~0u, CLOSE_RANGE_CLOEXEC);
    for (uint32_t i = 0; result >= 0 && i < request->descriptor_count; i++) {
        result = sys(SYS_dup3, place[i], request->message.descriptor_numbers[i], 0);
    }
    return result < 0 ? result : 0;
}

static const char *variable(char *const *environment, const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; environment[i]; i++) {
        if (!memcmp(environment[i], name, length)) return environment[i] + length;
    }
    return 0;
}

static long enter_directory(const vj_start *start) {
    long result = sys(SYS_chdir, start->directory);
    if (result < 0 && (start->request->message.flags & VJ_SPAWN_CWD_FALLBACK)) {
        const char *home = variable(start->environment, "HOME=");
        result = home ? sys(SYS_chdir, home) : -ENOENT;
        // HOME is the guests' own: one that has closed it closes it to itself.
        if (result < 0) result = sys(SYS_chdir, "/");
    }
    return result;
}

static long execute(const vj_start *start, const char *path) {
    return sys(SYS_execve, path, start->arguments, start->environment);
}

// Like execvp: the first candidate that can be executed; a candidate without
// permission is remembered, a missing one is not.
static long execute_by_search(const vj_start *start) {
    const char *name = start->arguments[0];
    const char *path = variable(start->environment, "PATH=");
    char candidate[VJ_PATH_MAX];
    long result = -ENOENT;
    size_t name_length = strlen(name);
    while (path && *path) {
        size_t length = 0;
        while (path[length] && path[length] != ':') length++;
        if (length && length + name_length + 2 <= sizeof candidate) {
            memcpy(candidate, path, length);
            candidate[length] = '/';
            memcpy(candidate + length + 1, name, name_length + 1);
            long error = execute(start, candidate);
            if (error != -ENOENT && error != -ENOTDIR) result = error;
            if (error != -ENOENT && error != -ENOTDIR && error != -EACCES) return error;
        }
        path += length + (path[length] == ':');
    }
    return result;
}

static int fail(vj_start *start, vj_stage stage, long error) {
    start->stage = stage;
    start->error = error;
    return 125;
}

// Where the memory of a cgroup or of the machine ends, the kernel is to end a guest, and
// not the processes that would end it: without a pid namespace it would live on. To offer
// itself needs no right, but the file is root's for a process that may not be traced:
// then it is the host that ends what is left in the cgroup. No guest of such a jail opens
// /proc.
static void offer_to_end(const vj_setup *setup) {
    if (setup->plan->backend != VJ_BACKEND_LANDLOCK) return;
    VJ_AUTO_FD file = (int)sys(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj",
                               O_WRONLY | O_CLOEXEC, 0);
    if (file >= 0) sys(SYS_write, file, "1000", 4);
}

static int become_program(void *argument) {
    vj_start *start = argument;
    vj_request *request = start->request;
    uint64_t no_signals = 0;
    sys(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, 0, SIGNAL_SET_SIZE);
    long result = sys(SYS_setsid);
    if (result < 0) return fail(start, VJ_STAGE_SESSION, result);
    result = place_descriptors(request);
    if (result < 0) return fail(start, VJ_STAGE_DESCRIPTORS, result);
    if (request->message.flags & VJ_SPAWN_TERMINAL) {
        result = sys(SYS_ioctl, 0, TIOCSCTTY, 0);
        if (result < 0) return fail(start, VJ_STAGE_TERMINAL, result);
    }
    sys(SYS_umask, 022);
    offer_to_end(start->setup);
    vj_stage stage;
    result = vj_confine(start->setup, &stage);
    if (result < 0) return fail(start, stage, result);
    result = enter_directory(start);
    if (result < 0) return fail(start, VJ_STAGE_DIRECTORY, result);
    if (request->message.flags & VJ_SPAWN_FILE) {
        // No execve closes them: the keeper's channel to the host is among them.
        result = sys(SYS_close_range, STANDARD_DESCRIPTORS, ~0u, 0);
        if (result < 0) return fail(start, VJ_STAGE_DESCRIPTORS, result);
        return vj_file_operation(start->setup, request);
    }
    result = request->message.flags & VJ_SPAWN_SEARCH
                 ? execute_by_search(start)
                 : execute(start, start->arguments[0]);
    return fail(start, VJ_STAGE_EXECUTE, result);
}

// Split the strings of the request into cwd, argv and environment. Each must
// end inside the data, and there must be exactly as many as announced.
static long split_strings(vj_request *request, vj_start *start, char **table) {
    const vj_message *message = &request->message;
    char *at = request->data;
    char *end = at + message->data_size;
    uint32_t total = 1 + message->argument_count + message->environment_count;
    char *first = 0;
    for (uint32_t i = 0; i < total; i++) {
        char *string = at;
        while (at < end && *at) at++;
        if (at == end) return -EINVAL;
        at++;
        if (i == 0) {
            first = string;
        } else if (i <= message->argument_count) {
            table[i - 1] = string;
        } else {
            table[i] = string; // one further: behind the NULL of argv
        }
    }
    if (at != end) return -EINVAL;
    table[message->argument_count] = 0;
    table[total] = 0;
    start->directory = first;
    start->arguments = table;
    start->environment = table + message->argument_count + 1;
    return 0;
}

long vj_program_start(const vj_setup *setup, vj_request *request, vj_stage *stage) {
    static char *table[VJ_STRINGS_MAX + 4];
    static char stack[65536] __attribute__((aligned(16)));
    vj_start start = {.setup = setup, .request = request};
    const vj_message *message = &request->message;
    *stage = VJ_STAGE_REQUEST;
    if (message->argument_count + message->environment_count > VJ_STRINGS_MAX ||
        message->argument_count == 0) {
        return -E2BIG;
    }
    for (uint32_t i = 0; i < request->descriptor_count; i++) {
        int32_t number = message->descriptor_numbers[i];
        if (number < 0 || number >= (int32_t)VJ_DESCRIPTORS_MAX) return -EBADF;
    }
    long result = split_strings(request, &start, table);
    if (result < 0) return result;

    if (message->flags & VJ_SPAWN_FILE) {
        // No program is executed, so nothing would end the sharing of memory.
        long pid = sys(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) vj_exit_process(become_program(&start));
        *stage = VJ_STAGE_PROCESS;
        return pid;
    }
    long pid = vj_spawn_shared(become_program, &start, stack + sizeof stack);
    if (pid < 0) {
        *stage = VJ_STAGE_PROCESS;
        return pid;
    }
    if (start.stage) {
        sys(SYS_wait4, pid, 0, 0, 0);
        *stage = start.stage;
        return start.error;
    }
    return pid;
}
