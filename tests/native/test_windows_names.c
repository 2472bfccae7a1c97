// Names of files on Windows in C, under sanitizers.
//
// sources: native/visjail/windows_names.c native/visjail/windows_text.c
//
// W12: the folder of a jail is refused where a socket in it would not fit into an
// address. W17: shares and device paths are no sources. W18: names that Windows would
// change, or take for a device or another file, are refused. W8: only a program at an
// absolute path is started, and no batch file. W11: the name of a folder is 64 bits in
// hexadecimal.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "windows_names.h"

typedef struct {
    const char *text;
    vj_windows_fault fault;
} case_of;

static void fail(const char *what, const char *text, int fault) {
    fprintf(stderr, "%s: \"%s\": %s\n", what, text,
            vj_windows_fault_text((vj_windows_fault)fault));
    exit(1);
}

static void check_all(const char *what, const case_of *cases, size_t count,
                      vj_windows_fault (*fault_of)(const char *)) {
    for (size_t i = 0; i < count; i++) {
        // On the heap, so that reading past its end is seen.
        char *text = strdup(cases[i].text);
        if (!text) abort();
        vj_windows_fault fault = fault_of(text);
        if (fault != cases[i].fault) fail(what, text, (int)fault);
        free(text);
    }
}

static vj_windows_fault name_fault(const char *name) {
    return vj_windows_name_fault(name, strlen(name));
}

static vj_windows_fault destination_fault(const char *path) {
    return vj_windows_destination_fault(path, 20);
}

#define CHECK(what, cases, function)                                                     \
    check_all(what, cases, sizeof cases / sizeof *cases, function)

static void judge_names(void) {
    static const case_of names[] = {
        {"a", VJ_WINDOWS_FINE},
        {"a.tar.gz", VJ_WINDOWS_FINE},
        {".git", VJ_WINDOWS_FINE},
        {"..a", VJ_WINDOWS_FINE},
        {" a", VJ_WINDOWS_FINE},
        {"\xc3\xa4\xf0\x9f\x98\x80", VJ_WINDOWS_FINE},
        {"\xc2\xa0x", VJ_WINDOWS_FINE},
        {"", VJ_WINDOWS_EMPTY},
        {".", VJ_WINDOWS_DOTS},
        {"..", VJ_WINDOWS_DOTS},
        {"a.", VJ_WINDOWS_TRAILING},
        {"a ", VJ_WINDOWS_TRAILING},
        {"...", VJ_WINDOWS_TRAILING},
        {"a:b", VJ_WINDOWS_STREAM},
        {"a::$DATA", VJ_WINDOWS_STREAM},
        {"a/b", VJ_WINDOWS_CHARACTER},
        {"a\\b", VJ_WINDOWS_CHARACTER},
        {"a<", VJ_WINDOWS_CHARACTER},
        {"a>", VJ_WINDOWS_CHARACTER},
        {"\"a\"", VJ_WINDOWS_CHARACTER},
        {"a|b", VJ_WINDOWS_CHARACTER},
        {"a?", VJ_WINDOWS_CHARACTER},
        {"*", VJ_WINDOWS_CHARACTER},
        {"a\nb", VJ_WINDOWS_CHARACTER},
        {"a\x7f", VJ_WINDOWS_CHARACTER},
        {"a\xc2\x85", VJ_WINDOWS_CHARACTER},
        {"\xff", VJ_WINDOWS_NOT_UTF8},
        {"\xed\xb2\x80", VJ_WINDOWS_SURROGATE},
        {"CON", VJ_WINDOWS_DEVICE},
        {"nul", VJ_WINDOWS_DEVICE},
        {"Aux.h", VJ_WINDOWS_DEVICE},
        {"prn.tar.gz", VJ_WINDOWS_DEVICE},
        {"NUL .txt", VJ_WINDOWS_DEVICE},
        {"COM0", VJ_WINDOWS_DEVICE},
        {"com9.log", VJ_WINDOWS_DEVICE},
        {"LPT1", VJ_WINDOWS_DEVICE},
        {"COM\xc2\xb9", VJ_WINDOWS_DEVICE},
        {"lpt\xc2\xb2.x", VJ_WINDOWS_DEVICE},
        {"LPT\xc2\xb3", VJ_WINDOWS_DEVICE},
        {"CONIN$", VJ_WINDOWS_DEVICE},
        {"conout$.x", VJ_WINDOWS_DEVICE},
        {"CONSOLE", VJ_WINDOWS_FINE},
        {"COM", VJ_WINDOWS_FINE},
        {"COM10", VJ_WINDOWS_FINE},
        {"COMA", VJ_WINDOWS_FINE},
        {"xnul", VJ_WINDOWS_FINE},
        {"x.nul", VJ_WINDOWS_FINE},
        {"PROGRA~1", VJ_WINDOWS_SHORT_NAME},
        {"longfi~1.txt", VJ_WINDOWS_SHORT_NAME},
        {"A~10", VJ_WINDOWS_SHORT_NAME},
        {"a.txt~", VJ_WINDOWS_FINE},
        {"a.~1~", VJ_WINDOWS_FINE},
        {"~1", VJ_WINDOWS_FINE},
        {"progra~1.jpeg", VJ_WINDOWS_FINE},
        {"toolongbase~1", VJ_WINDOWS_FINE},
    };
    CHECK("a name", names, name_fault);
    char name[VJ_WINDOWS_NAME_UNITS_MAX + 2];
    memset(name, 'a', sizeof name);
    if (vj_windows_name_fault(name, VJ_WINDOWS_NAME_UNITS_MAX)) fail("255", "aaa", 0);
    if (vj_windows_name_fault(name, VJ_WINDOWS_NAME_UNITS_MAX + 1) != VJ_WINDOWS_TOO_LONG)
        fail("256 units were taken", "aaa", 0);
}

