// The system call filter: installed once, by pid 1, inherited by everything.
//
// The programs are generated from scripts/generate_seccomp.py. Installing one
// costs more than the rest of a spawn, so it is not done for each program.

#include "linux_init.h"

#include <linux/filter.h>
#include <linux/seccomp.h>

#include "seccomp_programs.h"

void vj_seccomp_install(const vj_setup *setup) {
    int private_network = (setup->plan->flags & VJ_PLAN_PRIVATE_NETWORK) != 0;
    const struct sock_filter *filter =
        private_network ? seccomp_network_off : seccomp_network_open;
    size_t size =
        private_network ? sizeof seccomp_network_off : sizeof seccomp_network_open;
    struct sock_fprog program = {
        .len = (unsigned short)(size / sizeof *filter),
        .filter = (struct sock_filter *)(uintptr_t)filter,
    };
    long result = sys(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_SECCOMP, result);
}
