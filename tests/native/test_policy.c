// The policy in C: the decision, the plan that follows from it, and the check of a plan.
//
// sources: native/visjail/policy.c native/visjail/policy_tree.c
// sources: native/visjail/policy_plan.c native/visjail/plan.c native/visjail/error.c
//
// Random policies over a small tree. For each object of the tree, what the decision says,
// what a second, plain reading of the specification says, and what the mounts of the plan
// would let through must be the same. Plans with flipped bytes must never make the check
// read outside the block, which AddressSanitizer watches.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"

#define POLICIES   20000
#define RULES_MAX  6
#define TREE_MAX   160
#define MOUNTS_MAX 512
#define FLIPS      40

static uint64_t state = 88172645463325252u;
static char paths[TREE_MAX][24];
static vj_fact facts[TREE_MAX];
static size_t fact_count;

static uint32_t draw(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

static void fail(const char *what, const vj_rule *rules, size_t count, const char *path) {
    static const char *const kinds[] = {"read",      "write",      "deny",
                                        "deny_read", "deny_write", "deny_exec"};
    fprintf(stderr, "%s at %s under:\n", what, path);
    for (size_t i = 0; i < count; i++) {
        fprintf(stderr, "  %s %s\n", kinds[rules[i].kind], rules[i].path);
    }
    exit(1);
}

static bool within(const char *above, const char *path) {
    size_t length = strlen(above);
    if (length == 1) return true;
    return !strncmp(above, path, length) && (path[length] == 0 || path[length] == '/');
}

// ---- the specification, read plainly ---------------------------------------

static bool spec_read(const vj_rule *rules, size_t count, const char *path) {
    size_t longest = 0;
    bool allowed = false;
    for (size_t i = 0; i < count; i++) {
        uint32_t kind = rules[i].kind;
        if (kind == VJ_RULE_DENY_WRITE || kind == VJ_RULE_DENY_EXEC) continue;
        size_t length = strlen(rules[i].path);
        if (!within(rules[i].path, path) || length < longest) continue;
        bool allows = kind == VJ_RULE_READ || kind == VJ_RULE_WRITE;
        allowed = length > longest ? allows : allowed && allows;
        longest = length;
    }
    return allowed;
}

static bool spec_write(const vj_rule *rules, size_t count, const char *path) {
    size_t longest = 0;
    bool granted = false;
    bool denied = true;
    for (size_t i = 0; i < count; i++) {
        if (rules[i].kind == VJ_RULE_DENY_EXEC) continue;
        size_t length = strlen(rules[i].path);
        if (!within(rules[i].path, path) || length < longest) continue;
        if (length > longest) granted = denied = false;
        longest = length;
        if (rules[i].kind == VJ_RULE_WRITE) granted = true;
        else if (rules[i].kind != VJ_RULE_READ) denied = true;
    }
    return granted && !denied && spec_read(rules, count, path);
}

static bool spec_exec(const vj_rule *rules, size_t count, const char *path) {
    for (size_t i = 0; i < count; i++) {
        if (rules[i].kind == VJ_RULE_DENY_EXEC && within(rules[i].path, path))
            return false;
    }
    return spec_read(rules, count, path);
}

// ---- what the mounts of a plan let through ---------------------------------

typedef struct {
    const char *point;
    bool right[VJ_RIGHT_END];
} mounted;

static mounted mounts[MOUNTS_MAX];
static size_t mount_count;

// A new mount hides whatever was mounted at its point or beneath it.
static void put(const char *point, bool read, bool write, bool exec) {
    size_t kept = 0;
    for (size_t i = 0; i < mount_count; i++) {
        if (!within(point, mounts[i].point)) mounts[kept++] = mounts[i];
    }
    mounts[kept] = (mounted){.point = point, .right = {read, write, exec}};
    mount_count = kept + 1;
}

static void mount_all(const vj_plan *plan) {
    mount_count = 0;
    const vj_operation *operations = vj_plan_operations(plan);
    for (uint32_t i = 0; i < plan->operation_count; i++) {
        const char *point = vj_plan_string(plan, operations[i].path);
        bool host = vj_plan_string(plan, operations[i].source)[0] == '/';
        bool read_only = operations[i].flags & VJ_BIND_READ_ONLY;
        bool no_exec = operations[i].flags & VJ_BIND_NO_EXEC;
        switch (operations[i].kind) {
        case VJ_OPERATION_ROOT: put(point, host, false, host && !no_exec); break;
        case VJ_OPERATION_BIND: put(point, true, !read_only, !no_exec); break;
        case VJ_OPERATION_MASK_DIRECTORY:
        case VJ_OPERATION_MASK_FILE: put(point, false, false, false); break;
        default: break;
        }
    }
}

static bool mounted_right(vj_right right, const char *path) {
    const mounted *best = NULL;
    for (size_t i = 0; i < mount_count; i++) {
        if (!within(mounts[i].point, path)) continue;
        if (!best || strlen(mounts[i].point) > strlen(best->point)) best = &mounts[i];
    }
    return best && best->right[right];
}

// ---- cases -----------------------------------------------------------------

static void grow_tree(const char *path, int depth) {
    vj_fact *fact = &facts[fact_count];
    char *name = paths[fact_count++];
    snprintf(name, sizeof paths[0], "%s", path);
    bool file = depth == 4 || (depth > 1 && draw(4) == 0);
    *fact = (vj_fact){.path = name,
                      .object = file ? VJ_OBJECT_FILE : VJ_OBJECT_DIRECTORY,
                      .device = 1,
                      .inode = fact_count};
    if (file) return;
    for (int i = 0; i < 3; i++) {
        char below[sizeof paths[0]];
        // "a-" sorts before "a/" by bytes: order must go by segments.
        static const char *const names[] = {"a", "a-", "b"};
        snprintf(below, sizeof below, "%s/%s", depth ? path : "", names[i]);
        grow_tree(below, depth + 1);
    }
}

static size_t random_rules(vj_rule *rules, bool host_root) {
    size_t count = 0;
    if (host_root) rules[count++] = (vj_rule){.path = "/", .kind = VJ_RULE_READ};
    if (host_root && draw(4) == 0) {
        uint32_t kind = VJ_RULE_DENY + draw(VJ_RULE_END - VJ_RULE_DENY);
        rules[count++] = (vj_rule){.path = "/", .kind = kind};
    }
    size_t wanted = count + 1 + draw(RULES_MAX);
    while (count < wanted) {
        vj_rule *rule = &rules[count++];
        *rule = (vj_rule){.path = paths[1 + draw((uint32_t)fact_count - 1)],
                          .kind = draw(3) ? draw(2) : draw(VJ_RULE_END)};
        rule->flags = rule->kind <= VJ_RULE_WRITE ? VJ_RULE_GRANT : 0;
    }
    return count;
}

static void check_decisions(const vj_rule *rules, size_t count) {
    for (size_t i = 0; i < fact_count; i++) {
        const char *path = facts[i].path;
        bool expected[VJ_RIGHT_END] = {spec_read(rules, count, path),
                                       spec_write(rules, count, path),
                                       spec_exec(rules, count, path)};
        for (int right = 0; right < VJ_RIGHT_END; right++) {
            int32_t deciding = -2;
            bool decided =
                vj_policy_decide(rules, count, (vj_right)right, path, &deciding);
            if (decided != expected[right]) fail("wrong decision", rules, count, path);
            if (deciding < -1 || deciding >= (int32_t)count ||
                (decided && deciding < 0)) {
                fail("wrong deciding rule", rules, count, path);
            }
        }
    }
}

static void check_plan(const vj_plan *plan, const vj_rule *rules, size_t count) {
    mount_all(plan);
    for (size_t i = 0; i < fact_count; i++) {
        for (int right = 0; right < VJ_RIGHT_END; right++) {
            int32_t deciding;
            const char *path = facts[i].path;
            bool decided =
                vj_policy_decide(rules, count, (vj_right)right, path, &deciding);
            if (mounted_right((vj_right)right, path) != decided) {
                fail(decided ? "the mounts deny too much" : "the mounts let through",
                     rules, count, path);
            }
        }
    }
}

// The copy has the exact size, so that one byte too far is seen.
static void check_mutations(const void *block, size_t size) {
    for (int i = 0; i < FLIPS; i++) {
        size_t cut = draw(4) ? size : draw((uint32_t)size + 1);
        unsigned char *copy = malloc(cut ? cut : 1);
        if (!copy) abort();
        memcpy(copy, block, cut);
        for (uint32_t flips = draw(4); cut && flips > 0; flips--) {
            copy[draw((uint32_t)cut)] = (unsigned char)draw(256);
        }
        if (cut < size && vj_plan_check(copy, cut) == 0) {
            fprintf(stderr, "a cut plan passed the check\n");
            exit(1);
        }
        vj_plan_check(copy, cut);
        free(copy);
    }
}

// A folder that is free of the wall has a right of its own only as the folder that was
// found, and what leads to a mask in a private place is pinned once.
static void check_pins(void) {
    const vj_rule rules[] = {
        {.path = "/t", .kind = VJ_RULE_WRITE, .flags = VJ_RULE_PRIVATE},
        {.path = "/t/a/b/c", .kind = VJ_RULE_DENY},
        {.path = "/t/a/b/d", .kind = VJ_RULE_DENY_WRITE},
        {.path = "/t/x", .kind = VJ_RULE_DENY_EXEC},
    };
    const vj_fact here[] = {
        {.path = "/f", .object = VJ_OBJECT_DIRECTORY, .device = 3, .inode = 4},
        {.path = "/g", .object = VJ_OBJECT_ABSENT},
    };
    const vj_extra extras[] = {
        {.kind = VJ_OPERATION_SCRATCH, .path = "/t", .source = ""},
        {.kind = VJ_OPERATION_SCRATCH_PLACE, .path = "/t", .source = ""},
        {.kind = VJ_EXTRA_FREE, .path = "/f", .source = ""},
        {.kind = VJ_EXTRA_FREE, .path = "/g", .source = ""},
    };
    static const char *const pinned[] = {"/t/a", "/t/a/b", "/t", "/t/x"};
    const vj_plan_settings settings = {.hostname = "h"};
    void *block = NULL;
    size_t size = 0;
    vj_error error = {0};
    if (vj_policy_compile(&settings, rules, 4, here, 2, extras, 4, &block, &size,
                          &error) != VJ_OK ||
        vj_plan_check(block, size)) {
        fail("no plan", rules, 4, "/t");
    }
    const vj_plan *plan = block;
    size_t pins = 0;
    for (uint32_t i = 0; i < plan->operation_count; i++) {
        const vj_operation *one = &vj_plan_operations(plan)[i];
        if (one->kind != VJ_OPERATION_PIN) continue;
        const char *path = vj_plan_string(plan, one->path);
        if (pins == 4 || strcmp(path, pinned[pins]) != 0) fail("pin", rules, 4, path);
        if (!strcmp(path, "/t/x") != (one->flags == VJ_BIND_NO_EXEC))
            fail("execution", rules, 4, path);
        pins++;
    }
    if (pins != 4) fail("too few pins", rules, 4, "/t");
    size_t free_folders = 0;
    for (uint32_t i = 0; i < plan->access_count; i++) {
        const vj_access_rule *one = &vj_plan_access(plan)[i];
        const char *path = vj_plan_string(plan, one->path);
        if (!strcmp(path, "/g")) fail("a right where nothing is", rules, 4, path);
        if (strcmp(path, "/f") != 0) continue;
        free_folders++;
        if (!one->optional || one->device != 3 || one->inode != 4)
            fail("a right for any folder", rules, 4, path);
    }
    if (free_folders != 1) fail("no right", rules, 4, "/f");
    vj_plan_free(block);
}

int main(void) {
    check_pins();
    vj_rule rules[RULES_MAX + 3];
    uint64_t allowed = 0;
    uint64_t masked = 0;
    uint64_t refused = 0;
    for (int i = 0; i < POLICIES; i++) {
        if (i % 500 == 0) {
            fact_count = 0;
            grow_tree("/", 0);
        }
        bool host_root = draw(4) == 0;
        size_t count = random_rules(rules, host_root);
        check_decisions(rules, count);

        vj_plan_settings settings = {.hostname = "jail", .host_root = host_root};
        void *block;
        size_t size;
        vj_error error;
        vj_status status = vj_policy_compile(&settings, rules, count, facts, fact_count,
                                             NULL, 0, &block, &size, &error);
        if (host_root && !spec_read(rules, count, "/")) {
            if (status != VJ_REFUSED || block) fail("not refused", rules, count, "/");
            refused++;
            continue;
        }
        if (status != VJ_OK) fail(error.text, rules, count, "compile");
        if (vj_plan_check(block, size) != 0) fail("plan refused", rules, count, "check");
        check_plan(block, rules, count);
        if (i % 50 == 0) check_mutations(block, size);
        for (size_t at = 0; at < mount_count; at++) {
            if (mounts[at].right[VJ_RIGHT_WRITE]) allowed++;
            else if (!mounts[at].right[VJ_RIGHT_READ]) masked++;
        }
        vj_plan_free(block);
    }
    // The random policies must not have been too dull to find anything.
    if (refused < POLICIES / 100 || allowed < POLICIES / 4 || masked < POLICIES / 4) {
        fprintf(stderr, "dull policies: %llu writable mounts, %llu masks\n",
                (unsigned long long)allowed, (unsigned long long)masked);
        return 1;
    }
    printf("%d policies, %llu writable mounts, %llu masks\n", POLICIES,
           (unsigned long long)allowed, (unsigned long long)masked);
    return 0;
}
