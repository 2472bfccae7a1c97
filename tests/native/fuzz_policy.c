// Any policy over any file system: compiled, checked, and decided.
//
// sources: native/visjail/policy.c native/visjail/policy_tree.c
// sources: native/visjail/policy_plan.c native/visjail/plan.c native/visjail/error.c
//
// What the compiler makes must pass the check. Facts may be missing, doubled or
// contradict the rules: the host changes while it is looked at.
#include "fuzz.h"
#include "policy.h"

#define RULES_MAX  24
#define FACTS_MAX  24
#define EXTRAS_MAX 8
#define PATH_ROOM  128

typedef struct {
    char text[PATH_ROOM];
} path_text;

// An absolute path that is normal, as policy.h asks for.
static const char *draw_path(fuzz_input *input, path_text *path) {
    static const char *const names[] = {"a",   "b",    "a-",   "a b", "etc",
                                        "tmp", "proc", "\xff", "...", "x"};
    size_t length = 0;
    uint32_t depth = fuzz_below(input, 7);
    for (uint32_t i = 0; i < depth; i++) {
        int written = snprintf(path->text + length, PATH_ROOM - length, "/%s",
                               names[fuzz_below(input, 10)]);
        length += (size_t)written;
    }
    if (!length) memcpy(path->text, "/", 2);
    return path->text;
}

static void decide_all(const vj_rule *rules, size_t count, fuzz_input *input) {
    path_text path;
    const char *target = draw_path(input, &path);
    bool allowed[VJ_RIGHT_END];
    for (int right = 0; right < VJ_RIGHT_END; right++) {
        int32_t deciding = -2;
        allowed[right] =
            vj_policy_decide(rules, count, (vj_right)right, target, &deciding);
        FUZZ_CHECK(deciding >= -1 && deciding < (int32_t)count);
        FUZZ_CHECK(!allowed[right] || deciding >= 0);
    }
    FUZZ_CHECK(allowed[VJ_RIGHT_READ] || !allowed[VJ_RIGHT_WRITE]);
    FUZZ_CHECK(allowed[VJ_RIGHT_READ] || !allowed[VJ_RIGHT_EXEC]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {.at = data, .left = size};
    path_text rule_paths[RULES_MAX], fact_paths[FACTS_MAX], extra_paths[EXTRAS_MAX];
    vj_rule rules[RULES_MAX];
    vj_fact facts[FACTS_MAX];
    vj_extra extras[EXTRAS_MAX];
    memset(rules, 0, sizeof rules);
    memset(facts, 0, sizeof facts);
    memset(extras, 0, sizeof extras);
    size_t rule_count = fuzz_below(&input, RULES_MAX + 1);
    size_t fact_count = fuzz_below(&input, FACTS_MAX + 1);
    size_t extra_count = fuzz_below(&input, EXTRAS_MAX + 1);
    for (size_t i = 0; i < rule_count; i++) {
        rules[i].path = draw_path(&input, &rule_paths[i]);
        rules[i].kind = fuzz_below(&input, VJ_RULE_END);
        rules[i].flags = fuzz_below(&input, 4);
    }
    for (size_t i = 0; i < fact_count; i++) {
        // Often of a rule, or the search for a deep agreement would take for ever.
        bool known = rule_count && fuzz_below(&input, 3);
        facts[i].path = known ? rules[fuzz_below(&input, (uint32_t)rule_count)].path
                              : draw_path(&input, &fact_paths[i]);
        facts[i].object = fuzz_below(&input, VJ_OBJECT_LINK + 1);
    }
    for (size_t i = 0; i < extra_count; i++) {
        extras[i].kind = VJ_OPERATION_DIRECTORY +
                         fuzz_below(&input, VJ_OPERATION_END - VJ_OPERATION_DIRECTORY);
        extras[i].path = draw_path(&input, &extra_paths[i]);
        extras[i].source = "source";
        extras[i].mode = fuzz_below(&input, 0xffff);
    }
    vj_plan_settings settings = {
        .hostname = "jail",
        .flags = fuzz_below(&input, 2),
        .host_root = fuzz_below(&input, 2),
    };
    void *block;
    size_t block_size;
    vj_error error;
    vj_status status =
        vj_policy_compile(&settings, rules, rule_count, facts, fact_count, extras,
                          extra_count, &block, &block_size, &error);
    if (status == VJ_OK) FUZZ_CHECK(vj_plan_check(block, block_size) == 0);
    else FUZZ_CHECK(!block && status == VJ_REFUSED);
    vj_plan_free(block);
    decide_all(rules, rule_count, &input);
    return 0;
}
