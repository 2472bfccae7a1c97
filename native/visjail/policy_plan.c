// From a policy to a plan. Pure; see policy.h and plan.h.
//
// Rule paths are visited as a tree, parents first. Each knows the rights in
// force at its parent, so a rule that changes nothing there costs no mount.
//
// A rule inside a writable grant would be worth nothing if a guest could move
// its parent directory aside. So each directory between the grant and the rule
// is pinned: the grant is bound once, the directories are bound inside it, and
// the grant is bound again over both. The hidden copies keep those directories
// mount points (rename and rmdir answer EBUSY), and the visible grant has no seam
// inside it, so that rename and link between its directories work. In the jail's own
// places (/tmp) the directories that lead to a mount are made and pinned the same way.
//
// A name that does not exist yet (VJ_RULE_HELD) gets no mount. Landlock adds up the
// rights of all folders on the way up, so none of those above such a name may carry
// the right to make names; their other folders get it one by one.
//
// A cache (VJ_EXTRA_CACHE) is a folder from elsewhere at a path that is denied: the deny
// covers and pins what the host has there, and the folder is bound on top of it.

#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "policy.h"
#include "policy_tree.h"

#define ROOT_SIZE (16u << 20) // directories, links and small files only

typedef struct {
    const vj_plan_settings *settings;
    const vj_fact *facts;
    size_t fact_count;
    const char **places; // the jail's own, writable ones
    size_t place_count;
    vj_tree tree;
    vj_operation *operations;
    size_t operation_count;
    size_t operation_capacity;
    vj_access_rule *access;
    size_t access_count;
    size_t access_capacity;
    char *strings;
    size_t strings_size;
    size_t strings_capacity;
    bool failed; // out of memory
    // Where the results of additions that failed are written to.
    vj_operation spare_operation;
    vj_access_rule spare_access;
} builder;

// ---- facts -----------------------------------------------------------------

static int compare_facts(const void *left, const void *right) {
    return vj_path_compare(((const vj_fact *)left)->path, ((const vj_fact *)right)->path);
}

static const vj_fact *fact_of(const builder *build, const char *path) {
    vj_fact key = {.path = path};
    return bsearch(&key, build->facts, build->fact_count, sizeof *build->facts,
                   compare_facts);
}

// ---- growing tables --------------------------------------------------------

static void *grow(builder *build, void *table, size_t *capacity, size_t needed,
                  size_t size) {
    if (needed <= *capacity) return table;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    while (wanted < needed) wanted *= 2;
    void *larger = realloc(table, wanted * size);
    if (!larger) {
        build->failed = true;
        return table;
    }
    *capacity = wanted;
    return larger;
}

// Offset within the string table; the caller adds the table's own offset.
static uint32_t add_string(builder *build, const char *string) {
    size_t size = strlen(string) + 1;
    build->strings = grow(build, build->strings, &build->strings_capacity,
                          build->strings_size + size, 1);
    if (build->failed) return 0;
    uint32_t offset = (uint32_t)build->strings_size;
    memcpy(build->strings + offset, string, size);
    build->strings_size += size;
    return offset;
}

static vj_operation *add_operation(builder *build, vj_operation_kind kind,
                                   const char *path, const char *source) {
    build->operations = grow(build, build->operations, &build->operation_capacity,
                             build->operation_count + 1, sizeof *build->operations);
    uint32_t path_offset = add_string(build, path);
    uint32_t source_offset = add_string(build, source);
    if (build->failed) return &build->spare_operation;
    vj_operation *operation = &build->operations[build->operation_count++];
    *operation = (vj_operation){
        .kind = kind, .path = path_offset, .source = source_offset, .rule = UINT32_MAX};
    return operation;
}

static vj_access_rule *add_access(builder *build, const char *path, vj_access access,
                                  bool is_file) {
    build->access = grow(build, build->access, &build->access_capacity,
                         build->access_count + 1, sizeof *build->access);
    uint32_t path_offset = add_string(build, path);
    if (build->failed) return &build->spare_access;
    vj_access_rule *rule = &build->access[build->access_count++];
    *rule = (vj_access_rule){.path = path_offset, .access = access, .is_file = is_file};
    return rule;
}

