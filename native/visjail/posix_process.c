// The host side of a jail: start visjail-init, keep the sockets, start runs.
//
// The host never forks its own memory: visjail-init is started with
// posix_spawn, everything in the jail by visjail-init.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "message.h"
#include "plan.h"
#include "posix_process.h"

#define OPEN_TIMEOUT_MS 30000

// After a failure, for the process that made pid 1 to tell of it and to end.
#define LEAVE_TIMEOUT_MS 2000

// Pid 1 answers within microseconds, a keeper as soon as execve has returned. An
// answer that does not come means that something hinders them: the jail ends.
#define ANSWER_TIMEOUT_MS 30000

// A keeper ends its run within milliseconds. A guest that found a way to hinder
// it (a lower priority, a starved processor) loses the whole jail instead.
#define END_GRACE_NS    10000000000
#define ANSWER_SLICE_MS 10

struct vj_jail {
    pid_t owner; // the process that opened it
    atomic_bool closed;
    pthread_mutex_t end;  // over `process`; taken before the other lock
    int process;          // pidfd of pid 1
    pthread_mutex_t lock; // over everything below
    int control;
    int spare;         // channel of the keeper that waits, or -1
    int keepers_asked; // requests whose answer has not come
};

// ---- messages --------------------------------------------------------------

vj_status vj_send(int socket, const vj_message *message, const void *data, size_t size,
                  const int *descriptors, uint32_t count, vj_error *error) {
    struct iovec parts[2] = {
        {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message},
        {.iov_base = (void *)(uintptr_t)data, .iov_len = size},
    };
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(VJ_DESCRIPTORS_MAX * sizeof(int))];
    } control = {0};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = size ? 2 : 1};
    if (count) {
        header.msg_control = control.space;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(part), descriptors, count * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &header, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) return VJ_OK;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
        return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, errno, "the jail has ended");
    }
    if (errno == ETOOMANYREFS) {
        return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, errno,
                       "too many descriptors in flight for this user");
    }
    return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, errno, "cannot send to the jail");
}

static void close_all(const int *descriptors, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) close(descriptors[i]);
}

// Receive one message and, where `data` is not NULL, what stands behind it.
// `descriptors` has room for VJ_DESCRIPTORS_MAX.
static vj_status receive_with(int socket, int flags, vj_message *message, void *data,
                              size_t capacity, int *descriptors, uint32_t *count,
                              vj_error *error) {
    struct iovec parts[2] = {
        {.iov_base = message, .iov_len = sizeof *message},
        {.iov_base = data, .iov_len = capacity},
    };
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(VJ_DESCRIPTORS_MAX * sizeof(int))];
    } control;
    struct msghdr header = {
        .msg_iov = parts,
        .msg_iovlen = data ? 2 : 1,
        .msg_control = control.space,
        .msg_controllen = sizeof control.space,
    };
    *count = 0;
    ssize_t size = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EINTR) {
        return vj_fail(error, VJ_INTERRUPTED, VJ_STAGE_HOST, EINTR, "interrupted");
    }
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return vj_fail(error, VJ_TIMED_OUT, VJ_STAGE_HOST, EAGAIN, "nothing there");
    }
    if (size <= 0)
        return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, 0, "the jail has ended");
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    if (first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS) {
        *count = (uint32_t)((first->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(descriptors, CMSG_DATA(first), *count * sizeof(int));
    }
    size_t expected = sizeof *message + (data ? message->data_size : 0);
    if ((size_t)size != expected || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        close_all(descriptors, *count);
        *count = 0;
        return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, EBADMSG, "a malformed message");
    }
    return VJ_OK;
}

vj_status vj_receive(int socket, int flags, vj_message *message, int *descriptors,
                     uint32_t *count, vj_error *error) {
    return receive_with(socket, flags, message, NULL, 0, descriptors, count, error);
}

