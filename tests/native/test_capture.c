// Captures: the first and the last bytes of a stream against a plain reference, and stage
// names.
//
// sources: native/visjail/posix_capture.c native/visjail/posix_stream.c
// sources: native/visjail/linux_stream.c
// sources: native/visjail/error.c
//
// Streams of random length arrive in random pieces through a pipe, and are read under
// random limits. What is kept must be exactly the head and the tail of what was written,
// the total must count all of it, and input must be fed whole, also when the writer has
// chosen packet mode. AddressSanitizer watches the ring.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "posix_process.h"

#define ROUNDS   1000
#define MOST     40000
#define BIG      300000
#define PIPE_MAX 4096
#define FLOOD    5000000 // more than the ring, and than makes a pipe wider
#define RING     (1u << 20)

static uint64_t state = 0x9e3779b97f4a7c15u;
static int ended; // what the run says when it is asked
static int prepared;

static uint32_t draw(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

static void check(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

// The other half of the library, reduced to what captures need of it.
int64_t vj_now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

pid_t vj_run_owner(const vj_run *run) {
    return run->owner;
}

int vj_run_channel(const vj_run *run) {
    return run->channel;
}

bool vj_run_ended(vj_run *run, bool readable, vj_exit *result) {
    (void)run;
    if (!ended && !readable) return false;
    *result = (vj_exit){.status = 7};
    return true;
}

uint32_t vj_run_call(vj_run *run) {
    (void)run;
    return 0;
}

void vj_run_called(vj_run *run, uint32_t place) {
    (void)run;
    (void)place;
}

void vj_jail_prepare(vj_run *run) {
    (void)run;
    prepared++;
}

static void judge(vj_capture *capture, const char *sent, uint64_t size, uint64_t limit) {
    uint64_t most = limit < 2 ? 2 : limit;
    uint64_t kept = vj_capture_size(capture);
    check(vj_capture_total(capture) == size, "the total is wrong");
    check(kept == (size < most ? size : most), "the size is wrong");
    const char *got = vj_capture_bytes(capture);
    uint64_t ring = most - most / 2 < RING ? most - most / 2 : RING;
    uint64_t head = size <= most ? size : most - ring;
    check(!memcmp(got, sent, head), "the head is wrong");
    check(!memcmp(got + head, sent + size - (kept - head), kept - head),
          "the tail is wrong");
}

// One stream through one capture, in pieces, the run ending at some point.
static void one_round(uint32_t most) {
    int streams[2];
    int channel[2];
    check(!pipe(streams) && !socketpair(AF_UNIX, SOCK_STREAM, 0, channel), "no pipe");
    fcntl(streams[1], F_SETFL, O_NONBLOCK | (draw(2) ? O_DIRECT : 0));
    uint64_t size = draw(most);
    uint64_t limit = draw(5) ? draw(most) + 1 : draw(6);
    char *sent = malloc(size + 1);
    for (uint64_t i = 0; i < size; i++) sent[i] = (char)draw(256);

    vj_run run = {.owner = getpid(), .channel = channel[0]};
    vj_capture *capture = vj_capture_new(streams[0], limit);
    uint64_t written = 0, offset = 0;
    int input = -1;
    vj_exit result;
    vj_error error;
    ended = 0;
    while (written < size) {
        uint32_t piece = draw(PIPE_MAX) + 1;
        if (piece > size - written) piece = (uint32_t)(size - written);
        ssize_t count = write(streams[1], sent + written, piece);
        if (count > 0) written += (uint64_t)count;
        if (count <= 0 || !draw(3)) {
            vj_status status = vj_run_communicate(&run, NULL, 0, &offset, &input, capture,
                                                  NULL, 0, &result, &error);
            check(status == VJ_TIMED_OUT, "a run that goes on has ended");
            // What is looked at in between is put in order, and read on from there.
            if (!draw(20)) vj_capture_bytes(capture);
        }
    }
    // A writer that stays open must not be waited for once the run has ended.
    int stays_open = draw(2) != 0;
    if (!stays_open) close(streams[1]);
    ended = 1;
    vj_status status = vj_run_communicate(&run, NULL, 0, &offset, &input, capture, NULL,
                                          -1, &result, &error);
    check(status == VJ_OK && result.status == 7, "the end was not told");
    judge(capture, sent, size, limit);
    if (stays_open) close(streams[1]);
    vj_capture_free(capture);
    close(channel[0]);
    close(channel[1]);
    free(sent);
}

// Input larger than a pipe is fed while output is read, and the descriptor closed at its
// end.
static void echo_round(uint32_t size) {
    int in[2], channel[2];
    check(!pipe(in) && !socketpair(AF_UNIX, SOCK_STREAM, 0, channel), "no pipe");
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    char *sent = malloc(size + 1);
    for (uint32_t i = 0; i < size; i++) sent[i] = (char)draw(256);
    vj_run run = {.owner = getpid(), .channel = channel[0]};
    // What is fed comes back: the capture reads the other end of the same pipe.
    vj_capture *capture = vj_capture_new(in[0], size + 1);
    uint64_t offset = 0;
    int input = in[1];
    vj_exit result;
    vj_error error;
    ended = 0;
    vj_status status = VJ_OK;
    for (int turn = 0; turn < 100000 && vj_capture_total(capture) < size; turn++) {
        status = vj_run_communicate(&run, sent, size, &offset, &input, NULL, capture,
                                    1000000, &result, &error);
    }
    check(status == VJ_TIMED_OUT, "a run that goes on has ended");
    check(offset == size && input == -1, "the input was not fed to its end");
    judge(capture, sent, size, size + 1);
    vj_capture_free(capture);
    close(channel[0]);
    close(channel[1]);
    free(sent);
}

// A reader that has gone: the rest of the input is dropped, and nothing is killed by
// SIGPIPE.
static void broken_round(void) {
    int in[2], channel[2];
    check(!pipe(in) && !socketpair(AF_UNIX, SOCK_STREAM, 0, channel), "no pipe");
    close(in[0]);
    vj_run run = {.owner = getpid(), .channel = channel[0]};
    uint64_t offset = 0;
    int input = in[1];
    vj_exit result;
    vj_error error;
    ended = 0;
    vj_status status =
        vj_run_communicate(&run, "x", 1, &offset, &input, NULL, NULL, 0, &result, &error);
    check(status == VJ_TIMED_OUT && input == -1, "broken input was kept open");
    close(channel[0]);
    close(channel[1]);
}

static void stage_names(void) {
    for (uint32_t stage = 0; stage < VJ_STAGE_END; stage++) {
        check(strcmp(vj_stage_name(stage), "unknown") != 0, "a stage has no name");
        for (uint32_t other = 0; other < stage; other++) {
            check(strcmp(vj_stage_name(stage), vj_stage_name(other)) != 0,
                  "two stages, one name");
        }
    }
    check(!strcmp(vj_stage_name(VJ_STAGE_END), "unknown"), "a name past the last stage");
    check(!strcmp(vj_stage_name(UINT32_MAX), "unknown"), "a name for no stage");
    char text[4096];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    vj_error error;
    check(vj_fail(&error, VJ_REFUSED, VJ_STAGE_PLAN, 5, text) == VJ_REFUSED,
          "wrong status");
    check(strlen(error.text) == sizeof error.text - 1 && error.index == -1,
          "a long text");
}

int main(void) {
    for (int round = 0; round < ROUNDS; round++) one_round(MOST);
    for (int round = 0; round < 30; round++) one_round(BIG);
    for (int round = 0; round < 6; round++) one_round(FLOOD);
    for (uint32_t size = 1; size < 20; size++) echo_round(size * 20011);
    broken_round();
    stage_names();
    check(prepared == ROUNDS + 36, "no keeper was asked for");
    printf("%d streams\n", ROUNDS + 36);
    return 0;
}
