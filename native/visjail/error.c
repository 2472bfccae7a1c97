// Names of stages, and the one place that fills an error record. Pure.

#include "error.h"

#include <string.h>

static const char *const stage_names[VJ_STAGE_END] = {
    [VJ_STAGE_NONE] = "start",
    [VJ_STAGE_PLAN] = "plan",
    [VJ_STAGE_GROUP] = "cgroup",
    [VJ_STAGE_USER_NAMESPACE] = "user namespace",
    [VJ_STAGE_ID_MAP] = "id map",
    [VJ_STAGE_NAMESPACES] = "namespaces",
    [VJ_STAGE_PROCESS] = "process",
    [VJ_STAGE_PROPAGATION] = "mount propagation",
    [VJ_STAGE_SOURCE] = "mount source",
    [VJ_STAGE_SOURCE_CHANGED] = "mount source changed",
    [VJ_STAGE_MOUNT] = "mount",
    [VJ_STAGE_MOUNT_POINT] = "mount point",
    [VJ_STAGE_VERIFY] = "mount verification",
    [VJ_STAGE_PROC] = "proc mount",
    [VJ_STAGE_DEVICES] = "devices",
    [VJ_STAGE_NETWORK] = "network",
    [VJ_STAGE_PIVOT] = "pivot_root",
    [VJ_STAGE_CAPABILITIES] = "capabilities",
    [VJ_STAGE_LANDLOCK] = "landlock",
    [VJ_STAGE_SECCOMP] = "seccomp",
    [VJ_STAGE_BROKER] = "broker",
    [VJ_STAGE_PORTS] = "ports",
    [VJ_STAGE_CANARIES] = "canaries",
    [VJ_STAGE_LEFT] = "canary left",
    [VJ_STAGE_SUPERVISOR] = "supervisor",
    [VJ_STAGE_REQUEST] = "request",
    [VJ_STAGE_SESSION] = "session",
    [VJ_STAGE_DESCRIPTORS] = "descriptors",
    [VJ_STAGE_TERMINAL] = "terminal",
    [VJ_STAGE_DIRECTORY] = "working directory",
    [VJ_STAGE_LIMITS] = "limits",
    [VJ_STAGE_EXECUTE] = "execute",
    [VJ_STAGE_HOST] = "host",
    [VJ_STAGE_BUBBLEWRAP] = "bubblewrap",
    [VJ_STAGE_NESTED] = "sandbox around the host",
    [VJ_STAGE_SANDBOX] = "sandbox",
};

const char *vj_stage_name(uint32_t stage) {
    return stage < VJ_STAGE_END && stage_names[stage] ? stage_names[stage] : "unknown";
}

vj_status vj_fail(vj_error *error, vj_status status, uint32_t stage, int os_error,
                  const char *text) {
    memset(error, 0, sizeof *error);
    error->stage = stage;
    error->os_error = os_error;
    error->index = -1;
    size_t length = strlen(text);
    if (length >= sizeof error->text) length = sizeof error->text - 1;
    memcpy(error->text, text, length);
    return status;
}
