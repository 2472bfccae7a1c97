// The host side of a jail: keep the sockets, start runs, end the jail. Opening one
// is in posix_open.c; everything in the jail is started by visjail-init.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
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

// Pid 1 answers within microseconds, a keeper as soon as execve has returned. An
// answer that does not come means that something hinders them: the jail ends.
#define ANSWER_TIMEOUT_MS 30000

// A keeper ends its run within milliseconds. A guest that found a way to hinder
// it (a lower priority, a starved processor) loses the whole jail instead.
#define END_GRACE_NS    10000000000
#define ANSWER_SLICE_MS 10

// P_PIDFD of waitid (Linux 5.4), which older headers do not have.
#define BY_PIDFD ((idtype_t)3)

// ---- answers ---------------------------------------------------------------

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

// ---- close -----------------------------------------------------------------

static void close_slot(int *descriptor) {
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
}

static void let_go(vj_jail *jail) {
    close_slot(&jail->spare);
    close_slot(&jail->control);
}

void vj_process_end(int process, bool is_child) {
    if (process < 0) return;
    syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
    siginfo_t info;
    while (is_child && waitid(BY_PIDFD, (id_t)process, &info, WEXITED) < 0 &&
           errno == EINTR) {
    }
    struct pollfd event = {.fd = process, .events = POLLIN};
    while (!is_child && poll(&event, 1, -1) < 0 && errno == EINTR) {
    }
}

// Without a pid namespace nothing ends with the supervisor: it is asked to end all
// others first. One that does not answer in time is killed, and its keepers, which
// its end tells, end what is theirs.
static void await_end(const vj_jail *jail) {
    shutdown(jail->control, SHUT_RDWR);
    int64_t deadline = vj_now_ns() + END_GRACE_NS;
    struct pollfd event = {.fd = jail->process, .events = POLLIN};
    for (;;) {
        int64_t left = (deadline - vj_now_ns()) / 1000000;
        if (left <= 0 || poll(&event, 1, (int)left) > 0) return;
    }
}

void vj_jail_close(vj_jail *jail) {
    if (jail->owner != getpid()) {
        // A forked child shares the jail with its parent, which goes on. It has
        // one thread, and a lock may have been held at the fork.
        atomic_store(&jail->closed, true);
        let_go(jail);
        close_slot(&jail->process);
        close_slot(&jail->outer);
        return;
    }
    pthread_mutex_lock(&jail->end);
    if (!atomic_exchange(&jail->closed, true)) {
        // First of all: whoever waits for an answer of pid 1 holds the lock.
        if (jail->tracks) await_end(jail);
        vj_process_end(jail->process, jail->outer < 0);
        vj_process_end(jail->outer, true);
        pthread_mutex_lock(&jail->lock);
        let_go(jail);
        pthread_mutex_unlock(&jail->lock);
        close_slot(&jail->process);
        close_slot(&jail->outer);
    }
    pthread_mutex_unlock(&jail->end);
}

// Hosts with a garbage collector free a jail and its runs in any order.
static void leave(vj_jail *jail) {
    if (atomic_fetch_sub(&jail->users, 1) != 1) return;
    pthread_mutex_destroy(&jail->lock);
    pthread_mutex_destroy(&jail->end);
    vj_refusals_unmap(jail->refusals);
    vj_calls_unmap(jail->calls);
    free(jail);
}