int64_t vj_now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// Receive an answer that must come.
static vj_status receive_answer(int socket, vj_message *message, int *descriptors,
                                uint32_t *count, vj_error *error) {
    int64_t deadline = vj_now_ns() + (int64_t)ANSWER_TIMEOUT_MS * 1000000;
    for (;;) {
        struct pollfd event = {.fd = socket, .events = POLLIN};
        int64_t left = (deadline - vj_now_ns()) / 1000000;
        if (left <= 0) {
            return vj_fail(error, VJ_TIMED_OUT, VJ_STAGE_HOST, ETIMEDOUT, "no answer");
        }
        // A signal changes nothing: the answer is on its way.
        if (poll(&event, 1, (int)left) <= 0) continue;
        vj_status status = vj_receive(socket, 0, message, descriptors, count, error);
        if (status != VJ_INTERRUPTED) return status;
    }
}

static vj_status failure_of(const vj_message *message, vj_error *error) {
    vj_fail(error, VJ_SYSTEM, message->stage, message->error,
            vj_stage_name(message->stage));
    error->index = message->index;
    return VJ_SYSTEM;
}

// ---- open ------------------------------------------------------------------

static int sealed_memory(const char *name, const void *data, size_t size) {
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

// A descriptor that the dup2 actions of the start cannot overwrite.
static int above_reserved(int descriptor) {
    if (descriptor < 0 || descriptor >= VJ_FD_FIRST_FREE) return descriptor;
    int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, VJ_FD_FIRST_FREE);
    int saved = errno;
    close(descriptor);
    errno = saved;
    return moved;
}

static int start_init(const char *path, int control, int host, int plan, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    char *arguments[] = {"visjail-init", NULL};
    char *environment[] = {NULL};
    int result = posix_spawn_file_actions_init(&actions);
    if (result) return result;
    result = posix_spawnattr_init(&attributes);
    if (!result) {
        posix_spawnattr_setsigdefault(&attributes, &all);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setflags(&attributes,
                                 POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
        result = posix_spawn_file_actions_adddup2(&actions, control, VJ_FD_CONTROL);
        if (!result)
            result = posix_spawn_file_actions_adddup2(&actions, host, VJ_FD_HOST);
        if (!result)
            result = posix_spawn_file_actions_adddup2(&actions, plan, VJ_FD_PLAN);
        if (!result) {
            result =
                posix_spawn(pid, path, &actions, &attributes, arguments, environment);
        }
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return result;
}

static void kill_and_wait(int process) {
    if (process < 0) return;
    syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
    siginfo_t info;
    while (waitid(P_PIDFD, (id_t)process, &info, WEXITED) < 0 && errno == EINTR) {
    }
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
        vj_status status = receive_with(jail->control, 0, &message, answers,
                                        sizeof answers, descriptors, &count, error);
        if (status == VJ_INTERRUPTED) continue;
        if (status != VJ_OK) return status;
        if (message.kind == VJ_MESSAGE_FAILED) {
            close_all(descriptors, count);
            return failure_of(&message, error);
        }
        if (message.kind == VJ_MESSAGE_PROCESS && count == 1 && jail->process < 0) {
            jail->process = descriptors[0];
            info->pid = message.pid;
        } else if (message.kind == VJ_MESSAGE_READY && !count) {
            ready = true;
            info->landlock_abi = message.landlock_abi;
            info->guest_id = message.guest_id;
            info->identity = message.identity;
            info->answer_count = message.data_size / (uint32_t)sizeof *answers;
            memcpy(info->answers, answers, message.data_size);
        } else if (message.kind == VJ_MESSAGE_PORTS && !count &&
                   message.data_size <= sizeof info->ports) {
            info->port_count = message.data_size / (uint32_t)sizeof *answers;
            memcpy(info->ports, answers, message.data_size);
        } else if (message.kind == VJ_MESSAGE_KEEPER && count == 1 && jail->spare < 0) {
            jail->spare = descriptors[0];
        } else {
            close_all(descriptors, count);
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
        status = receive_with(jail->control, MSG_DONTWAIT, &message, answers,
                              sizeof answers, descriptors, &count, &ignored);
        if (status != VJ_OK) continue;
        if (message.kind == VJ_MESSAGE_PROCESS && count == 1) {
            jail->process = descriptors[0];
        } else {
            close_all(descriptors, count);
        }
    }
}

// End the process that made pid 1. After a failure it first gets time to end by
// itself: killed between the birth and the news of it, it would leave a pid 1
// that nobody knows.
static void end_outer(int outer, bool failed) {
    int64_t deadline = vj_now_ns() + (int64_t)LEAVE_TIMEOUT_MS * 1000000;
    struct pollfd event = {.fd = outer, .events = POLLIN};
    while (failed) {
        int64_t left = (deadline - vj_now_ns()) / 1000000;
        if (left <= 0 || poll(&event, 1, (int)left) > 0) break;
    }
    kill_and_wait(outer);
    close(outer);
}

// Start visjail-init: `*outer` gets a pidfd of it. Returns 0 or an errno.
static int start_outer(const char *init_path, int host, int memory, vj_jail *jail,
                       int *outer) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) return errno;
    int result = 0;
    pid_t pid = -1;
    jail->control = above_reserved(pair[0]);
    if (jail->control < 0) result = errno;
    int control = above_reserved(pair[1]);
    if (control < 0 && !result) result = errno;
    if (!result) result = start_init(init_path, control, host, memory, &pid);
    if (control >= 0) close(control);
    if (result) return result;
    *outer = (int)syscall(SYS_pidfd_open, pid, 0);
    if (*outer >= 0) return 0;
    result = errno;
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return result;
}

