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

// Where something failed. Kept in step with stage_names in error.c.
typedef enum {
    VJ_STAGE_NONE = 0,
    VJ_STAGE_PLAN,
    VJ_STAGE_GROUP,
    VJ_STAGE_USER_NAMESPACE,
    VJ_STAGE_ID_MAP,
    VJ_STAGE_NAMESPACES,
    VJ_STAGE_PROCESS,
    VJ_STAGE_PROPAGATION,
    VJ_STAGE_SOURCE,
    VJ_STAGE_SOURCE_CHANGED,
    VJ_STAGE_MOUNT,
    VJ_STAGE_MOUNT_POINT,
    VJ_STAGE_VERIFY,
    VJ_STAGE_PROC,
    VJ_STAGE_DEVICES,
    VJ_STAGE_NETWORK,
    VJ_STAGE_PIVOT,
    VJ_STAGE_CAPABILITIES,
    VJ_STAGE_LANDLOCK,
    VJ_STAGE_SECCOMP,
    VJ_STAGE_BROKER,
    VJ_STAGE_PORTS,
    VJ_STAGE_CANARIES,
    VJ_STAGE_LEFT,
    VJ_STAGE_SUPERVISOR,
    VJ_STAGE_REQUEST,
    VJ_STAGE_SESSION,
    VJ_STAGE_DESCRIPTORS,
    VJ_STAGE_TERMINAL,
    VJ_STAGE_DIRECTORY,
    VJ_STAGE_LIMITS,
    VJ_STAGE_EXECUTE,
    VJ_STAGE_HOST,
    VJ_STAGE_BUBBLEWRAP,
    VJ_STAGE_NESTED, // macOS: the host is in a sandbox already
    VJ_STAGE_SANDBOX,
    VJ_STAGE_END,
} vj_stage;

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
