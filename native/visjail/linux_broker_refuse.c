// The broker's record of what it refuses (refusals.h).
//
// Which run a guest belongs to is read from the process table: its ancestors lead to a
// keeper, which the kernel makes the parent of every orphan of its run. Numbers are used
// anew, so the way up is read twice: a parent that is the same before and after its own
// parent was read was there in between. And the guest is asked for last of all, since
// one that still waits for its answer is in the run that its keeper has now.

#include "linux_broker.h"

#include <errno.h>

#define ANCESTORS_MAX 64u // of a guest; deeper ones are in no run that could be told

typedef struct {
    long ancestors[ANCESTORS_MAX]; // the process itself, its parent, ... the keeper
    uint32_t count;
} line;

static long climb(uint32_t thread, line *up) {
    long process = vj_guest_status(thread, "\nTgid:\t");
    for (up->count = 0; up->count < ANCESTORS_MAX; up->count++) {
        if (process <= 0) return -ESRCH;
        long parent = vj_guest_status((uint32_t)process, "\nPPid:\t");
        up->ancestors[up->count] = process;
        if (parent == 1) {
            up->count++;
            return 0;
        }
        process = parent;
    }
    return -E2BIG;
}

static int is_same(const line *one, const line *two) {
    return one->count == two->count &&
           !memcmp(one->ancestors, two->ancestors, one->count * sizeof *one->ancestors);
}

// The number of the keeper's slot, or that of none.
static uint32_t find_slot(const vj_refusals *refusals, long keeper) {
    for (uint32_t i = 0; i < VJ_REFUSAL_SLOTS; i++) {
        const int32_t *owner = &refusals->slots[i].keeper;
        if (__atomic_load_n(owner, __ATOMIC_ACQUIRE) == keeper) return i;
    }
    return VJ_REFUSAL_SLOTS;
}

static int is_told_already(const vj_refusal *records, vj_refusal_count written,
                           uint32_t unread, const vj_refusal *told) {
    for (uint32_t i = 0; i < unread; i++) {
        const vj_refusal *one = &records[((uint32_t)written - 1 - i) % VJ_REFUSALS_MAX];
        if (vj_refusal_load(&one->number) == written - i && one->kind == told->kind &&
            one->error == told->error && one->top == told->top &&
            one->length == told->length && !memcmp(one->text, told->text, told->length)) {
            return 1;
        }
    }
    return 0;
}

static void count_lost(vj_refusal_slot *slot, uint32_t generation) {
    vj_refusal_count lost = vj_refusal_load(&slot->lost);
    do {
        if ((uint32_t)(lost >> 32) != generation || (uint32_t)lost == UINT32_MAX) return;
    } while (!vj_refusal_count_up(&slot->lost, &lost));
}

// Children of the broker write at the same time, and may be killed at any moment: so
// each takes its place by one exchange, and no lock.
static void keep(vj_refusals *refusals, uint32_t index, uint32_t generation,
                 const vj_refusal *told) {
    vj_refusal_slot *slot = &refusals->slots[index];
    vj_refusal *records = refusals->records[index];
    vj_refusal_count written = vj_refusal_load(&slot->written);
    do {
        // Another run: this one is over, and nobody asks for it any more.
        if ((uint32_t)(written >> 32) != generation) return;
        uint32_t read = vj_refusal_number(vj_refusal_load(&slot->read), generation);
        uint32_t unread = (uint32_t)written - read;
        if (unread >= VJ_REFUSALS_MAX || (uint32_t)written == UINT32_MAX) {
            if (!is_told_already(records, written, VJ_REFUSALS_MAX, told))
                count_lost(slot, generation);
            return;
        }
        if (is_told_already(records, written, unread, told)) return;
    } while (!vj_refusal_count_up(&slot->written, &written));
    vj_refusal *record = &records[(uint32_t)written % VJ_REFUSALS_MAX];
    record->kind = told->kind;
    record->error = told->error;
    record->top = told->top;
    record->cut = told->cut;
    record->length = told->length;
    memcpy(record->text, told->text, told->length);
    vj_refusal_store(&record->number, written + 1);
}

static void append(vj_refusal *told, const char *text, size_t length) {
    size_t room = VJ_REFUSAL_TEXT - told->length;
    if (length > room) told->cut = 1;
    if (length > room) length = room;
    memcpy(told->text + told->length, text, length);
    told->length += (uint32_t)length;
}

static void record(const vj_broker *broker, uint64_t id, uint32_t thread,
                   const vj_refused *refused) {
    vj_refusals *refusals = broker->setup->refusals;
    line up, again;
    long result = climb(thread, &up);
    if (result == 0) result = climb(thread, &again);
    // A canary is a child of pid 1's own: what it is refused is in the report.
    if (result == 0 && up.count < 2) return;
    uint32_t slot = VJ_REFUSAL_SLOTS;
    if (result == 0 && is_same(&up, &again))
        slot = find_slot(refusals, up.ancestors[up.count - 1]);
    if (slot == VJ_REFUSAL_SLOTS) {
        __atomic_fetch_add(&refusals->unknown, 1, __ATOMIC_ACQ_REL);
        return;
    }
    uint32_t generation =
        (uint32_t)(vj_refusal_load(&refusals->slots[slot].written) >> 32);
    if (!vj_broker_waits(broker, id)) return;
    vj_refusal told = {
        .kind = refused->kind,
        .error = refused->error,
        .top = (int32_t)up.ancestors[up.count - 2],
    };
    append(&told, refused->folder, refused->folder_length);
    if (refused->name) {
        if (!told.length || told.text[told.length - 1] != '/') append(&told, "/", 1);
        append(&told, refused->name, refused->name_length);
    }
    keep(refusals, slot, generation, &told);
}

long vj_refuse(const vj_broker *broker, uint64_t id, uint32_t thread,
               const vj_refused *refused) {
    if (broker->setup->refusals) record(broker, id, thread, refused);
    return -(long)refused->error;
}