static vj_status start_jail(const char *init_path, const void *plan, size_t plan_size,
                            vj_jail *jail, vj_jail_info *info, vj_error *error) {
    int outer = -1;
    int result = 0;
    int memory = -1;
    int host = above_reserved((int)syscall(SYS_pidfd_open, getpid(), 0));
    if (host < 0) result = errno;
    if (!result) {
        memory = above_reserved(sealed_memory("visjail-plan", plan, plan_size));
        if (memory < 0) result = errno;
    }
    if (!result) result = start_outer(init_path, host, memory, jail, &outer);
    if (host >= 0) close(host);
    if (memory >= 0) close(memory);
    vj_status status = VJ_SYSTEM;
    if (result) {
        vj_fail(error, status, VJ_STAGE_HOST, result, init_path);
    } else {
        status = await_ready(jail, info, error);
        end_outer(outer, status != VJ_OK);
    }
    if (status != VJ_OK && jail->control >= 0) find_process(jail);
    return status;
}

vj_status vj_jail_open(const char *init_path, const void *plan, uint64_t plan_size,
                       vj_jail **out, vj_jail_info *info, vj_error *error) {
    *out = NULL;
    memset(info, 0, sizeof *info);
    if (vj_plan_check(plan, plan_size)) {
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_PLAN, EINVAL, "the plan is malformed");
    }
    vj_jail *jail = calloc(1, sizeof *jail);
    if (!jail)
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "out of memory");
    pthread_mutex_init(&jail->lock, NULL);
    pthread_mutex_init(&jail->end, NULL);
    jail->owner = getpid();
    jail->control = jail->process = jail->spare = -1;
    vj_status status = start_jail(init_path, plan, plan_size, jail, info, error);
    if (status == VJ_OK) {
        *out = jail;
    } else {
        vj_jail_free(jail);
    }
    return status;
}

// ---- close -----------------------------------------------------------------

static void close_slot(int *descriptor) {
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
}

static void let_go(vj_jail *jail) {
    close_slot(&jail->spare);
    close_slot(&jail->control);
}

