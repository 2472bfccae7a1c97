// What the host-side files share: the run, and messages to and from the jail.
#ifndef VJ_POSIX_PROCESS_H
#define VJ_POSIX_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "message.h"
#include "visjail.h"

struct vj_run {
    vj_jail *jail; // outlives the run
    pid_t owner;   // the process that started it
    int channel;
    bool ended;
    vj_exit result;
};

vj_status vj_send(int socket, const vj_message *message, const void *data, size_t size,
                  const int *descriptors, uint32_t count, vj_error *error);
vj_status vj_receive(int socket, int flags, vj_message *message, int *descriptors,
                     uint32_t *count, vj_error *error);

// Take the end of the run off the channel: VJ_TIMED_OUT if it has not come.
vj_status vj_run_collect(vj_run *run, vj_error *error);
// Have a keeper made for the next run, without waiting for it.
void vj_jail_prepare(vj_jail *jail);
int64_t vj_now_ns(void);

#endif
