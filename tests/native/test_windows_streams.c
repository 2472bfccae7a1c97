// Numbers and streams: what threads may do to each other.
//
// sources: native/visjail/identifiers.c native/visjail/streams.c
// sources: native/visjail/posix_monitor.c native/visjail/windows_text.c
// sources: native/visjail/windows_identity.c native/visjail/sha256.c
// sources: tests/native/fake_windows_os.c tests/native/fake_windows_files.c
// sources: tests/native/fake_windows_streams.c
// sources: tests/native/fake_windows_guests.c tests/native/fake_windows_control.c
// sanitizers: address thread
//
// W10: a number is given out once, is unknown once it was removed, and names one kind.
// W42: closing a stream while others read and write it closes its handles once, after the
// last of them: thousands of times, under both sanitizers, and the table dies at a handle
// that is closed while a call is in it. W43: the barrier waits also for streams that were
// closed one by one. W44: what was written is read, to the last byte, before the end.
// W46: nothing to write is no call.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_windows_os.h"
#include "streams.h"

#define KIND   7u
#define ROUNDS 1500
#define LONG   10000 // milliseconds: a bound, not a wait

static void check(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static vj_identifiers table;

// ---- numbers

static _Atomic unsigned destroyed;

static void destroy(vj_identified *object) {
    destroyed++;
    free(object);
}

static vj_identified *add(uint32_t kind) {
    vj_identified *object = calloc(1, sizeof *object);
    vj_identified_begin(object, kind, destroy);
    check(vj_identifiers_add(&table, object), "a number");
    return object;
}

static void numbers_are_given_out_once(void) {
    vj_identified *one = add(1), *two = add(2);
    int64_t first = one->id, second = two->id;
    check(first > 0 && second > first, "numbers grow");
    check(!vj_identifiers_find(&table, first, 2), "a number of another kind");
    check(!vj_identifiers_find(&table, 0, 1) && !vj_identifiers_find(&table, -1, 1) &&
              !vj_identifiers_find(&table, second + 1, 1) &&
              !vj_identifiers_find(&table, first + (INT64_C(1) << 32), 1),
          "a number that was never given out");
    check(vj_identifiers_find(&table, first, 1) == one, "a number");
    check(vj_identifiers_remove(&table, one), "it is removed");
    check(!vj_identifiers_remove(&table, one), "it is removed once");
    check(!vj_identifiers_find(&table, first, 1), "a number that was removed");
    vj_identifiers_drop(&table, one);
    check(!destroyed, "the object lives while somebody has it");
    vj_identifiers_drop(&table, one);
    check(destroyed == 1, "and no longer");
    vj_identified *three = add(1);
    check(three->id > second, "no number comes back");
    vj_identifiers_remove(&table, two);
    vj_identifiers_remove(&table, three);
    vj_identifiers_drop(&table, two);
    vj_identifiers_drop(&table, three);
    check(!table.objects && !table.count, "an empty table holds nothing");
    table.last = INT64_MAX;
    vj_identified *none = calloc(1, sizeof *none);
    vj_identified_begin(none, 1, destroy);
    check(!vj_identifiers_add(&table, none),
          "numbers that are used up do not begin again");
    vj_identifiers_drop(&table, none);
    table.last = second;
}

static void *uses_numbers(void *argument) {
    (void)argument;
    for (int i = 0; i < 300; i++) {
        vj_identified *own = add(3);
        int64_t id = own->id;
        vj_identified *found = vj_identifiers_find(&table, id, 3);
        check(found == own, "its own number");
        vj_identifiers_drop(&table, found);
        for (int64_t other = id > 4 ? id - 4 : 1; other < id + 4; other++) {
            found = vj_identifiers_find(&table, other, 3);
            if (!found) continue;
            check(found->id == other, "the number that was asked for");
            vj_identifiers_drop(&table, found);
        }
        vj_identifiers_remove(&table, own);
        vj_identifiers_drop(&table, own);
    }
    return NULL;
}

static void threads_share_numbers(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, uses_numbers, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    check(!table.count, "all numbers are gone");
}

// ---- streams

typedef struct {
    vj_identified identified;
    vj_streams streams;
} owner;

static vj_windows_security security;
static uint32_t names = 1;

static void destroy_owner(vj_identified *object) {
    free(object);
}

static owner *new_owner(void) {
    owner *own = calloc(1, sizeof *own);
    vj_identified_begin(&own->identified, 9, destroy_owner);
    own->streams.os = vj_windows_os_table();
    own->streams.identifiers = &table;
    own->streams.owner = &own->identified;
    return own;
}

static void drop_owner(owner *own) {
    vj_identifiers_drop(&table, &own->identified);
}

static vj_stream *open_stream(owner *own, vj_windows_direction direction,
                              vj_windows_handle *client, vj_stream_rest *rest) {
    const vj_windows_os *os = vj_windows_os_table();
    vj_windows_handle server = NULL, event = NULL;
    uint16_t name[64] = {'p', (uint16_t)(names & 0xffff), (uint16_t)(1 + (names >> 16)),
                         0};
    names++;
    if (!name[1]) name[1] = 0xffff;
    check(!os->pipe_create(os, name, direction, security, &server), "a pipe");
    check(!os->pipe_connect(os, name, direction, true, security, client), "its end");
    check(!os->event_create(os, security, &event), "an event");
    vj_stream *stream =
        vj_stream_new(&own->streams, KIND, own, direction, server, event, rest);
    check(stream && vj_identifiers_add(&table, vj_stream_identified(stream)), "a stream");
    // For the test, so that it can look at it.
    vj_identifiers_hold(&table, vj_stream_identified(stream));
    return stream;
}

static void drop_stream(vj_stream *stream) {
    vj_identifiers_drop(&table, vj_stream_identified(stream));
}

static void close_client(vj_windows_handle client) {
    const vj_windows_os *os = vj_windows_os_table();
    check(!os->handle_close(os, client), "the guest's end is closed");
}

static vj_windows_status read_some(vj_stream *stream, void *bytes, uint64_t capacity,
                                   int64_t timeout_ms, uint64_t *count) {
    uint32_t code = 0;
    return vj_stream_read(stream, bytes, capacity, timeout_ms, count, &code);
}

static void all_is_read_before_the_end(void) {
    owner *own = new_owner();
    vj_windows_handle client = NULL;
    vj_stream *stream = open_stream(own, VJ_WINDOWS_PIPE_FROM_GUEST, &client, NULL);
    char bytes[64];
    uint64_t count = 0;
    uint32_t code = 0;
    check(read_some(stream, bytes, sizeof bytes, 20, &count) == VJ_WINDOWS_TIMED_OUT,
          "nothing has come");
    check(fake_client_write(client, "the last words", 14) == 14, "the guest writes");
    close_client(client);
    check(read_some(stream, bytes, 8, LONG, &count) == VJ_WINDOWS_OK && count == 8 &&
              !memcmp(bytes, "the last", 8),
          "the beginning");
    check(read_some(stream, bytes, sizeof bytes, LONG, &count) == VJ_WINDOWS_OK &&
              count == 6 && !memcmp(bytes, " words", 6),
          "the rest");
    for (int i = 0; i < 2; i++) {
        check(read_some(stream, bytes, sizeof bytes, LONG, &count) == VJ_WINDOWS_OK &&
                  count == 0,
              "the end stays the end");
    }
    check(vj_stream_close(stream, LONG, &code) == VJ_WINDOWS_OK, "it is closed");
    check(vj_stream_close(stream, LONG, &code) == VJ_WINDOWS_STALE, "once");
    check(read_some(stream, bytes, sizeof bytes, LONG, &count) == VJ_WINDOWS_STALE,
          "a closed stream");
    check(!own->streams.open, "no handle is left");
    drop_stream(stream);
    drop_owner(own);
}

static void writing_nothing_is_no_call(void) {
    owner *own = new_owner();
    vj_windows_handle client = NULL;
    vj_stream *stream = open_stream(own, VJ_WINDOWS_PIPE_TO_GUEST, &client, NULL);
    uint64_t count = 1;
    uint32_t code = 0;
    char bytes[8];
    check(vj_stream_write(stream, "words", 5, LONG, &count, &code) == VJ_WINDOWS_OK &&
              count == 5,
          "all is written");
    check(fake_client_read(client, bytes, sizeof bytes) == 5, "and arrives");
    close_client(client);
    uint64_t calls = fake_calls();
    check(vj_stream_write(stream, "", 0, LONG, &count, &code) == VJ_WINDOWS_OK && !count,
          "nothing is written to nobody");
    check(fake_calls() == calls, "without a call");
    check(vj_stream_write(stream, "x", 1, LONG, &count, &code) == VJ_WINDOWS_ENDED,
          "something is not");
    check(vj_streams_close(&own->streams, NULL, LONG, &code) == VJ_WINDOWS_OK, "barrier");
    drop_stream(stream);
    drop_owner(own);
}

static void a_write_that_is_not_read_ends_in_time(void) {
    owner *own = new_owner();
    vj_windows_handle client = NULL;
    vj_stream *stream = open_stream(own, VJ_WINDOWS_PIPE_TO_GUEST, &client, NULL);
    char *bytes = calloc(1, 3 * FAKE_PIPE_SIZE);
    uint64_t count = 0;
    uint32_t code = 0;
    check(vj_stream_write(stream, bytes, 3ull * FAKE_PIPE_SIZE, 20, &count, &code) ==
                  VJ_WINDOWS_TIMED_OUT &&
              count == FAKE_PIPE_SIZE,
          "as much as the pipe holds");
    free(bytes);
    close_client(client);
    check(vj_streams_close(&own->streams, NULL, LONG, &code) == VJ_WINDOWS_OK, "barrier");
    drop_stream(stream);
    drop_owner(own);
}

static void what_nobody_reads_is_handed_on(void) {
    owner *own = new_owner();
    const vj_windows_os *os = vj_windows_os_table();
    vj_windows_handle client = NULL;
    vj_stream_rest rest = {NULL, NULL};
    vj_stream *stream = open_stream(own, VJ_WINDOWS_PIPE_FROM_GUEST, &client, &rest);
    uint32_t code = 0, count = 0;
    char bytes[8];
    fake_client_write(client, "rest", 4);
    check(vj_stream_close(stream, LONG, &code) == VJ_WINDOWS_OK, "it is closed");
    check(rest.pipe && rest.event && !own->streams.open, "its handles live on");
    check(!os->pipe_read(os, rest.pipe, rest.event, bytes, sizeof bytes, LONG, &count) &&
              count == 4,
          "with what nobody has read");
    check(!os->handle_close(os, rest.pipe) && !os->handle_close(os, rest.event),
          "closed");
    close_client(client);
    drop_stream(stream);
    drop_owner(own);
}

static void a_handle_that_resists_is_tried_again(void) {
    owner *own = new_owner();
    vj_windows_handle client = NULL;
    vj_stream *stream = open_stream(own, VJ_WINDOWS_PIPE_FROM_GUEST, &client, NULL);
    uint32_t code = 0;
    fake_fail_named("handle_close", FAKE_INJECTED);
    check(vj_stream_close(stream, LONG, &code) == VJ_WINDOWS_SYSTEM &&
              code == FAKE_INJECTED && own->streams.open == 1,
          "it says so");
    check(vj_streams_close(&own->streams, NULL, LONG, &code) == VJ_WINDOWS_SYSTEM,
          "and again");
    fake_fail_named(NULL, 0);
    check(vj_streams_close(&own->streams, NULL, LONG, &code) == VJ_WINDOWS_OK &&
              !own->streams.open,
          "until it works");
    close_client(client);
    drop_stream(stream);
    drop_owner(own);
}

// ---- races

typedef struct {
    vj_stream *stream;
    vj_windows_status status;
    uint64_t moved;
} racer;

static void *reads(void *argument) {
    racer *own = argument;
    char bytes[512];
    for (;;) {
        uint64_t count = 0;
        own->status = read_some(own->stream, bytes, sizeof bytes, -1, &count);
        if (own->status != VJ_WINDOWS_OK || !count) return NULL;
        own->moved += count;
    }
}

static void *writes(void *argument) {
    racer *own = argument;
    static const char bytes[512];
    for (;;) {
        uint64_t count = 0;
        uint32_t code = 0;
        own->status =
            vj_stream_write(own->stream, bytes, sizeof bytes, -1, &count, &code);
        own->moved += count;
        if (own->status != VJ_WINDOWS_OK) return NULL;
    }
}

static void *closes(void *argument) {
    racer *own = argument;
    uint32_t code = 0;
    own->status = vj_stream_close(own->stream, LONG, &code);
    return NULL;
}

// Two that read or write, two that close, and the barrier; in every order.
static void race(owner *own, bool to_guest, int round) {
    vj_windows_handle client = NULL;
    vj_stream_rest rest = {NULL, NULL};
    bool handed_on = !to_guest && round % 3 == 0;
    vj_stream *stream =
        open_stream(own, to_guest ? VJ_WINDOWS_PIPE_TO_GUEST : VJ_WINDOWS_PIPE_FROM_GUEST,
                    &client, handed_on ? &rest : NULL);
    racer racers[4] = {{stream, 0, 0}, {stream, 0, 0}, {stream, 0, 0}, {stream, 0, 0}};
    pthread_t threads[4];
    uint32_t code = 0;
    if (!to_guest && round % 2) fake_client_write(client, "some words", 10);
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL,
                       i >= 2     ? closes
                       : to_guest ? writes
                                  : reads,
                       &racers[i]);
    }
    if (round % 4 == 1) {
        check(vj_streams_close(&own->streams, own, LONG, &code) == VJ_WINDOWS_OK,
              "the barrier holds");
        check(!own->streams.open, "and nothing is open behind it");
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        check(racers[i].status == VJ_WINDOWS_STALE,
              "who used it hears that it is closed");
    }
    for (int i = 2; i < 4; i++) {
        check(racers[i].status == VJ_WINDOWS_OK || racers[i].status == VJ_WINDOWS_STALE,
              "who closes it closes it, or was late");
    }
    check(vj_streams_close(&own->streams, own, LONG, &code) == VJ_WINDOWS_OK, "barrier");
    check(!own->streams.open, "every handle is released");
    if (handed_on) {
        const vj_windows_os *os = vj_windows_os_table();
        check(rest.pipe && rest.event, "or handed on");
        check(!os->handle_close(os, rest.pipe) && !os->handle_close(os, rest.event), "");
    }
    close_client(client);
    drop_stream(stream);
}

int main(void) {
    char directory[] = "/tmp/streams-XXXXXX";
    check(mkdtemp(directory) != NULL, "a directory");
    numbers_are_given_out_once();
    threads_share_numbers();
    for (int part = 0; part < ROUNDS / 150; part++) {
        const vj_windows_os *os = vj_windows_os_table();
        static const uint16_t sddl[] = {'D', ':', 'P', 0};
        fake_begin(directory);
        os->security_open(os, sddl, &security);
        if (!part) {
            all_is_read_before_the_end();
            writing_nothing_is_no_call();
            a_write_that_is_not_read_ends_in_time();
            what_nobody_reads_is_handed_on();
            a_handle_that_resists_is_tried_again();
        }
        owner *own = new_owner();
        for (int round = 0; round < 150; round++) race(own, round % 5 == 0, round);
        drop_owner(own);
        os->security_close(os, security);
        check(fake_left(true) == 0, "nothing is left");
        fake_end();
    }
    check(!table.count, "no number is left");
    remove(directory);
    return 0;
}
