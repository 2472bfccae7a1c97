// Streams that are closed while others use them; see streams.h.

#include "streams.h"

#include <stdlib.h>

// How often a use is canceled again: it may have been about to begin when it was the last
// time.
#define CANCEL_SLICE_MS 5u
// A single wait for the kernel; then the stream is looked at again.
#define WAIT_SLICE_MS 1000u

struct vj_stream {
    vj_identified identified;
    vj_streams *streams;
    vj_stream *next;
    const void *tag;
    vj_windows_direction direction;
    vj_windows_handle pipe;
    vj_windows_handle event;
    vj_stream_rest *rest;
    // Of what follows, all belongs to the monitor.
    uint32_t users; // that are in a call for the pipe
    bool moving;    // one of them moves bytes: there is one event
    bool closed;    // nobody may begin
    bool finished;  // the other end is gone, and all was read
};

uint32_t vj_windows_handle_release(const vj_windows_os *os, vj_windows_handle *slot) {
    if (!*slot) return 0;
    uint32_t error = os->handle_close(os, *slot);
    if (!error) *slot = NULL;
    return error;
}

static void destroy(vj_identified *object) {
    vj_stream *stream = vj_stream_of(object);
    vj_streams *streams = stream->streams;
    free(stream);
    vj_identifiers_drop(streams->identifiers, streams->owner);
}

vj_stream *vj_stream_new(vj_streams *streams, uint32_t kind, const void *tag,
                         vj_windows_direction direction, vj_windows_handle pipe,
                         vj_windows_handle event, vj_stream_rest *rest) {
    vj_stream *stream = calloc(1, sizeof *stream);
    if (!stream) return NULL;
    vj_identified_begin(&stream->identified, kind, destroy);
    vj_identifiers_hold(streams->identifiers, streams->owner);
    stream->streams = streams;
    stream->tag = tag;
    stream->direction = direction;
    stream->pipe = pipe;
    stream->event = event;
    stream->rest = rest;
    vj_monitor_enter(&streams->monitor);
    stream->next = streams->first;
    streams->first = stream;
    streams->open++;
    vj_monitor_leave(&streams->monitor);
    return stream;
}

vj_identified *vj_stream_identified(vj_stream *stream) {
    return &stream->identified;
}

vj_stream *vj_stream_of(vj_identified *object) {
    return (vj_stream *)(void *)object; // its first member
}

vj_windows_direction vj_stream_direction(const vj_stream *stream) {
    return stream->direction;
}

vj_streams *vj_stream_owner(const vj_stream *stream) {
    return stream->streams;
}

const void *vj_stream_console(const vj_stream *stream) {
    return stream->rest ? stream->tag : NULL;
}

// ---- the end of a stream, in the monitor

static void unlink_stream(vj_stream *stream) {
    vj_stream **at = &stream->streams->first;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    stream->next = NULL;
    stream->streams->open--;
}

// Release the handles of a closed stream that nobody uses, or hand them on. True: it has
// left the context, whose reference is to be dropped outside of the monitor.
static bool settle(vj_stream *stream) {
    vj_streams *streams = stream->streams;
    if (!stream->closed || stream->users || (!stream->pipe && !stream->event)) {
        return false;
    }
    if (stream->rest) {
        stream->rest->pipe = stream->pipe;
        stream->rest->event = stream->event;
        stream->pipe = stream->event = NULL;
    }
    uint32_t error = vj_windows_handle_release(streams->os, &stream->pipe);
    if (!error) error = vj_windows_handle_release(streams->os, &stream->event);
    if (error) {
        streams->last_error = error;
        return false;
    }
    unlink_stream(stream);
    vj_monitor_wake(&streams->monitor);
    return true;
}

static void leave_and_drop(vj_stream *stream, bool settled) {
    vj_streams *streams = stream->streams;
    vj_monitor_leave(&streams->monitor);
    if (settled) vj_identifiers_drop(streams->identifiers, &stream->identified);
}

// Cancel what is in flight. The stream counts as used meanwhile: its handle stays.
static void cancel_once(vj_stream *stream) {
    vj_streams *streams = stream->streams;
    stream->users++;
    vj_monitor_leave(&streams->monitor);
    // One that fails is repeated, as one that came too early.
    (void)streams->os->pipe_cancel(streams->os, stream->pipe);
    vj_monitor_enter(&streams->monitor);
    stream->users--;
}

