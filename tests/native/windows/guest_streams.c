// Acts on standard streams and on the console.

#include "guest.h"

#include <stdio.h>
#include <string.h>
#include <wchar.h>

static DWORD put(HANDLE to, const char *bytes, DWORD size) {
    while (size) {
        DWORD written = 0;
        if (!WriteFile(to, bytes, size, &written, NULL)) return guest_error();
        bytes += written;
        size -= written;
    }
    return 0;
}

// Writes so many bytes, then "END" as the last ones.
static DWORD pour(guest_words words) {
    char block[4096];
    memset(block, 'o', sizeof block);
    unsigned long long left = _wcstoui64(words.words[0], NULL, 0);
    HANDLE output = GetStdHandle(STD_OUTPUT_HANDLE);
    DWORD code = 0;
    while (left && !code) {
        DWORD size = left < sizeof block ? (DWORD)left : (DWORD)sizeof block;
        code = put(output, block, size);
        left -= size;
    }
    return code ? code : put(output, "END", 3);
}

// Writes until nobody reads any more.
static DWORD flood(guest_words words) {
    (void)words;
    static const char line[] = "flood 0123456789 abcdefghijklmnopqrstuvwxyz\r\n";
    HANDLE output = GetStdHandle(STD_OUTPUT_HANDLE);
    for (;;) {
        DWORD code = put(output, line, sizeof line - 1);
        if (code) return code;
    }
}

static DWORD copy(guest_words words) {
    (void)words;
    char block[4096];
    DWORD size = 0;
    while (ReadFile(GetStdHandle(STD_INPUT_HANDLE), block, sizeof block, &size, NULL) &&
           size) {
        DWORD code = put(GetStdHandle(STD_OUTPUT_HANDLE), block, size);
        if (code) return code;
    }
    return 0;
}

static DWORD to_both(guest_words words) {
    (void)words;
    DWORD code = put(GetStdHandle(STD_OUTPUT_HANDLE), "output", 6);
    return code ? code : put(GetStdHandle(STD_ERROR_HANDLE), "errors", 6);
}

static HANDLE console_of(const wchar_t *name) {
    return CreateFileW(name, GENERIC_READ | GENERIC_WRITE,
                       FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, OPEN_EXISTING, 0, NULL);
}

static void say_size(HANDLE output) {
    CONSOLE_SCREEN_BUFFER_INFO screen;
    memset(&screen, 0, sizeof screen);
    GetConsoleScreenBufferInfo(output, &screen);
    char line[64];
    int size = snprintf(line, sizeof line, "SIZE %dx%d\r\n",
                        screen.srWindow.Right - screen.srWindow.Left + 1,
                        screen.srWindow.Bottom - screen.srWindow.Top + 1);
    put(output, line, (DWORD)size);
}

// The console's size; then each line that is typed, and the size again; "quit" ends it.
static DWORD talk_on_console(guest_words words) {
    (void)words;
    HANDLE output = console_of(L"CONOUT$");
    HANDLE input = console_of(L"CONIN$");
    if (output == INVALID_HANDLE_VALUE || input == INVALID_HANDLE_VALUE)
        return guest_error();
    for (;;) {
        say_size(output);
        char line[128];
        DWORD size = 0;
        if (!ReadFile(input, line, sizeof line - 1, &size, NULL)) return guest_error();
        line[size] = 0;
        put(output, "GOT:", 4);
        put(output, line, size);
        if (!strncmp(line, "quit", 4)) return 0;
    }
}

// Which of the three standard handles are a console: "111" in a terminal.
static DWORD standard_handles(guest_words words) {
    (void)words;
    static const DWORD names[] = {STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
    char text[] = "000\r\n";
    for (int i = 0; i < 3; i++) {
        DWORD mode = 0;
        text[i] = GetConsoleMode(GetStdHandle(names[i]), &mode) ? '1' : '0';
    }
    HANDLE output = console_of(L"CONOUT$");
    if (output == INVALID_HANDLE_VALUE) return guest_error();
    DWORD code = put(output, text, (DWORD)strlen(text));
    CloseHandle(output);
    return code;
}

static DWORD flood_console(guest_words words) {
    (void)words;
    HANDLE output = console_of(L"CONOUT$");
    if (output == INVALID_HANDLE_VALUE) return guest_error();
    static const char line[] = "flood 0123456789 abcdefghijklmnopqrstuvwxyz\r\n";
    for (;;) {
        DWORD code = put(output, line, sizeof line - 1);
        if (code) return code;
    }
}

// A finite terminal: some lines, and a mark behind them.
static DWORD mark_on_console(guest_words words) {
    HANDLE output = console_of(L"CONOUT$");
    if (output == INVALID_HANDLE_VALUE) return guest_error();
    for (int i = 0; i < 200; i++) put(output, "line of a terminal that ends\r\n", 30);
    char mark[64];
    int size = snprintf(mark, sizeof mark, "PASS %ls\r\n", words.words[0]);
    return put(output, mark, (DWORD)size);
}

const guest_entry guest_streams[] = {
    {L"pour", 1, pour},
    {L"flood", 0, flood},
    {L"copy", 0, copy},
    {L"to-both", 0, to_both},
    {L"console", 0, talk_on_console},
    {L"standard-handles", 0, standard_handles},
    {L"flood-console", 0, flood_console},
    {L"mark", 1, mark_on_console},
    {NULL, 0, NULL},
};