void vj_jail_close(vj_jail *jail) {
    if (jail->owner != getpid()) {
        // A forked child shares the jail with its parent, which goes on. It has
        // one thread, and a lock may have been held at the fork.
        atomic_store(&jail->closed, true);
        let_go(jail);
        close_slot(&jail->process);
        return;
    }
    pthread_mutex_lock(&jail->end);
    if (!atomic_exchange(&jail->closed, true)) {
        // First of all: whoever waits for an answer of pid 1 holds the lock.
        kill_and_wait(jail->process);
        pthread_mutex_lock(&jail->lock);
        let_go(jail);
        pthread_mutex_unlock(&jail->lock);
        close_slot(&jail->process);
    }
    pthread_mutex_unlock(&jail->end);
}

void vj_jail_free(vj_jail *jail) {
    if (!jail) return;
    vj_jail_close(jail);
    pthread_mutex_destroy(&jail->lock);
    pthread_mutex_destroy(&jail->end);
    free(jail);
}

int vj_jail_alive(vj_jail *jail) {
    if (jail->owner != getpid()) return 0;
    pthread_mutex_lock(&jail->end);
    struct pollfd event = {.fd = jail->process, .events = POLLIN};
    int alive = !atomic_load(&jail->closed) && poll(&event, 1, 0) == 0;
    pthread_mutex_unlock(&jail->end);
    return alive;
}

// ---- requests to pid 1 -----------------------------------------------------

// A forked child of the opener has the same sockets, but not the same jail.
static vj_status check_owner(const vj_jail *jail, vj_error *error) {
    if (jail->owner == getpid()) return VJ_OK;
    return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, 0,
                   "the jail was opened by another process");
}

static vj_status ask(vj_jail *jail, vj_message_kind kind, vj_error *error) {
    if (atomic_load(&jail->closed)) {
        return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, 0, "the jail is closed");
    }
    vj_message message = {.kind = kind};
    return vj_send(jail->control, &message, NULL, 0, NULL, 0, error);
}

// A jail whose supervisors do not answer is ended.
static vj_status condemn(vj_jail *jail, vj_status status, vj_error *error) {
    if (status != VJ_TIMED_OUT) return status;
    // Held by somebody else, it is being ended already.
    if (pthread_mutex_trylock(&jail->end) == 0) {
        if (!atomic_load(&jail->closed)) {
            syscall(SYS_pidfd_send_signal, jail->process, SIGKILL, NULL, 0);
        }
        pthread_mutex_unlock(&jail->end);
    }
    return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, ETIMEDOUT, "the jail did not answer");
}

// Read answers until the wanted kind has come; keepers that come on the way
// are kept.
static vj_status await_answer(vj_jail *jail, vj_message_kind kind, int *descriptors,
                              uint32_t wanted, vj_error *error) {
    for (;;) {
        vj_message message;
        int received[VJ_DESCRIPTORS_MAX];
        uint32_t count;
        vj_status status =
            receive_answer(jail->control, &message, received, &count, error);
        if (status != VJ_OK) return condemn(jail, status, error);
        if (message.kind == VJ_MESSAGE_KEEPER) jail->keepers_asked--;
        if (message.error) {
            close_all(received, count);
            if (message.kind == (uint32_t)kind) return failure_of(&message, error);
            continue;
        }
        if (message.kind == (uint32_t)kind && count == wanted) {
            memcpy(descriptors, received, wanted * sizeof(int));
            return VJ_OK;
        }
        if (message.kind == VJ_MESSAGE_KEEPER && count == 1 && jail->spare < 0) {
            jail->spare = received[0];
            continue;
        }
        close_all(received, count);
    }
}

static vj_status take_keeper(vj_jail *jail, int *channel, vj_error *error) {
    vj_status status = VJ_OK;
    pthread_mutex_lock(&jail->lock);
    if (jail->spare >= 0) {
        *channel = jail->spare;
        jail->spare = -1;
    } else {
        if (!jail->keepers_asked) {
            status = ask(jail, VJ_MESSAGE_KEEPER, error);
            if (status == VJ_OK) jail->keepers_asked++;
        }
        if (status == VJ_OK) {
            status = await_answer(jail, VJ_MESSAGE_KEEPER, channel, 1, error);
        }
    }
    pthread_mutex_unlock(&jail->lock);
    return status;
}

