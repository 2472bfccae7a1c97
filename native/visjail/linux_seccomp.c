// The system call filters: installed once, by pid 1, inherited by everything.
//
// The programs are generated from scripts/generate_seccomp.py. Installing one
// costs more than the rest of a spawn, so it is not done for each program.

#include "linux_init.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "seccomp_programs.h"

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1u << 5)
#endif

static long install(const struct sock_filter *filter, size_t size, unsigned flags) {
    struct sock_fprog program = {
        .len = (unsigned short)(size / sizeof *filter),
        .filter = (struct sock_filter *)(uintptr_t)filter,
    };
    return sys(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

void vj_seccomp_install(const vj_setup *setup) {
    int off = (setup->plan->flags & VJ_PLAN_PRIVATE_NETWORK) != 0;
    long result;
    if (setup->plan->backend == VJ_BACKEND_LANDLOCK) {
        result = off ? install(seccomp_landlock_off, sizeof seccomp_landlock_off, 0)
                     : install(seccomp_landlock_open, sizeof seccomp_landlock_open, 0);
    } else {
        result = off ? install(seccomp_network_off, sizeof seccomp_network_off, 0)
                     : install(seccomp_network_open, sizeof seccomp_network_open, 0);
    }
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_SECCOMP, result);
}

static long install_trap(const vj_setup *setup, unsigned flags) {
    switch (setup->plan->flags & VJ_PLAN_BROKER) {
    case VJ_PLAN_BROKER_SOCKETS:
        return install(seccomp_trap_sockets, sizeof seccomp_trap_sockets, flags);
    case VJ_PLAN_BROKER_NAMES:
        return install(seccomp_trap_names, sizeof seccomp_trap_names, flags);
    default: return install(seccomp_trap_both, sizeof seccomp_trap_both, flags);
    }
}

long vj_seccomp_trap(const vj_setup *setup) {
    // From Linux 5.19 a signal does not make a guest repeat a call that the broker
    // has begun, such as a connect that then is told EISCONN.
    unsigned flags =
        SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    long listener = install_trap(setup, flags);
    if (listener != -EINVAL) return listener;
    return install_trap(setup, SECCOMP_FILTER_FLAG_NEW_LISTENER);
}

long vj_seccomp_confine_helper(int is_dialer) {
    return is_dialer ? install(seccomp_dialer, sizeof seccomp_dialer, 0)
                     : install(seccomp_relay, sizeof seccomp_relay, 0);
}

long vj_seccomp_confine_broker(const vj_setup *setup) {
    if (setup->plan->flags & VJ_PLAN_BROKER_NAMES)
        return install(seccomp_broker_names, sizeof seccomp_broker_names, 0);
    return install(seccomp_broker, sizeof seccomp_broker, 0);
}