// Writing below `path`, without making names where one of them is held.
static vj_access write_access(const builder *build, const char *path) {
    const vj_node *at = vj_tree_nearest(&build->tree, path);
    bool is_node = at && !strcmp(at->path, path);
    return is_node && at->holds_held ? VJ_ACCESS_WALLED : VJ_ACCESS_WRITE;
}

// ---- rights ----------------------------------------------------------------

static bool same_rights(vj_rights left, vj_rights right) {
    return left.read == right.read && left.write == right.write &&
           left.exec == right.exec;
}

// ---- mounts ----------------------------------------------------------------

// The nearest mount above: where a mount point would be looked up.
static const vj_node *mounted_above(const vj_node *at) {
    const vj_node *above = at->parent;
    while (above && !above->binds && !above->masks && !above->is_private)
        above = above->parent;
    return above;
}

// Whether the jail's own tmpfs is there, so that a mount point may be made.
static bool point_is_ours(const builder *build, const vj_node *at) {
    const vj_node *above = mounted_above(at);
    return above ? !above->binds : !build->settings->host_root;
}

static bool is_file(const vj_fact *fact) {
    return fact && fact->object == VJ_OBJECT_FILE;
}

static bool is_link(const vj_fact *fact) {
    return fact && fact->object == VJ_OBJECT_LINK;
}

static void add_bind(builder *build, const vj_node *at, const char *path,
                     uint32_t flags) {
    const vj_fact *fact = fact_of(build, path);
    vj_operation *operation = add_operation(build, VJ_OPERATION_BIND, path, path);
    operation->flags = flags | (is_file(fact) ? VJ_BIND_FILE : 0) |
                       (is_link(fact) ? VJ_BIND_FILE | VJ_BIND_LINK : 0);
    operation->device = fact ? fact->device : 0;
    operation->inode = fact ? fact->inode : 0;
    operation->rule = at->rule;
}

// Whether what is above a node must not be moved aside.
static bool needs_pins(const vj_node *at) {
    return at->binds || at->masks || at->rebinds || at->is_held;
}

// Pins of one writable grant, shallow first within each chain.
static void add_pins(builder *build, const vj_node *top) {
    bool hidden = false;
    const vj_node *end = build->tree.nodes + build->tree.count;
    const vj_node *last = NULL;
    for (const vj_node *at = top + 1; at < end && vj_path_is_beneath(at->path, top);
         at++) {
        if (!needs_pins(at) || mounted_above(at) != top) continue;
        // In the order of the tree no earlier node shares more than the last one.
        size_t pinned = last ? vj_path_shared_folder(last->path, at->path) : 0;
        if (pinned < top->length) pinned = top->length;
        last = at;
        for (size_t length = pinned + 1; length < at->length; length++) {
            if (at->path[length] != '/') continue;
            char directory[VJ_PATH_MAX];
            memcpy(directory, at->path, length);
            directory[length] = 0;
            const vj_fact *fact = fact_of(build, directory);
            // What is above a held name may be missing like the name itself.
            if (at->is_held && (!fact || fact->object != VJ_OBJECT_DIRECTORY)) break;
            if (!hidden) {
                add_bind(build, top, top->path,
                         VJ_BIND_READ_ONLY | VJ_BIND_NARROWS |
                             (point_is_ours(build, top) ? VJ_BIND_MAKE_POINT : 0));
                hidden = true;
            }
            add_bind(build, top, directory, VJ_BIND_READ_ONLY | VJ_BIND_NARROWS);
        }
    }
}

// Whether the mount point of `at` is made in this place: not in a mount between them,
// and not in another place inside of it.
static bool lies_in_place(const builder *build, const vj_node *at, const vj_node *place) {
    if (!vj_path_is_beneath(at->path, place) || at->length <= place->length) return false;
    const vj_node *above = mounted_above(at);
    if (!above || !above->is_private || above->masks || above->binds) return false;
    for (size_t i = 0; i < build->place_count; i++) {
        const vj_node other = {.path = build->places[i],
                               .length = strlen(build->places[i])};
        if (other.length > place->length && vj_path_is_beneath(at->path, &other))
            return false;
    }
    return true;
}

