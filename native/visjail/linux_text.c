// Text assembled in a fixed buffer: paths in /proc, messages. See linux_system.h.
//
// Apart from linux_system.c, which stands in for a libc, so that tests can be built with
// this and one of their own.

#include "linux_system.h"

void vj_text_string(vj_text *text, const char *string) {
    size_t size = strlen(string);
    if (text->overflow || size >= text->capacity - text->length) {
        text->overflow = 1;
        return;
    }
    memcpy(text->data + text->length, string, size + 1);
    text->length += size;
}

void vj_text_number(vj_text *text, uint64_t number, unsigned base) {
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = 0;
    do {
        digits[--at] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number);
    vj_text_string(text, digits + at);
}
