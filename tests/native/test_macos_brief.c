// The brief of visjail-macos-init, and its answer: what is written is read, nothing else
// is.
//
// sources: native/visjail/macos_brief.c native/visjail/error.c
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "macos_brief.h"

static const char *parameters[] = {"P0", "/w", "P1", "/x y"};
static const char *arguments[] = {"/bin/echo", "", "a\nb"};
static const char *environment[] = {"A=1", "B="};

static vj_brief_view some_view(void) {
    return (vj_brief_view){
        .header = {.flags = VJ_BRIEF_TERMINAL,
                   .parameters = 2,
                   .arguments = 3,
                   .environment = 2,
                   .host = 77,
                   .limits = {.open_files = 100, .file_size = 5, .cpu_seconds = 7}},
        .profile = "(version 1)\n",
        .directory = "/w",
        .canary = "",
        .marker = "visruntime.jail.0",
        .parameters = parameters,
        .arguments = arguments,
        .environment = environment,
    };
}

static void same(const char **left, const char **right, size_t count) {
    for (size_t i = 0; i < count; i++) assert(!strcmp(left[i], right[i]));
    assert(!left[count]);
}

static void test_round_trip(void) {
    vj_brief_view view = some_view();
    void *block = NULL;
    uint64_t size = 0;
    vj_error error;
    assert(vj_brief_write(&view, &block, &size, &error) == VJ_OK);
    vj_brief_view read;
    assert(vj_brief_read(block, size, &read, &error) == VJ_OK);
    assert(!strcmp(read.profile, view.profile) && !strcmp(read.directory, "/w"));
    assert(!read.canary[0] && read.header.flags == VJ_BRIEF_TERMINAL);
    assert(read.header.host == 77 && !strcmp(read.marker, view.marker));
    assert(!memcmp(&read.header.limits, &view.header.limits, sizeof read.header.limits));
    same(read.parameters, parameters, 4);
    same(read.arguments, arguments, 3);
    same(read.environment, environment, 2);
    vj_brief_release(&read);
    free(block);
}

// Cut anywhere, or with any byte changed: refused, or read within the block, which
// AddressSanitizer watches.
static void test_what_is_not_whole(void) {
    vj_brief_view view = some_view();
    void *block = NULL;
    uint64_t size = 0;
    vj_error error;
    assert(vj_brief_write(&view, &block, &size, &error) == VJ_OK);
    vj_brief_view read;
    for (uint64_t cut = 0; cut < size; cut++) {
        char *copy = malloc(cut ? cut : 1);
        assert(copy);
        memcpy(copy, block, cut);
        assert(vj_brief_read(copy, cut, &read, &error) == VJ_REFUSED && error.text[0]);
        assert(!read.parameters && !read.profile);
        free(copy);
    }
    for (uint64_t at = 0; at < size; at++) {
        char *copy = malloc(size);
        assert(copy);
        memcpy(copy, block, size);
        copy[at] ^= 0x41;
        if (vj_brief_read(copy, size, &read, &error) == VJ_OK) {
            assert(read.arguments[0][0] == '/' && strlen(read.directory));
            vj_brief_release(&read);
        }
        free(copy);
    }
    free(block);
}

static void refused(vj_brief_view view, const char *word) {
    void *block = NULL;
    uint64_t size = 0;
    vj_error error;
    vj_brief_view read;
    vj_status status = vj_brief_write(&view, &block, &size, &error);
    if (status == VJ_OK) status = vj_brief_read(block, size, &read, &error);
    if (status != VJ_REFUSED || !strstr(error.text, word)) printf("%s\n", error.text);
    assert(status == VJ_REFUSED && strstr(error.text, word));
    free(block);
}

static void test_what_is_refused(void) {
    vj_brief_view view = some_view();
    view.header.arguments = 0;
    refused(view, "without a program");
    view = some_view();
    view.header.flags = 32;
    refused(view, "flags");
    view = some_view();
    view.directory = "w";
    refused(view, "absolute");
    view = some_view();
    const char *relative[] = {"echo"};
    view.header.arguments = 1;
    view.arguments = relative;
    refused(view, "absolute");
    view = some_view();
    view.header.flags = VJ_BRIEF_FILE;
    view.header.file = 1;
    refused(view, "several files");
    view = some_view();
    view.header.file = 1;
    refused(view, "several files");
    view = some_view();
    const char *nothing[] = {""};
    view.header.flags = VJ_BRIEF_SEARCH;
    view.header.arguments = 1;
    view.arguments = nothing;
    refused(view, "absolute");
    view = some_view();
    view.header.environment = VJ_BRIEF_STRINGS_MAX;
    refused(view, "more strings");
    char *large = malloc(VJ_BRIEF_MAX);
    assert(large);
    memset(large, 'a', VJ_BRIEF_MAX);
    large[VJ_BRIEF_MAX - 1] = 0;
    view = some_view();
    view.profile = large;
    refused(view, "16 MiB");
    free(large);
}

static void test_failures(void) {
    vj_brief_failed record;
    vj_error error;
    vj_brief_fail(&record, VJ_STAGE_EXECUTE, 2, "executing the program");
    assert(vj_brief_failure(&record, sizeof record, &error) == VJ_SYSTEM);
    assert(error.stage == VJ_STAGE_EXECUTE && error.os_error == 2);
    assert(!strcmp(error.text, "executing the program"));
    vj_brief_fail(&record, VJ_STAGE_NESTED, 0, "nested");
    assert(vj_brief_failure(&record, sizeof record, &error) == VJ_REFUSED);
    assert(!strcmp(vj_stage_name(error.stage), "sandbox around the host"));
    vj_brief_fail(&record, VJ_STAGE_NONE, 0, "");
    assert(vj_brief_failure(&record, sizeof record, &error) == VJ_OK);
    // A long text is cut, and what is no record is an error of its own.
    char text[400];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    vj_brief_fail(&record, VJ_STAGE_SANDBOX, 0, text);
    assert(strlen(record.text) == sizeof record.text - 1);
    assert(vj_brief_failure(&record, sizeof record - 1, &error) == VJ_SYSTEM);
    assert(error.stage == VJ_STAGE_SUPERVISOR);
    record.text[sizeof record.text - 1] = 'x';
    assert(vj_brief_failure(&record, sizeof record, &error) == VJ_SYSTEM &&
           error.stage == VJ_STAGE_SUPERVISOR);
    vj_brief_fail(&record, VJ_STAGE_END, 0, "");
    assert(vj_brief_failure(&record, sizeof record, &error) == VJ_SYSTEM &&
           error.stage == VJ_STAGE_SUPERVISOR);
}

int main(void) {
    test_round_trip();
    test_what_is_not_whole();
    test_what_is_refused();
    test_failures();
    return 0;
}