// Pins of one of the jail's own places. They end up below a second mount of it.
static void pin_place(builder *build, const char *path) {
    const vj_node place = {.path = path, .length = strlen(path)};
    const vj_node *end = build->tree.nodes + build->tree.count;
    const vj_node *last = NULL;
    bool hidden = false;
    for (const vj_node *at = build->tree.nodes; at < end; at++) {
        if (!needs_pins(at) || !lies_in_place(build, at, &place)) continue;
        size_t pinned = last ? vj_path_shared_folder(last->path, at->path) : 0;
        if (pinned < place.length) pinned = place.length;
        last = at;
        for (size_t length = pinned + 1; length < at->length; length++) {
            if (at->path[length] != '/') continue;
            char directory[VJ_PATH_MAX];
            memcpy(directory, at->path, length);
            directory[length] = 0;
            add_operation(build, VJ_OPERATION_PIN, directory, "")->rule = at->rule;
            hidden = true;
        }
    }
    if (hidden) add_operation(build, VJ_OPERATION_PIN, path, "");
}

static uint32_t bind_flags(const builder *build, const vj_node *at) {
    uint32_t flags = 0;
    if (!at->in_force.write) flags |= VJ_BIND_READ_ONLY;
    if (!at->in_force.exec) flags |= VJ_BIND_NO_EXEC;
    if (point_is_ours(build, at)) flags |= VJ_BIND_MAKE_POINT;
    if (!at->grant) flags |= VJ_BIND_NARROWS;
    return flags;
}

// The caller's grant that a node belongs to, or NULL.
static const vj_node *granted_by(const vj_node *at) {
    while (at && !at->grant) at = at->parent;
    return at && at->grant->flags & VJ_RULE_GRANT ? at : NULL;
}

// The hidden copies and pins belong to the caller's grant like the visible one. So
// does what another rule mounts inside it: a rule that takes rights away must not
// show what the owner of the grant could not see.
static void mark_grants(builder *build, size_t from, const vj_node *at) {
    const vj_node *grant = granted_by(at);
    const vj_fact *fact = grant ? fact_of(build, grant->path) : NULL;
    if (!fact) return;
    for (size_t i = from; i < build->operation_count; i++) {
        build->operations[i].flags |= VJ_BIND_GRANT;
        build->operations[i].owner = fact->owner;
        build->operations[i].group = fact->group;
    }
}

// Whether a grant of a root caller shows the files of another owner than the grant
// around it, so that it is not the same though its rights are.
static bool has_another_owner(const builder *build, const vj_node *at) {
    if (!build->settings->guest_id || !at->grant || granted_by(at) != at) return false;
    const vj_node *around = granted_by(at->parent);
    const vj_fact *own = fact_of(build, at->path);
    const vj_fact *other = around ? fact_of(build, around->path) : NULL;
    return !own || !other || own->owner != other->owner || own->group != other->group;
}

// Whether what is readable at a node is the host's: by the nearest grant.
static bool shows_host(const builder *build, const vj_node *at) {
    while (at && !at->grant) at = at->parent;
    return at ? !at->is_private : build->settings->host_root != 0;
}

// Decide what each node mounts, parents before children.
static void choose(builder *build, vj_node *at) {
    const vj_fact *fact = fact_of(build, at->path);
    bool own_grant = at->grant && !at->is_private;
    if (at->is_private && at->grant) {
        // Made by an operation of its own; masked where the policy wants less.
        at->masks =
            !at->in_force.read || (vj_node_has(at, VJ_RULE_WRITE) && !at->in_force.write);
        return;
    }
    if (build->settings->host_root && !at->path[1]) return; // the root itself
    const vj_node *above = mounted_above(at);
    bool host_above = above ? above->binds : build->settings->host_root;
    bool own_above = above && (above->is_private || above->masks);
    if (!at->in_force.read) {
        // Inside a private place there is nothing of the host to hide, but a
        // write there must not seem to succeed.
        bool visible = above ? above->in_force.read : build->settings->host_root != 0;
        at->masks = visible && (own_above || (fact && fact->object != VJ_OBJECT_ABSENT));
        return;
    }
    if (!own_grant && !shows_host(build, at)) {
        // A place of the jail's own: there is nothing of the host's to bind.
        bool is_own = above && above->is_private && !above->masks && !above->binds;
        at->masks = above && above->is_private && !at->in_force.write;
        at->rebinds = is_own && !at->masks && at->in_force.write &&
                      at->parent->in_force.exec && !at->in_force.exec;
        return;
    }
    if (!fact || fact->object == VJ_OBJECT_ABSENT) return;
    at->binds = !host_above || !at->parent ||
                !same_rights(at->in_force, at->parent->in_force) ||
                has_another_owner(build, at);
}