// Its number goes here, too: whoever uses the stream last may be in another thread.
static void mark_closed(vj_stream *stream) {
    if (stream->closed) return;
    stream->closed = true;
    vj_identifiers_remove(stream->streams->identifiers, &stream->identified);
    vj_monitor_wake(&stream->streams->monitor);
}

vj_windows_status vj_stream_close(vj_stream *stream, uint32_t patience_ms,
                                  uint32_t *os_error) {
    vj_streams *streams = stream->streams;
    const vj_windows_os *os = streams->os;
    *os_error = 0;
    if (!vj_identifiers_remove(streams->identifiers, &stream->identified)) {
        return VJ_WINDOWS_STALE;
    }
    uint64_t deadline = os->now_ms(os) + patience_ms;
    vj_monitor_enter(&streams->monitor);
    mark_closed(stream);
    bool canceled = false;
    while (stream->users && (!canceled || os->now_ms(os) < deadline)) {
        cancel_once(stream);
        canceled = true;
        if (stream->users) vj_monitor_wait(&streams->monitor, CANCEL_SLICE_MS);
    }
    bool settled = settle(stream);
    // Unused, and still not settled: by somebody else in between, or a handle resists.
    if (!settled && !stream->users && (stream->pipe || stream->event)) {
        *os_error = streams->last_error;
    }
    leave_and_drop(stream, settled);
    return *os_error ? VJ_WINDOWS_SYSTEM : VJ_WINDOWS_OK;
}

static bool belongs(const vj_stream *stream, const void *tag) {
    return !tag || stream->tag == tag;
}

// Settle what can be; returns a stream that is used. `*left` counts those that nobody
// uses and that could not be settled. The settled ones are chained in `*gone`.
static vj_stream *settle_all(vj_streams *streams, const void *tag, uint32_t *left,
                             vj_stream **gone) {
    vj_stream *used = NULL;
    vj_stream *next = NULL;
    *left = 0;
    for (vj_stream *stream = streams->first; stream; stream = next) {
        next = stream->next;
        if (!belongs(stream, tag)) continue;
        if (stream->users) {
            used = stream;
        } else if (settle(stream)) {
            stream->next = *gone;
            *gone = stream;
        } else {
            (*left)++;
        }
    }
    return used;
}

vj_windows_status vj_streams_close(vj_streams *streams, const void *tag,
                                   uint32_t patience_ms, uint32_t *os_error) {
    const vj_windows_os *os = streams->os;
    uint64_t deadline = os->now_ms(os) + patience_ms;
    vj_windows_status status = VJ_WINDOWS_OK;
    vj_stream *gone = NULL;
    uint32_t left = 0;
    *os_error = 0;
    vj_monitor_enter(&streams->monitor);
    for (vj_stream *stream = streams->first; stream; stream = stream->next) {
        if (belongs(stream, tag)) mark_closed(stream);
    }
    for (;;) {
        vj_stream *used = settle_all(streams, tag, &left, &gone);
        if (!used) break;
        if (os->now_ms(os) >= deadline) {
            status = VJ_WINDOWS_TIMED_OUT;
            break;
        }
        cancel_once(used);
        if (used->users) vj_monitor_wait(&streams->monitor, CANCEL_SLICE_MS);
    }
    if (status == VJ_WINDOWS_OK && left) {
        status = VJ_WINDOWS_SYSTEM;
        *os_error = streams->last_error;
    }
    vj_monitor_leave(&streams->monitor);
    while (gone) {
        vj_stream *next = gone->next;
        vj_identifiers_drop(streams->identifiers, &gone->identified);
        gone = next;
    }
    return status;
}

// ---- moving bytes

static uint64_t deadline_of(const vj_windows_os *os, int64_t timeout_ms) {
    return timeout_ms < 0 ? UINT64_MAX : os->now_ms(os) + (uint64_t)timeout_ms;
}

static uint32_t slice_of(const vj_windows_os *os, uint64_t deadline) {
    uint64_t now = os->now_ms(os);
    uint64_t left = deadline > now ? deadline - now : 0;
    return left < WAIT_SLICE_MS ? (uint32_t)left : WAIT_SLICE_MS;
}

// Become the one that moves bytes.
static vj_windows_status begin(vj_stream *stream, uint64_t deadline) {
    vj_streams *streams = stream->streams;
    vj_windows_status status = VJ_WINDOWS_OK;
    vj_monitor_enter(&streams->monitor);
    while (stream->moving && !stream->closed) {
        uint32_t slice = slice_of(streams->os, deadline);
        if (!slice) break;
        vj_monitor_wait(&streams->monitor, slice);
    }
    if (stream->closed) {
        status = VJ_WINDOWS_STALE;
    } else if (stream->moving) {
        status = VJ_WINDOWS_TIMED_OUT;
    } else {
        stream->moving = true;
        stream->users++;
    }
    vj_monitor_leave(&streams->monitor);
    return status;
}

