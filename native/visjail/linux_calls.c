// The host's side of calls.h: say that a call on a guest's stream begins, and has ended.

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "posix_process.h"

int vj_calls_make(vj_calls **calls) {
    *calls = NULL;
    int memory = memfd_create("visjail-calls", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0) return -1;
    void *shared = MAP_FAILED;
    if (ftruncate(memory, sizeof(vj_calls)) == 0 &&
        fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        shared =
            mmap(NULL, sizeof(vj_calls), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    }
    if (shared == MAP_FAILED) {
        int saved = errno;
        close(memory);
        errno = saved;
        return -1;
    }
    *calls = shared;
    return memory;
}

void vj_calls_unmap(vj_calls *calls) {
    if (calls) munmap(calls, sizeof *calls);
}

uint32_t vj_run_call(vj_run *run) {
    // A forked child shares the page. What it noted would stay if it ended meanwhile.
    if (run->owner != getpid()) return VJ_CALLS_MAX;
    uint64_t *since = run->jail->calls->since;
    uint64_t now = (uint64_t)vj_now_ns();
    for (uint32_t place = 0; place < VJ_CALLS_MAX; place++) {
        uint64_t free_place = 0;
        if (__atomic_compare_exchange_n(&since[place], &free_place, now, 0,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            return place;
        }
    }
    return VJ_CALLS_MAX;
}

void vj_run_called(vj_run *run, uint32_t place) {
    if (place == VJ_CALLS_MAX) return;
    __atomic_store_n(&run->jail->calls->since[place], 0, __ATOMIC_RELAXED);
}