// A file of the host, or a copy of one, is covered by a file; where there is
// nothing yet, a directory says "denied" as well.
static bool masks_as_file(const builder *build, const vj_node *at) {
    return is_file(fact_of(build, at->path)) &&
           (at->is_private || !point_is_ours(build, at));
}

// Which rule an operation stands for, and which object of the host it is about.
static void set_identity(const builder *build, vj_operation *operation,
                         const vj_node *at) {
    const vj_fact *fact = fact_of(build, at->path);
    operation->rule = at->rule;
    if (!fact || at->is_private || point_is_ours(build, at)) return;
    operation->device = fact->device;
    operation->inode = fact->inode;
}

static void emit_mask(builder *build, const vj_node *at) {
    if (masks_as_file(build, at)) {
        vj_operation *file = add_operation(build, VJ_OPERATION_MASK_FILE, at->path, "");
        set_identity(build, file, at);
        return;
    }
    bool reopened = at->in_force.read;
    const vj_node *end = build->tree.nodes + build->tree.count;
    for (const vj_node *below = at + 1;
         below < end && vj_path_is_beneath(below->path, at); below++) {
        if (below->binds || (below->is_private && below->in_force.read) ||
            below->shows_cache) {
            reopened = true;
        }
    }
    if (point_is_ours(build, at)) {
        add_operation(build, VJ_OPERATION_DIRECTORY, at->path, "")->rule = at->rule;
    }
    vj_operation *mask = add_operation(build, VJ_OPERATION_MASK_DIRECTORY, at->path, "");
    mask->mode = at->in_force.read ? 0555 : reopened ? 0111 : 0;
    set_identity(build, mask, at);
}

static void emit_node(builder *build, const vj_node *at) {
    if (at->masks) emit_mask(build, at);
    if (at->rebinds) {
        vj_operation *pin = add_operation(build, VJ_OPERATION_PIN, at->path, "");
        pin->flags = VJ_BIND_NO_EXEC;
        pin->rule = at->rule;
    }
    if (!at->binds) return;
    size_t from = build->operation_count;
    if (at->in_force.write) add_pins(build, at);
    add_bind(build, at, at->path, bind_flags(build, at));
    mark_grants(build, from, at);
    const vj_fact *fact = fact_of(build, at->path);
    if (is_link(fact)) return; // Landlock asks about where it leads
    vj_access access = at->in_force.write  ? write_access(build, at->path)
                       : at->in_force.exec ? VJ_ACCESS_READ_EXEC
                                           : VJ_ACCESS_READ;
    vj_access_rule *rule = add_access(build, at->path, access, is_file(fact));
    rule->optional = !at->grant;
    rule->device = fact ? fact->device : 0;
    rule->inode = fact ? fact->inode : 0;
}

// A grant or a deny above one of the jail's own places, such as /var above
// /var/tmp, is mounted before that place, everything else after it.
static bool holds_a_place(const builder *build, const vj_node *at) {
    const vj_node *end = build->tree.nodes + build->tree.count;
    for (const vj_node *below = at + 1;
         below < end && vj_path_is_beneath(below->path, at); below++) {
        if (below->is_private) return !at->is_private;
    }
    return false;
}

// For the broker: the names that are held, each with the last folder that exists.
static void emit_names(builder *build) {
    for (size_t i = 0; i < build->tree.count; i++) {
        if (!build->tree.nodes[i].is_held) continue;
        char above[VJ_PATH_MAX];
        size_t length = build->tree.nodes[i].length;
        memcpy(above, build->tree.nodes[i].path, length + 1);
        const vj_fact *fact = NULL;
        while (length > 1 && (!fact || fact->object != VJ_OBJECT_DIRECTORY)) {
            while (length > 1 && above[length - 1] != '/') length--;
            if (length > 1) length--;
            above[length] = 0;
            fact = fact_of(build, above);
        }
        add_operation(build, VJ_OPERATION_NAME, build->tree.nodes[i].path, above);
    }
}

