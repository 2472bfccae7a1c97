// What the host-side files share: the run, and messages to and from the jail.
#ifndef VJ_POSIX_PROCESS_H
#define VJ_POSIX_PROCESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "message.h"
#include "visjail.h"

struct vj_run {
    vj_jail *jail; // outlives the run
    pid_t owner;   // the process that started it
    int channel;
    pthread_mutex_t ordering; // one order that is answered at a time
    pthread_mutex_t lock;     // over everything below: one waits, another may kill
    bool ended;
    bool reusable;    // its keeper has nothing left of the run
    bool watched;     // the host looks at the channel itself
    uint32_t done;    // orders that the keeper has carried out
    int64_t must_end; // when even a hindered keeper has ended it; 0: no order given
    uint32_t order;   // what ended it then: 1 timeout, 2 killed
    vj_exit result;
};

vj_status vj_send(int socket, const vj_message *message, const void *data, size_t size,
                  const int *descriptors, uint32_t count, vj_error *error);
vj_status vj_receive(int socket, int flags, vj_message *message, int *descriptors,
                     uint32_t *count, vj_error *error);

// Whether the run has ended; fills `result` if so. `readable`: its channel has
// something. An order to end that is not carried out in time ends the jail.
bool vj_run_ended(vj_run *run, bool readable, vj_exit *result);
// Have a keeper ready for the next run: that of this one, which has ended, or a new
// one, for which nobody waits here.
void vj_jail_prepare(vj_run *run);
int64_t vj_now_ns(void);

#endif
