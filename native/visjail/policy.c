// The decision. Pure; see policy.h for the semantics.

#include "policy.h"

#include <string.h>

// How a rule speaks about a right, weakest first: at the same path the
// stronger verdict stands.
typedef enum { SILENT = 0, DENY_UNLESS_GRANTED, ALLOW, DENY } verdict;

static const verdict verdicts[VJ_RULE_END][VJ_RIGHT_END] = {
    [VJ_RULE_READ] = {[VJ_RIGHT_READ] = ALLOW, [VJ_RIGHT_WRITE] = DENY_UNLESS_GRANTED},
    [VJ_RULE_WRITE] = {[VJ_RIGHT_READ] = ALLOW, [VJ_RIGHT_WRITE] = ALLOW},
    [VJ_RULE_DENY] = {[VJ_RIGHT_READ] = DENY, [VJ_RIGHT_WRITE] = DENY},
    [VJ_RULE_DENY_READ] = {[VJ_RIGHT_READ] = DENY, [VJ_RIGHT_WRITE] = DENY},
    [VJ_RULE_DENY_WRITE] = {[VJ_RIGHT_WRITE] = DENY},
    [VJ_RULE_DENY_EXEC] = {[VJ_RIGHT_EXEC] = DENY},
};

// Whether `path` is `above` or lies beneath it, by whole segments.
static bool covers(const char *above, size_t length, const char *path) {
    if (length == 1) return path[0] == '/';
    return !strncmp(above, path, length) && (path[length] == 0 || path[length] == '/');
}

static verdict longest(const vj_rule *rules, size_t count, vj_right right,
                       const char *path, int32_t *deciding) {
    size_t best_length = 0;
    verdict best = SILENT;
    *deciding = -1;
    for (size_t i = 0; i < count; i++) {
        verdict said =
            rules[i].kind < VJ_RULE_END ? verdicts[rules[i].kind][right] : DENY;
        if (said == SILENT) continue;
        size_t length = strlen(rules[i].path);
        if (!covers(rules[i].path, length, path)) continue;
        if (best == SILENT || length > best_length ||
            (length == best_length && said > best)) {
            best_length = length;
            best = said;
            *deciding = (int32_t)i;
        }
    }
    return best;
}

bool vj_policy_decide(const vj_rule *rules, size_t count, vj_right right,
                      const char *path, int32_t *deciding) {
    // Nothing can be written or executed that cannot be read.
    if (longest(rules, count, VJ_RIGHT_READ, path, deciding) != ALLOW) return false;
    int32_t other;
    switch (right) {
    case VJ_RIGHT_READ: return true;
    case VJ_RIGHT_WRITE:
        return longest(rules, count, VJ_RIGHT_WRITE, path, deciding) == ALLOW;
    case VJ_RIGHT_EXEC:
        if (longest(rules, count, VJ_RIGHT_EXEC, path, &other) == SILENT) return true;
        *deciding = other;
        return false;
    case VJ_RIGHT_END: break;
    }
    *deciding = -1;
    return false;
}
