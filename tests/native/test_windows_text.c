// Text for Windows in C: conversions, the command line, the environment, under
// sanitizers.
//
// sources: native/visjail/windows_text.c native/visjail/windows_command.c
// sources: native/visjail/windows_names.c
//
// W5: the environment stands alone, is sorted, and holds no two names that differ in case
// only. W7: the command line is quoted by one function, and what it could not carry is
// refused. W9: halves of surrogate pairs and NULs are refused in both directions. The
// models that read the results again are in tests/windows/test_text.py.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "windows_text.h"

#define ROUNDS 40000
#define ROOM   4096

static uint32_t state = 2463534242u;

static uint32_t draw(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % below;
}

static void expect(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

// A copy of exactly this size on the heap, so that reading past its end is seen.
static char *copy_of(const char *text, size_t size) {
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    memcpy(copy, text, size);
    return copy;
}

static void refuse_what_is_no_text(void) {
    static const struct {
        const char *text;
        size_t length;
        vj_windows_fault fault;
    } cases[] = {
        {"\xff", 1, VJ_WINDOWS_NOT_UTF8},
        {"a\x80", 2, VJ_WINDOWS_NOT_UTF8},
        {"\xc3", 1, VJ_WINDOWS_NOT_UTF8},             // cut off
        {"\xe2\x82", 2, VJ_WINDOWS_NOT_UTF8},         // cut off
        {"\xf0\x9f\x98", 3, VJ_WINDOWS_NOT_UTF8},     // cut off
        {"\xc0\xaf", 2, VJ_WINDOWS_NOT_UTF8},         // '/', longer than needed
        {"\xe0\x80\xaf", 3, VJ_WINDOWS_NOT_UTF8},     // the same
        {"\xf0\x80\x80\xaf", 4, VJ_WINDOWS_NOT_UTF8}, // the same
        {"\xf4\x90\x80\x80", 4, VJ_WINDOWS_NOT_UTF8}, // past Unicode
        {"\xed\xa0\x80", 3, VJ_WINDOWS_SURROGATE},    // U+D800
        {"\xed\xbf\xbf", 3, VJ_WINDOWS_SURROGATE},    // U+DFFF
        {"a\0b", 3, VJ_WINDOWS_NUL},
    };
    uint16_t units[8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = copy_of(cases[i].text, cases[i].length);
        size_t written = 9;
        expect(vj_windows_utf16(text, cases[i].length, units, 8, &written) ==
                   cases[i].fault,
               "no text was taken, or refused for another reason");
        expect(!written && !units[0], "something was left of a refused text");
        free(text);
    }
    static const uint16_t halves[][3] = {
        {0xd800, 'a', 'b'}, {'a', 0xd83d, 0xd83d}, {0xdc00, 0xd800, 'a'}, {'a', 0, 'b'}};
    char text[16];
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        size_t written = 9;
        expect(vj_windows_utf8(halves[i], 3, text, sizeof text, &written) ==
                   (i == 3 ? VJ_WINDOWS_NUL : VJ_WINDOWS_SURROGATE),
               "half a pair became a character");
        expect(!written && !text[0], "something was left of a refused text");
    }
}