static void end(vj_stream *stream, bool finished) {
    vj_streams *streams = stream->streams;
    vj_monitor_enter(&streams->monitor);
    stream->moving = false;
    stream->users--;
    if (finished) stream->finished = true;
    bool settled = settle(stream);
    vj_monitor_wake(&streams->monitor);
    leave_and_drop(stream, settled);
}

static bool is_closed(vj_stream *stream) {
    vj_monitor_enter(&stream->streams->monitor);
    bool closed = stream->closed;
    vj_monitor_leave(&stream->streams->monitor);
    return closed;
}

// What an operation that moved nothing means for the call: VJ_WINDOWS_OK, go on.
static vj_windows_status judge(vj_stream *stream, uint32_t error, uint64_t deadline,
                               uint32_t *os_error) {
    const vj_windows_os *os = stream->streams->os;
    switch (error) {
    case VJ_WINDOWS_ERROR_TIMEOUT:
    case VJ_WINDOWS_ERROR_OPERATION_ABORTED:
        if (is_closed(stream)) return VJ_WINDOWS_STALE;
        return os->now_ms(os) >= deadline ? VJ_WINDOWS_TIMED_OUT : VJ_WINDOWS_OK;
    case VJ_WINDOWS_ERROR_BROKEN_PIPE:
    case VJ_WINDOWS_ERROR_NO_DATA:
    case VJ_WINDOWS_ERROR_HANDLE_EOF: return VJ_WINDOWS_ENDED;
    default: *os_error = error; return VJ_WINDOWS_SYSTEM;
    }
}

static uint32_t piece_of(uint64_t size) {
    return size < INT32_MAX ? (uint32_t)size : INT32_MAX;
}

vj_windows_status vj_stream_read(vj_stream *stream, void *bytes, uint64_t capacity,
                                 int64_t timeout_ms, uint64_t *count,
                                 uint32_t *os_error) {
    const vj_windows_os *os = stream->streams->os;
    uint64_t deadline = deadline_of(os, timeout_ms);
    *count = 0;
    *os_error = 0;
    vj_windows_status status = begin(stream, deadline);
    if (status != VJ_WINDOWS_OK) return status;
    bool finished = stream->finished; // of one that moves, nobody else's
    while (!finished && status == VJ_WINDOWS_OK) {
        uint32_t moved = 0;
        uint32_t error =
            os->pipe_read(os, stream->pipe, stream->event, bytes, piece_of(capacity),
                          slice_of(os, deadline), &moved);
        // A guest that writes nothing, but does write, ends a read: this is no end.
        if (!error && !moved) error = VJ_WINDOWS_ERROR_TIMEOUT;
        if (!error) {
            *count = moved;
            break;
        }
        status = judge(stream, error, deadline, os_error);
        finished = status == VJ_WINDOWS_ENDED;
    }
    end(stream, finished);
    return finished ? VJ_WINDOWS_OK : status;
}

vj_windows_status vj_stream_write(vj_stream *stream, const void *bytes, uint64_t size,
                                  int64_t timeout_ms, uint64_t *count,
                                  uint32_t *os_error) {
    const vj_windows_os *os = stream->streams->os;
    uint64_t deadline = deadline_of(os, timeout_ms);
    *count = 0;
    *os_error = 0;
    // Not even a look: a program that is quick has ended by now, and rightly.
    if (!size) return VJ_WINDOWS_OK;
    vj_windows_status status = begin(stream, deadline);
    if (status != VJ_WINDOWS_OK) return status;
    if (stream->finished) status = VJ_WINDOWS_ENDED;
    while (status == VJ_WINDOWS_OK && *count < size) {
        uint32_t moved = 0;
        uint32_t error =
            os->pipe_write(os, stream->pipe, stream->event, (const char *)bytes + *count,
                           piece_of(size - *count), slice_of(os, deadline), &moved);
        if (!error && !moved) error = VJ_WINDOWS_ERROR_TIMEOUT;
        *count += moved;
        if (error) status = judge(stream, error, deadline, os_error);
        else if (*count < size && is_closed(stream)) status = VJ_WINDOWS_STALE;
    }
    end(stream, status == VJ_WINDOWS_ENDED);
    return status;
}
