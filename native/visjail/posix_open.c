// Opening a jail, from the host: start visjail-init or bwrap, and wait until the
// jail is ready or has failed. The host never forks its own memory.
//
// Who is whose child depends on the back end. visjail-init's namespaces: pid 1 is a
// direct child, and the process that made it is gone once the jail is ready.
// bubblewrap: bwrap is the child and stays, pid 1 is its. Landlock alone: what was
// started is the supervisor itself, "pid 1" only in name.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plan.h"
#include "posix_process.h"

#define OPEN_TIMEOUT_MS 30000

// After a failure, for the process that made pid 1 to tell of it and to end.
#define LEAVE_TIMEOUT_MS 2000

int vj_sealed_memory(const char *name, const void *data, size_t size) {
    int memory = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0) return -1;
    size_t done = 0;
    while (done < size) {
        ssize_t count = write(memory, (const char *)data + done, size - done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        done += (size_t)count;
    }
    int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    if (done == size && fcntl(memory, F_ADD_SEALS, seals) == 0) return memory;
    int saved = errno;
    close(memory);
    errno = saved;
    return -1;
}

// A duplicate that the dup2 actions of a start cannot overwrite.
static int duplicate_above_reserved(int descriptor) {
    int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, VJ_FD_FIRST_FREE);
    // The least number is beyond RLIMIT_NOFILE already (fcntl(2)).
    if (copy < 0 && errno == EINVAL) errno = EMFILE;
    return copy;
}

// A descriptor that the dup2 actions of a start cannot overwrite.
int vj_above_reserved(int descriptor) {
    if (descriptor < 0 || descriptor >= VJ_FD_FIRST_FREE) return descriptor;
    int moved = duplicate_above_reserved(descriptor);
    int saved = errno;
    close(descriptor);
    errno = saved;
    return moved;
}

int vj_launch_start(const vj_launch *launch, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    char *environment[] = {NULL};
    int result = posix_spawn_file_actions_init(&actions);
    if (result) return result;
    result = posix_spawnattr_init(&attributes);
    if (!result) {
        posix_spawnattr_setsigdefault(&attributes, &all);
        posix_spawnattr_setsigmask(&attributes, &none);
        short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
        if (launch->session) flags |= POSIX_SPAWN_SETSID;
        posix_spawnattr_setflags(&attributes, flags);
        for (uint32_t i = 0; !result && i < launch->count; i++) {
            result = posix_spawn_file_actions_adddup2(&actions, launch->descriptors[i],
                                                      launch->numbers[i]);
        }
        if (!result) {
            result = posix_spawn(pid, launch->program, &actions, &attributes,
                                 launch->arguments, environment);
        }
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return result;
}

// The pid of a pidfd in this pid namespace; a process that made its own pidfd could
// only say what it is called in another one.
static int32_t pid_of(int process) {
    char path[64];
    char text[1024];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    if (size < 0) return 0;
    text[size] = 0;
    const char *line = strstr(text, "Pid:");
    return line ? (int32_t)strtol(line + 4, NULL, 10) : 0;
}

// Read messages until pid 1 exists and the jail is ready, or it has failed.
static vj_status await_ready(vj_jail *jail, vj_jail_info *info, vj_error *error) {
    bool ready = false;
    int64_t deadline = vj_now_ns() + (int64_t)OPEN_TIMEOUT_MS * 1000000;
    while (!ready || jail->process < 0 || jail->spare < 0) {
        struct pollfd event = {.fd = jail->control, .events = POLLIN};
        int64_t left = (deadline - vj_now_ns()) / 1000000;
        if (left <= 0) {
            return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, ETIMEDOUT,
                           "the start took too long");
        }
        // A signal may not leave half a jail behind: keep waiting.
        if (poll(&event, 1, (int)left) <= 0) continue;
        vj_message message;
        int descriptors[VJ_DESCRIPTORS_MAX];
        uint32_t count;
        int32_t answers[VJ_ANSWERS_MAX];
        vj_status status = vj_receive_with(jail->control, 0, &message, answers,
                                           sizeof answers, descriptors, &count, error);
        if (status == VJ_INTERRUPTED) continue;
        if (status != VJ_OK) return status;
        if (message.kind == VJ_MESSAGE_FAILED) {
            vj_close_all(descriptors, count);
            return vj_failure_of(&message, error);
        }
        if (message.kind == VJ_MESSAGE_PROCESS && count == 1 && jail->process < 0) {
            jail->process = descriptors[0];
            info->pid = message.pid ? message.pid : pid_of(jail->process);
        } else if (message.kind == VJ_MESSAGE_READY && count <= 1) {
            ready = true;
            if (count) status = vj_refusals_map(descriptors[0], &jail->refusals, error);
            vj_close_all(descriptors, count);
            if (status != VJ_OK) return status;
            info->landlock_abi = message.landlock_abi;
            info->guest_id = message.guest_id;
            info->identity = message.identity;
            info->flags = message.flags;
            info->answer_count = message.data_size / (uint32_t)sizeof *answers;
            memcpy(info->answers, answers, message.data_size);
        } else if (message.kind == VJ_MESSAGE_PORTS && !count &&
                   message.data_size <= sizeof info->ports) {
            info->port_count = message.data_size / (uint32_t)sizeof *answers;
            memcpy(info->ports, answers, message.data_size);
        } else if (message.kind == VJ_MESSAGE_KEEPER && count == 1 && jail->spare < 0) {
            jail->spare = descriptors[0];
        } else {
            vj_close_all(descriptors, count);
            return vj_fail(error, VJ_SYSTEM, message.stage, message.error,
                           vj_stage_name(message.stage));
        }
    }
    return VJ_OK;
}