void vj_jail_free(vj_jail *jail) {
    if (!jail) return;
    vj_jail_close(jail);
    leave(jail);
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
        vj_message message = {0};
        int received[VJ_DESCRIPTORS_MAX];
        uint32_t count;
        vj_status status =
            receive_answer(jail->control, &message, received, &count, error);
        if (status != VJ_OK && status != VJ_SYSTEM) return condemn(jail, status, error);
        if (message.kind == VJ_MESSAGE_KEEPER) jail->keepers_asked--;
        if (status == VJ_SYSTEM) { // it came, but there was no room for what it brought
            if (message.kind == (uint32_t)kind) return status;
            continue;
        }
        if (message.error) {
            vj_close_all(received, count);
            if (message.kind == (uint32_t)kind) return vj_failure_of(&message, error);
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
        vj_close_all(received, count);
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

vj_status vj_jail_pairs(vj_jail *jail, int ends[4], vj_error *error) {
    vj_status status = check_owner(jail, error);
    for (int i = 0; i < 4; i++) ends[i] = -1;
    if (status != VJ_OK) return status;
    pthread_mutex_lock(&jail->lock);
    status = ask(jail, VJ_MESSAGE_PAIRS, error);
    if (status == VJ_OK) status = await_answer(jail, VJ_MESSAGE_PAIRS, ends, 4, error);
    pthread_mutex_unlock(&jail->lock);
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
    int memory = vj_sealed_memory("visjail-spawn", spawn->strings, spawn->strings_size);
    if (memory < 0) {
        return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, errno, "cannot make a memfd");
    }
    message.flags |= VJ_SPAWN_MEMFD;
    descriptors[count++] = memory;
    vj_status status = vj_send(channel, &message, NULL, 0, descriptors, count, error);
    close(memory);
    return status;
}

static vj_status await_kind(int channel, vj_message_kind kind, vj_message *answer,
                            vj_error *error) {
    for (;;) {
        vj_message message;
        int descriptors[VJ_DESCRIPTORS_MAX];
        uint32_t count;
        vj_status status = receive_answer(channel, &message, descriptors, &count, error);
        if (status != VJ_OK) return status;
        vj_close_all(descriptors, count);
        if (message.kind == VJ_MESSAGE_FAILED) return vj_failure_of(&message, error);
        if (message.kind == (uint32_t)kind) {
            *answer = message;
            return VJ_OK;
        }
        return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, EBADMSG, "an unexpected message");
    }
}

static vj_refused_place refused_at(const vj_message *message) {
    return (vj_refused_place){message->refusal_slot, message->refusal_generation};
}

// Remember by when the run has to be over.
static void order_end(vj_run *run, uint32_t order, int64_t in_ns) {
    int64_t now = vj_now_ns();
    int64_t end = in_ns < INT64_MAX / 2 - now ? now + in_ns + END_GRACE_NS : 0;
    if (!end || (run->must_end && run->must_end <= end)) return;
    run->must_end = end;
    run->order = order;
}

static vj_status make_run(vj_jail *jail, int channel, vj_run **out, vj_error *error) {
    vj_run *run = calloc(1, sizeof *run);
    if (!run) {
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "out of memory");
    }
    run->jail = jail;
    atomic_fetch_add(&jail->users, 1);
    run->owner = getpid();
    run->channel = channel;
    pthread_mutex_init(&run->lock, NULL);
    pthread_mutex_init(&run->ordering, NULL);
    *out = run;
    return VJ_OK;
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
    vj_message started = {0};
    if (status == VJ_OK && !(spawn->flags & VJ_SPAWN_QUIET)) {
        status = await_kind(channel, VJ_MESSAGE_STARTED, &started, error);
        status = condemn(jail, status, error);
    }
    if (status == VJ_OK) status = make_run(jail, channel, &run, error);
    if (!run) {
        if (channel >= 0) close(channel);
        return status;
    }
    if (spawn->timeout_ns) order_end(run, 1, (int64_t)spawn->timeout_ns);
    *pid = run->pid = started.pid;
    run->refused_at = refused_at(&started);
    *out = run;
    return VJ_OK;
}

vj_status vj_run_expect(vj_run *run, uint64_t timeout_ns, vj_run **out, vj_error *error) {
    *out = NULL;
    vj_run *expected = NULL;
    int pair[2] = {-1, -1};
    vj_status status = check_owner(run->jail, error);
    if (status != VJ_OK) return status;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, errno, "cannot make a socket");
    }
    vj_message message = {
        .kind = VJ_MESSAGE_EXPECT, .descriptor_count = 1, .timeout_ns = timeout_ns};
    pthread_mutex_lock(&run->lock);
    status = run->ended ? vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, 0, "the run has ended")
                        : vj_send(run->channel, &message, NULL, 0, &pair[1], 1, error);
    pthread_mutex_unlock(&run->lock);
    close(pair[1]);
    // Not before: the keeper may be ending what nobody owns.
    vj_message none;
    if (status == VJ_OK) status = await_kind(pair[0], VJ_MESSAGE_DONE, &none, error);
    status = condemn(run->jail, status, error);
    if (status == VJ_OK) status = make_run(run->jail, pair[0], &expected, error);
    if (!expected) {
        close(pair[0]);
        return status;
    }
    expected->limit_ns = timeout_ns;
    *out = expected;
    return VJ_OK;
}

