// The policy: who decides, and the plan that makes the kernel decide the same.
//
// Pure: policy.c makes no system call and knows no platform but the shape of a
// path. What it must know of the file system comes in as facts.
//
// Semantics, for read, write and exec separately: the longest rule path that
// mentions the right decides; at the same path a deny beats an allow; nothing
// mentioned means denied; the order of rules never matters.
//
//   kind         read    write    exec
//   read         allow   deny(*)  -          (*) yields to a write grant at the
//   write        allow   allow    -              same path
//   deny         deny    deny     -
//   deny_read    deny    deny     -
//   deny_write   -       deny     -
//   deny_exec    -       -        deny       not lifted by any grant below
//
// Writing needs reading. Execution follows reading unless denied.
#ifndef VJ_POLICY_H
#define VJ_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "plan.h"

typedef enum {
    VJ_RULE_READ = 0,
    VJ_RULE_WRITE,
    VJ_RULE_DENY,
    VJ_RULE_DENY_READ,
    VJ_RULE_DENY_WRITE,
    VJ_RULE_DENY_EXEC,
    VJ_RULE_END,
} vj_rule_kind;

typedef enum { VJ_RIGHT_READ = 0, VJ_RIGHT_WRITE, VJ_RIGHT_EXEC, VJ_RIGHT_END } vj_right;

enum {
    // The jail's own place (/tmp, /proc): nothing of the host is bound there.
    VJ_RULE_PRIVATE = 1u << 0,
    // A grant of the caller: id-mapped for a root caller.
    VJ_RULE_GRANT = 1u << 1,
    // Nothing is there yet, so no mount can cover it: the name is kept from being
    // made. No folder above it gets the right to make names (see VJ_EXTRA_FREE).
    VJ_RULE_HELD = 1u << 2,
};

// Paths are absolute and normal: no "//", "/./", "/../" and no "/" at the end
// but for the root itself.
typedef struct {
    const char *path;
    uint32_t kind;
    uint32_t flags;
} vj_rule;

// Whether `right` is allowed on `path`. `*deciding` is the index of the rule
// that decided, or -1 where none mentions the right.
bool vj_policy_decide(const vj_rule *rules, size_t count, vj_right right,
                      const char *path, int32_t *deciding);

typedef enum {
    VJ_OBJECT_ABSENT = 0,
    VJ_OBJECT_DIRECTORY,
    VJ_OBJECT_FILE,
    VJ_OBJECT_LINK, // a symbolic link that is to stay, by a rule that denies writing it
} vj_object;

// What the file system has at a path: needed for the path of every rule and
// for every directory above it. Anything else is a "file".
typedef struct {
    const char *path;
    uint32_t object;
    uint32_t owner;
    uint32_t group;
    uint32_t reserved;
    uint64_t device; // major << 32 | minor
    uint64_t inode;
} vj_fact;

// An extra that is no operation: a folder in which names may be made, though no
// folder above it allows that, because of a rule that is held.
#define VJ_EXTRA_FREE 256u

// The same: the host's folder `source`, of which there is a fact, is shown at `path`,
// writable. A rule denies reading `path`, so that what the host has there is covered.
#define VJ_EXTRA_CACHE 257u

// An operation that does not follow from a rule: a link, a made file, a place.
typedef struct {
    uint32_t kind; // vj_operation_kind, or one of VJ_EXTRA_*
    uint32_t mode;
    const char *path;
    const char *source;
} vj_extra;

typedef struct {
    uint32_t flags;    // VJ_PLAN_*
    uint32_t guest_id; // of a root caller's guest; 0: the caller is not root
    const char *hostname;
    uint64_t scratch_size;
    vj_process_limits limits;
    vj_tree_limits tree;
    // The whole host root, read-only, instead of an empty one.
    uint32_t host_root;
    uint32_t backend; // vj_backend
} vj_plan_settings;

// Write the plan. `*block` is allocated; free it with vj_plan_free.
vj_status vj_policy_compile(const vj_plan_settings *settings, const vj_rule *rules,
                            size_t rule_count, const vj_fact *facts, size_t fact_count,
                            const vj_extra *extras, size_t extra_count, void **block,
                            size_t *size, vj_error *error);
void vj_plan_free(void *block);

// The path of an operation of a plan, for messages; "" past the last one.
const char *vj_plan_path(const void *block, uint32_t operation);

// Rules for many questions: made once, asked by vj_search. NULL without memory.
typedef struct vj_tree vj_tree;
vj_tree *vj_tree_new(const vj_rule *rules, size_t count);
void vj_tree_delete(vj_tree *tree);

#endif
