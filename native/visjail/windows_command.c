// What a program of Windows is started with: its command line and its environment. Pure;
// see windows_text.h.

#include <stdlib.h>
#include <string.h>

#include "windows_names.h"
#include "windows_text.h"

// Text of UTF-16 that grows into the caller's room.
typedef struct {
    uint16_t *to;
    size_t room;
    size_t count;
    bool full;
} unit_writer;

static void put_unit(unit_writer *writer, uint16_t unit) {
    if (writer->count < writer->room) writer->to[writer->count++] = unit;
    else writer->full = true;
}

static void put_units(unit_writer *writer, uint16_t unit, size_t times) {
    while (times--) put_unit(writer, unit);
}

static void put_text(unit_writer *writer, const char *text, size_t length) {
    vj_windows_units units = vj_windows_units_of(text, length);
    uint16_t unit = 0;
    while (vj_windows_next_unit(&units, &unit)) put_unit(writer, unit);
}

// Whether there are as many texts as was said, and no byte behind them.
static bool are_counted(const vj_windows_strings *strings) {
    uint32_t count = 0;
    for (size_t i = 0; i < strings->size; i++) {
        if (!strings->at[i]) count++;
    }
    return count == strings->count && (!strings->size || !strings->at[strings->size - 1]);
}

// The program's own name is read without escapes: up to the next quotation mark.
static vj_windows_fault put_program(unit_writer *writer, const char *name,
                                    size_t length) {
    if (memchr(name, '"', length)) return VJ_WINDOWS_QUOTE;
    put_unit(writer, '"');
    put_text(writer, name, length);
    put_unit(writer, '"');
    return VJ_WINDOWS_FINE;
}

// Backslashes mean themselves, but in front of a quotation mark, where each pair is one
// and an odd one makes the mark a character. (Documentation: "Parsing C command-line
// arguments", CommandLineToArgvW.)
static void put_argument(unit_writer *writer, const char *text, size_t length) {
    if (length && !strpbrk(text, " \t\n\v\r\f\"")) {
        put_text(writer, text, length);
        return;
    }
    put_unit(writer, '"');
    size_t backslashes = 0;
    vj_windows_units units = vj_windows_units_of(text, length);
    uint16_t unit = 0;
    while (vj_windows_next_unit(&units, &unit)) {
        if (unit == '\\') {
            backslashes++;
            continue;
        }
        put_units(writer, '\\', unit == '"' ? 2 * backslashes + 1 : backslashes);
        backslashes = 0;
        put_unit(writer, unit);
    }
    put_units(writer, '\\', 2 * backslashes);
    put_unit(writer, '"');
}

vj_windows_fault vj_windows_command_line(const vj_windows_strings *arguments,
                                         uint16_t *to, size_t room, size_t *written,
                                         uint32_t *index) {
    unit_writer writer = {.to = to, .room = room};
    if (room > VJ_WINDOWS_COMMAND_UNITS_MAX) writer.room = VJ_WINDOWS_COMMAND_UNITS_MAX;
    *written = 0;
    *index = 0;
    if (!room) return VJ_WINDOWS_TOO_LONG;
    to[0] = 0;
    if (!are_counted(arguments)) return VJ_WINDOWS_NUL;
    if (!arguments->count || !arguments->at[0]) return VJ_WINDOWS_EMPTY;
    const char *text = arguments->at;
    vj_windows_fault fault = VJ_WINDOWS_FINE;
    for (uint32_t i = 0; i < arguments->count; i++) {
        size_t length = strlen(text), units = 0;
        *index = i;
        fault = vj_windows_measure(text, length, &units);
        if (fault != VJ_WINDOWS_FINE) break;
        if (i) put_unit(&writer, ' ');
        if (i) put_argument(&writer, text, length);
        else fault = put_program(&writer, text, length);
        if (i + 1 == arguments->count) put_unit(&writer, 0);
        if (fault == VJ_WINDOWS_FINE && writer.full) fault = VJ_WINDOWS_TOO_LONG;
        if (fault != VJ_WINDOWS_FINE) break;
        text += length + 1;
    }
    if (fault != VJ_WINDOWS_FINE) {
        to[0] = 0;
        return fault;
    }
    *index = 0;
    *written = writer.count - 1;
    return VJ_WINDOWS_FINE;
}

