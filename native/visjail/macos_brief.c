// The brief of visjail-macos-init. Pure; see macos_brief.h.

#include "macos_brief.h"

#include <stdlib.h>
#include <string.h>

// Beside the lists: profile, directory, canary and marker.
#define SINGLE_STRINGS 4u

static vj_status refuse(vj_error *error, const char *text) {
    return vj_fail(error, VJ_REFUSED, VJ_STAGE_REQUEST, 0, text);
}

static uint64_t strings_of(const vj_brief *header) {
    return SINGLE_STRINGS + 2 * (uint64_t)header->parameters + header->arguments +
           header->environment;
}

static const char *string_at(const vj_brief_view *view, uint64_t index) {
    const char *single[SINGLE_STRINGS] = {view->profile, view->directory, view->canary,
                                          view->marker};
    if (index < SINGLE_STRINGS) return single[index];
    index -= SINGLE_STRINGS;
    if (index < 2 * (uint64_t)view->header.parameters) return view->parameters[index];
    index -= 2 * (uint64_t)view->header.parameters;
    if (index < view->header.arguments) return view->arguments[index];
    return view->environment[index - view->header.arguments];
}

vj_status vj_brief_write(const vj_brief_view *view, void **block, uint64_t *size,
                         vj_error *error) {
    *block = NULL;
    *size = 0;
    uint64_t count = strings_of(&view->header);
    if (count > VJ_BRIEF_STRINGS_MAX) return refuse(error, "more strings than are taken");
    uint64_t total = sizeof view->header;
    for (uint64_t i = 0; i < count; i++) {
        total += strnlen(string_at(view, i), VJ_BRIEF_MAX) + 1;
        if (total > VJ_BRIEF_MAX) return refuse(error, "a brief of more than 16 MiB");
    }
    char *bytes = malloc(total);
    if (!bytes) return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_REQUEST, 0, "no memory");
    vj_brief header = view->header;
    header.magic = VJ_BRIEF_MAGIC;
    header.version = VJ_BRIEF_VERSION;
    header.size = (uint32_t)total;
    memcpy(bytes, &header, sizeof header);
    uint64_t at = sizeof header;
    for (uint64_t i = 0; i < count; i++) {
        const char *string = string_at(view, i);
        size_t length = strlen(string) + 1;
        memcpy(bytes + at, string, length);
        at += length;
    }
    *block = bytes;
    *size = total;
    return VJ_OK;
}

static const char *check_header(const vj_brief *header, uint64_t size) {
    if (header->magic != VJ_BRIEF_MAGIC || header->version != VJ_BRIEF_VERSION)
        return "a brief of another version";
    if (header->size != size) return "a brief that is cut";
    if (header->flags & ~VJ_BRIEF_FLAGS) return "a brief with unknown flags";
    if (!header->arguments) return "a brief without a program";
    bool is_file = header->flags & VJ_BRIEF_FILE;
    if (is_file != (header->file != 0) || (is_file && header->arguments != 1))
        return "a brief of a file operation on none or several files";
    if (strings_of(header) > VJ_BRIEF_STRINGS_MAX) return "more strings than are taken";
    return NULL;
}

// Fill a list from `*at`, and move that behind its strings. False: one does not end.
static bool take(const char **list, uint64_t count, const char **at, const char *end) {
    for (uint64_t i = 0; i < count; i++) {
        const char *stop = memchr(*at, 0, (size_t)(end - *at));
        if (!stop) return false;
        list[i] = *at;
        *at = stop + 1;
    }
    return true;
}

vj_status vj_brief_read(const void *block, uint64_t size, vj_brief_view *view,
                        vj_error *error) {
    *view = (vj_brief_view){0};
    if (size < sizeof view->header || size > VJ_BRIEF_MAX)
        return refuse(error, "a brief that is cut");
    memcpy(&view->header, block, sizeof view->header);
    const char *wrong = check_header(&view->header, size);
    if (wrong) return refuse(error, wrong);
    // Each list has one more place, for its NULL.
    const vj_brief *header = &view->header;
    const char **lists = calloc(strings_of(header) + 3, sizeof *lists);
    if (!lists) return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_REQUEST, 0, "no memory");
    const char *at = (const char *)block + sizeof *header;
    const char *end = (const char *)block + size;
    const char *single[SINGLE_STRINGS] = {0};
    view->parameters = lists;
    view->arguments = view->parameters + 2 * (uint64_t)header->parameters + 1;
    view->environment = view->arguments + header->arguments + 1;
    bool whole = take(single, SINGLE_STRINGS, &at, end) &&
                 take(view->parameters, 2 * (uint64_t)header->parameters, &at, end) &&
                 take(view->arguments, header->arguments, &at, end) &&
                 take(view->environment, header->environment, &at, end) && at == end;
    if (!whole) {
        vj_brief_release(view);
        return refuse(error, "the strings of a brief are not what it says");
    }
    view->profile = single[0];
    view->directory = single[1];
    view->canary = single[2];
    view->marker = single[3];
    bool is_named = view->header.flags & (VJ_BRIEF_SEARCH | VJ_BRIEF_TRY)
                        ? view->arguments[0][0] != 0
                        : view->arguments[0][0] == '/';
    if (!is_named || view->directory[0] != '/') {
        vj_brief_release(view);
        return refuse(error, "program and directory of a brief are absolute");
    }
    return VJ_OK;
}

void vj_brief_release(vj_brief_view *view) {
    free((void *)view->parameters);
    *view = (vj_brief_view){0};
}

void vj_brief_fail(vj_brief_failed *record, uint32_t stage, int os_error,
                   const char *text) {
    memset(record, 0, sizeof *record);
    record->magic = VJ_BRIEF_FAILED_MAGIC;
    record->stage = stage;
    record->os_error = os_error;
    size_t length = strnlen(text, sizeof record->text - 1);
    memcpy(record->text, text, length);
}

vj_status vj_brief_failure(const vj_brief_failed *record, uint64_t size,
                           vj_error *error) {
    if (size != sizeof *record || record->magic != VJ_BRIEF_FAILED_MAGIC ||
        record->stage >= VJ_STAGE_END || record->text[sizeof record->text - 1])
        return vj_fail(error, VJ_SYSTEM, VJ_STAGE_SUPERVISOR, 0,
                       "the helper ended without a word");
    if (record->stage == VJ_STAGE_NONE) return VJ_OK;
    vj_status status = record->stage == VJ_STAGE_NESTED ? VJ_REFUSED : VJ_SYSTEM;
    return vj_fail(error, status, record->stage, record->os_error, record->text);
}
