// The check of a plan block. Pure: used by visjail-init before it acts on a
// plan, by libvisjail before it sends one, and by the fuzzer.

#include "plan.h"

static uint32_t bad(size_t offset) {
    return (uint32_t)offset + 1;
}

static int string_ends_inside(const char *block, size_t size, uint32_t strings,
                              uint32_t offset) {
    if (offset < strings || offset >= size) return 0;
    for (size_t i = offset; i < size && i - offset < VJ_PATH_MAX; i++) {
        if (!block[i]) return 1;
    }
    return 0;
}

static int is_absolute(const char *block, uint32_t offset) {
    return block[offset] == '/';
}

uint32_t vj_plan_check(const void *block, size_t size) {
    const char *bytes = block;
    const vj_plan *plan = block;
    if (size < sizeof *plan || size > VJ_PLAN_MAX_SIZE) return bad(0);
    if (plan->magic != VJ_PLAN_MAGIC || plan->version != VJ_PLAN_VERSION) return bad(0);
    if (plan->size != size) return bad(offsetof(vj_plan, size));
    if (plan->operation_count > VJ_PLAN_MAX_OPERATIONS ||
        plan->access_count > VJ_PLAN_MAX_OPERATIONS) {
        return bad(offsetof(vj_plan, operation_count));
    }
    if (plan->tree.groups > VJ_GROUPS_MAX ||
        (plan->tree.counters && plan->tree.counters != VJ_COUNTERS)) {
        return bad(offsetof(vj_plan, tree));
    }
    if (plan->backend >= VJ_BACKEND_END) return bad(offsetof(vj_plan, backend));
    size_t tables = sizeof *plan + plan->operation_count * sizeof(vj_operation) +
                    plan->access_count * sizeof(vj_access_rule);
    if (plan->strings != tables || tables > size) return bad(offsetof(vj_plan, strings));
    if (!string_ends_inside(bytes, size, plan->strings, plan->hostname)) {
        return bad(offsetof(vj_plan, hostname));
    }

    const vj_operation *operations = vj_plan_operations(plan);
    for (uint32_t i = 0; i < plan->operation_count; i++) {
        const vj_operation *operation = &operations[i];
        size_t at = (size_t)((const char *)operation - bytes);
        if (!operation->kind || operation->kind >= VJ_OPERATION_END) return bad(at);
        if (!string_ends_inside(bytes, size, plan->strings, operation->path) ||
            !is_absolute(bytes, operation->path) ||
            !string_ends_inside(bytes, size, plan->strings, operation->source)) {
            return bad(at);
        }
        // The root comes first and once: everything else is put beneath it.
        if ((operation->kind == VJ_OPERATION_ROOT) != (i == 0)) return bad(at);
    }

    const vj_access_rule *access = vj_plan_access(plan);
    for (uint32_t i = 0; i < plan->access_count; i++) {
        size_t at = (size_t)((const char *)&access[i] - bytes);
        if (!access[i].access || access[i].access >= VJ_ACCESS_END) return bad(at);
        if (!string_ends_inside(bytes, size, plan->strings, access[i].path) ||
            !is_absolute(bytes, access[i].path)) {
            return bad(at);
        }
    }
    return 0;
}
