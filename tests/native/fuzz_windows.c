// Any bytes as text, names and paths for Windows.
//
// sources: native/visjail/windows_text.c native/visjail/windows_command.c
// sources: native/visjail/windows_names.c
//
// What is taken must come back as it was, keep to its room, and hold nothing of what is
// refused elsewhere.
#include <strings.h>

#include "fuzz.h"
#include "windows_names.h"
#include "windows_text.h"

#define ROOM 512

static void convert(const char *text, size_t length, size_t room) {
    uint16_t units[ROOM];
    char back[3 * ROOM];
    size_t written = 0, again = 0, measured = 0;
    vj_windows_fault fault = vj_windows_utf16(text, length, units, room, &written);
    FUZZ_CHECK(fault == VJ_WINDOWS_TOO_LONG ||
               fault == vj_windows_measure(text, length, &measured));
    if (fault != VJ_WINDOWS_FINE) {
        FUZZ_CHECK(!written);
        return;
    }
    FUZZ_CHECK(written < room && written == measured && !units[written]);
    FUZZ_CHECK(!vj_windows_utf8(units, written, back, sizeof back, &again));
    FUZZ_CHECK(again == length && (!length || !memcmp(back, text, length)));
    FUZZ_CHECK(!vj_windows_compare(text, length, text, length));
}

static void start(const char *bytes, size_t size, uint32_t count, size_t room) {
    uint16_t to[ROOM];
    size_t written = 0;
    uint32_t index = 0;
    vj_windows_strings strings = {.at = bytes, .size = size, .count = count};
    vj_windows_fault fault =
        vj_windows_command_line(&strings, to, room, &written, &index);
    FUZZ_CHECK(written < room && !to[written] && (!fault || !written));
    FUZZ_CHECK(!index || index < count);
    if (!fault) FUZZ_CHECK(written >= 3 && to[0] == '"');
    if (room < 2) return;
    fault = vj_windows_environment(&strings, "C:\\w", to, room, &written, &index);
    FUZZ_CHECK(written <= room && (!fault || !written));
    if (!fault) FUZZ_CHECK(written >= 2 && !to[written - 1] && !to[written - 2]);
}

static void name(const char *text) {
    vj_windows_fault fault = vj_windows_name_fault(text, strlen(text));
    if (!fault) {
        FUZZ_CHECK(!strpbrk(text, ":/\\<>\"|?*") && text[0]);
        FUZZ_CHECK(!vj_windows_destination_fault(text, 0));
    }
    if (!vj_windows_destination_fault(text, 0)) {
        FUZZ_CHECK(strcmp(text, "..") != 0 && !strstr(text, "../") &&
                   !strstr(text, "//"));
        FUZZ_CHECK(text[0] != '/' && !strchr(text, '\\'));
    }
    if (!vj_windows_program_fault(text)) FUZZ_CHECK(!vj_windows_source_fault(text));
    if (!vj_windows_parent_fault(text)) FUZZ_CHECK(vj_windows_is_within(text, text));
    FUZZ_CHECK(!vj_windows_is_within(text, "C:\\w") || !strncasecmp(text, "C:", 2));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {.at = data, .left = size};
    size_t room = 1 + fuzz_below(&input, ROOM);
    size_t length = input.left < ROOM ? input.left : ROOM;
    char *bytes = malloc(length + 1);
    if (!bytes) abort();
    fuzz_take(&input, bytes, length);
    bytes[length] = 0;
    uint32_t count = 0;
    for (size_t i = 0; i <= length; i++) count += !bytes[i];
    convert(bytes, length, room);
    start(bytes, length + 1, count, room);
    name(bytes);
    // Each text as a path, by the order of Windows.
    const char *paths[ROOM + 1];
    size_t found = 0;
    for (const char *at = bytes; at <= bytes + length; at += strlen(at) + 1) {
        paths[found++] = at;
    }
    FUZZ_CHECK(vj_windows_find_clash(paths, found) <= found);
    free(bytes);
    return 0;
}
