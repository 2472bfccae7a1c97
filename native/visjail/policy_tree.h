// The rules of a policy as a tree of their paths. Pure: makes no system call.
//
// Each node knows the rights in force, so one search answers what policy.c answers by
// looking at every rule. policy_plan.c makes mounts of it, posix_search.c asks it.
#ifndef VJ_POLICY_TREE_H
#define VJ_POLICY_TREE_H

#include "policy.h"

typedef struct {
    bool read;
    bool write;
    bool exec;
} vj_rights;

typedef struct vj_node {
    const char *path;
    size_t length;
    const vj_rule *grant; // a rule here that may bind, or NULL
    uint32_t rule;        // index of the rule that last spoke here
    bool is_private;      // the jail's own place from here down
    bool is_held;         // absent: the name must not be made
    bool holds_held;      // such a name is here or below
    bool denies_exec;
    uint8_t kinds; // bit per vj_rule_kind
    vj_rights in_force;
    // What is mounted here, if anything: for policy_plan.c.
    bool binds;
    bool masks;
    bool rebinds; // a folder in a place of the jail's own, over itself without execution
    bool shows_cache;       // VJ_EXTRA_CACHE, over what is mounted here
    struct vj_node *parent; // nearest node above
} vj_node;

typedef struct vj_tree {
    vj_node *nodes; // one per path, parents first
    size_t count;
} vj_tree;

// False without memory. The rules must live as long as the tree.
bool vj_tree_build(vj_tree *tree, const vj_rule *rules, size_t count);
void vj_tree_free(vj_tree *tree);

// The deepest node that is at `path` or above it, or NULL.
const vj_node *vj_tree_nearest(const vj_tree *tree, const char *path);

bool vj_node_has(const vj_node *at, vj_rule_kind kind);

// By segments: '/' sorts before everything, so a subtree is contiguous.
int vj_path_compare(const char *left, const char *right);

// Whether `path` is the node's or lies beneath it.
bool vj_path_is_beneath(const char *path, const vj_node *above);

// Length of the deepest folder that leads to both paths.
size_t vj_path_shared_folder(const char *left, const char *right);

#endif
