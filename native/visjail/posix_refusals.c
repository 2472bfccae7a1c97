// What a jail's broker has refused to one run, as the host reads it (refusals.h).
//
// The memory was filled from inside of the jail, so it is copied first and judged then,
// and every number that comes from it is checked.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "posix_process.h"
#include "refusals.h"

struct vj_refusals_reader {
    vj_refusals *shared;
    pthread_mutex_t lock; // over everything below; taken last of all
    uint32_t unknown;     // how many of those were told
    // Of each slot and its generation: how many records were read, how many lost ones
    // told, and what was read and is for a program that has not asked yet.
    struct {
        uint32_t generation;
        uint32_t read;
        uint32_t lost;
        vj_refused_list waiting;
    } slots[VJ_REFUSAL_SLOTS];
};

vj_status vj_refusals_map(int memory, vj_refusals_reader **out, vj_error *error) {
    *out = NULL;
    struct stat status;
    int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int seals = fcntl(memory, F_GET_SEALS);
    bool is_ours = fstat(memory, &status) == 0 && S_ISREG(status.st_mode) &&
                   status.st_size == (off_t)sizeof(vj_refusals) && seals >= 0 &&
                   (seals & wanted) == wanted;
    void *shared = MAP_FAILED;
    if (is_ours) {
        shared = mmap(NULL, sizeof(vj_refusals), PROT_READ | PROT_WRITE, MAP_SHARED,
                      memory, 0);
    }
    if (shared == MAP_FAILED) {
        return vj_fail(error, VJ_SYSTEM, VJ_STAGE_BROKER, is_ours ? errno : EINVAL,
                       "the record of refusals cannot be read");
    }
    vj_refusals_reader *reader = calloc(1, sizeof *reader);
    if (!reader) {
        munmap(shared, sizeof(vj_refusals));
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "out of memory");
    }
    reader->shared = shared;
    pthread_mutex_init(&reader->lock, NULL);
    *out = reader;
    return VJ_OK;
}

void vj_refusals_unmap(vj_refusals_reader *reader) {
    if (!reader) return;
    for (uint32_t i = 0; i < VJ_REFUSAL_SLOTS; i++)
        free(reader->slots[i].waiting.records);
    munmap(reader->shared, sizeof(vj_refusals));
    pthread_mutex_destroy(&reader->lock);
    free(reader);
}

// Whether it is for the program `pid`, or for none that its keeper has: of those, a
// refusal is told with whoever is asked about first.
static bool concerns(const vj_refusal_slot *slot, int32_t top, int32_t pid) {
    if (!pid || top == pid) return true; // after a quiet start there are no others
    for (uint32_t i = 0; i < VJ_REFUSAL_MEMBERS; i++) {
        if (__atomic_load_n(&slot->members[i], __ATOMIC_ACQUIRE) == top) return false;
    }
    return true;
}

static bool copy_record(const vj_refusal *from, vj_refusal *to) {
    memcpy(to, from, sizeof *to);
    return to->kind && to->kind < VJ_REFUSAL_END && to->length <= VJ_REFUSAL_TEXT &&
           to->error > 0 && to->error < 4096;
}

static void add(vj_refused_list *list, const vj_refusal *record) {
    if (list->count == VJ_REFUSALS_MAX) {
        list->dropped++;
        return;
    }
    if (!list->records) list->records = calloc(VJ_REFUSALS_MAX, sizeof *list->records);
    if (!list->records) list->dropped++;
    else list->records[list->count++] = *record;
}

// Read all that is whole. One that is not, and all behind it, waits: it is being written,
// for a guest that has not been answered yet. When the run has `ended` nobody may come
// to finish it, its writer having been ended in the middle; so it is counted as lost.
static void read_slot(vj_refusals_reader *reader, uint32_t index, uint32_t generation,
                      bool ended) {
    vj_refusal_slot *slot = &reader->shared->slots[index];
    uint32_t written = vj_refusal_number(vj_refusal_load(&slot->written), generation);
    uint32_t read = reader->slots[index].read;
    // No more than fit, whatever the jail says.
    for (uint32_t i = 0; i < VJ_REFUSALS_MAX && read != written; i++, read++) {
        const vj_refusal *record =
            &reader->shared->records[index][read % VJ_REFUSALS_MAX];
        vj_refusal copy;
        bool whole =
            vj_refusal_load(&record->number) == vj_refusal_count_of(generation, read + 1);
        if (!whole && !ended) break;
        if (whole && copy_record(record, &copy))
            add(&reader->slots[index].waiting, &copy);
        else reader->slots[index].waiting.dropped++;
    }
    reader->slots[index].read = read;
    vj_refusal_store(&slot->read, vj_refusal_count_of(generation, read));
}

static void pick(const vj_refusal_slot *slot, vj_refused_list *waiting, int32_t pid,
                 vj_refused_list *list) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < waiting->count; i++) {
        const vj_refusal *record = &waiting->records[i];
        if (concerns(slot, record->top, pid)) add(list, record);
        else waiting->records[left++] = *record;
    }
    waiting->count = left;
    list->dropped += waiting->dropped;
    waiting->dropped = 0;
}

static void take(vj_refusals_reader *reader, const vj_refused_place *place, int32_t pid,
                 bool ended, vj_refused_list *list) {
    uint32_t unknown = __atomic_load_n(&reader->shared->unknown, __ATOMIC_ACQUIRE);
    list->dropped += unknown - reader->unknown;
    reader->unknown = unknown;
    if (!place->slot || place->slot > VJ_REFUSAL_SLOTS) return;
    uint32_t index = place->slot - 1;
    vj_refusal_slot *slot = &reader->shared->slots[index];
    uint32_t generation = place->generation;
    if ((uint32_t)(vj_refusal_load(&slot->written) >> 32) != generation) {
        return; // another run's by now
    }
    vj_refused_list *waiting = &reader->slots[index].waiting;
    if (reader->slots[index].generation != generation) {
        reader->slots[index].generation = generation;
        reader->slots[index].read = reader->slots[index].lost = 0;
        waiting->count = waiting->dropped = 0;
    }
    read_slot(reader, index, generation, ended);
    pick(slot, waiting, pid, list);
    uint32_t lost = vj_refusal_number(vj_refusal_load(&slot->lost), generation);
    list->dropped += lost - reader->slots[index].lost;
    reader->slots[index].lost = lost;
}

void vj_refusals_take(vj_refusals_reader *reader, const vj_refused_place *place,
                      int32_t pid, bool ended, vj_refused_list *list) {
    pthread_mutex_lock(&reader->lock);
    take(reader, place, pid, ended, list);
    pthread_mutex_unlock(&reader->lock);
}
