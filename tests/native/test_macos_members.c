// Who belongs to a jail on macOS, and the steps by which all of it is ended.
//
// sources: native/visjail/macos_members.c
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "macos_members.h"

#define USER   501u
#define HOST   100
#define CHILD  200
#define SECOND UINT64_C(1000000000)

static void test_markers(void) {
    uint8_t random[16];
    for (size_t i = 0; i < sizeof random; i++) random[i] = (uint8_t)(i * 17);
    char marker[VJ_MARKER_SIZE];
    memset(marker, 'x', sizeof marker);
    vj_marker_write(random, marker);
    assert(!strcmp(marker, "visruntime.jail.00112233445566778899aabbccddeeff"));
}

static void test_membership(void) {
    static const struct {
        vj_macos_process process;
        bool is_member;
    } cases[] = {
        // In its sandbox, by its marker, whoever its parent is.
        {{.process = 300, .parent = 1, .user = USER, 1, 1, 0, 5}, true},
        // The child before it is in the sandbox.
        {{.process = CHILD, .parent = HOST, .user = USER}, true},
        // A sandbox of somebody else, and one that allows every lookup.
        {{.process = 301, .user = USER, .is_sandboxed = 1}, false},
        {{.process = 302, .user = USER, .is_sandboxed = 1, 1, 1, 5}, false},
        // No sandbox at all: such a process may look up everything.
        {{.process = 303, .user = USER, .may_look_up = 1, .may_look_all = 1}, false},
        {{.process = 304, .user = USER, .may_look_up = 1}, false},
        // Another user's, the host itself, and what is nobody's to signal.
        {{.process = 305, .user = USER + 1, .is_sandboxed = 1, 1, 0, 5}, false},
        {{.process = HOST, .user = USER, .is_sandboxed = 1, 1, 0, 5}, false},
        {{.process = 1, .user = USER, .is_sandboxed = 1, 1, 0, 5}, false},
        {{.process = 0, .user = USER, .is_sandboxed = 1, 1, 0, 5}, false},
        {{.process = -1, .user = USER, .is_sandboxed = 1, 1, 0, 5}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool is_member = vj_macos_is_member(&cases[i].process, USER, HOST, CHILD);
        if (is_member != cases[i].is_member) printf("case %zu\n", i);
        assert(is_member == cases[i].is_member);
    }
    // Once the child was reaped its number is anybody's.
    vj_macos_process anybody = {.process = CHILD, .user = USER};
    assert(!vj_macos_is_member(&anybody, USER, HOST, 0));
}

static void test_order(void) {
    vj_macos_process all[] = {
        {.process = 7, .user = USER, .is_sandboxed = 1, .may_look_up = 1, .started = 9},
        {.process = 2, .user = USER, .started = 1},
        {.process = 5, .user = USER, .is_sandboxed = 1, .may_look_up = 1, .started = 3},
        {.process = 9, .user = 0, .started = 2},
        {.process = CHILD, .user = USER, .started = 2},
    };
    assert(vj_macos_members(all, 5, USER, HOST, CHILD) == 3);
    assert(all[0].process == CHILD && all[1].process == 5 && all[2].process == 7);
    assert(vj_macos_members(all, 0, USER, HOST, CHILD) == 0);
}

static void test_asking_first(void) {
    uint64_t wait = 1;
    vj_ladder ladder = {.begun_ns = 10, .grace_ns = SECOND, .bound_ns = 5 * SECOND};
    assert(vj_ladder_next(&ladder, 10, 3, &wait) == VJ_LADDER_ASK && !wait);
    assert(vj_ladder_next(&ladder, 20, 3, &wait) == VJ_LADDER_WAIT);
    assert(wait == VJ_LADDER_AGAIN_NS);
    // Never longer than what is left of the grace.
    assert(vj_ladder_next(&ladder, 5 + SECOND, 3, &wait) == VJ_LADDER_WAIT && wait == 5);
    assert(vj_ladder_next(&ladder, 10 + SECOND, 3, &wait) == VJ_LADDER_KILL);
    assert(vj_ladder_next(&ladder, 11 + SECOND, 3, &wait) == VJ_LADDER_WAIT);
    assert(vj_ladder_next(&ladder, 10 + SECOND + VJ_LADDER_AGAIN_NS, 1, &wait) ==
           VJ_LADDER_KILL);
    assert(vj_ladder_next(&ladder, 11 + 5 * SECOND, 1, &wait) == VJ_LADDER_GIVE_UP);
    assert(vj_ladder_next(&ladder, 11 + 5 * SECOND, 0, &wait) == VJ_LADDER_DONE);
}

static void test_killing_at_once(void) {
    uint64_t wait = 0;
    vj_ladder ladder = {.begun_ns = 0, .grace_ns = 0, .bound_ns = 0};
    assert(vj_ladder_next(&ladder, 0, 0, &wait) == VJ_LADDER_DONE);
    // Nobody goes without one kill, however short the bound; and then it ends.
    assert(vj_ladder_next(&ladder, 0, 1, &wait) == VJ_LADDER_KILL);
    assert(vj_ladder_next(&ladder, 0, 1, &wait) == VJ_LADDER_GIVE_UP);
    // A clock that goes backwards makes nothing wait longer than one look.
    vj_ladder back = {
        .begun_ns = SECOND, .grace_ns = 5, .bound_ns = SECOND, .has_asked = true};
    assert(vj_ladder_next(&back, 0, 1, &wait) == VJ_LADDER_WAIT && wait == 5);
}

// Whatever happens, the ladder ends within its bound and a few looks.
static void test_it_ends(void) {
    for (uint64_t grace = 0; grace < 3 * SECOND; grace += SECOND / 2) {
        vj_ladder ladder = {.begun_ns = 7, .grace_ns = grace, .bound_ns = 4 * SECOND};
        uint64_t now = 7;
        size_t kills = 0;
        size_t steps = 0;
        for (;;) {
            uint64_t wait = 0;
            vj_ladder_step step = vj_ladder_next(&ladder, now, 1, &wait);
            assert(++steps < 2000);
            if (step == VJ_LADDER_GIVE_UP) break;
            kills += step == VJ_LADDER_KILL;
            assert((step == VJ_LADDER_WAIT) == (wait > 0));
            now += wait;
        }
        assert(kills > 10 && now <= 7 + 4 * SECOND + VJ_LADDER_AGAIN_NS);
    }
}

int main(void) {
    test_markers();
    test_membership();
    test_order();
    test_asking_first();
    test_killing_at_once();
    test_it_ends();
    return 0;
}
