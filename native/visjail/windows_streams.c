// Streams by their numbers; the work is in streams.c.

#include "windows_core.h"

// How long a reader of a console waits before it looks at the program.
#define LOOK_MS 100

static vj_windows_status find(vj_windows_id id, vj_stream **stream,
                              vj_windows_error *error) {
    vj_windows_status status = vj_windows_check(NULL, 0, error);
    if (status != VJ_WINDOWS_OK) return status;
    vj_identified *found =
        vj_identifiers_find(vj_windows_numbers(), id, VJ_WINDOWS_STREAM_KIND);
    *stream = found ? vj_stream_of(found) : NULL;
    if (found) return VJ_WINDOWS_OK;
    return vj_windows_fail(error, VJ_WINDOWS_STALE, "stream", 0,
                           "there is no such stream (any more)");
}

static vj_windows_status told(vj_windows_status status, const char *step,
                              uint32_t os_error, vj_windows_error *error) {
    switch (status) {
    case VJ_WINDOWS_OK: return status;
    case VJ_WINDOWS_SYSTEM: return vj_windows_fail_os(error, step, os_error);
    case VJ_WINDOWS_STALE:
        return vj_windows_fail(error, status, step, 0, "the stream was closed");
    case VJ_WINDOWS_ENDED:
        return vj_windows_fail(error, status, step, 0, "the program does not read");
    case VJ_WINDOWS_TIMED_OUT:
    case VJ_WINDOWS_REFUSED:
    case VJ_WINDOWS_UNAVAILABLE:
    case VJ_WINDOWS_STATE:
    case VJ_WINDOWS_CLOSING:
    case VJ_WINDOWS_POISONED:
    case VJ_WINDOWS_MISMATCH:
    case VJ_WINDOWS_CHANGED:
    case VJ_WINDOWS_NO_MEMORY: break;
    }
    return vj_windows_fail(error, status, step, 0, "the time of the call is over");
}

static vj_windows_status wrong_way(const char *step, vj_windows_error *error) {
    return vj_windows_fail(error, VJ_WINDOWS_REFUSED, step, 0,
                           "the stream goes in the other direction");
}

// A console ends its output only when it is closed, and that begins when its program was
// seen to have ended: by a reader, too, if nobody waits.
static vj_windows_status read_console(vj_stream *stream, void *bytes, uint64_t capacity,
                                      int64_t timeout_ms, uint64_t *count,
                                      uint32_t *os_error) {
    vj_streams *streams = vj_stream_owner(stream);
    vj_windows_context *context = (vj_windows_context *)(void *)streams->owner;
    uint64_t begun = context->os->now_ms(context->os);
    for (;;) {
        int64_t left = LOOK_MS;
        if (timeout_ms >= 0) {
            int64_t over = (int64_t)(context->os->now_ms(context->os) - begun);
            left = over >= timeout_ms ? 0 : timeout_ms - over;
            if (left > LOOK_MS) left = LOOK_MS;
        }
        vj_windows_status status =
            vj_stream_read(stream, bytes, capacity, left, count, os_error);
        if (status != VJ_WINDOWS_TIMED_OUT) return status;
        vj_windows_process_look(context, vj_stream_console(stream));
        if (timeout_ms >= 0 && left < LOOK_MS) return status;
    }
}

vj_windows_status vj_windows_read(vj_windows_id id, void *bytes, uint64_t capacity,
                                  int64_t timeout_ms, uint64_t *count,
                                  vj_windows_error *error) {
    vj_stream *stream = NULL;
    uint32_t os_error = 0;
    *count = 0;
    vj_windows_status status = find(id, &stream, error);
    if (status != VJ_WINDOWS_OK) return status;
    if (vj_stream_direction(stream) != VJ_WINDOWS_PIPE_FROM_GUEST) {
        status = wrong_way("read", error);
    } else if (!capacity) {
        status = vj_windows_fail(error, VJ_WINDOWS_REFUSED, "read", 0,
                                 "there is no room to read into");
    } else {
        status = (vj_stream_console(stream) ? read_console : vj_stream_read)(
            stream, bytes, capacity, timeout_ms, count, &os_error);
        status = told(status, "read", os_error, error);
    }
    vj_identifiers_drop(vj_windows_numbers(), vj_stream_identified(stream));
    return status;
}

vj_windows_status vj_windows_write(vj_windows_id id, const void *bytes, uint64_t size,
                                   int64_t timeout_ms, uint64_t *count,
                                   vj_windows_error *error) {
    vj_stream *stream = NULL;
    uint32_t os_error = 0;
    *count = 0;
    vj_windows_status status = find(id, &stream, error);
    if (status != VJ_WINDOWS_OK) return status;
    if (vj_stream_direction(stream) != VJ_WINDOWS_PIPE_TO_GUEST) {
        status = wrong_way("write", error);
    } else {
        status = vj_stream_write(stream, bytes, size, timeout_ms, count, &os_error);
        status = told(status, "write", os_error, error);
    }
    vj_identifiers_drop(vj_windows_numbers(), vj_stream_identified(stream));
    return status;
}

vj_windows_status vj_windows_close_stream(vj_windows_id id, vj_windows_error *error) {
    vj_stream *stream = NULL;
    uint32_t os_error = 0;
    vj_windows_status status = find(id, &stream, error);
    if (status != VJ_WINDOWS_OK) return status;
    status = vj_stream_close(stream, VJ_WINDOWS_BARRIER_MS, &os_error);
    status = told(status, "close the stream", os_error, error);
    vj_identifiers_drop(vj_windows_numbers(), vj_stream_identified(stream));
    return status;
}
