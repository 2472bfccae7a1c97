// The rules inside a worker: what a path becomes, which rule speaks, what can be granted.
// sources: native/vispython/rules.c native/visjail/policy.c native/visjail/policy_tree.c
#include "rules.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void becomes(const char *path, const char *expected) {
    char out[64];
    assert(vis_normal_path(path, out, sizeof out));
    if (strcmp(out, expected) != 0) printf("%s became %s\n", path, out);
    assert(strcmp(out, expected) == 0);
}

static void test_paths(void) {
    becomes("/", "/");
    becomes("//", "/");
    becomes("/a/./b//c/", "/a/b/c");
    becomes("/a/../../b", "/b");
    becomes("/..", "/");
    becomes("/a/b/../..", "/");
    becomes("/a/..b/.c", "/a/..b/.c");
    becomes("/\xff/../x", "/x");
    assert(chdir("/usr") == 0);
    becomes("x/../y", "/usr/y");
    becomes(".", "/usr");
    becomes("../..", "/");
    assert(chdir("/") == 0);
    becomes("x", "/x");

    // What does not fit is said, never cut.
    char small[8];
    assert(vis_normal_path("/123456", small, sizeof small));
    assert(!vis_normal_path("/1234567", small, sizeof small));
    assert(!vis_normal_path("/", small, 1));
    char *exact = malloc(8);
    assert(exact && vis_normal_path("/1/2/45", exact, 8) && !strcmp(exact, "/1/2/45"));
    free(exact);
}

static void test_rules(void) {
    assert(!vis_rules_known());
    static vj_rule rules[] = {
        {.path = "/data", .kind = VJ_RULE_READ},
        {.path = "/data/out", .kind = VJ_RULE_WRITE},
        {.path = "/data/out/kept", .kind = VJ_RULE_DENY_WRITE},
        {.path = "/data/secret", .kind = VJ_RULE_DENY},
    };
    static const char *names[] = {"read[0]", "write[0]", "deny_write[0]", "deny[0]"};
    static const char *closed[] = {"/proc"};
    vis_rules taken = {rules, names, 4, closed, 1};
    assert(vis_rules_set(&taken) && vis_rules_known());

    static const struct {
        const char *path;
        bool read, write;
        const char *reads, *writes;
    } cases[] = {
        {"/data", true, false, "read[0]", "read[0]"},
        {"/database", false, false, NULL, NULL},
        {"/data/out/x", true, true, "write[0]", "write[0]"},
        {"/data/out/kept/x", true, false, "write[0]", "deny_write[0]"},
        {"/data/secret", false, false, "deny[0]", "deny[0]"},
        {"/", false, false, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert(vis_rules_allow(VJ_RIGHT_READ, cases[i].path) == cases[i].read);
        assert(vis_rules_allow(VJ_RIGHT_WRITE, cases[i].path) == cases[i].write);
        const char *name = NULL;
        const vj_rule *rule = vis_rules_deciding(VJ_RIGHT_READ, cases[i].path, &name);
        assert(!rule == !cases[i].reads && !name == !cases[i].reads);
        assert(!name || !strcmp(name, cases[i].reads));
        if (!cases[i].read) continue; // nothing is written that cannot be read
        rule = vis_rules_deciding(VJ_RIGHT_WRITE, cases[i].path, &name);
        assert(rule && !strcmp(name, cases[i].writes));
    }
    assert(vis_rules_grantable("/srv/x") && vis_rules_grantable("/process"));
    assert(!vis_rules_grantable("/") && !vis_rules_grantable("/proc"));
    assert(!vis_rules_grantable("/proc/1"));
}

int main(void) {
    test_paths();
    test_rules();
    return 0;
}