// The keeper of a run that has ended serves the next one, if none waits already.
static void give_back(vj_run *run) {
    vj_jail *jail = run->jail;
    pthread_mutex_lock(&run->lock);
    int channel = run->reusable && !run->watched ? run->channel : -1;
    if (channel >= 0) run->channel = -1;
    pthread_mutex_unlock(&run->lock);
    if (channel < 0) return;
    pthread_mutex_lock(&jail->lock);
    if (jail->spare < 0 && !atomic_load(&jail->closed)) {
        jail->spare = channel;
        channel = -1;
    }
    pthread_mutex_unlock(&jail->lock);
    close_slot(&channel);
}

void vj_jail_prepare(vj_run *run) {
    vj_jail *jail = run->jail;
    vj_error ignored; // the next start finds out for itself
    if (check_owner(jail, &ignored) != VJ_OK) return;
    give_back(run);
    pthread_mutex_lock(&jail->lock);
    if (!atomic_load(&jail->closed) && jail->spare < 0 && !jail->keepers_asked &&
        ask(jail, VJ_MESSAGE_KEEPER, &ignored) == VJ_OK) {
        jail->keepers_asked++;
    }
    pthread_mutex_unlock(&jail->lock);
}

vj_status vj_jail_terminal(vj_jail *jail, int *master, int *slave, vj_error *error) {
    int pair[2] = {-1, -1};
    vj_status status = check_owner(jail, error);
    *master = *slave = -1;
    if (status != VJ_OK) return status;
    pthread_mutex_lock(&jail->lock);
    status = ask(jail, VJ_MESSAGE_TERMINAL, error);
    if (status == VJ_OK) status = await_answer(jail, VJ_MESSAGE_TERMINAL, pair, 2, error);
    pthread_mutex_unlock(&jail->lock);
    *master = pair[0];
    *slave = pair[1];
    return status;
}

// ---- runs ------------------------------------------------------------------

static vj_status check_spawn(const vj_spawn *spawn, vj_error *error) {
    if (spawn->strings_size > VJ_SPAWN_DATA_MAX ||
        spawn->argument_count + (uint64_t)spawn->environment_count > VJ_STRINGS_MAX) {
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_REQUEST, E2BIG,
                       "arguments and environment are too long");
    }
    if (spawn->descriptor_count >= VJ_DESCRIPTORS_MAX || !spawn->argument_count) {
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_REQUEST, EINVAL,
                       "a malformed request");
    }
    for (uint32_t i = 0; i < spawn->descriptor_count; i++) {
        // Before anything opens another file under a number that has been closed.
        if (fcntl(spawn->descriptors[i], F_GETFD) < 0) {
            return vj_fail(error, VJ_REFUSED, VJ_STAGE_DESCRIPTORS, errno,
                           "a descriptor for the program is not open");
        }
    }
    return VJ_OK;
}

static vj_status send_spawn(int channel, const vj_spawn *spawn, vj_error *error) {
    vj_message message = {
        .kind = VJ_MESSAGE_SPAWN,
        .flags = spawn->flags,
        .file = spawn->file,
        .argument_count = spawn->argument_count,
        .environment_count = spawn->environment_count,
        .data_size = (uint32_t)spawn->strings_size,
        .descriptor_count = spawn->descriptor_count,
        .timeout_ns = spawn->timeout_ns,
        .limit = spawn->limit,
    };
    int descriptors[VJ_DESCRIPTORS_MAX];
    uint32_t count = spawn->descriptor_count;
    for (uint32_t i = 0; i < count; i++) {
        descriptors[i] = spawn->descriptors[i];
        message.descriptor_numbers[i] = spawn->numbers[i];
    }
    if (spawn->strings_size <= VJ_INLINE_DATA_MAX) {
        return vj_send(channel, &message, spawn->strings, spawn->strings_size,
                       descriptors, count, error);
    }
    int memory = sealed_memory("visjail-spawn", spawn->strings, spawn->strings_size);
    if (memory < 0) {
        return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, errno, "cannot make a memfd");
    }
    message.flags |= VJ_SPAWN_MEMFD;
    descriptors[count++] = memory;
    vj_status status = vj_send(channel, &message, NULL, 0, descriptors, count, error);
    close(memory);
    return status;
}