static void emit_mounts(builder *build, bool above_places) {
    for (size_t i = 0; i < build->tree.count; i++) {
        const vj_node *at = &build->tree.nodes[i];
        if (holds_a_place(build, at) == above_places) emit_node(build, at);
    }
}

// Read-only last, and deepest first: a sealed tmpfs takes no mount points.
static void emit_seals(builder *build) {
    for (size_t i = build->tree.count; i > 0; i--) {
        const vj_node *at = &build->tree.nodes[i - 1];
        if (!at->masks || masks_as_file(build, at) || at->shows_cache) continue;
        add_operation(build, VJ_OPERATION_SEAL, at->path, "");
    }
    add_operation(build, VJ_OPERATION_SEAL, "/dev", "");
    if (!build->settings->host_root) add_operation(build, VJ_OPERATION_SEAL, "/", "");
}

// ---- the jail's own places -------------------------------------------------

static bool place_is_ours(const builder *build, const char *path) {
    const vj_node *at = vj_tree_nearest(&build->tree, path);
    if (at && !strcmp(at->path, path)) return point_is_ours(build, at);
    return !at || at->is_private;
}

// Scratch, and what is made in it, comes after the grants above it.
static bool is_late(const builder *build, const vj_extra *extra) {
    if (extra->kind == VJ_OPERATION_TRY) return true; // all together: the order counts
    if (extra->kind == VJ_OPERATION_SCRATCH || extra->kind == VJ_OPERATION_SCRATCH_PLACE)
        return true;
    const vj_node *above = vj_tree_nearest(&build->tree, extra->path);
    if (above && !strcmp(above->path, extra->path)) above = above->parent;
    return above && above->is_private;
}

// Without a /dev of its own a guest gets these of the host's.
static void add_device_files(builder *build) {
    static const char *const nodes[] = {"/dev/null", "/dev/zero", "/dev/full",
                                        "/dev/random", "/dev/urandom"};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        add_access(build, nodes[i], VJ_ACCESS_DEVICES, true);
    }
}

static void emit_place(builder *build, vj_operation *operation, const char *path) {
    const vj_node *at = vj_tree_nearest(&build->tree, path);
    if (place_is_ours(build, path)) operation->flags |= VJ_BIND_MAKE_POINT;
    if (at && !at->in_force.exec) operation->flags |= VJ_BIND_NO_EXEC;
    add_access(build, path, write_access(build, path), false);
    pin_place(build, path);
}

// Landlock's right follows the folder: it must be the one that the wall was made for.
static void emit_free(builder *build, const char *path) {
    const vj_fact *fact = fact_of(build, path);
    if (!fact || fact->object != VJ_OBJECT_DIRECTORY) return;
    vj_access_rule *rule = add_access(build, path, VJ_ACCESS_WRITE, false);
    rule->optional = true;
    rule->device = fact->device;
    rule->inode = fact->inode;
}

// On top of the mask at its path, or at a point of the jail's own.
static void emit_cache(builder *build, const vj_node *at, const char *source) {
    const vj_fact *fact = fact_of(build, source);
    vj_operation *operation = add_operation(build, VJ_OPERATION_BIND, at->path, source);
    operation->flags = VJ_BIND_GRANT | (at->masks ? 0u : VJ_BIND_MAKE_POINT) |
                       (at->denies_exec ? VJ_BIND_NO_EXEC : 0u);
    operation->device = fact->device;
    operation->inode = fact->inode;
    operation->owner = fact->owner;
    operation->group = fact->group;
    operation->rule = at->rule;
    add_access(build, at->path, VJ_ACCESS_WRITE, false);
}

// The node of a cache; NULL without the rule and the fact that it needs.
static vj_node *cache_node(const builder *build, const vj_extra *extra) {
    if (extra->kind != VJ_EXTRA_CACHE) return NULL;
    size_t last = build->tree.count;
    while (last > 0 && strcmp(build->tree.nodes[last - 1].path, extra->path) != 0) last--;
    vj_node *at = last ? &build->tree.nodes[last - 1] : NULL;
    return at && !at->in_force.read && fact_of(build, extra->source) ? at : NULL;
}