static void keep_what_is_text(void) {
    static const char text[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf";
    static const uint16_t wanted[] = {'a', 0xe4, 0x20ac, 0xd83d, 0xde00, 0xdbff, 0xdfff};
    size_t count = sizeof wanted / sizeof *wanted;
    for (size_t room = 0; room < count + 2; room++) {
        uint16_t *units = malloc(room ? room * sizeof *units : 1);
        size_t written = 0;
        if (!units) abort();
        vj_windows_fault fault =
            vj_windows_utf16(text, sizeof text - 1, units, room, &written);
        expect(fault == (room > count ? VJ_WINDOWS_FINE : VJ_WINDOWS_TOO_LONG),
               "the room of UTF-16 is not kept");
        if (fault == VJ_WINDOWS_FINE) {
            expect(written == count && !memcmp(units, wanted, sizeof wanted) &&
                       !units[count],
                   "another text in UTF-16");
        }
        free(units);
    }
    for (size_t room = 0; room < sizeof text + 1; room++) {
        char *back = malloc(room ? room : 1);
        size_t written = 0;
        if (!back) abort();
        vj_windows_fault fault = vj_windows_utf8(wanted, count, back, room, &written);
        expect(fault == (room >= sizeof text ? VJ_WINDOWS_FINE : VJ_WINDOWS_TOO_LONG),
               "the room of UTF-8 is not kept");
        if (fault == VJ_WINDOWS_FINE) {
            expect(written == sizeof text - 1 && !strcmp(back, text),
                   "another text in UTF-8");
        }
        free(back);
    }
}

static vj_windows_fault line_of(const char *strings, size_t size, uint32_t count,
                                const char *wanted) {
    char *packed = copy_of(strings, size);
    uint16_t line[ROOM];
    char text[ROOM];
    size_t written = 0, length = 0;
    uint32_t index = 0;
    vj_windows_strings arguments = {.at = packed, .size = size, .count = count};
    vj_windows_fault fault =
        vj_windows_command_line(&arguments, line, ROOM, &written, &index);
    free(packed);
    if (wanted && fault == VJ_WINDOWS_FINE) {
        expect(vj_windows_utf8(line, written, text, sizeof text, &length) ==
                       VJ_WINDOWS_FINE &&
                   !strcmp(text, wanted) && !line[written],
               wanted);
    }
    return fault;
}

#define LINE(strings, count, wanted) line_of(strings, sizeof strings, count, wanted)

static void quote(void) {
    expect(!LINE("p", 1, "\"p\""), "one name");
    expect(!LINE("C:\\a b\\p.exe\0x", 2, "\"C:\\a b\\p.exe\" x"), "a plain argument");
    expect(!LINE("p\0\0a b\0a\tb", 4, "\"p\" \"\" \"a b\" \"a\tb\""), "spaces");
    expect(!LINE("p\0a\\\\b\0c\\", 3, "\"p\" a\\\\b c\\"), "plain backslashes");
    expect(!LINE("p\0a b\\\0c d\\\\", 3, "\"p\" \"a b\\\\\" \"c d\\\\\\\\\""), "ends");
    expect(!LINE("p\0a\"b\0a\\\"b", 3, "\"p\" \"a\\\"b\" \"a\\\\\\\"b\""), "marks");
    expect(LINE("p\"q\0x", 2, NULL) == VJ_WINDOWS_QUOTE, "a mark in the name");
    expect(LINE("p\0\xed\xa0\x80", 2, NULL) == VJ_WINDOWS_SURROGATE, "a surrogate");
    expect(LINE("p\0x\0y", 2, NULL) == VJ_WINDOWS_NUL, "a NUL inside");
    expect(LINE("p\0x", 3, NULL) == VJ_WINDOWS_NUL, "a text too few");
    expect(line_of("p\0x", 3, 1, NULL) == VJ_WINDOWS_NUL, "no NUL at the end");
    expect(LINE("\0x", 2, NULL) == VJ_WINDOWS_EMPTY, "no name");
    expect(line_of("", 0, 0, NULL) == VJ_WINDOWS_EMPTY, "nothing at all");
}

// The bound counts units with the NUL, as CreateProcessW does.
static void bound_the_line(void) {
    static char strings[VJ_WINDOWS_COMMAND_UNITS_MAX + 8];
    static uint16_t line[VJ_WINDOWS_COMMAND_UNITS_MAX + 8];
    for (size_t length = VJ_WINDOWS_COMMAND_UNITS_MAX - 8;
         length < VJ_WINDOWS_COMMAND_UNITS_MAX; length++) {
        memset(strings, 'a', sizeof strings);
        strings[length] = 0;
        vj_windows_strings one = {.at = strings, .size = length + 1, .count = 1};
        size_t written = 0;
        uint32_t index = 0;
        vj_windows_fault fault = vj_windows_command_line(
            &one, line, sizeof line / sizeof *line, &written, &index);
        bool fits = length + 3 <= VJ_WINDOWS_COMMAND_UNITS_MAX;
        expect(fault == (fits ? VJ_WINDOWS_FINE : VJ_WINDOWS_TOO_LONG),
               "the bound of a command line is another one");
        expect(!fits || written == length + 2, "another length than was written");
    }
}

static vj_windows_fault block_of(const char *strings, size_t size, uint32_t count,
                                 uint32_t *index) {
    char *packed = copy_of(strings, size);
    uint16_t block[ROOM];
    size_t written = 0;
    vj_windows_strings entries = {.at = packed, .size = size, .count = count};
    vj_windows_fault fault =
        vj_windows_environment(&entries, "C:\\w\\vj-0", block, ROOM, &written, index);
    if (fault == VJ_WINDOWS_FINE) {
        expect(written >= 2 && !block[written - 1] && !block[written - 2],
               "a block does not end with two NULs");
    } else {
        expect(!written && !block[0] && !block[1], "something was left of a block");
    }
    free(packed);
    return fault;
}

#define NEEDED                                                                           \
    "SystemRoot=C:\\Windows\0LOCALAPPDATA=C:\\w\\vj-0\\temp\0"                           \
    "TEMP=C:\\w\\vj-0\\temp\0TMP=c:/W/vj-0/temp\0"
#define BLOCK(more, count) block_of(NEEDED more, sizeof NEEDED more, 4 + (count), &index)

static void make_environments(void) {
    uint32_t index = 0;
    expect(!block_of(NEEDED, sizeof NEEDED - 1, 4, &index), "what is needed is enough");
    expect(!BLOCK("A=1\0b=2\0a.=3", 3), "three more");
    expect(BLOCK("A=1\0a=2", 2) == VJ_WINDOWS_DUPLICATE && index == 5, "A and a");
    expect(BLOCK("temp=C:\\w\\vj-0\\x", 1) == VJ_WINDOWS_DUPLICATE, "TEMP and temp");
    expect(BLOCK("\xc3\xa4=1\0\xc3\x84=2", 2) == VJ_WINDOWS_DUPLICATE, "an umlaut");
    expect(BLOCK("=C:=C:\\", 1) == VJ_WINDOWS_EMPTY && index == 4, "no name");
    expect(BLOCK("A", 1) == VJ_WINDOWS_NO_VALUE, "no value");
    expect(BLOCK("A=1\0B=2", 1) == VJ_WINDOWS_NUL, "a NUL inside");
    expect(BLOCK("A=\xff", 1) == VJ_WINDOWS_NOT_UTF8, "no UTF-8");
    expect(BLOCK("USERPROFILE=C:\\Users\\me", 1) == VJ_WINDOWS_OUTSIDE, "a profile");
    expect(BLOCK("AppData=C:\\w\\vj-0\\..\\x", 1) == VJ_WINDOWS_OUTSIDE, "dots");
    expect(BLOCK("UserProfile=C:\\w\\vj-01", 1) == VJ_WINDOWS_OUTSIDE, "beside it");
    expect(BLOCK("HOME=work", 1) == VJ_WINDOWS_OUTSIDE, "relative");
    expect(!BLOCK("HOME=C:\\w\\vj-0\\work", 1), "inside");
    static const char local[] = "SystemRoot=C:\\Windows\0LOCALAPPDATA=C:\\w\\vj-01\0"
                                "TEMP=C:\\w\\vj-0\0TMP=C:\\w\\vj-0";
    expect(block_of(local, sizeof local, 4, &index) == VJ_WINDOWS_OUTSIDE && index == 1,
           "data beside it");
    // Without it no AppContainer starts.
    static const char bare[] =
        "SystemRoot=C:\\Windows\0TEMP=C:\\w\\vj-0\0TMP=C:\\w\\vj-0";
    expect(block_of(bare, sizeof bare, 3, &index) == VJ_WINDOWS_MISSING, "LOCALAPPDATA");
    static const char less[] = "TEMP=C:\\w\\vj-0\\temp\0TMP=C:\\w\\vj-0\\temp";
    expect(block_of(less, sizeof less, 2, &index) == VJ_WINDOWS_MISSING, "SystemRoot");
    expect(block_of("", 0, 0, &index) == VJ_WINDOWS_MISSING, "nothing at all");
}

static void survive_any_bytes(void) {
    static const char letters[] = {'a',        'A',        '=',        '"',
                                   '\\',       ' ',        0,          (char)0xc3,
                                   (char)0xa4, (char)0xed, (char)0xf0, (char)0x9f};
    size_t taken = 0;
    for (int i = 0; i < ROUNDS; i++) {
        size_t size = draw(24);
        char *bytes = malloc(size ? size : 1);
        if (!bytes) abort();
        uint32_t count = 0;
        for (size_t k = 0; k < size; k++) {
            bytes[k] = letters[draw(sizeof letters)];
            count += !bytes[k];
        }
        vj_windows_strings strings = {.at = bytes, .size = size, .count = count};
        uint16_t to[40];
        size_t written = 0, room = draw(40) + 1;
        uint32_t index = 0;
        taken += !vj_windows_command_line(&strings, to, room, &written, &index);
        expect(written < room, "more was written than there is room for");
        vj_windows_environment(&strings, "C:\\w", to, room, &written, &index);
        vj_windows_utf16(bytes, size, to, room, &written);
        free(bytes);
    }
    expect(taken > ROUNDS / 1000, "too few lines to say anything");
}

int main(void) {
    refuse_what_is_no_text();
    keep_what_is_text();
    quote();
    bound_the_line();
    make_environments();
    survive_any_bytes();
    for (int fault = 0; fault < VJ_WINDOWS_FAULT_END; fault++) {
        expect(strcmp(vj_windows_fault_text((vj_windows_fault)fault), "unknown") != 0,
               "a fault without a sentence");
    }
    return 0;
}