static vj_status await_started(int channel, int32_t *pid, vj_error *error) {
    for (;;) {
        vj_message message;
        int descriptors[VJ_DESCRIPTORS_MAX];
        uint32_t count;
        vj_status status = receive_answer(channel, &message, descriptors, &count, error);
        if (status != VJ_OK) return status;
        close_all(descriptors, count);
        if (message.kind == VJ_MESSAGE_FAILED) return failure_of(&message, error);
        if (message.kind == VJ_MESSAGE_STARTED) {
            *pid = message.pid;
            return VJ_OK;
        }
        return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, EBADMSG, "an unexpected message");
    }
}

// Remember by when the run has to be over.
static void order_end(vj_run *run, uint32_t order, int64_t in_ns) {
    int64_t now = vj_now_ns();
    int64_t end = in_ns < INT64_MAX / 2 - now ? now + in_ns + END_GRACE_NS : 0;
    if (!end || (run->must_end && run->must_end <= end)) return;
    run->must_end = end;
    run->order = order;
}

vj_status vj_run_start(vj_jail *jail, const vj_spawn *spawn, vj_run **out, int32_t *pid,
                       vj_error *error) {
    *out = NULL;
    *pid = 0;
    int channel = -1;
    vj_run *run = NULL;
    vj_status status = check_owner(jail, error);
    if (status == VJ_OK) status = check_spawn(spawn, error);
    if (status == VJ_OK) status = take_keeper(jail, &channel, error);
    if (status == VJ_OK) status = send_spawn(channel, spawn, error);
    if (status == VJ_OK && !(spawn->flags & VJ_SPAWN_QUIET)) {
        status = condemn(jail, await_started(channel, pid, error), error);
    }
    if (status == VJ_OK) run = calloc(1, sizeof *run);
    if (status == VJ_OK && !run) {
        status = vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "out of memory");
    }
    if (!run) {
        if (channel >= 0) close(channel);
        return status;
    }
    run->jail = jail;
    run->owner = getpid();
    run->channel = channel;
    pthread_mutex_init(&run->lock, NULL);
    pthread_mutex_init(&run->ordering, NULL);
    if (spawn->timeout_ns) order_end(run, 1, (int64_t)spawn->timeout_ns);
    *out = run;
    return VJ_OK;
}

static void collect(vj_run *run) {
    vj_error ignored;
    vj_message message;
    int descriptors[VJ_DESCRIPTORS_MAX];
    uint32_t count;
    vj_status status =
        vj_receive(run->channel, MSG_DONTWAIT, &message, descriptors, &count, &ignored);
    if (status == VJ_TIMED_OUT || status == VJ_INTERRUPTED) return;
    close_all(descriptors, count);
    if (status == VJ_OK && message.kind == VJ_MESSAGE_DONE) {
        run->done++;
        return;
    }
    run->ended = true;
    if (status == VJ_OK && message.kind == VJ_MESSAGE_FAILED) {
        run->reusable = true;
        run->result =
            (vj_exit){.failed_stage = message.stage, .failed_errno = message.error};
        return;
    }
    if (status != VJ_OK || message.kind != VJ_MESSAGE_EXITED) {
        // The keeper went with the jail; how the program ended is not known.
        run->result = (vj_exit){.status = SIGKILL, .stop = 3};
        return;
    }
    run->reusable = true;
    run->result = (vj_exit){
        .status = message.status,
        .stop = message.stop,
        .killed = message.killed,
        .program_us = message.program_us,
        .user_us = message.user_us,
        .system_us = message.system_us,
        .resident_kib = message.resident_kib,
    };
}