// Take the pid 1 of a failed start, whose failure overtook the news of its birth.
static void find_process(vj_jail *jail) {
    vj_status status = VJ_OK;
    while (jail->process < 0 && (status == VJ_OK || status == VJ_INTERRUPTED)) {
        vj_error ignored; // nothing more to come, or the other end is gone
        vj_message message;
        int descriptors[VJ_DESCRIPTORS_MAX];
        uint32_t count;
        int32_t answers[VJ_ANSWERS_MAX];
        status = vj_receive_with(jail->control, MSG_DONTWAIT, &message, answers,
                                 sizeof answers, descriptors, &count, &ignored);
        if (status != VJ_OK) continue;
        if (message.kind == VJ_MESSAGE_PROCESS && count == 1) {
            jail->process = descriptors[0];
        } else {
            vj_close_all(descriptors, count);
        }
    }
}

// End the process that made pid 1. After a failure it first gets time to end by
// itself: killed between the birth and the news of it, it would leave a pid 1
// that nobody knows.
static void end_outer(int outer, bool failed) {
    if (outer < 0) return; // it has ended before anybody could look
    int64_t deadline = vj_now_ns() + (int64_t)LEAVE_TIMEOUT_MS * 1000000;
    struct pollfd event = {.fd = outer, .events = POLLIN};
    while (failed) {
        int64_t left = (deadline - vj_now_ns()) / 1000000;
        if (left <= 0 || poll(&event, 1, (int)left) > 0) break;
    }
    vj_process_end(outer, true);
    close(outer);
}

typedef struct {
    const char *init_path;
    const vj_plan *plan;
    const vj_jail_options *options;
    vj_jail *jail;
    vj_groups groups; // copies, which are closed after the start
    int host;
    int memory; // the plan
    int calls;
    int status; // of this process, in /proc
    int errors; // what bwrap says
    int outer;  // pidfd of what was started
    pid_t pid;
} opening;

uint32_t vj_groups_place(const vj_groups *groups, int *descriptors, int *numbers) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < groups->count; i++, count++) {
        descriptors[count] = groups->members[i];
        numbers[count] = VJ_FD_GROUPS + (int)i;
    }
    for (uint32_t i = 0; i < groups->counter_count; i++, count++) {
        descriptors[count] = groups->counters[i];
        numbers[count] = VJ_FD_COUNTERS + (int)i;
    }
    return count;
}

#define FIXED_COUNT 5

