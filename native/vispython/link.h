// The bytes between a worker and its host, below the frames.
//
// One file for each system implements it (linux_link.c, windows_link.c). Reading and
// writing wait, and are called without the lock of the interpreter.
#ifndef VISPYTHON_LINK_H
#define VISPYTHON_LINK_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    VIS_LINK_BYTES,
    VIS_LINK_END,        // the host has closed its end
    VIS_LINK_BROKEN_OFF, // by a signal or an order of the host; nothing was lost
    VIS_LINK_FAILED,
} vis_link_event;

// Whether this process has a host to talk to: not one that was forked from a worker.
bool vis_link_is_there(void);

// Wait for bytes, up to `size` of them; `*got` is how many came.
vis_link_event vis_link_read(void *bytes, size_t size, size_t *got);

// Write two parts, one after the other and whole, whatever interrupts it. The caller has
// the lock below.
bool vis_link_write(const void *first, size_t first_size, const void *second,
                    size_t second_size);

// Set the exception that says why the last call failed.
void vis_link_set_error(void);

// The first `count` descriptors that came and were not taken belong to the frame that is
// taken now; false if there are fewer.
bool vis_link_take_descriptors(unsigned count);

// Held while a frame is sent, so that two threads do not mix theirs.
void vis_link_lock(void);
bool vis_link_try_lock(void);
void vis_link_unlock(void);

#endif
