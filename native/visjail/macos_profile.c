// From a policy to a Seatbelt profile. Pure; see macos_profile.h.
//
// The rules become the same tree as for Linux (policy_tree.c), so what is allowed is
// decided in one place. Where a right begins to be in force in that tree, it is allowed;
// where it ends, it is denied, but for what begins again below. So a path has a right if
// and only if an allow fits and no deny does, whatever their order.
//
// A deny is worth nothing if what it is about can be moved to where it does not look. So
// what is denied, and each folder above it that a guest may change, can be neither moved,
// removed nor replaced.

#include "macos_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "macos_base.h"
#include "macos_path.h"
#include "policy_tree.h"

#define LOOKS    "file-read* file-read-metadata file-test-existence"
#define READS    LOOKS " file-clone" // whose filter is on what is copied
#define WRITES   "file-write* file-write-create file-write-unlink"
#define EXECUTES "process-exec* file-map-executable"
#define MOVES    "file-write-create file-write-unlink"

// What the compiler allows under (deny default) all the same, where only a deny of the
// very name helps. Before the allows of the same names, which have filters.
#define FIRST_DENIED                                                                     \
    "(deny file-clone file-map-executable file-test-existence process-info*)\n"
// At the end. Before macOS 26 the compiler does not know the last two, and would refuse
// the whole profile.
#define LAST_DENIED                                                                      \
    "(deny file-link file-mknod file-mount file-mount-update file-unmount file-chroot "  \
    "fs-snapshot-create fs-snapshot-delete fs-snapshot-mount fs-snapshot-revert)\n"      \
    "(if (defined? 'file-graft) (deny file-graft))\n"                                    \
    "(if (defined? 'file-ungraft) (deny file-ungraft))\n"

#define NO_MEMORY    "no memory for the profile"
#define LONGEST_GAIN 24u // bytes by which a path grows in vj_macos_path at most

typedef struct {
    char *bytes;
    size_t size;
    size_t capacity;
} growing;

typedef struct {
    const vj_macos_settings *settings;
    vj_rule *rules; // with the paths that the kernel knows, and those of the system
    uint32_t rule_count;
    uint32_t given; // of the caller; the others are the system's
    char *paths;    // of the rules
    size_t paths_size;
    vj_tree tree;
    const vj_node **order; // shallow nodes first
    growing text;
    growing parameters;
    uint32_t parameter_count;
    bool too_large;
    bool failed; // out of memory
} builder;

// ---- text ------------------------------------------------------------------