bool vj_run_ended(vj_run *run, bool readable, vj_exit *result) {
    pthread_mutex_lock(&run->lock);
    if (!run->ended && readable) collect(run);
    if (!run->ended && run->must_end && vj_now_ns() >= run->must_end) {
        vj_jail_close(run->jail);
        run->ended = true;
        run->result = (vj_exit){.status = SIGKILL, .stop = run->order};
    }
    bool ended = run->ended;
    if (ended) *result = run->result;
    pthread_mutex_unlock(&run->lock);
    return ended;
}

vj_status vj_run_wait(vj_run *run, int64_t timeout_ns, vj_exit *result, vj_error *error) {
    int input = -1;
    uint64_t offset = 0;
    return vj_run_communicate(run, NULL, 0, &offset, &input, NULL, NULL, timeout_ns,
                              result, error);
}

static vj_status tell_keeper(vj_run *run, vj_message_kind kind, int32_t signal_number) {
    vj_error ignored; // a run that has just ended needs no signal any more
    vj_message message = {.kind = kind, .status = signal_number};
    vj_status status = VJ_OK;
    // A forked child of the host holds the channel, but not the run.
    if (run->owner != getpid()) return VJ_OK;
    pthread_mutex_lock(&run->lock);
    if (!run->ended) {
        if (kind == VJ_MESSAGE_KILL) order_end(run, 2, 0);
        status = vj_send(run->channel, &message, NULL, 0, NULL, 0, &ignored);
    }
    pthread_mutex_unlock(&run->lock);
    return status;
}

vj_status vj_run_signal(vj_run *run, int32_t signal_number) {
    return tell_keeper(run, VJ_MESSAGE_SIGNAL, signal_number);
}

vj_status vj_run_kill(vj_run *run) {
    return tell_keeper(run, VJ_MESSAGE_KILL, 0);
}

vj_status vj_run_suspend(vj_run *run, bool suspended, vj_error *error) {
    pthread_mutex_lock(&run->ordering);
    pthread_mutex_lock(&run->lock);
    uint32_t wanted = run->done + 1;
    pthread_mutex_unlock(&run->lock);
    vj_status status =
        tell_keeper(run, suspended ? VJ_MESSAGE_SUSPEND : VJ_MESSAGE_RESUME, 0);
    int64_t deadline = vj_now_ns() + END_GRACE_NS;
    bool over = false;
    while (status == VJ_OK && !over) {
        struct pollfd event = {.fd = run->channel, .events = POLLIN};
        // Another thread that waits for the run may take the answer first.
        poll(&event, 1, ANSWER_SLICE_MS);
        pthread_mutex_lock(&run->lock);
        if (!run->ended && run->done != wanted && event.revents) collect(run);
        over = run->ended || run->done == wanted;
        pthread_mutex_unlock(&run->lock);
        if (!over && vj_now_ns() >= deadline) {
            status = vj_fail(error, VJ_TIMED_OUT, VJ_STAGE_HOST, 0,
                             "the run's keeper does not answer");
        }
    }
    pthread_mutex_unlock(&run->ordering);
    return status;
}

int vj_run_descriptor(vj_run *run) {
    pthread_mutex_lock(&run->lock);
    run->watched = true;
    int descriptor = run->channel;
    pthread_mutex_unlock(&run->lock);
    return descriptor;
}

void vj_run_free(vj_run *run) {
    if (!run) return;
    // The keeper takes the end of the channel as the order to end the run, but a
    // forked child of the host may hold it open.
    if (run->owner == getpid()) vj_run_kill(run);
    close_slot(&run->channel);
    pthread_mutex_destroy(&run->lock);
    pthread_mutex_destroy(&run->ordering);
    free(run);
}