static void find_caches(builder *build, const vj_extra *extras, size_t count) {
    for (size_t i = 0; i < count; i++) {
        vj_node *at = cache_node(build, &extras[i]);
        if (at) at->shows_cache = true;
    }
}

static void emit_caches(builder *build, const vj_extra *extras, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const vj_node *at = cache_node(build, &extras[i]);
        if (at) emit_cache(build, at, extras[i].source);
    }
}

static void emit_extras(builder *build, const vj_extra *extras, size_t count, bool late) {
    for (size_t i = 0; i < count; i++) {
        if (extras[i].kind == VJ_EXTRA_CACHE) continue;
        if (is_late(build, &extras[i]) != late) continue;
        if (extras[i].kind == VJ_EXTRA_FREE) {
            emit_free(build, extras[i].path);
            continue;
        }
        if (extras[i].kind == VJ_OPERATION_DEVICES &&
            build->settings->backend == VJ_BACKEND_LANDLOCK) {
            add_device_files(build);
            continue;
        }
        vj_operation *operation = add_operation(build, (vj_operation_kind)extras[i].kind,
                                                extras[i].path, extras[i].source);
        operation->mode = extras[i].mode;
        switch (extras[i].kind) {
        case VJ_OPERATION_SCRATCH: operation->size = build->settings->scratch_size; break;
        case VJ_OPERATION_SCRATCH_PLACE:
            emit_place(build, operation, extras[i].path);
            break;
        case VJ_OPERATION_DEVICES:
            add_access(build, extras[i].path, VJ_ACCESS_DEVICES, false);
            break;
        case VJ_OPERATION_PROC:
        case VJ_OPERATION_DIRECTORY:
            // Its made and copied files too.
            add_access(build, extras[i].path, VJ_ACCESS_READ, false);
            break;
        default: break;
        }
    }
}

static void emit_root(builder *build) {
    bool host = build->settings->host_root != 0;
    const vj_node *top = build->tree.count ? &build->tree.nodes[0] : NULL;
    bool exec = top && !top->path[1] && top->in_force.exec;
    vj_operation *root = add_operation(build, VJ_OPERATION_ROOT, "/", host ? "/" : "");
    root->size = ROOT_SIZE;
    if (!host) return;
    const vj_fact *fact = fact_of(build, "/");
    root->flags = VJ_BIND_READ_ONLY | (exec ? 0 : VJ_BIND_NO_EXEC);
    root->device = fact ? fact->device : 0;
    root->inode = fact ? fact->inode : 0;
    add_access(build, "/", exec ? VJ_ACCESS_READ_EXEC : VJ_ACCESS_READ, false);
}

// ---- the block -------------------------------------------------------------

static vj_status assemble(builder *build, void **block, size_t *size, vj_error *error) {
    uint32_t hostname = add_string(build, build->settings->hostname);
    if (build->failed) {
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_PLAN, 0, "out of memory");
    }
    size_t operations = build->operation_count * sizeof(vj_operation);
    size_t access = build->access_count * sizeof(vj_access_rule);
    size_t tables = sizeof(vj_plan) + operations + access;
    size_t total = tables + build->strings_size;
    if (total > VJ_PLAN_MAX_SIZE || build->operation_count > VJ_PLAN_MAX_OPERATIONS) {
        return vj_fail(error, VJ_REFUSED, VJ_STAGE_PLAN, 0, "the policy is too large");
    }
    for (size_t i = 0; i < build->operation_count; i++) {
        build->operations[i].path += (uint32_t)tables;
        build->operations[i].source += (uint32_t)tables;
    }
    for (size_t i = 0; i < build->access_count; i++)
        build->access[i].path += (uint32_t)tables;
    char *bytes = malloc(total);
    if (!bytes) return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_PLAN, 0, "out of memory");
    vj_plan plan = {
        .magic = VJ_PLAN_MAGIC,
        .version = VJ_PLAN_VERSION,
        .size = (uint32_t)total,
        .flags = build->settings->flags,
        .operation_count = (uint32_t)build->operation_count,
        .access_count = (uint32_t)build->access_count,
        .strings = (uint32_t)tables,
        .hostname = hostname + (uint32_t)tables,
        .guest_id = build->settings->guest_id,
        .backend = build->settings->backend,
        .limits = build->settings->limits,
        .tree = build->settings->tree,
    };
    memcpy(bytes, &plan, sizeof plan);
    memcpy(bytes + sizeof plan, build->operations, operations);
    if (access) memcpy(bytes + sizeof plan + operations, build->access, access);
    memcpy(bytes + tables, build->strings, build->strings_size);
    *block = bytes;
    *size = total;
    return VJ_OK;
}

