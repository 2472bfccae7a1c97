// Output of a run: read while it runs, bounded in memory, never blocking it.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "posix_capture.h"

#define READ_SIZE     65536u
#define POLL_SLICE_MS 1000       // so that a signal taken by another thread is noticed
#define READS_A_TURN  64         // then look at the run, the clock and the other stream
#define TERMINAL_REST (1u << 20) // after the end; the kernel holds back far less
// Most bytes of the end that are kept when output is cut. What passes by beyond the limit
// is read into this ring, and one that the processor's cache cannot hold halves the
// speed.
#define RING_SIZE (1u << 20)
// Beyond this much a stream is a flood: what counts then is the speed of its writer,
// which is woken and put to sleep for each piece that a fast reader takes. So the pipe
// gets wider, and a reader that found little in it looks away for a moment.
#define FLOOD     (1u << 20)
#define LITTLE    (1u << 17) // a quarter of the wide pipe
#define MOMENT_NS 20000      // the kernel adds its slack of 50 us

// A writer may put its end of a pipe into packet mode (O_DIRECT, pipe(2)): each read then
// takes one packet, and what does not fit is gone and counted nowhere. A packet is no
// longer than a page, so no read has less room.
#define PACKET_MOST 65536u // the largest page

// Byte i of the stream lies at i while i < limit; after that the end of that is a ring,
// so the first bytes and the last ones are kept.
struct vj_capture {
    int descriptor;
    uint64_t limit;
    uint64_t total;
    char *bytes;
    uint64_t capacity;
    uint64_t origin; // where the ring began when it was last put in order
    size_t packet;   // of this machine
    bool floods;
    bool wide; // is a pipe that holds more than others
    char spill[PACKET_MOST];
};

vj_capture *vj_capture_new(int descriptor, uint64_t limit) {
    // Not cleared: hardly ever is any of the spill used.
    vj_capture *capture = malloc(sizeof *capture);
    if (!capture) return NULL;
    capture->descriptor = descriptor;
    capture->limit = limit < 2 ? 2 : limit;
    capture->total = capture->capacity = capture->origin = 0;
    capture->bytes = NULL;
    capture->floods = capture->wide = false;
    long page = sysconf(_SC_PAGESIZE);
    capture->packet = page > 0 && page < (long)PACKET_MOST ? (size_t)page : PACKET_MOST;
    int flags = fcntl(descriptor, F_GETFL);
    if (flags >= 0) fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
    return capture;
}

static void end_stream(vj_capture *capture) {
    if (capture->descriptor >= 0) close(capture->descriptor);
    capture->descriptor = -1;
}

void vj_capture_free(vj_capture *capture) {
    if (!capture) return;
    end_stream(capture);
    free(capture->bytes);
    free(capture);
}

uint64_t vj_capture_total(const vj_capture *capture) {
    return capture->total;
}

uint64_t vj_capture_size(const vj_capture *capture) {
    return capture->total < capture->limit ? capture->total : capture->limit;
}

static uint64_t ring_size(const vj_capture *capture) {
    uint64_t half = capture->limit - capture->limit / 2;
    return half < RING_SIZE ? half : RING_SIZE;
}

static void reverse(char *bytes, uint64_t size) {
    for (uint64_t i = 0; i < size / 2; i++) {
        char byte = bytes[i];
        bytes[i] = bytes[size - 1 - i];
        bytes[size - 1 - i] = byte;
    }
}

// The place in the ring of the next byte, which is that of the oldest one.
static uint64_t place_in_ring(const vj_capture *capture, uint64_t ring) {
    return (capture->total - (capture->limit - ring) - capture->origin) % ring;
}

// In place: a second copy of what may be many megabytes would cost more than to read
// them.
const char *vj_capture_bytes(vj_capture *capture) {
    if (capture->total <= capture->limit) return capture->bytes;
    uint64_t ring = ring_size(capture);
    char *bytes = capture->bytes + (capture->limit - ring);
    uint64_t at = place_in_ring(capture, ring);
    reverse(bytes, at);
    reverse(bytes + at, ring - at);
    reverse(bytes, ring);
    capture->origin = (capture->total - (capture->limit - ring)) % ring;
    return capture->bytes;
}

