// The check of a plan block, and reading whatever it lets through.
//
// sources: native/visjail/plan.c native/visjail/policy.c native/visjail/policy_tree.c
// sources: native/visjail/policy_plan.c native/visjail/error.c
//
// Half of the inputs are blocks from nothing, half are a real plan with bytes changed.
// What passes the check is read as visjail-init reads it: every string of every entry.
#include "fuzz.h"
#include "policy.h"

static size_t read_all(const vj_plan *plan) {
    size_t length = strlen(vj_plan_string(plan, plan->hostname));
    const vj_operation *operations = vj_plan_operations(plan);
    for (uint32_t i = 0; i < plan->operation_count; i++) {
        const char *path = vj_plan_string(plan, operations[i].path);
        FUZZ_CHECK(path[0] == '/');
        FUZZ_CHECK(operations[i].kind > 0 && operations[i].kind < VJ_OPERATION_END);
        FUZZ_CHECK(strlen(path) < VJ_PATH_MAX);
        FUZZ_CHECK(!strcmp(vj_plan_path(plan, i), path));
        length += strlen(vj_plan_string(plan, operations[i].source));
    }
    const vj_access_rule *access = vj_plan_access(plan);
    for (uint32_t i = 0; i < plan->access_count; i++) {
        FUZZ_CHECK(access[i].access > 0 && access[i].access < VJ_ACCESS_END);
        length += strlen(vj_plan_string(plan, access[i].path));
    }
    FUZZ_CHECK(!vj_plan_path(plan, plan->operation_count)[0]);
    return length;
}

static void check(const void *block, size_t size) {
    if (vj_plan_check(block, size) == 0) FUZZ_CHECK(read_all(block) <= size * size);
}

static void from_nothing(fuzz_input *input) {
    size_t size = sizeof(vj_plan) + input->left;
    char *block = malloc(size);
    if (!block) abort();
    vj_plan plan = {.magic = VJ_PLAN_MAGIC,
                    .version = VJ_PLAN_VERSION,
                    .size = (uint32_t)size,
                    .operation_count = fuzz_below(input, 8),
                    .access_count = fuzz_below(input, 8)};
    plan.strings = (uint32_t)(sizeof plan + plan.operation_count * sizeof(vj_operation) +
                              plan.access_count * sizeof(vj_access_rule));
    plan.hostname = plan.strings + fuzz_below(input, 16);
    size = sizeof plan + input->left;
    plan.size = (uint32_t)size;
    memcpy(block, &plan, sizeof plan);
    if (input->left) memcpy(block + sizeof plan, input->at, input->left);
    check(block, size);
    free(block);
}

static void from_a_plan(fuzz_input *input) {
    static const vj_rule rules[] = {
        {.path = "/usr", .kind = VJ_RULE_READ},
        {.path = "/work/a", .kind = VJ_RULE_WRITE, .flags = VJ_RULE_GRANT},
        {.path = "/work/a/b/c", .kind = VJ_RULE_DENY},
        {.path = "/work/a/b/d", .kind = VJ_RULE_DENY_EXEC},
    };
    static const vj_fact facts[] = {
        {.path = "/", .object = VJ_OBJECT_DIRECTORY},
        {.path = "/usr", .object = VJ_OBJECT_DIRECTORY},
        {.path = "/work", .object = VJ_OBJECT_DIRECTORY},
        {.path = "/work/a", .object = VJ_OBJECT_DIRECTORY},
        {.path = "/work/a/b", .object = VJ_OBJECT_DIRECTORY},
        {.path = "/work/a/b/c", .object = VJ_OBJECT_DIRECTORY},
        {.path = "/work/a/b/d", .object = VJ_OBJECT_FILE},
    };
    vj_plan_settings settings = {.hostname = "jail"};
    void *block;
    size_t size;
    vj_error error;
    vj_status status =
        vj_policy_compile(&settings, rules, sizeof rules / sizeof *rules, facts,
                          sizeof facts / sizeof *facts, NULL, 0, &block, &size, &error);
    FUZZ_CHECK(status == VJ_OK && vj_plan_check(block, size) == 0);
    size_t cut = fuzz_below(input, 4) ? size : fuzz_below(input, (uint32_t)size + 1);
    uint8_t *copy = malloc(cut ? cut : 1);
    if (!copy) abort();
    memcpy(copy, block, cut);
    vj_plan_free(block);
    while (cut && input->left) {
        size_t at = fuzz_below(input, (uint32_t)cut);
        fuzz_take(input, copy + at, 1);
    }
    check(copy, cut);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {.at = data, .left = size};
    if (fuzz_below(&input, 2)) from_nothing(&input);
    else from_a_plan(&input);
    return 0;
}