static vj_status start_native(opening *open, int control, vj_error *error) {
    int descriptors[FIXED_COUNT + VJ_GROUP_FILES_MAX] = {
        control, open->host, open->memory, open->calls, open->status,
    };
    int numbers[FIXED_COUNT + VJ_GROUP_FILES_MAX] = {
        VJ_FD_CONTROL, VJ_FD_HOST, VJ_FD_PLAN, VJ_FD_CALLS, VJ_FD_STATUS,
    };
    uint32_t files =
        vj_groups_place(&open->groups, descriptors + FIXED_COUNT, numbers + FIXED_COUNT);
    char *arguments[] = {"visjail-init", NULL};
    const vj_launch launch = {
        .program = open->init_path,
        .arguments = arguments,
        .descriptors = descriptors,
        .numbers = numbers,
        .count = FIXED_COUNT + files,
        // The signals of the host's terminal are for the host. Pid 1 of a pid
        // namespace does not get them; this supervisor would.
        .session = open->plan->backend == VJ_BACKEND_LANDLOCK,
    };
    int result = vj_launch_start(&launch, &open->pid);
    if (!result) return VJ_OK;
    return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, result, open->init_path);
}

static vj_status start_process(opening *open, int control, vj_error *error) {
    if (open->plan->backend != VJ_BACKEND_BUBBLEWRAP) {
        return start_native(open, control, error);
    }
    const vj_bubblewrap start = {
        .init_path = open->init_path,
        .plan = open->plan,
        .options = open->options,
        .control = control,
        .host = open->host,
        .memory = open->memory,
        .calls = open->calls,
        .status = open->status,
        .errors = open->errors,
        .groups = &open->groups,
    };
    return vj_bubblewrap_start(&start, &open->pid, error);
}

// Start what makes the jail: `open->outer` gets a pidfd of it.
static vj_status start_outer(opening *open, vj_error *error) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, errno, "socketpair");
    }
    int result = 0;
    open->jail->control = vj_above_reserved(pair[0]);
    if (open->jail->control < 0) result = errno;
    int control = vj_above_reserved(pair[1]);
    if (control < 0 && !result) result = errno;
    vj_status status =
        result ? vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, result, "descriptors")
               : start_process(open, control, error);
    if (control >= 0) close(control);
    if (status != VJ_OK) return status;
    open->outer = (int)syscall(SYS_pidfd_open, open->pid, 0);
    if (open->outer >= 0) return VJ_OK;
    result = errno;
    // With SIGCHLD ignored it is gone at once when its work is done: pid 1 is ours by
    // then.
    bool is_done = open->plan->backend == VJ_BACKEND_NAMESPACES;
    if (result == ESRCH && is_done) return VJ_OK;
    if (result != ESRCH) kill(open->pid, SIGKILL);
    while (waitpid(open->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, result, "pidfd_open");
}

// bwrap has ended before visjail-init said anything: its own words are the reason.
static vj_status words_of(int errors, vj_error *error) {
    char text[sizeof error->text];
    ssize_t size = pread(errors, text, sizeof text - 1, 0);
    if (size <= 0) return VJ_CLOSED;
    text[size] = 0;
    text[strcspn(text, "\n")] = 0;
    return vj_fail(error, VJ_SYSTEM, VJ_STAGE_BUBBLEWRAP, 0, text);
}

static vj_status await(opening *open, vj_jail_info *info, vj_error *error) {
    vj_jail *jail = open->jail;
    int outer = open->outer;
    open->outer = -1;
    vj_status status = VJ_OK;
    switch ((vj_backend)open->plan->backend) {
    case VJ_BACKEND_NAMESPACES:
        status = await_ready(jail, info, error);
        end_outer(outer, status != VJ_OK);
        break;
    case VJ_BACKEND_BUBBLEWRAP:
        jail->outer = outer;
        status = await_ready(jail, info, error);
        if (status == VJ_CLOSED) status = words_of(open->errors, error);
        if (status == VJ_OK) status = vj_bubblewrap_recheck(open->plan, error);
        break;
    case VJ_BACKEND_LANDLOCK:
        jail->process = outer;
        jail->tracks = true;
        info->pid = open->pid;
        status = await_ready(jail, info, error);
        break;
    case VJ_BACKEND_END: break;
    }
    return status;
}

