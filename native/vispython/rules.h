// The rules of the policy inside a worker: what the audit hook explains with.
//
// The host sends them before any code of the guest runs, with the names that the policy
// has for them. They stay as they are until the process ends, so any thread and any
// interpreter of the process reads them without a lock.
#ifndef VISPYTHON_RULES_H
#define VISPYTHON_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "policy.h"

typedef struct {
    vj_rule *rules;
    const char **names; // of each rule, as the policy calls it ("deny[0]")
    size_t count;
    const char **closed; // folders in which nothing can be granted
    size_t closed_count;
} vis_rules;

// Take what `rules` points at, which must stay. False without memory.
bool vis_rules_set(const vis_rules *rules);

// Whether there are rules; without them nothing is judged.
bool vis_rules_known(void);

// Whether the policy gives `right` on an absolute, normal path.
bool vis_rules_allow(vj_right right, const char *path);

// The rule that decides about `right` on `path`, or NULL if none speaks of it.
const vj_rule *vis_rules_deciding(vj_right right, const char *path, const char **name);

// Whether a grant of this very path can be added to the policy.
bool vis_rules_grantable(const char *path);

// Write the absolute form of `path`, without "." and "..", of which a link on the way is
// not known. False if it does not fit, or the working directory is unknown.
bool vis_normal_path(const char *path, char *out, size_t size);

#endif
