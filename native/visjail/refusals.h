// What the broker refused, in memory that it shares with the host.
//
// The broker is the only one that writes records, a keeper says which run it has, and the
// host how far it has read. No program of the jail has this memory or a descriptor of it:
// it is mapped by pid 1 before anything else runs, and a mapping does not survive execve.
// So a guest can cause records, up to a bound, but neither change nor remove one.
//
// A slot belongs to one keeper, and is used for one run of it after the other. The
// generation of a slot goes up when its keeper takes a run. Every process of the run
// before is gone by then, so a record that names a generation, looked up while the guest
// still waited for its answer, names its run.
//
// The records of a slot are a ring: the host makes room by reading. It trusts nothing
// here but what it has copied and checked, and reads back nothing that it wrote.
#ifndef VJ_REFUSALS_H
#define VJ_REFUSALS_H

#include <stdint.h>

#define VJ_REFUSAL_SLOTS   128u // keepers at the same time
#define VJ_REFUSALS_MAX    32u  // different ones of a slot that wait to be read
#define VJ_REFUSAL_TEXT    488u // bytes of a path; the rest of it is left out
#define VJ_REFUSAL_MEMBERS 64u  // programs below one keeper (linux_members.h)

typedef enum {
    VJ_REFUSAL_CREATE = 1, // to make a name that is held
    VJ_REFUSAL_MOVE,       // to move something to such a name, or a folder above one
    VJ_REFUSAL_BIND,       // to bind a socket to such a name
    VJ_REFUSAL_CONNECT,    // to connect to a socket that is not granted
    VJ_REFUSAL_SOCKETS,    // to bind one socket more than are remembered
    VJ_REFUSAL_END,
} vj_refusal_kind;

// Of a slot: a generation in the upper half, and a number.
typedef uint64_t vj_refusal_count;

typedef struct {
    vj_refusal_count number; // its own, from 1 on; written last, else it is not whole
    uint32_t kind;
    int32_t error; // a positive errno
    int32_t top;   // the child of the keeper from which who asked descends
    uint32_t cut;  // whether the path was longer
    uint32_t length;
    char text[VJ_REFUSAL_TEXT];
    uint32_t reserved;
} vj_refusal;

typedef struct {
    int32_t keeper; // its pid in the jail; 0: free; -1: no longer usable
    // Of a jail whose keeper has several programs: those, so that what belongs to none
    // of them can be told.
    int32_t members[VJ_REFUSAL_MEMBERS];
    uint32_t reserved;
    vj_refusal_count written;
    vj_refusal_count lost; // for which there was no room
    vj_refusal_count read; // by the host
} vj_refusal_slot;

typedef struct {
    uint32_t unknown; // refusals of which nobody could tell whose they were
    uint32_t reserved;
    vj_refusal_slot slots[VJ_REFUSAL_SLOTS];
    vj_refusal records[VJ_REFUSAL_SLOTS][VJ_REFUSALS_MAX];
} vj_refusals;

static inline vj_refusal_count vj_refusal_count_of(uint32_t generation, uint32_t number) {
    return (uint64_t)generation << 32 | number;
}

static inline vj_refusal_count vj_refusal_load(const vj_refusal_count *count) {
    return __atomic_load_n(count, __ATOMIC_ACQUIRE);
}

#define vj_refusal_store(count, value) __atomic_store_n(count, value, __ATOMIC_RELEASE)
// One more, if it still is what was `seen`, which else becomes what it is.
#define vj_refusal_count_up(count, seen)                                                 \
    __atomic_compare_exchange_n(count, seen, *(seen) + 1, 0, __ATOMIC_ACQ_REL,           \
                                __ATOMIC_ACQUIRE)

// The number, if it is of this generation.
static inline uint32_t vj_refusal_number(vj_refusal_count count, uint32_t generation) {
    return (uint32_t)(count >> 32) == generation ? (uint32_t)count : 0;
}

#endif
