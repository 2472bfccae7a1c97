// Names in C: patterns, and the list of secret names, under sanitizers.
//
// sources: native/visjail/pattern.c native/visjail/secret_names.c
//
// Random patterns and names of few letters are compared with a plain recursive reading of
// the syntax without sets; random bytes, also such as are no UTF-8 and sets without an
// end, must never make either read outside of its text, which AddressSanitizer watches.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pattern.h"
#include "secret_names.h"

#define ROUNDS 400000
#define LENGTH 12

static uint64_t state = 88172645463325252u;

static uint32_t draw(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

// Text of the given letters on the heap, so that reading past its end is seen.
static char *text_of(const char *letters, uint32_t count) {
    uint32_t length = draw(LENGTH);
    char *text = malloc(length + 1);
    if (!text) abort();
    for (uint32_t i = 0; i < length; i++) text[i] = letters[draw(count)];
    text[length] = 0;
    return text;
}

static bool plainly(const char *part, const char *name) {
    if (!*part) return !*name;
    if (*part == '*')
        return plainly(part + 1, name) || (*name && plainly(part, name + 1));
    return *name && (*part == '?' || *part == *name) && plainly(part + 1, name + 1);
}

static void fail(const char *what, const char *one, const char *two) {
    fprintf(stderr, "%s: \"%s\" \"%s\"\n", what, one, two);
    exit(1);
}

static void compare_parts(void) {
    static const char letters[] = {'a', 'b', '*', '?'};
    size_t matches = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char *part = text_of(letters, 4);
        char *name = text_of(letters, 2);
        bool fits = vj_pattern_fits(part, name);
        if (fits != plainly(part, name)) fail("a part names something else", part, name);
        matches += fits;
        free(part);
        free(name);
    }
    if (matches < ROUNDS / 100) fail("too few matches to say anything", "", "");
}

// Each step must keep to the parts, and a name that fits all of them must be a match.
static void step_through(void) {
    static const char letters[] = {'a', '*', '/', '?', '['};
    for (int i = 0; i < ROUNDS; i++) {
        char *text = text_of(letters, 5);
        vj_pattern pattern;
        if (vj_pattern_parse(text, &pattern)) {
            uint64_t places = vj_pattern_start(&pattern);
            for (uint32_t k = 0; k < 4; k++) {
                char *name = text_of("ab", 2);
                uint64_t work = 0;
                places = vj_pattern_step(&pattern, places, name, &work);
                if (places >> pattern.count > 1) fail("a place past the end", text, name);
                free(name);
            }
        }
        free(text);
    }
}

static void survive_any_bytes(void) {
    static const char letters[] = {'a',        '[',        ']',       '!', '-',
                                   '*',        '?',        '/',       '.', (char)0xe4,
                                   (char)0xb8, (char)0xf0, (char)0xff};
    static const char list[] = "d.ssh\0d.config/"
                               "gcloud\0n.npmrc\0p.env\0s.tfstate\0k.pem\0o."
                               "example\0inode_modules\0llib/python3.\0t/opt/python";
    vj_secret_hints hints;
    vj_secret_prepare(list, sizeof list, &hints);
    for (int i = 0; i < ROUNDS; i++) {
        char *part = text_of(letters, sizeof letters);
        char *name = text_of(letters, sizeof letters);
        vj_pattern_fits(part, name);
        vj_secret_worth(&hints, name, strlen(name));
        vj_secret_find(list, sizeof list, name, 0, VJ_SECRET_FOLDER | VJ_SECRET_FILE);
        vj_secret_find(part, strlen(part) + 1, name, 0, VJ_SECRET_FILE);
        vj_secret_is_key(name, strlen(name));
        free(part);
        free(name);
    }
    // What the hints leave out may be on the list under no name.
    static const char *const known[] = {"/w/.ssh",       "/w/.config/gcloud", "/w/.npmrc",
                                        "/w/.env.local", "/w/x.tfstate",      "/w/x.pem"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *name = strrchr(known[i], '/') + 1;
        vj_secret_found found = vj_secret_find(list, sizeof list, known[i], 0,
                                               VJ_SECRET_FOLDER | VJ_SECRET_FILE);
        if (found.entry < 0) fail("a listed name is not found", known[i], "");
        if (!vj_secret_worth(&hints, name, strlen(name)))
            fail("not worth a look", name, "");
    }
}

int main(void) {
    compare_parts();
    step_through();
    survive_any_bytes();
    return 0;
}