// Where the next byte goes, and how many fit there in one piece.
static char *room(vj_capture *capture, size_t *size) {
    uint64_t at = capture->total;
    uint64_t end = capture->limit;
    if (at >= capture->limit) {
        uint64_t ring = ring_size(capture);
        at = capture->limit - ring + place_in_ring(capture, ring);
    }
    if (at >= capture->capacity) {
        uint64_t wanted = capture->capacity ? capture->capacity * 2 : READ_SIZE;
        if (wanted > capture->limit) wanted = capture->limit;
        char *larger = realloc(capture->bytes, wanted);
        if (!larger) return NULL;
        capture->bytes = larger;
        capture->capacity = wanted;
    }
    if (end > capture->capacity) end = capture->capacity;
    *size = (size_t)(end - at);
    return capture->bytes + at;
}

// Take in what was read beyond the room that there was.
static bool keep_spilled(vj_capture *capture, size_t count) {
    for (size_t kept = 0; kept < count;) {
        size_t size;
        char *to = room(capture, &size);
        if (!to) return false;
        if (size > count - kept) size = count - kept;
        memcpy(to, capture->spill + kept, size);
        capture->total += size;
        kept += size;
    }
    return true;
}

// Read what is there, `most` bytes of it. Returns false only when memory ran out.
static bool drain(vj_capture *capture, uint64_t most) {
    for (int i = 0; most && i < READS_A_TURN; i++) {
        size_t size;
        char *to = room(capture, &size);
        if (!to) return false;
        if (size > most) size = (size_t)most;
        size_t more = size < capture->packet ? capture->packet : 0;
        if (more > most - size) more = (size_t)(most - size);
        struct iovec places[2] = {{to, size}, {capture->spill, more}};
        ssize_t count = readv(capture->descriptor, places, more ? 2 : 1);
        if (count > 0) {
            size_t beyond = (size_t)count > size ? (size_t)count - size : 0;
            capture->total += (uint64_t)count - beyond;
            most -= (uint64_t)count;
            if (!keep_spilled(capture, beyond)) return false;
            if ((size_t)count < size) return true;
            continue;
        }
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        end_stream(capture); // end of file, or EIO from a terminal: the same
        return true;
    }
    return true;
}

static void feed(vj_run *run, const char *input, uint64_t size, uint64_t *offset,
                 int *descriptor) {
    while (*offset < size) {
        int64_t count = vj_run_write(run, *descriptor, input + *offset, size - *offset);
        if (count == -EINTR) continue;
        if (count == -EAGAIN || count == -EWOULDBLOCK) return;
        if (count < 0) break; // EPIPE: the program does not want the rest
        *offset += (uint64_t)count;
    }
    vj_run_let_go(run, *descriptor);
    *descriptor = -1;
}

static bool is_open(const vj_capture *capture) {
    return capture && capture->descriptor >= 0;
}

// After the end of the run: what is still there, but not what somebody else goes
// on writing, who got hold of the stream. A pipe tells how much it holds; a
// terminal does not, and gives its last chunks 4 KiB a read.
static bool drain_rest(vj_run *run, vj_capture *capture) {
    if (!is_open(capture)) return true;
    uint64_t left = TERMINAL_REST;
    struct stat status;
    if (fstat(capture->descriptor, &status) == 0 && S_ISFIFO(status.st_mode)) {
        int64_t held = vj_run_pending(run, capture->descriptor);
        if (held >= 0) left = (uint64_t)held;
    }
    while (left && is_open(capture)) {
        uint64_t before = capture->total;
        uint32_t call = vj_run_call(run);
        bool has_room = drain(capture, left);
        vj_run_called(run, call);
        if (!has_room) return false;
        if (capture->total == before) break;
        left -= capture->total - before;
    }
    end_stream(capture);
    return true;
}

