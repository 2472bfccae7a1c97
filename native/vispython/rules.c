// The rules of the policy inside a worker; see rules.h.
#include "rules.h"

#include "policy_tree.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static vis_rules known;
static vj_tree tree;
static atomic_bool published;

bool vis_rules_set(const vis_rules *rules) {
    known = *rules;
    if (!vj_tree_build(&tree, known.rules, known.count)) return false;
    atomic_store(&published, true);
    return true;
}

bool vis_rules_known(void) {
    return atomic_load_explicit(&published, memory_order_acquire);
}

bool vis_rules_allow(vj_right right, const char *path) {
    const vj_node *at = vj_tree_nearest(&tree, path);
    if (!at) return false;
    switch (right) {
    case VJ_RIGHT_READ: return at->in_force.read;
    case VJ_RIGHT_WRITE: return at->in_force.write;
    case VJ_RIGHT_EXEC: return at->in_force.exec;
    case VJ_RIGHT_END: break;
    }
    return false;
}

const vj_rule *vis_rules_deciding(vj_right right, const char *path, const char **name) {
    int32_t index = -1;
    vj_policy_decide(known.rules, known.count, right, path, &index);
    *name = index < 0 ? NULL : known.names[index];
    return index < 0 ? NULL : &known.rules[index];
}

bool vis_rules_grantable(const char *path) {
    if (path[1] == 0) return false;
    for (size_t i = 0; i < known.closed_count; i++) {
        size_t length = strlen(known.closed[i]);
        if (!strncmp(path, known.closed[i], length) &&
            (path[length] == 0 || path[length] == '/'))
            return false;
    }
    return true;
}

bool vis_normal_path(const char *path, char *out, size_t size) {
    if (!out || size < 2) return false;
    size_t length = 0;
    if (path[0] != '/') {
        const char *folder = getcwd(out, size);
        if (!folder || folder[0] != '/') return false;
        length = strlen(folder);
        if (length == 1) length = 0;
    }
    while (*path) {
        while (*path == '/') path++;
        size_t part = strcspn(path, "/");
        if (part == 0) break;
        if (part == 2 && path[0] == '.' && path[1] == '.') {
            while (length > 0) {
                length--;
                if (out[length] == '/') break;
            }
        } else if (part != 1 || path[0] != '.') {
            if (length + part + 2 > size) return false;
            out[length++] = '/';
            memcpy(out + length, path, part);
            length += part;
        }
        path += part;
    }
    if (length == 0) out[length++] = '/';
    out[length] = 0;
    return true;
}