// The host's root is the base of the plan, so no mask can be put over it.
static bool denies_base(const builder *build) {
    const vj_node *top = build->tree.nodes;
    return build->settings->host_root && build->tree.count && !top->path[1] &&
           !top->in_force.read;
}

// The first node that has less than what is above it, which rules that only ever
// allow cannot say, or NULL.
static const vj_node *takes_away(const builder *build) {
    if (build->settings->backend != VJ_BACKEND_LANDLOCK) return NULL;
    for (size_t i = 0; i < build->tree.count; i++) {
        const vj_node *at = &build->tree.nodes[i];
        if (!at->parent) continue;
        vj_rights above = at->parent->in_force;
        if ((above.read && !at->in_force.read) || (above.write && !at->in_force.write) ||
            (above.exec && !at->in_force.exec)) {
            return at;
        }
    }
    return NULL;
}

static vj_status refuse_taking(const vj_node *at, vj_error *error) {
    char text[sizeof error->text] = "below a grant Landlock takes nothing away: ";
    strncat(text, at->path, sizeof text - strlen(text) - 1);
    vj_status status = vj_fail(error, VJ_REFUSED, VJ_STAGE_PLAN, 0, text);
    error->index = (int32_t)at->rule;
    return status;
}

vj_status vj_policy_compile(const vj_plan_settings *settings, const vj_rule *rules,
                            size_t rule_count, const vj_fact *facts, size_t fact_count,
                            const vj_extra *extras, size_t extra_count, void **block,
                            size_t *size, vj_error *error) {
    builder build = {.settings = settings, .fact_count = fact_count};
    *block = NULL;
    *size = 0;
    vj_fact *sorted = calloc(fact_count + 1, sizeof *sorted);
    build.places = calloc(extra_count + 1, sizeof *build.places);
    if (sorted && build.places) {
        for (size_t i = 0; i < extra_count; i++) {
            if (extras[i].kind == VJ_OPERATION_SCRATCH_PLACE)
                build.places[build.place_count++] = extras[i].path;
        }
        if (fact_count) memcpy(sorted, facts, fact_count * sizeof *sorted);
        qsort(sorted, fact_count, sizeof *sorted, compare_facts);
        build.facts = sorted;
        build.failed = !vj_tree_build(&build.tree, rules, rule_count);
    } else {
        build.failed = true;
    }
    if (!build.failed) {
        find_caches(&build, extras, extra_count);
        emit_root(&build);
        emit_extras(&build, extras, extra_count, false);
        for (size_t i = 0; i < build.tree.count; i++)
            choose(&build, &build.tree.nodes[i]);
        emit_mounts(&build, true);
        emit_extras(&build, extras, extra_count, true);
        emit_mounts(&build, false);
        emit_caches(&build, extras, extra_count);
        if (settings->flags & VJ_PLAN_BROKER_NAMES) emit_names(&build);
        emit_seals(&build);
    }
    const vj_node *taken = build.failed ? NULL : takes_away(&build);
    vj_status status;
    if (taken) {
        status = refuse_taking(taken, error);
    } else if (denies_base(&build)) {
        status = vj_fail(error, VJ_REFUSED, VJ_STAGE_PLAN, 0,
                         "a deny on / leaves nothing of the host's root; ask for no "
                         "system instead");
    } else {
        status = assemble(&build, block, size, error);
    }
    free(sorted);
    free(build.places);
    vj_tree_free(&build.tree);
    free(build.operations);
    free(build.access);
    free(build.strings);
    return status;
}

void vj_plan_free(void *block) {
    free(block);
}

const char *vj_plan_path(const void *block, uint32_t operation) {
    const vj_plan *plan = block;
    if (operation >= plan->operation_count) return "";
    return vj_plan_string(plan, vj_plan_operations(plan)[operation].path);
}
