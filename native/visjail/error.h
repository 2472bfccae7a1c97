// One error record for every call of the library: where, what, and a sentence.
#ifndef VJ_ERROR_H
#define VJ_ERROR_H

#include <stdint.h>

typedef enum {
    VJ_OK = 0,
    VJ_REFUSED, // the request is wrong or cannot be enforced; nothing started
    VJ_SYSTEM,  // a system call failed: stage and os_error say which and how
    VJ_CLOSED,  // the jail has ended
    VJ_NO_MEMORY,
    VJ_INTERRUPTED, // a signal arrived: let the caller's handlers run, call again
    VJ_TIMED_OUT,   // the time of this call is over, the work goes on
} vj_status;

typedef struct {
    uint32_t stage;   // vj_stage
    int32_t os_error; // errno, or 0
    int32_t index;    // operation or rule it concerns, or -1
    char text[256];   // for people
} vj_error;

// The name of a stage ("user namespace", "mount"), never NULL.
const char *vj_stage_name(uint32_t stage);

vj_status vj_fail(vj_error *error, vj_status status, uint32_t stage, int os_error,
                  const char *text);

#endif
