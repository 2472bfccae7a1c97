// Streams to and from guests that any thread may read, write and close at any time.
//
// A stream is counted: closing marks it and cancels what is in flight, and whoever uses
// it last releases its native handles, once. So no handle is used after it was closed,
// and none is closed while the kernel still moves bytes for it. Nothing is buffered here:
// a host that does not read holds back its guest.
#ifndef VISJAIL_STREAMS_H
#define VISJAIL_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "identifiers.h"
#include "monitor.h"
#include "windows_jail.h"
#include "windows_os.h"

typedef struct vj_stream vj_stream;

// All streams of one context. Its monitor is that of the context, too.
typedef struct {
    const vj_windows_os *os;
    vj_identifiers *identifiers;
    vj_identified *owner; // the context, which lives as long as any of them
    vj_monitor monitor;
    vj_stream *first;    // of those whose handles are not released yet
    uint32_t open;       // how many these are
    uint32_t last_error; // of a handle that could not be closed
} vj_streams;

// What is left of a terminal's output once nobody reads it: it has to be drained until
// the console is closed (windows_console.c). Guarded by the monitor.
typedef struct {
    vj_windows_handle pipe;
    vj_windows_handle event;
} vj_stream_rest;

// A stream over the host's end of a pipe, which takes both handles. `tag` says to which
// process it belongs. With `rest`, the handles go there when the stream is closed. NULL:
// no memory, and the handles stay with the caller.
vj_stream *vj_stream_new(vj_streams *streams, uint32_t kind, const void *tag,
                         vj_windows_direction direction, vj_windows_handle pipe,
                         vj_windows_handle event, vj_stream_rest *rest);

// The object that has the stream's number; and the way back.
vj_identified *vj_stream_identified(vj_stream *stream);
vj_stream *vj_stream_of(vj_identified *object);
vj_windows_direction vj_stream_direction(const vj_stream *stream);
// Whose it is, and the tag of the process if it is the output of a console, or NULL.
vj_streams *vj_stream_owner(const vj_stream *stream);
const void *vj_stream_console(const vj_stream *stream);

// At least one byte, or `*count` 0 at the end. VJ_WINDOWS_STALE: it was closed.
vj_windows_status vj_stream_read(vj_stream *stream, void *bytes, uint64_t capacity,
                                 int64_t timeout_ms, uint64_t *count, uint32_t *os_error);
// All bytes, unless it fails; `*count` says how many were taken.
vj_windows_status vj_stream_write(vj_stream *stream, const void *bytes, uint64_t size,
                                  int64_t timeout_ms, uint64_t *count,
                                  uint32_t *os_error);

// Close one stream. The number becomes unknown at once; a use in another thread that does
// not let itself be canceled in `patience_ms` releases the handles when it ends.
// VJ_WINDOWS_STALE: somebody else has closed it. VJ_WINDOWS_SYSTEM: a handle could not be
// closed; vj_streams_close tries it again.
vj_windows_status vj_stream_close(vj_stream *stream, uint32_t patience_ms,
                                  uint32_t *os_error);

// The barrier: close the streams of a process (NULL: all), those also that were closed
// before, and wait until every use has ended and every handle is released.
// VJ_WINDOWS_TIMED_OUT, VJ_WINDOWS_SYSTEM: not all are; call it again.
vj_windows_status vj_streams_close(vj_streams *streams, const void *tag,
                                   uint32_t patience_ms, uint32_t *os_error);

// Close the handle in a slot, which stays as it is if that fails.
uint32_t vj_windows_handle_release(const vj_windows_os *os, vj_windows_handle *slot);

#endif