static void judge_paths(void) {
    static const case_of destinations[] = {
        {"a/b.txt", VJ_WINDOWS_FINE},      {"", VJ_WINDOWS_EMPTY},
        {"/a", VJ_WINDOWS_NOT_RELATIVE},   {"\\a", VJ_WINDOWS_NOT_RELATIVE},
        {"C:/a", VJ_WINDOWS_NOT_RELATIVE}, {"c:a", VJ_WINDOWS_NOT_RELATIVE},
        {"a/../b", VJ_WINDOWS_DOTS},       {"./a", VJ_WINDOWS_DOTS},
        {"a//b", VJ_WINDOWS_EMPTY},        {"a/", VJ_WINDOWS_EMPTY},
        {"a\\b", VJ_WINDOWS_CHARACTER},    {"a/nul.txt/b", VJ_WINDOWS_DEVICE},
        {"a/b:c", VJ_WINDOWS_STREAM},
    };
    CHECK("a destination", destinations, destination_fault);
    static const case_of sources[] = {
        {"C:\\a\\b.txt", VJ_WINDOWS_FINE},
        {"d:/a/b", VJ_WINDOWS_FINE},
        {"C:\\", VJ_WINDOWS_FINE},
        {"C:\\Users\\RUNNER~1\\Temp", VJ_WINDOWS_FINE},
        {"C:\\a\\", VJ_WINDOWS_FINE},
        {"", VJ_WINDOWS_EMPTY},
        {"a\\b", VJ_WINDOWS_NOT_ABSOLUTE},
        {"C:a", VJ_WINDOWS_NOT_ABSOLUTE},
        {"C:", VJ_WINDOWS_NOT_ABSOLUTE},
        {"\\a", VJ_WINDOWS_NOT_ABSOLUTE},
        {"\\\\server\\share\\a", VJ_WINDOWS_FOREIGN_ROOT},
        {"//server/share/a", VJ_WINDOWS_FOREIGN_ROOT},
        {"\\/server\\share", VJ_WINDOWS_FOREIGN_ROOT},
        {"\\\\?\\C:\\a", VJ_WINDOWS_FOREIGN_ROOT},
        {"\\\\.\\PhysicalDrive0", VJ_WINDOWS_FOREIGN_ROOT},
        {"\\??\\C:\\a", VJ_WINDOWS_FOREIGN_ROOT},
        {"C:\\a\\..\\b", VJ_WINDOWS_DOTS},
        {"C:\\a\\nul", VJ_WINDOWS_DEVICE},
        {"C:\\a\\b:stream", VJ_WINDOWS_STREAM},
        {"C:\\a.\\b", VJ_WINDOWS_TRAILING},
        {"C:\\a\\\\b", VJ_WINDOWS_EMPTY},
        {"C:\\a*", VJ_WINDOWS_CHARACTER},
    };
    CHECK("a source", sources, vj_windows_source_fault);
    static const case_of programs[] = {
        {"C:\\a\\python.exe", VJ_WINDOWS_FINE},
        {"C:\\a\\MORE.COM", VJ_WINDOWS_FINE},
        {"python.exe", VJ_WINDOWS_NOT_ABSOLUTE},
        {"C:python.exe", VJ_WINDOWS_NOT_ABSOLUTE},
        {"\\\\server\\share\\a.exe", VJ_WINDOWS_FOREIGN_ROOT},
        {"C:\\a\\x.bat", VJ_WINDOWS_NOT_EXECUTABLE},
        {"C:\\a\\x.CMD", VJ_WINDOWS_NOT_EXECUTABLE},
        {"C:\\a\\x.exe.cmd", VJ_WINDOWS_NOT_EXECUTABLE},
        {"C:\\a\\python", VJ_WINDOWS_NOT_EXECUTABLE},
        {"C:\\a\\x.bat ", VJ_WINDOWS_TRAILING},
        {"C:\\a\\x.bat.", VJ_WINDOWS_TRAILING},
    };
    CHECK("a program", programs, vj_windows_program_fault);
}

