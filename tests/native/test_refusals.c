// The record of refusals, as the host reads it: whatever a jail has put there.
//
// sources: native/visjail/posix_refusals.c native/visjail/error.c

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "posix_process.h"

#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int make_memory(size_t size, int seals) {
    int memory = memfd_create("refusals", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert(memory >= 0);
    assert(ftruncate(memory, (off_t)size) == 0);
    assert(fcntl(memory, F_ADD_SEALS, seals) == 0);
    return memory;
}

// Memory that could shrink under the reading, or has another shape, must not be taken.
static void test_only_sealed_memory_of_the_right_size_is_read(void) {
    const struct {
        size_t size;
        int seals;
        vj_status status;
    } cases[] = {
        {sizeof(vj_refusals), ALL_SEALS, VJ_OK},
        {sizeof(vj_refusals), F_SEAL_GROW | F_SEAL_SEAL, VJ_SYSTEM},
        {sizeof(vj_refusals), F_SEAL_SHRINK | F_SEAL_GROW, VJ_SYSTEM},
        {sizeof(vj_refusals) - 1, ALL_SEALS, VJ_SYSTEM},
        {0, ALL_SEALS, VJ_SYSTEM},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vj_refusals_reader *reader = NULL;
        vj_error error;
        int memory = make_memory(cases[i].size, cases[i].seals);
        assert(vj_refusals_map(memory, &reader, &error) == cases[i].status);
        assert((reader != NULL) == (cases[i].status == VJ_OK));
        vj_refusals_unmap(reader);
        close(memory);
    }
    vj_refusals_reader *reader = NULL;
    vj_error error;
    int directory = open("/", O_RDONLY | O_CLOEXEC);
    assert(vj_refusals_map(directory, &reader, &error) == VJ_SYSTEM && !reader);
    close(directory);
}

static void put(vj_refusals *shared, uint32_t number, int32_t top, const char *text) {
    vj_refusal *record = &shared->records[4][(number - 1) % VJ_REFUSALS_MAX];
    record->kind = VJ_REFUSAL_CREATE;
    record->error = 13;
    record->top = top;
    record->length = (uint32_t)strlen(text);
    memcpy(record->text, text, record->length);
    record->number = vj_refusal_count_of(9, number);
}

static void test_records_go_to_the_program_that_they_are_of(vj_refusals *shared,
                                                            vj_refusals_reader *reader) {
    vj_refused_place place = {.slot = 5, .generation = 9};
    vj_refusal_slot *slot = &shared->slots[4];
    vj_refused_list one = {0};
    vj_refused_list two = {0};
    slot->members[0] = 10;
    slot->members[1] = 20;
    put(shared, 1, 10, "/a");
    put(shared, 2, 20, "/b");
    put(shared, 3, 30, "/orphan");
    slot->written = vj_refusal_count_of(9, 4); // the fourth is not whole yet
    slot->lost = vj_refusal_count_of(9, 6);
    vj_refusals_take(reader, &place, 20, false, &two);
    assert(two.count == 2 && two.dropped == 6);
    assert(!memcmp(two.records[0].text, "/b", 2) && two.records[1].top == 30);
    assert(slot->read == vj_refusal_count_of(9, 3));
    put(shared, 4, 10, "/d");
    vj_refusals_take(reader, &place, 10, false, &one);
    assert(one.count == 2 && one.dropped == 0 && one.records[1].text[1] == 'd');
    vj_refusals_take(reader, &place, 10, false, &one);
    assert(one.count == 2); // nothing twice

    // A writer that was ended before its record was whole hides nothing that is behind
    // it.
    put(shared, 6, 10, "/f");
    slot->written = vj_refusal_count_of(9, 6);
    vj_refusals_take(reader, &place, 10, false, &one);
    assert(one.count == 2 && one.dropped == 0);
    vj_refusals_take(reader, &place, 10, true, &one);
    assert(one.count == 3 && one.dropped == 1 && one.records[2].text[1] == 'f');
    one.count = 2;
    one.dropped = 0;

    // Another run's: not by this place, and with it from the beginning.
    slot->written = vj_refusal_count_of(10, 0);
    slot->lost = vj_refusal_count_of(10, 0);
    vj_refusals_take(reader, &place, 10, false, &one);
    assert(one.count == 2 && one.dropped == 0);
    free(one.records);
    free(two.records);
}

static void test_any_contents_are_read_within_bounds(vj_refusals *shared,
                                                     vj_refusals_reader *reader) {
    srand(1);
    for (int turn = 0; turn < 200; turn++) {
        unsigned char *bytes = (unsigned char *)shared->records[4];
        for (size_t i = 0; i < sizeof shared->records[4]; i++)
            bytes[i] = (unsigned char)rand();
        uint32_t generation = (uint32_t)rand();
        vj_refusal_slot *slot = &shared->slots[4];
        slot->written = vj_refusal_count_of(generation, (uint32_t)rand());
        slot->lost = vj_refusal_count_of(generation, (uint32_t)rand());
        for (uint32_t i = 1; i <= VJ_REFUSALS_MAX; i++) {
            vj_refusal *record = &shared->records[4][i - 1];
            if (rand() % 8) record->number = vj_refusal_count_of(generation, i);
            if (rand() % 2) record->kind = 1 + (uint32_t)rand() % VJ_REFUSAL_END;
            if (rand() % 2) record->error = rand() % 200;
            if (rand() % 2) record->length = (uint32_t)rand() % (VJ_REFUSAL_TEXT + 2);
        }
        vj_refused_list list = {0};
        const vj_refused_place places[] = {{5, generation},
                                           {0, generation},
                                           {VJ_REFUSAL_SLOTS + 1, generation},
                                           {~0u, 1}};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++)
            vj_refusals_take(reader, &places[i], rand() % 3, rand() % 2, &list);
        assert(list.count <= VJ_REFUSALS_MAX);
        for (uint32_t i = 0; i < list.count; i++) {
            const vj_refusal *record = &list.records[i];
            assert(record->length <= VJ_REFUSAL_TEXT && record->error > 0);
            assert(record->kind && record->kind < VJ_REFUSAL_END);
        }
        free(list.records);
    }
}

int main(void) {
    test_only_sealed_memory_of_the_right_size_is_read();
    int memory = make_memory(sizeof(vj_refusals), ALL_SEALS);
    vj_refusals *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    assert(shared != MAP_FAILED);
    vj_refusals_reader *reader = NULL;
    vj_error error;
    assert(vj_refusals_map(memory, &reader, &error) == VJ_OK);
    test_records_go_to_the_program_that_they_are_of(shared, reader);
    test_any_contents_are_read_within_bounds(shared, reader);
    vj_refusals_unmap(reader);
    munmap(shared, sizeof *shared);
    close(memory);
    return 0;
}