static void add_bytes(builder *build, growing *to, const char *bytes, size_t size) {
    if (build->failed || build->too_large) return;
    if (size > VJ_MACOS_TEXT_MAX - to->size) {
        build->too_large = true;
        return;
    }
    if (to->size + size > to->capacity) {
        size_t wanted = to->capacity ? to->capacity * 2 : 8192;
        while (wanted < to->size + size) wanted *= 2;
        char *larger = realloc(to->bytes, wanted);
        if (!larger) {
            build->failed = true;
            return;
        }
        to->bytes = larger;
        to->capacity = wanted;
    }
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static void say(builder *build, const char *text) {
    add_bytes(build, &build->text, text, strlen(text));
}

// A filter on a path, which becomes a parameter.
static void say_path(builder *build, const char *filter, const char *path,
                     size_t length) {
    char name[16];
    int size = snprintf(name, sizeof name, "P%u", build->parameter_count++);
    add_bytes(build, &build->parameters, name, (size_t)size + 1);
    add_bytes(build, &build->parameters, path, length);
    add_bytes(build, &build->parameters, "", 1);
    say(build, " (");
    say(build, filter);
    say(build, " (param \"");
    say(build, name);
    say(build, "\"))");
}

static void say_node(builder *build, const char *filter, const vj_node *at) {
    say_path(build, filter, at->path, at->length);
}

static vj_status refuse(vj_error *error, int32_t index, const char *text) {
    vj_status status = vj_fail(error, VJ_REFUSED, VJ_STAGE_PLAN, 0, text);
    error->index = index;
    return status;
}

// ---- rules -----------------------------------------------------------------

static void add_rule(builder *build, const char *path, uint32_t kind, uint32_t flags) {
    build->rules[build->rule_count++] =
        (vj_rule){.path = path, .kind = kind, .flags = flags};
}

static void add_paths(builder *build, const vj_macos_paths *paths) {
    for (size_t i = 0; i < paths->count; i++)
        add_rule(build, paths->paths[i], VJ_RULE_READ, 0);
}

// A rule of the caller, as the kernel knows its path.
static vj_status take_path(builder *build, const char *path, uint32_t kind,
                           uint32_t flags, int32_t index, vj_error *error) {
    char *resolved = build->paths + build->paths_size;
    vj_status status = vj_macos_path(path, resolved, VJ_MACOS_STRING_MAX + 1, error);
    if (status != VJ_OK) {
        error->index = index;
        return status;
    }
    if (vj_macos_is_beneath(resolved, "/dev"))
        return refuse(error, index, "devices are given by Seatbelt's base, not by rules");
    build->paths_size += strlen(resolved) + 1;
    add_rule(build, resolved, kind, flags);
    return VJ_OK;
}

static vj_status take_rules(builder *build, const vj_rule *rules, uint32_t count,
                            vj_error *error) {
    const vj_macos_settings *settings = build->settings;
    for (uint32_t i = 0; i < count; i++) {
        if (rules[i].kind >= VJ_RULE_END)
            return refuse(error, (int32_t)i, "a rule of an unknown kind");
        if (rules[i].flags & VJ_RULE_PRIVATE)
            return refuse(error, (int32_t)i,
                          "a jail on macOS has no places of its own at fixed paths");
        vj_status status = take_path(build, rules[i].path, rules[i].kind, rules[i].flags,
                                     (int32_t)i, error);
        if (status != VJ_OK) return status;
    }
    build->given = build->rule_count;
    if (settings->own) {
        vj_status status = take_path(build, settings->own, VJ_RULE_WRITE, 0, -1, error);
        if (status != VJ_OK) return status;
    }
    // A socket is seen as a readable file, and a rule can deny it as that.
    for (uint32_t i = 0; i < settings->socket_count; i++) {
        vj_status status =
            take_path(build, settings->sockets[i], VJ_RULE_READ, 0, -1, error);
        if (status != VJ_OK) return status;
    }
    add_paths(build, &vj_macos_read_always);
    if (settings->flags & VJ_MACOS_SYSTEM) add_paths(build, &vj_macos_read_system);
    if (settings->programs & VJ_MACOS_GIT) add_paths(build, &vj_macos_read_git);
    return VJ_OK;
}

static size_t depth(const char *path) {
    size_t slashes = 0;
    for (; path[0] && path[1]; path++) slashes += path[0] == '/';
    return slashes;
}

static int compare_depths(const void *left, const void *right) {
    const vj_node *const *first = left;
    const vj_node *const *second = right;
    size_t a = depth((*first)->path);
    size_t b = depth((*second)->path);
    if (a != b) return a < b ? -1 : 1;
    return vj_path_compare((*first)->path, (*second)->path);
}

static const vj_rights none = {false, false, false};

static vj_rights above(const vj_node *at) {
    return at->parent ? at->parent->in_force : none;
}

static bool has(vj_rights rights, vj_right right) {
    switch (right) {
    case VJ_RIGHT_READ: return rights.read;
    case VJ_RIGHT_WRITE: return rights.write;
    case VJ_RIGHT_EXEC: return rights.exec;
    case VJ_RIGHT_END: break;
    }
    return false;
}

static bool begins(const vj_node *at, vj_right right) {
    return has(at->in_force, right) && !has(above(at), right);
}

static bool ends(const vj_node *at, vj_right right) {
    return !has(at->in_force, right) && has(above(at), right);
}

static bool takes_away(const vj_node *at) {
    return ends(at, VJ_RIGHT_READ) || ends(at, VJ_RIGHT_WRITE) || ends(at, VJ_RIGHT_EXEC);
}

static const char *const operations[VJ_RIGHT_END] = {
    [VJ_RIGHT_READ] = READS, [VJ_RIGHT_WRITE] = WRITES, [VJ_RIGHT_EXEC] = EXECUTES};

// ---- other spellings of a name that is held --------------------------------

// Where the writable tree around `at` begins: what is above has the one spelling.
static size_t writable_from(const vj_node *at) {
    const vj_node *top = at->parent;
    while (top->parent && top->parent->in_force.write) top = top->parent;
    return top->length;
}

// Whether names like that of `at` could be made beside it: in another case where that is
// ignored, and by letters with accents everywhere, since no volume of macOS tells their
// composed and decomposed spellings apart.
static bool has_other_spellings(const builder *build, const vj_node *at) {
    if (!at->is_held || !above(at).write) return false;
    if (build->settings->flags & VJ_MACOS_IGNORES_CASE) return true;
    for (const char *letter = at->path + writable_from(at); *letter; letter++) {
        if ((unsigned char)*letter >= 0x80) return true;
    }
    return false;
}

static vj_status check_spellings(const builder *build, vj_error *error) {
    for (size_t i = 0; i < build->tree.count; i++) {
        const vj_node *at = &build->tree.nodes[i];
        char pattern[VJ_MACOS_STRING_MAX + 1];
        if (has_other_spellings(build, at) &&
            !vj_macos_either_case(at->path, writable_from(at), at->length, true,
                                  pattern)) {
            return refuse(
                error, at->rule < build->given ? (int32_t)at->rule : -1,
                "it does not exist, and on a volume that ignores case its other "
                "spellings cannot all be told; make it first");
        }
    }
    return VJ_OK;
}

static void say_spellings(builder *build, const vj_node *at, size_t length) {
    char pattern[VJ_MACOS_STRING_MAX + 1];
    if (!has_other_spellings(build, at)) return;
    if (vj_macos_either_case(at->path, writable_from(at), length, length == at->length,
                             pattern))
        say_path(build, "regex", pattern, strlen(pattern));
}

// ---- what is allowed -------------------------------------------------------

static void allow_node(builder *build, const vj_node *at) {
    bool any = false;
    for (vj_right right = VJ_RIGHT_READ; right < VJ_RIGHT_END; right++) {
        if (!begins(at, right)) continue;
        say(build, any ? " " : "(allow ");
        say(build, operations[right]);
        any = true;
    }
    if (!any) return;
    if (at->length > 1) {
        say_node(build, "subpath", at);
        say(build, ")\n");
        return;
    }
    // Below "/" are the user's terminals and the machine's devices, too.
    say(build, " (require-all");
    say_node(build, "subpath", at);
    say(build, " (require-not (subpath \"/dev\"))))\n");
}

// Folders that lead to what is allowed can be looked at, not listed: realpath and getcwd
// ask for each.
static void allow_ways(builder *build) {
    const vj_node *last = NULL;
    bool any = false;
    for (size_t i = 0; i < build->tree.count; i++) {
        const vj_node *at = &build->tree.nodes[i];
        if (!begins(at, VJ_RIGHT_READ)) continue;
        size_t said = last ? vj_path_shared_folder(last->path, at->path) : 0;
        last = at;
        for (size_t length = said + 1; length < at->length; length++) {
            if (at->path[length] != '/') continue;
            if (!any) say(build, "(allow file-read-metadata file-test-existence");
            any = true;
            say_path(build, "literal", at->path, length);
        }
    }
    if (any) say(build, ")\n");
}

static void allow_services(builder *build) {
    const vj_macos_settings *settings = build->settings;
    for (uint32_t i = 0; i < settings->service_count; i++) {
        const char *name = settings->services[i];
        bool is_memory = vj_macos_is_memory(name);
        say(build, is_memory ? "(allow ipc-posix-shm* (ipc-posix-name-prefix \""
                             : "(allow mach-lookup (global-name \"");
        say(build, is_memory ? name + VJ_MACOS_MEMORY_LENGTH : name);
        say(build, "\"))\n");
    }
}

static void allow_network(builder *build) {
    const vj_macos_settings *settings = build->settings;
    if (settings->own) {
        // The node has the path that the kernel knows.
        const char *own = build->rules[build->given].path;
        say(build, "(allow network-bind network-inbound network-outbound");
        say_path(build, "subpath", own, strlen(own));
        say(build, ")\n");
    }
    uint32_t first = build->given + (settings->own ? 1 : 0);
    for (uint32_t i = 0; i < settings->socket_count; i++) {
        const char *socket = build->rules[first + i].path;
        say(build, "(allow network-outbound");
        say_path(build, "literal", socket, strlen(socket));
        say(build, ")\n");
    }
    if (settings->flags & VJ_MACOS_NETWORK_OPEN) {
        say(build, vj_macos_base_network);
        return;
    }
    if (settings->host_port_count)
        say(build, "(allow system-socket (socket-domain AF_INET) "
                   "(socket-domain AF_INET6))\n");
    for (uint32_t i = 0; i < settings->host_port_count; i++) {
        char rule[80];
        snprintf(rule, sizeof rule,
                 "(allow network-outbound (remote tcp \"localhost:%u\"))\n",
                 settings->host_ports[i]);
        say(build, rule);
    }
}

static void allow_terminal(builder *build) {
    const char *terminal = build->settings->terminal;
    if (!terminal) return;
    say(build, "(allow " LOOKS " file-write-data file-ioctl");
    say_path(build, "literal", terminal, strlen(terminal));
    say(build, ")\n");
}

// ---- what is denied --------------------------------------------------------

// The folders from `at` on that lead to what is allowed again below it, each once, as
// filters that follow `before`.
static void say_ways(builder *build, const vj_node *at, vj_right right,
                     const char *before, const char *behind) {
    const vj_node *end = build->tree.nodes + build->tree.count;
    size_t said = 0;
    const vj_node *last = NULL;
    for (const vj_node *below = at + 1;
         below < end && vj_path_is_beneath(below->path, at); below++) {
        if (!has(below->in_force, right)) continue;
        said = last ? vj_path_shared_folder(last->path, below->path) : at->length - 1;
        last = below;
        for (size_t length = said + 1; length < below->length; length++) {
            if (below->path[length] != '/' || length < at->length) continue;
            say(build, before);
            say_path(build, "literal", below->path, length);
            say(build, behind);
        }
        while (below + 1 < end && vj_path_is_beneath((below + 1)->path, last)) below++;
    }
}

// The rights that end at a node end for all below it, but where they begin again.
//
// Folders that lead to what can be read again can be looked at: node asks for each. They
// are spared here as a whole, and a rule of their own denies all but the look.
static void deny_right(builder *build, const vj_node *at, vj_right right) {
    const vj_node *end = build->tree.nodes + build->tree.count;
    bool spares = false;
    say(build, "(deny ");
    say(build, operations[right]);
    for (const vj_node *below = at + 1;
         below < end && vj_path_is_beneath(below->path, at); below++) {
        if (!has(below->in_force, right)) continue;
        if (!spares) {
            say(build, " (require-all (require-any");
            say_node(build, "subpath", at);
            say_spellings(build, at, at->length);
            say(build, ")");
            spares = true;
        }
        say(build, " (require-not");
        say_node(build, "subpath", below);
        say(build, ")");
        // What is below that has rules of its own.
        const vj_node *again = below;
        while (below + 1 < end && vj_path_is_beneath((below + 1)->path, again)) below++;
    }
    if (!spares) {
        say_node(build, "subpath", at);
        say_spellings(build, at, at->length);
        say(build, ")\n");
        return;
    }
    if (right == VJ_RIGHT_READ) say_ways(build, at, right, " (require-not", ")");
    say(build, "))\n");
    if (right != VJ_RIGHT_READ) return;
    say(build, "(deny file-read-data file-read-xattr file-clone");
    say_ways(build, at, right, "", "");
    say(build, ")\n");
}

static bool is_in_force(const builder *build, const char *path, size_t length,
                        vj_right right) {
    char folder[VJ_MACOS_STRING_MAX + 1];
    memcpy(folder, path, length);
    folder[length] = 0;
    const vj_node *at = vj_tree_nearest(&build->tree, folder);
    return at && has(at->in_force, right);
}

// A folder is cloned with all that is in it, and only the folder is asked about.
static void deny_cloning(builder *build) {
    const vj_node *last = NULL;
    for (size_t i = 0; i < build->tree.count; i++) {
        const vj_node *at = &build->tree.nodes[i];
        if (!ends(at, VJ_RIGHT_READ)) continue;
        // Folders that were said for the one before; "/" is said with the first.
        size_t said = last ? vj_path_shared_folder(last->path, at->path) : 0;
        if (!last && is_in_force(build, "/", 1, VJ_RIGHT_READ)) {
            say(build, "(deny file-clone");
            say_path(build, "literal", "/", 1);
            say(build, ")\n");
        }
        last = at;
        for (size_t length = said + 1; length < at->length; length++) {
            if (at->path[length] != '/' ||
                !is_in_force(build, at->path, length, VJ_RIGHT_READ))
                continue;
            say(build, "(deny file-clone");
            say_path(build, "literal", at->path, length);
            say(build, ")\n");
        }
    }
}

static void deny_moving(builder *build) {
    const vj_node *last = NULL;
    for (size_t i = 0; i < build->tree.count; i++) {
        const vj_node *at = &build->tree.nodes[i];
        // A tree that is granted stays where it is.
        bool is_top = begins(at, VJ_RIGHT_WRITE);
        if (is_top || (takes_away(at) && at->in_force.write)) {
            say(build, "(deny " MOVES);
            say_node(build, "literal", at);
            say(build, ")\n");
        }
        if (!takes_away(at)) continue;
        // In the order of the tree no earlier node shares more than the last one.
        size_t said = last ? vj_path_shared_folder(last->path, at->path) : 0;
        last = at;
        // Of a name that is held the spellings of all above it count, said or not.
        if (has_other_spellings(build, at)) said = writable_from(at);
        for (size_t length = said + 1; length < at->length; length++) {
            if (at->path[length] != '/' ||
                !is_in_force(build, at->path, length, VJ_RIGHT_WRITE))
                continue;
            say(build, "(deny " MOVES);
            say_path(build, "literal", at->path, length);
            say_spellings(build, at, length);
            say(build, ")\n");
        }
    }
}

static void deny_all(builder *build) {
    for (size_t i = 0; i < build->tree.count; i++) {
        for (vj_right right = VJ_RIGHT_READ; right < VJ_RIGHT_END; right++) {
            if (ends(build->order[i], right)) deny_right(build, build->order[i], right);
        }
    }
    deny_moving(build);
    deny_cloning(build);
    // No call sets a set-uid or set-gid bit.
    say(build, "(deny file-write-setugid (subpath \"/\"))\n");
    say(build, LAST_DENIED);
}

// ---- the profile -----------------------------------------------------------

static vj_status check_services(const vj_macos_settings *settings, vj_error *error) {
    for (uint32_t i = 0; i < settings->service_count; i++) {
        const char *why = vj_macos_service_refused(settings->services[i]);
        if (why) return refuse(error, -1, why);
    }
    return VJ_OK;
}

static vj_status check_settings(const vj_macos_settings *settings, uint64_t rule_count,
                                vj_error *error) {
    if (settings->size != sizeof *settings ||
        settings->version != VJ_MACOS_PROFILE_VERSION)
        return refuse(error, -1, "settings of another version");
    if (settings->socket_count > VJ_MACOS_NAMES_MAX ||
        settings->service_count > VJ_MACOS_NAMES_MAX ||
        settings->host_port_count > VJ_MACOS_NAMES_MAX ||
        rule_count > VJ_PLAN_MAX_OPERATIONS)
        return refuse(error, -1,
                      "more rules, sockets, services or ports than a jail takes");
    for (uint32_t i = 0; i < settings->host_port_count; i++) {
        if (!settings->host_ports[i]) return refuse(error, -1, "port 0 is none");
    }
    const char *terminal = settings->terminal;
    if (terminal &&
        (vj_macos_path_flaw(terminal) || strncmp(terminal, "/dev/tty", 8) != 0))
        return refuse(error, -1, "a terminal is a device below /dev");
    return check_services(settings, error);
}

static void write_profile(builder *build) {
    const vj_macos_settings *settings = build->settings;
    say(build, "(version 1)\n(deny default)\n" FIRST_DENIED "; every process\n");
    say(build, vj_macos_base);
    if (settings->programs & VJ_MACOS_PYTHON) say(build, vj_macos_base_python);
    if (settings->programs & VJ_MACOS_NODE) say(build, vj_macos_base_node);
    say(build, "; allowed by the policy\n");
    for (size_t i = 0; i < build->tree.count; i++) allow_node(build, build->order[i]);
    allow_ways(build);
    allow_terminal(build);
    allow_network(build);
    allow_services(build);
    say(build, "; denied: nothing is allowed below this line\n");
    deny_all(build);
    add_bytes(build, &build->text, "", 1);
}

static size_t bytes_of_paths(const vj_macos_settings *settings, const vj_rule *rules,
                             uint32_t count) {
    size_t most = 1 + settings->socket_count + count;
    size_t bytes = VJ_MACOS_STRING_MAX + 1 + most * (LONGEST_GAIN + 1);
    for (uint32_t i = 0; i < count; i++)
        bytes += strnlen(rules[i].path, VJ_MACOS_STRING_MAX);
    for (uint32_t i = 0; i < settings->socket_count; i++)
        bytes += strnlen(settings->sockets[i], VJ_MACOS_STRING_MAX);
    if (settings->own) bytes += strnlen(settings->own, VJ_MACOS_STRING_MAX);
    return bytes;
}

// A socket that a rule denies could be neither seen nor connected to.
static vj_status check_sockets(const builder *build, vj_error *error) {
    uint32_t first = build->given + (build->settings->own ? 1 : 0);
    for (uint32_t i = 0; i < build->settings->socket_count; i++) {
        const vj_node *at = vj_tree_nearest(&build->tree, build->rules[first + i].path);
        if (!at || !at->in_force.read)
            return refuse(error, -1,
                          "a rule denies the path of a socket that is granted");
    }
    return VJ_OK;
}

static vj_status build_profile(builder *build, const vj_rule *rules, uint32_t count,
                               vj_error *error) {
    vj_status status = take_rules(build, rules, count, error);
    if (status != VJ_OK) return status;
    if (!vj_tree_build(&build->tree, build->rules, build->rule_count))
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_PLAN, 0, NO_MEMORY);
    status = check_sockets(build, error);
    if (status == VJ_OK) status = check_spellings(build, error);
    if (status != VJ_OK) return status;
    for (size_t i = 0; i < build->tree.count; i++)
        build->order[i] = &build->tree.nodes[i];
    qsort(build->order, build->tree.count, sizeof *build->order, compare_depths);
    write_profile(build);
    if (build->too_large) return refuse(error, -1, "the profile is larger than 4 MiB");
    if (build->failed) return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_PLAN, 0, NO_MEMORY);
    return VJ_OK;
}

