// A policy of random rules and settings as a Seatbelt profile.
//
// sources: native/visjail/macos_profile.c native/visjail/macos_path.c
// sources: native/visjail/macos_base.c
// sources: native/visjail/policy_tree.c native/visjail/error.c
//
// Whatever comes in: it is refused, or the text is balanced, carries nothing of a policy
// but services, allows nothing below its first deny of the policy, and names each
// parameter once.
#include "fuzz.h"
#include <stdbool.h>

#include "macos_profile.h"

#define RULES_MAX 24
#define NAMES_MAX 4

// Those that a profile can carry come first.
static const char *const pieces[] = {
    "/a",   "/b",    "/tmp", "/var", "/etc", "/usr", "/lib",     "/.git", "/w",
    "/[x]", "hooks", "A",    "\"",   "\\",   ")",    "\xc3\xa9", "/home", "/private",
    "/",    ".",     "/..",  "\n",   "\xff", "/dev", "//"};
#define GOOD_PIECES 18

static char *some_path(fuzz_input *input) {
    char *path = calloc(1, 4096);
    if (!path) abort();
    strcat(path, fuzz_below(input, 200) ? "/w" : "");
    uint32_t most = fuzz_below(input, 32) ? GOOD_PIECES : sizeof pieces / sizeof *pieces;
    uint32_t count = fuzz_below(input, 6);
    if (!fuzz_below(input, 40)) count += 400;
    for (uint32_t i = 0; i < count; i++) strcat(path, pieces[fuzz_below(input, most)]);
    return path;
}

static void check_text(const vj_macos_profile *profile) {
    const char *text = profile->text;
    FUZZ_CHECK(strlen(text) == profile->text_size);
    FUZZ_CHECK(profile->text_size <= VJ_MACOS_TEXT_MAX);
    long depth = 0;
    size_t names = 0;
    bool in_string = false;
    bool denied = false;
    for (const char *at = text; *at; at++) {
        FUZZ_CHECK(*at == '\n' || (*at >= 0x20 && *at < 0x7f));
        if (*at == '"') in_string = !in_string;
        if (in_string) continue;
        depth += (*at == '(') - (*at == ')');
        FUZZ_CHECK(depth >= 0);
        if (!strncmp(at, "(param ", 7)) names++;
        // What comes first denies whole operations; this is the first that denies paths.
        if (!strncmp(at, "(deny file-write-setugid ", 25)) denied = true;
        FUZZ_CHECK(!denied || strncmp(at, "(allow ", 7) != 0);
    }
    FUZZ_CHECK(!depth && !in_string && denied);
    FUZZ_CHECK(names == profile->parameter_count);
}

static void check_parameters(const vj_macos_profile *profile) {
    const char *at = profile->parameters;
    const char *end = at + profile->parameters_size;
    for (uint32_t i = 0; i < profile->parameter_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "P%u", i);
        FUZZ_CHECK(at < end && !strcmp(at, name));
        at += strlen(at) + 1;
        FUZZ_CHECK(at < end && (*at == '/' || *at == '^'));
        FUZZ_CHECK(strlen(at) <= VJ_MACOS_STRING_MAX && !strpbrk(at, "\n\r\t\x7f"));
        at += strlen(at) + 1;
    }
    FUZZ_CHECK(at == end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {.at = data, .left = size};
    vj_rule rules[RULES_MAX];
    char *kept[RULES_MAX + NAMES_MAX + 1];
    const char *sockets[NAMES_MAX];
    const char *services[NAMES_MAX];
    uint16_t ports[NAMES_MAX];
    size_t keeps = 0;
    uint32_t count = fuzz_below(&input, RULES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        rules[i] = (vj_rule){.path = kept[keeps++] = some_path(&input),
                             .kind = fuzz_below(&input, VJ_RULE_END + 1),
                             .flags = fuzz_below(&input, 64)
                                          ? fuzz_below(&input, 2) * VJ_RULE_HELD
                                          : fuzz_below(&input, 8)};
        if (rules[i].kind == VJ_RULE_END && fuzz_below(&input, 16)) rules[i].kind = 0;
    }
    vj_macos_settings settings = {.size = sizeof settings,
                                  .version = VJ_MACOS_PROFILE_VERSION,
                                  .flags = fuzz_below(&input, 8),
                                  .programs = fuzz_below(&input, 8),
                                  .sockets = sockets,
                                  .services = services,
                                  .host_ports = ports,
                                  .socket_count = fuzz_below(&input, NAMES_MAX),
                                  .service_count = fuzz_below(&input, NAMES_MAX),
                                  .host_port_count = fuzz_below(&input, NAMES_MAX)};
    static const char *const names[] = {"com.example.a", "posix-shm:/abc", "x\"y", "a b",
                                        ""};
    for (uint32_t i = 0; i < NAMES_MAX; i++) {
        ports[i] = (uint16_t)fuzz_below(&input, 65536);
        services[i] =
            names[fuzz_below(&input, 8) ? fuzz_below(&input, 2) : fuzz_below(&input, 5)];
    }
    for (uint32_t i = 0; i < settings.socket_count; i++)
        sockets[i] = kept[keeps++] = some_path(&input);
    if (fuzz_below(&input, 2)) settings.own = kept[keeps++] = some_path(&input);

    vj_macos_profile profile;
    vj_error error;
    vj_status status = vj_macos_profile_build(&settings, rules, count, &profile, &error);
    if (status == VJ_OK) {
        check_text(&profile);
        check_parameters(&profile);
        vj_macos_profile_free(&profile);
    } else {
        FUZZ_CHECK(status == VJ_REFUSED && error.text[0]);
        FUZZ_CHECK(error.index >= -1 && error.index < (int32_t)count);
    }
    FUZZ_CHECK(!profile.text && !profile.parameters);
    for (size_t i = 0; i < keeps; i++) free(kept[i]);
    return 0;
}