static void bound_paths(void) {
    char path[VJ_WINDOWS_PATH_UNITS_MAX + 8];
    memset(path, 'a', sizeof path);
    path[200] = 0; // with 58 and a separator as long as may be
    if (vj_windows_destination_fault(path, 58)) fail("259 units", path, 0);
    if (vj_windows_destination_fault(path, 59) != VJ_WINDOWS_TOO_LONG)
        fail("260 units were taken", path, 0);
    if (vj_windows_destination_fault("a", SIZE_MAX) != VJ_WINDOWS_TOO_LONG)
        fail("a folder without end", "a", 0);
    for (size_t depth = VJ_WINDOWS_DEPTH_MAX; depth < VJ_WINDOWS_DEPTH_MAX + 2; depth++) {
        for (size_t i = 0; i < depth; i++) memcpy(path + 2 * i, "a/", 2);
        path[2 * depth - 1] = 0;
        bool fits = depth == VJ_WINDOWS_DEPTH_MAX;
        if (vj_windows_destination_fault(path, 0) !=
            (fits ? VJ_WINDOWS_FINE : VJ_WINDOWS_TOO_MANY))
            fail("the depth", path, 0);
    }
}

static void bound_sockets(void) {
    static const uint8_t bits[8] = {0x00, 0x01, 0x7f, 0x80, 0xab, 0xcd, 0xef, 0xff};
    char name[VJ_WINDOWS_ROOT_NAME_SIZE], parent[128], socket[256];
    vj_windows_root_name(bits, name);
    if (strcmp(name, "vj-00017f80abcdefff") != 0) fail("a root's name", name, 0);
    for (size_t length = 4; length < 120; length++) {
        memset(parent, 'p', length);
        memcpy(parent, "C:\\", 3);
        parent[length] = 0;
        int bytes = snprintf(socket, sizeof socket, "%s\\%s\\work\\%s", parent, name,
                             VJ_WINDOWS_SOCKET_NAME);
        size_t counted = vj_windows_socket_bytes(parent);
        if (counted != (size_t)bytes + 1) fail("bytes of a socket's path", socket, 0);
        vj_windows_fault wanted =
            counted <= 108 ? VJ_WINDOWS_FINE : VJ_WINDOWS_SOCKET_TOO_LONG;
        if (vj_windows_parent_fault(parent) != wanted) fail("the bound", parent, 0);
        // It counts bytes, and a separator at the end is not doubled.
        parent[length] = '\\';
        parent[length + 1] = 0;
        if (vj_windows_socket_bytes(parent) != counted) fail("a separator", parent, 0);
    }
    if (vj_windows_socket_bytes("C:\\\xc3\xa4") != vj_windows_socket_bytes("C:\\aa"))
        fail("bytes and not characters", "", 0);
}

static void find_clashes(void) {
    static const struct {
        const char *paths[4];
        bool clash;
    } cases[] = {
        {{"a", "b", "a/b", "b.txt"}, false},
        {{"a", "A"}, true},
        {{"a", "a"}, true},
        {{"a/x", "A/y"}, true},
        {{"a", "A/y", "b"}, true},
        {{"a/x", "a-b", "A/y"}, true}, // with another one in between, byte by byte
        {{"\xc3\xa4/x", "\xc3\x84/y"}, true},
        {{"a/b", "b/A", "c/a"}, false},
        {{"ab", "a/b", "A-b"}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *paths[4];
        size_t count = 0;
        while (count < 4 && cases[i].paths[count]) {
            paths[count] = cases[i].paths[count];
            count++;
        }
        bool found = vj_windows_find_clash(paths, count) < count;
        if (found != cases[i].clash) fail("a clash", cases[i].paths[0], 0);
    }
    if (vj_windows_find_clash(NULL, 0)) fail("a clash of nothing", "", 0);
}

static void tell_what_is_within(void) {
    static const struct {
        const char *path;
        bool within;
    } cases[] = {
        {"C:\\w\\vj-0", true},
        {"c:/W/VJ-0/a", true},
        {"C:\\w\\vj-0\\", true},
        {"C:\\w\\vj-01", false},
        {"C:\\w", false},
        {"C:\\w\\vj-0\\..\\x", false},
        {"C:\\w\\vj-0\\a\\nul", false},
        {"\\\\?\\C:\\w\\vj-0", false},
        {"w\\vj-0", false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (vj_windows_is_within(cases[i].path, "C:\\w\\vj-0\\") != cases[i].within)
            fail("within", cases[i].path, 0);
    }
    // Letters that Windows may or may not tell apart are told apart.
    if (vj_windows_is_within("C:\\\xc3\x84\\x", "C:\\\xc3\xa4"))
        fail("an umlaut in another case", "", 0);
}

int main(void) {
    judge_names();
    judge_paths();
    bound_paths();
    bound_sockets();
    find_clashes();
    tell_what_is_within();
    return 0;
}
