// Of a path that a guest gave: the folder, opened, and the name in it.
#ifndef VJ_LINUX_BROKER_TARGET_H
#define VJ_LINUX_BROKER_TARGET_H

#include "linux_broker_names.h"

typedef struct {
    char text[VJ_PATH_MAX]; // a copy of the path
    vj_place place;
    const char *name; // with its slashes at the end
    size_t length;    // without them
} vj_target;

// Open and look up the folder of `wanted->text`, which starts from the guest's
// `directory`. Anything that fails is for the kernel to say.
long vj_target_find(uint32_t thread, int directory, vj_target *wanted);
void vj_target_forget(vj_target *wanted);
vj_name vj_target_verdict(const vj_target *wanted);
// The record of a refusal that is about it.
vj_refused vj_target_refused(const vj_target *wanted, vj_refusal_kind kind);
int vj_target_has_slash(const vj_target *wanted);

// Where a path starts; `path` is moved past what leads there.
long vj_target_start(uint32_t thread, int directory, const char **path);
// Open a path from there, following no link of /proc. O_PATH.
long vj_target_open(int start, const char *path, uint64_t flags);

#endif
