// Limits on System V shared memory, semaphores and messages, which belong to no process.
//
// kernel.shmall, sem and msgmni are per ipc namespace, and may be written by uid 0 of the
// user namespace that owns it. The jail's own has no uid 0, so the ipc namespace is made
// by a helper in a user namespace below, where the caller is uid 0, and joined.

#include "linux_init.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/wait.h>

// Per set, in all, per call, sets: at 64 bytes each, half a MiB. As they are, the kernel
// lets a guest take 64 GiB.
static const char SEMAPHORES[] = "8192 8192 500 256\n";
// Of 16 KiB or 16,384 messages without content, a MiB with what the kernel keeps for
// them.
#define MESSAGE_QUEUES 16

static long write_number(const char *path, const char *before, uint64_t number,
                         const char *behind) {
    char data[64];
    vj_text text = {.data = data, .capacity = sizeof data};
    vj_text_string(&text, before);
    vj_text_number(&text, number, 10);
    vj_text_string(&text, behind);
    return vj_write_text(path, data, text.length);
}

// In the helper: become uid 0, set the limit, and wait to be ended.
_Noreturn static void serve(uint32_t user, uint64_t pages) {
    long result = write_number("/proc/self/uid_map", "0 ", user, " 1\n");
    if (result >= 0) result = write_number("/proc/sys/kernel/shmall", "", pages, "\n");
    if (result >= 0) {
        result = vj_write_text("/proc/sys/kernel/sem", SEMAPHORES, sizeof SEMAPHORES - 1);
    }
    if (result >= 0) {
        result = write_number("/proc/sys/kernel/msgmni", "", MESSAGE_QUEUES, "\n");
    }
    if (result >= 0) sys(SYS_kill, sys(SYS_getpid), SIGSTOP);
    vj_exit_process((int)-result);
}

static long open_space(long pid) {
    char path[64];
    vj_text text = {.data = path, .capacity = sizeof path};
    vj_text_string(&text, "/proc/");
    vj_text_number(&text, (uint64_t)pid, 10);
    vj_text_string(&text, "/ns/ipc");
    return sys(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
}

// What came of the helper: a descriptor of its namespace, or its errno, which is no more
// than its exit code holds. One that was killed was refused nothing.
static long answer_of(long pid, int status) {
    if (WIFSTOPPED(status)) return open_space(pid);
    return WIFEXITED(status) && WEXITSTATUS(status) ? -WEXITSTATUS(status) : -EAGAIN;
}

static int is_refusal(long result) {
    switch (result) {
    case -EPERM:
    case -EACCES:
    case -EROFS:
    case -ENOENT:
    case -EINVAL:
    case -ENOSYS: return 1;
    default: return 0;
    }
}

void vj_shared_memory_limit(vj_setup *setup) {
    uint64_t pages = setup->plan->tree.shared_memory_pages;
    if (!pages) return;
    long pid = sys(SYS_clone, CLONE_NEWUSER | CLONE_NEWIPC | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) serve(setup->guest_id, pages);
    int status = 0;
    long space = pid < 0 ? pid : sys(SYS_wait4, pid, &status, WUNTRACED, 0);
    if (space >= 0) space = answer_of(pid, status);
    if (space >= 0) {
        long joined = sys(SYS_setns, space, CLONE_NEWIPC);
        setup->shared_memory = joined == 0;
        sys(SYS_close, space);
        space = joined;
    }
    if (pid > 0 && !WIFEXITED(status)) {
        sys(SYS_kill, pid, SIGKILL);
        sys(SYS_wait4, pid, 0, 0, 0);
    }
    // Where the kernel refuses (before Linux 5.19 it does) the report says so. Anything
    // else is an accident, which a guest of another jail can have caused.
    if (space < 0 && !is_refusal(space)) vj_setup_fail(setup, VJ_STAGE_LIMITS, space);
}