// Read what poll(2) has announced. Returns false only when memory ran out; `ahead` is set
// when the reader of a flood was faster than its writer.
static bool take(vj_run *run, vj_capture *capture, bool *ahead) {
    uint64_t before = capture->total;
    uint32_t call = vj_run_call(run);
    bool has_room = drain(capture, UINT64_MAX);
    bool floods = has_room && capture->total >= FLOOD && is_open(capture);
    if (floods && !capture->floods) capture->wide = vj_stream_widen(capture->descriptor);
    vj_run_called(run, call);
    if (!has_room) return false;
    if (!floods) return true;
    capture->floods = true;
    if (capture->wide && capture->total - before < LITTLE) *ahead = true;
    return true;
}

static int slice_of(int64_t deadline) {
    if (deadline < 0) return POLL_SLICE_MS;
    int64_t left = deadline - vj_now_ns();
    if (left <= 0) return 0;
    int64_t milliseconds = (left + 999999) / 1000000;
    return milliseconds < POLL_SLICE_MS ? (int)milliseconds : POLL_SLICE_MS;
}

vj_status vj_run_communicate(vj_run *run, const char *input, uint64_t input_size,
                             uint64_t *input_offset, int *input_descriptor,
                             vj_capture *output, vj_capture *errors, int64_t timeout_ns,
                             vj_exit *result, vj_error *error) {
    if (vj_run_owner(run) != getpid()) {
        return vj_fail(error, VJ_CLOSED, VJ_STAGE_HOST, 0,
                       "the run was started by another process");
    }
    int64_t deadline = timeout_ns < 0 ? -1 : vj_now_ns() + timeout_ns;
    int64_t look_around = vj_now_ns() + (int64_t)POLL_SLICE_MS * 1000000;
    vj_capture *captures[2] = {output, errors};
    bool readable = false;
    for (;;) {
        if (vj_run_ended(run, readable, result)) {
            // All writers are gone. What the pipes still hold is read; a
            // descriptor that found its way into another run is not waited for.
            for (int i = 0; i < 2; i++) {
                if (!drain_rest(run, captures[i])) {
                    return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM,
                                   "out of memory");
                }
            }
            if (*input_descriptor >= 0) close(*input_descriptor);
            *input_descriptor = -1;
            vj_jail_prepare(run);
            return VJ_OK;
        }
        struct pollfd events[4] = {
            {.fd = vj_run_channel(run), .events = POLLIN},
            {.fd = is_open(output) ? output->descriptor : -1, .events = POLLIN},
            {.fd = is_open(errors) ? errors->descriptor : -1, .events = POLLIN},
            {.fd = *input_descriptor, .events = POLLOUT},
        };
        int slice = slice_of(deadline);
        int ready = poll(events, 4, slice);
        if (ready < 0 && errno == EINTR) {
            return vj_fail(error, VJ_INTERRUPTED, VJ_STAGE_HOST, EINTR, "interrupted");
        }
        if (events[3].revents)
            feed(run, input, input_size, input_offset, input_descriptor);
        bool ahead = false;
        for (int i = 0; i < 2; i++) {
            if (events[1 + i].revents && !take(run, captures[i], &ahead)) {
                return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM,
                               "out of memory");
            }
        }
        readable = events[0].revents != 0;
        if (ahead && !readable) {
            const struct timespec moment = {.tv_nsec = MOMENT_NS};
            nanosleep(&moment, NULL);
        }
        // The clock counts while output floods in, too.
        int64_t now = vj_now_ns();
        if (!readable && deadline >= 0 && now >= deadline) {
            return vj_fail(error, VJ_TIMED_OUT, VJ_STAGE_HOST, 0, "still running");
        }
        if (!readable && (ready == 0 || now >= look_around)) {
            return vj_fail(error, VJ_INTERRUPTED, VJ_STAGE_HOST, 0, "look around");
        }
    }
}
