// The rules of a policy as a tree. Pure; see policy_tree.h.

#include "policy_tree.h"

#include <stdlib.h>
#include <string.h>

// ---- paths -----------------------------------------------------------------

int vj_path_compare(const char *left, const char *right) {
    size_t i = 0;
    while (left[i] && left[i] == right[i]) i++;
    int a = left[i] == '/' ? 1 : left[i] == 0 ? 0 : (unsigned char)left[i] + 1;
    int b = right[i] == '/' ? 1 : right[i] == 0 ? 0 : (unsigned char)right[i] + 1;
    return (a > b) - (a < b);
}

bool vj_path_is_beneath(const char *path, const vj_node *above) {
    if (above->length == 1) return true;
    return !strncmp(path, above->path, above->length) &&
           (path[above->length] == 0 || path[above->length] == '/');
}

size_t vj_path_shared_folder(const char *left, const char *right) {
    size_t length = 0;
    for (size_t i = 0; left[i] && left[i] == right[i]; i++) {
        if (left[i] == '/') length = i;
    }
    return length;
}

// ---- rights ----------------------------------------------------------------

bool vj_node_has(const vj_node *at, vj_rule_kind kind) {
    return at->kinds & (1u << kind);
}

// The rights in force at a node: its own rules over those of its parent.
// The same table as in policy.c, said per path instead of per rule.
static void settle(vj_node *at) {
    bool outer_write = at->parent ? at->parent->in_force.write : false;
    bool outer_read = at->parent ? at->parent->in_force.read : false;
    bool hides = vj_node_has(at, VJ_RULE_DENY) || vj_node_has(at, VJ_RULE_DENY_READ);
    bool grants = vj_node_has(at, VJ_RULE_READ) || vj_node_has(at, VJ_RULE_WRITE);
    at->denies_exec =
        vj_node_has(at, VJ_RULE_DENY_EXEC) || (at->parent && at->parent->denies_exec);
    at->in_force.read = hides ? false : grants ? true : outer_read;
    bool denies_write = hides || vj_node_has(at, VJ_RULE_DENY_WRITE);
    bool allows_write = grants ? vj_node_has(at, VJ_RULE_WRITE) : outer_write;
    at->in_force.write = at->in_force.read && allows_write && !denies_write;
    at->in_force.exec = at->in_force.read && !at->denies_exec;
}

// ---- the tree --------------------------------------------------------------

static int compare_nodes(const void *left, const void *right) {
    return vj_path_compare(((const vj_node *)left)->path, ((const vj_node *)right)->path);
}

bool vj_tree_build(vj_tree *tree, const vj_rule *rules, size_t count) {
    tree->nodes = calloc(count + 1, sizeof *tree->nodes);
    if (!tree->nodes) return false;
    for (size_t i = 0; i < count; i++) {
        tree->nodes[i] =
            (vj_node){.path = rules[i].path,
                      .length = strlen(rules[i].path),
                      .kinds = (uint8_t)(1u << rules[i].kind),
                      .is_private = rules[i].flags & VJ_RULE_PRIVATE,
                      .is_held = rules[i].flags & VJ_RULE_HELD,
                      .grant = rules[i].kind <= VJ_RULE_WRITE ? &rules[i] : NULL,
                      .rule = (uint32_t)i};
    }
    qsort(tree->nodes, count, sizeof *tree->nodes, compare_nodes);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        vj_node *last = kept ? &tree->nodes[kept - 1] : NULL;
        if (last && !strcmp(last->path, tree->nodes[i].path)) {
            last->kinds |= tree->nodes[i].kinds;
            last->is_held |= tree->nodes[i].is_held;
            // The caller's grant of a private place shows the host's own.
            const vj_rule *grant = tree->nodes[i].grant;
            if (grant && (!last->grant || last->is_private)) {
                last->grant = grant;
                last->is_private = tree->nodes[i].is_private;
            }
        } else {
            tree->nodes[kept++] = tree->nodes[i];
        }
    }
    tree->count = kept;
    for (size_t i = 0; i < kept; i++) {
        vj_node *above = i ? &tree->nodes[i - 1] : NULL;
        while (above && !vj_path_is_beneath(tree->nodes[i].path, above))
            above = above->parent;
        tree->nodes[i].parent = above;
        settle(&tree->nodes[i]);
        vj_node *holder = tree->nodes[i].is_held ? &tree->nodes[i] : NULL;
        for (; holder && !holder->holds_held; holder = holder->parent)
            holder->holds_held = true;
    }
    return true;
}

vj_tree *vj_tree_new(const vj_rule *rules, size_t count) {
    vj_tree *tree = calloc(1, sizeof *tree);
    if (tree && !vj_tree_build(tree, rules, count)) {
        free(tree);
        return NULL;
    }
    return tree;
}

void vj_tree_delete(vj_tree *tree) {
    if (tree) vj_tree_free(tree);
    free(tree);
}

// What comes last before a path in the order of the tree shares all nodes above it.
const vj_node *vj_tree_nearest(const vj_tree *tree, const char *path) {
    size_t low = 0;
    size_t high = tree->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (vj_path_compare(tree->nodes[middle].path, path) <= 0) low = middle + 1;
        else high = middle;
    }
    const vj_node *at = low ? &tree->nodes[low - 1] : NULL;
    while (at && !vj_path_is_beneath(path, at)) at = at->parent;
    return at;
}

void vj_tree_free(vj_tree *tree) {
    free(tree->nodes);
    *tree = (vj_tree){0};
}