vj_status vj_run_adopt(vj_run *expected, int process, int32_t *pid, vj_error *error) {
    *pid = 0;
    vj_status status = check_owner(expected->jail, error);
    if (status != VJ_OK) return status;
    vj_message message = {.kind = VJ_MESSAGE_ADOPT, .descriptor_count = 1};
    status = vj_send(expected->channel, &message, NULL, 0, &process, 1, error);
    if (status != VJ_OK) return status;
    vj_message started = {0};
    status = await_kind(expected->channel, VJ_MESSAGE_STARTED, &started, error);
    status = condemn(expected->jail, status, error);
    *pid = started.pid;
    pthread_mutex_lock(&expected->lock);
    expected->pid = started.pid;
    expected->refused_at = refused_at(&started);
    pthread_mutex_unlock(&expected->lock);
    if (status == VJ_OK && expected->limit_ns)
        order_end(expected, 1, (int64_t)expected->limit_ns);
    return status;
}

// Before its keeper takes another run.
static void take_refusals(vj_run *run, bool ended) {
    vj_refusals_reader *reader = run->jail->refusals;
    if (reader)
        vj_refusals_take(reader, &run->refused_at, run->pid, ended, &run->refused);
}

uint32_t vj_run_refusals(vj_run *run, vj_refusal *refusals, uint32_t capacity,
                         uint32_t *dropped) {
    *dropped = 0;
    // In a forked child of the host a lock may have been held at the fork.
    if (!run->jail->refusals || run->owner != getpid()) return 0;
    pthread_mutex_lock(&run->lock);
    if (!run->ended) take_refusals(run, false);
    uint32_t count = run->refused.count;
    *dropped = run->refused.dropped;
    if (capacity) {
        if (count > capacity) *dropped += count - capacity;
        if (count > capacity) count = capacity;
        if (count) memcpy(refusals, run->refused.records, count * sizeof *refusals);
        run->refused.count = run->refused.dropped = 0;
    }
    pthread_mutex_unlock(&run->lock);
    return count;
}

static void collect(vj_run *run) {
    vj_error ignored;
    vj_message message;
    int descriptors[VJ_DESCRIPTORS_MAX];
    uint32_t count;
    vj_status status =
        vj_receive(run->channel, MSG_DONTWAIT, &message, descriptors, &count, &ignored);
    if (status == VJ_TIMED_OUT || status == VJ_INTERRUPTED) return;
    vj_close_all(descriptors, count);
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
        take_refusals(run, true);
        run->result = (vj_exit){.status = SIGKILL, .stop = VJ_STOP_CLOSED};
        return;
    }
    // One that ended its run for the end of the jail is ending, too; one that has other
    // programs has no room for a run.
    run->refused_at = refused_at(&message);
    take_refusals(run, true);
    run->reusable = message.stop != VJ_STOP_CLOSED && !(message.flags & VJ_EXITED_FAMILY);
    run->result = (vj_exit){
        .status = message.status,
        .stop = message.stop,
        .killed = message.killed,
        .program_us = message.program_us,
        .user_us = message.user_us,
        .system_us = message.system_us,
        .resident_kib = message.resident_kib,
        .watched = message.watched,
    };
}

pid_t vj_run_owner(const vj_run *run) {
    return run->owner;
}

int vj_run_channel(const vj_run *run) {
    return run->channel;
}

bool vj_run_ended(vj_run *run, bool readable, vj_exit *result) {
    pthread_mutex_lock(&run->lock);
    if (!run->ended && readable) collect(run);
    if (!run->ended && run->must_end && vj_now_ns() >= run->must_end) {
        vj_jail_close(run->jail);
        take_refusals(run, true);
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
    leave(run->jail);
    free(run->refused.records);
    free(run);
}