static int copy_descriptors(const int32_t *from, uint32_t count, int32_t *to,
                            uint32_t *done) {
    for (*done = 0; *done < count; (*done)++) {
        to[*done] = duplicate_above_reserved(from[*done]);
        if (to[*done] < 0) return errno;
    }
    return 0;
}

// Copies of the cgroup files that the dup2 actions of the start cannot overwrite.
// Returns 0 or an errno; what was copied is to be closed either way.
static int copy_groups(const vj_groups *given, vj_groups *copy) {
    int result =
        copy_descriptors(given->members, given->count, copy->members, &copy->count);
    if (result) return result;
    return copy_descriptors(given->counters, given->counter_count, copy->counters,
                            &copy->counter_count);
}

static void close_groups(const vj_groups *groups) {
    for (uint32_t i = 0; i < groups->count; i++) close(groups->members[i]);
    for (uint32_t i = 0; i < groups->counter_count; i++) close(groups->counters[i]);
}

static int open_descriptors(opening *open, const void *plan, size_t size) {
    open->host = vj_above_reserved((int)syscall(SYS_pidfd_open, getpid(), 0));
    if (open->host < 0) return errno;
    int result = copy_groups(&open->options->groups, &open->groups);
    if (result) return result;
    open->memory = vj_above_reserved(vj_sealed_memory("visjail-plan", plan, size));
    if (open->memory < 0) return errno;
    open->calls = vj_above_reserved(vj_calls_make(&open->jail->calls));
    if (open->calls < 0) return errno;
    int status = openat(AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
    open->status = vj_above_reserved(status);
    if (open->status < 0) return errno;
    if (open->plan->backend != VJ_BACKEND_BUBBLEWRAP) return 0;
    open->errors = vj_above_reserved(memfd_create("visjail-errors", MFD_CLOEXEC));
    return open->errors < 0 ? errno : 0;
}

static vj_status start_jail(const char *init_path, const vj_jail_options *options,
                            const void *plan, size_t plan_size, vj_jail *jail,
                            vj_jail_info *info, vj_error *error) {
    opening open = {.init_path = init_path,
                    .plan = plan,
                    .options = options,
                    .jail = jail,
                    .host = -1,
                    .memory = -1,
                    .calls = -1,
                    .status = -1,
                    .errors = -1,
                    .outer = -1};
    int result = open_descriptors(&open, plan, plan_size);
    vj_status status =
        result ? vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, result, "descriptors")
               : start_outer(&open, error);
    close_groups(&open.groups);
    if (open.host >= 0) close(open.host);
    if (open.memory >= 0) close(open.memory);
    if (open.calls >= 0) close(open.calls);
    if (open.status >= 0) close(open.status);
    if (status == VJ_OK) status = await(&open, info, error);
    if (open.errors >= 0) close(open.errors);
    if (status != VJ_OK && jail->control >= 0) find_process(jail);
    return status;
}

vj_status vj_jail_open(const char *init_path, const vj_jail_options *options,
                       const void *plan, uint64_t plan_size, vj_jail **out,
                       vj_jail_info *info, vj_error *error) {
    *out = NULL;
    memset(info, 0, sizeof *info);
    if (vj_plan_check(plan, plan_size) ||
        options->groups.count != ((const vj_plan *)plan)->tree.groups ||
        options->groups.counter_count != ((const vj_plan *)plan)->tree.counters) {
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_PLAN, EINVAL, "the plan is malformed");
    }
    vj_jail *jail = calloc(1, sizeof *jail);
    if (!jail)
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "out of memory");
    atomic_init(&jail->users, 1);
    pthread_mutex_init(&jail->lock, NULL);
    pthread_mutex_init(&jail->end, NULL);
    jail->owner = getpid();
    jail->control = jail->process = jail->outer = jail->spare = -1;
    vj_status status = start_jail(init_path, options, plan, plan_size, jail, info, error);
    if (status == VJ_OK) {
        *out = jail;
    } else {
        vj_jail_free(jail);
    }
    return status;
}