vj_status vj_macos_profile_build(const vj_macos_settings *settings, const vj_rule *rules,
                                 uint64_t rule_count, vj_macos_profile *profile,
                                 vj_error *error) {
    *profile = (vj_macos_profile){0};
    vj_status status = check_settings(settings, rule_count, error);
    if (status != VJ_OK) return status;
    uint32_t count = (uint32_t)rule_count;
    size_t most = count + 1 + settings->socket_count + vj_macos_read_always.count +
                  vj_macos_read_system.count + vj_macos_read_git.count;
    char *paths = malloc(bytes_of_paths(settings, rules, count));
    vj_rule *taken = calloc(most, sizeof *taken);
    const vj_node **order = calloc(most, sizeof *order);
    builder build = {
        .settings = settings, .paths = paths, .rules = taken, .order = order};
    status = paths && taken && order
                 ? build_profile(&build, rules, count, error)
                 : vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_PLAN, 0, NO_MEMORY);
    if (build.tree.nodes) vj_tree_free(&build.tree);
    free(paths);
    free(taken);
    free((void *)order);
    if (status != VJ_OK) {
        free(build.text.bytes);
        free(build.parameters.bytes);
        return status;
    }
    *profile = (vj_macos_profile){.text = build.text.bytes,
                                  .parameters = build.parameters.bytes,
                                  .text_size = build.text.size - 1,
                                  .parameters_size = build.parameters.size,
                                  .parameter_count = build.parameter_count};
    return VJ_OK;
}

void vj_macos_profile_free(vj_macos_profile *profile) {
    free(profile->text);
    free(profile->parameters);
    *profile = (vj_macos_profile){0};
}
