// The programs below one keeper. See linux_members.c.
#ifndef VJ_LINUX_MEMBERS_H
#define VJ_LINUX_MEMBERS_H

#include "linux_init.h"
#include "linux_tree.h"
#include "linux_watchdog.h"

#define VJ_MEMBERS_MAX 64u
#define VJ_ELDERS_MAX  1024u

typedef struct {
    int channel;  // to the host; -1: this place is free
    int pid;      // 0: not there yet, or reaped
    int expected; // it is to be forked, and nobody has said yet which process it is
    int suspended;
    uint64_t settle_until; // it was just suspended, and the host waits; 0: it was told
    uint64_t hold_at;      // when to look next whether it stands still
    uint64_t hold_pause;   // how long the last pause was
    uint32_t resumed;      // how often it did not
    int status;
    vj_stop stop;
    uint32_t killed;
    uint64_t deadline;   // CLOCK_MONOTONIC, 0: none
    uint64_t limit_ns;   // of time, from its adoption on; 0: none
    uint64_t program_us; // of itself alone
    uint64_t user_us;    // of all that was reaped
    uint64_t system_us;
    uint64_t resident_kib; // the largest
} vj_member;

typedef struct {
    const vj_setup *setup;
    int signals;
    int ordered;   // SIGTERM has come: the supervisor is gone
    int is_family; // there was more than one member
    // Place 0 is the program that was executed, the others those that were forked.
    vj_member members[VJ_MEMBERS_MAX];
    uint32_t member_count; // places ever used
    // Children that the keeper had adopted when the first member began to fork.
    int elders[VJ_ELDERS_MAX];
    uint32_t elder_count;
    // What was reaped and is no member's: it goes to the next member that ends.
    uint64_t user_us;
    uint64_t system_us;
    uint64_t resident_kib;
    vj_memory memory;
    vj_refused_run refused;
    vj_watchdog watchdog;
    int is_paused; // all members stand still, for the host's sake
} vj_keeper;

// Take the deaths that came; 0 when no child is left.
int vj_members_reap(vj_keeper *keeper);

// End all that is left of a member, tell the host, and free its place. While another is
// to be forked, what is nobody's may be that one, and cannot be ended: 0 where it may be
// of this member as well, so that its end has to wait.
int vj_member_end(vj_keeper *keeper, vj_member *member);

// Make a place for a program that is to be forked. It takes the channel.
void vj_member_expect(vj_keeper *keeper, int channel, uint64_t limit_ns);

// It is the process of this pidfd; 0, or a negative errno.
long vj_member_adopt(vj_keeper *keeper, vj_member *member, int process);

// Stop all processes of a member, or continue them. The host is told when they stand
// still, by vj_member_hold.
void vj_member_suspend(vj_keeper *keeper, vj_member *member, int suspended);

// Stop all members but those that are suspended, or continue them.
void vj_members_pause(vj_keeper *keeper, int paused);

// Look, when it is time, whether a suspended member stands still, and stop it again.
// Between two looks the keeper takes orders and keeps time limits.
void vj_member_hold(vj_keeper *keeper, vj_member *member);

#endif
