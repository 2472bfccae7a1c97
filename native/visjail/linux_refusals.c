// Which run a slot of refusals.h belongs to, from pid 1 and the keepers.

#include "linux_init.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u // Linux 6.3
#endif

// The descriptor goes to the host with READY, and is closed here then. Sealed, so that
// nobody can take the pages from under the host's reading.
void vj_refusals_prepare(vj_setup *setup) {
    static const char name[] = "visjail-refusals";
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    long memory = sys(SYS_memfd_create, name, flags | MFD_NOEXEC_SEAL);
    if (memory == -EINVAL) memory = sys(SYS_memfd_create, name, flags);
    if (memory < 0) vj_setup_fail(setup, VJ_STAGE_BROKER, memory);
    long result = sys(SYS_ftruncate, memory, sizeof *setup->refusals);
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (result == 0) result = sys(SYS_fcntl, memory, F_ADD_SEALS, seals);
    if (result == 0) {
        result = vj_call(SYS_mmap, 0, (long)sizeof *setup->refusals,
                         PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    }
    if (result < 0 && result > -4096) vj_setup_fail(setup, VJ_STAGE_BROKER, result);
    setup->refusals = (vj_refusals *)result;
    setup->refusals_memory = (int)memory;
}

// Whether nobody can be about to write to a slot: a broker that was held up between
// taking a place and filling it would write into the next run's.
static int is_whole(const vj_refusals *refusals, uint32_t index) {
    vj_refusal_count written = vj_refusal_load(&refusals->slots[index].written);
    uint32_t count = (uint32_t)written;
    for (uint32_t i = 0; i < count && i < VJ_REFUSALS_MAX; i++) {
        uint32_t at = (count - 1 - i) % VJ_REFUSALS_MAX;
        if (vj_refusal_load(&refusals->records[index][at].number) != written - i)
            return 0;
    }
    return 1;
}

static void let_go(vj_refusals *refusals, uint32_t index) {
    int32_t left = is_whole(refusals, index) ? 0 : -1;
    __atomic_store_n(&refusals->slots[index].keeper, left, __ATOMIC_RELEASE);
}

static uint32_t take_slot(vj_refusals *refusals, int32_t keeper) {
    for (uint32_t i = 0; i < VJ_REFUSAL_SLOTS; i++) {
        int32_t nobody = 0;
        if (__atomic_compare_exchange_n(&refusals->slots[i].keeper, &nobody, keeper, 0,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            return i;
        }
    }
    return VJ_REFUSAL_SLOTS;
}

void vj_refusals_begin(const vj_setup *setup, vj_refused_run *run) {
    vj_refusals *refusals = setup->refusals;
    if (!refusals) return;
    if (run->slot && !is_whole(refusals, run->slot - 1)) {
        let_go(refusals, run->slot - 1);
        run->slot = 0;
    }
    if (!run->slot) {
        uint32_t taken = take_slot(refusals, (int32_t)sys(SYS_getpid));
        if (taken == VJ_REFUSAL_SLOTS) return; // what is refused is counted as unknown
        run->slot = taken + 1;
    }
    vj_refusal_slot *slot = &refusals->slots[run->slot - 1];
    memset(slot->members, 0, sizeof slot->members);
    run->generation = (uint32_t)(vj_refusal_load(&slot->written) >> 32) + 1;
    if (!run->generation) run->generation = 1; // that of an empty record
    vj_refusal_count none = vj_refusal_count_of(run->generation, 0);
    vj_refusal_store(&slot->lost, none);
    vj_refusal_store(&slot->read, none);
    vj_refusal_store(&slot->written, none);
}

void vj_refusals_member(const vj_setup *setup, const vj_refused_run *run, uint32_t place,
                        int32_t pid) {
    if (!setup->refusals || !run->slot || place >= VJ_REFUSAL_MEMBERS) return;
    vj_refusal_slot *slot = &setup->refusals->slots[run->slot - 1];
    __atomic_store_n(&slot->members[place], pid, __ATOMIC_RELEASE);
}

void vj_refusals_end_keeper(const vj_setup *setup, long keeper) {
    for (uint32_t i = 0; setup->refusals && i < VJ_REFUSAL_SLOTS; i++) {
        if (setup->refusals->slots[i].keeper == keeper) let_go(setup->refusals, i);
    }
}
