// Members of a jail on macOS. Pure; see macos_members.h.

#include "macos_members.h"

#include <string.h>

void vj_marker_write(const uint8_t random[16], char marker[VJ_MARKER_SIZE]) {
    static const char start[] = "visruntime.jail.";
    static const char digits[] = "0123456789abcdef";
    memcpy(marker, start, sizeof start - 1);
    char *at = marker + sizeof start - 1;
    for (size_t i = 0; i < 16; i++) {
        *at++ = digits[random[i] >> 4];
        *at++ = digits[random[i] & 15];
    }
    *at = 0;
}

bool vj_macos_is_member(const vj_macos_process *process, uint32_t user, int32_t host,
                        int32_t child) {
    if (process->process <= 1 || process->process == host) return false;
    if (process->process == child) return true;
    // A sandbox that allows every lookup is another's.
    return process->user == user && process->is_sandboxed && process->may_look_up &&
           !process->may_look_all;
}

static void swap(vj_macos_process *left, vj_macos_process *right) {
    vj_macos_process kept = *left;
    *left = *right;
    *right = kept;
}

size_t vj_macos_members(vj_macos_process *processes, size_t count, uint32_t user,
                        int32_t host, int32_t child) {
    size_t members = 0;
    for (size_t i = 0; i < count; i++) {
        if (vj_macos_is_member(&processes[i], user, host, child))
            swap(&processes[members++], &processes[i]);
    }
    // Parents first: a process is older than those that it made.
    for (size_t i = 1; i < members; i++) {
        for (size_t j = i; j && processes[j - 1].started > processes[j].started; j--)
            swap(&processes[j - 1], &processes[j]);
    }
    return members;
}

vj_ladder_step vj_ladder_next(vj_ladder *ladder, uint64_t now_ns, size_t members,
                              uint64_t *wait_ns) {
    *wait_ns = 0;
    if (!members) return VJ_LADDER_DONE;
    uint64_t passed = now_ns > ladder->begun_ns ? now_ns - ladder->begun_ns : 0;
    if (!ladder->has_asked && ladder->grace_ns) {
        ladder->has_asked = true;
        return VJ_LADDER_ASK;
    }
    if (passed < ladder->grace_ns) {
        uint64_t left = ladder->grace_ns - passed;
        *wait_ns = left < VJ_LADDER_AGAIN_NS ? left : VJ_LADDER_AGAIN_NS;
        return VJ_LADDER_WAIT;
    }
    // The bound holds for what resists being killed; all are killed at least once.
    if (ladder->killed_ns && passed >= ladder->bound_ns) return VJ_LADDER_GIVE_UP;
    if (ladder->killed_ns && now_ns < ladder->killed_ns + VJ_LADDER_AGAIN_NS) {
        *wait_ns = ladder->killed_ns + VJ_LADDER_AGAIN_NS - now_ns;
        return VJ_LADDER_WAIT;
    }
    ladder->killed_ns = now_ns ? now_ns : 1;
    return VJ_LADDER_KILL;
}