// ---- the environment

typedef struct {
    const char *text;
    size_t name_length;
    size_t length;
    uint32_t index;
} variable;

static int order_variables(const void *left, const void *right) {
    const variable *one = left;
    const variable *other = right;
    return vj_windows_compare(one->text, one->name_length, other->text,
                              other->name_length);
}

static bool is_named(const variable *entry, const char *name) {
    return !vj_windows_compare(entry->text, entry->name_length, name, strlen(name));
}

static vj_windows_fault check_variable(const variable *entry, const char *workspace) {
    // Folders of the user, which programs write to unasked.
    static const char *const folders[] = {"TEMP",         "TMP",         "APPDATA",
                                          "LOCALAPPDATA", "USERPROFILE", "HOME"};
    size_t units = 0;
    vj_windows_fault fault = vj_windows_measure(entry->text, entry->length, &units);
    if (fault != VJ_WINDOWS_FINE) return fault;
    if (!entry->name_length) return VJ_WINDOWS_EMPTY;
    if (entry->name_length == entry->length) return VJ_WINDOWS_NO_VALUE;
    if (units > VJ_WINDOWS_VARIABLE_UNITS_MAX) return VJ_WINDOWS_TOO_LONG;
    const char *value = entry->text + entry->name_length + 1;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (is_named(entry, folders[i]) && !vj_windows_is_within(value, workspace)) {
            return VJ_WINDOWS_OUTSIDE;
        }
    }
    return VJ_WINDOWS_FINE;
}

static bool has_variable(const variable *sorted, uint32_t count, const char *name) {
    for (uint32_t i = 0; i < count; i++) {
        if (is_named(&sorted[i], name)) return true;
    }
    return false;
}

vj_windows_fault vj_windows_environment(const vj_windows_strings *entries,
                                        const char *workspace, uint16_t *to, size_t room,
                                        size_t *written, uint32_t *index) {
    variable sorted[VJ_WINDOWS_VARIABLES_MAX];
    unit_writer writer = {.to = to, .room = room};
    if (room > VJ_WINDOWS_ENVIRONMENT_UNITS_MAX) {
        writer.room = VJ_WINDOWS_ENVIRONMENT_UNITS_MAX;
    }
    *written = 0;
    *index = 0;
    if (room < 2) return VJ_WINDOWS_TOO_LONG;
    to[0] = to[1] = 0;
    if (!are_counted(entries)) return VJ_WINDOWS_NUL;
    if (entries->count > VJ_WINDOWS_VARIABLES_MAX) return VJ_WINDOWS_TOO_MANY;
    const char *text = entries->at;
    for (uint32_t i = 0; i < entries->count; i++) {
        sorted[i] = (variable){.text = text, .length = strlen(text), .index = i};
        const char *equals = strchr(text, '=');
        sorted[i].name_length = equals ? (size_t)(equals - text) : sorted[i].length;
        *index = i;
        vj_windows_fault fault = check_variable(&sorted[i], workspace);
        if (fault != VJ_WINDOWS_FINE) return fault;
        text += sorted[i].length + 1;
    }
    if (entries->count) qsort(sorted, entries->count, sizeof *sorted, order_variables);
    for (uint32_t i = 1; i < entries->count; i++) {
        if (order_variables(&sorted[i - 1], &sorted[i])) continue;
        *index =
            sorted[i].index > sorted[i - 1].index ? sorted[i].index : sorted[i - 1].index;
        return VJ_WINDOWS_DUPLICATE;
    }
    *index = 0;
    static const char *const needed[] = {"SystemRoot", "LOCALAPPDATA", "TEMP", "TMP"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (!has_variable(sorted, entries->count, needed[i])) return VJ_WINDOWS_MISSING;
    }
    for (uint32_t i = 0; i < entries->count; i++) {
        put_text(&writer, sorted[i].text, sorted[i].length);
        put_unit(&writer, 0);
    }
    put_unit(&writer, 0);
    if (writer.full) {
        to[0] = to[1] = 0;
        return VJ_WINDOWS_TOO_LONG;
    }
    *written = writer.count;
    return VJ_WINDOWS_FINE;
}
