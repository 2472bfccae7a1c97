// Tells the host of a refusal while the run goes on: one DENIED frame.
//
// It is written here byte by byte, as doc/reference/protocol.md says, and not by the
// codec: a sub-interpreter may have a lock of its own and share no object with the
// codec's.
#include "tell.h"

#include <stdlib.h>
#include <string.h>

enum { FRAME_DENIED = 8 };
enum {
    TAG_INT32 = 0x05,
    TAG_INT8 = 0x04,
    TAG_STR = 0x0A,
    TAG_TUPLE = 0x11,
    TAG_DICT = 0x14
};
enum { VALUE_VERSION = 1, DENIAL_PARTS = 7 };
// Bytes of one item beside its text: the tag and a length or number.
enum { ITEM_BYTES = 5 };

typedef struct {
    uint8_t *bytes;
    size_t used;
} buffer;

static void put(buffer *to, uint8_t byte) {
    to->bytes[to->used++] = byte;
}

static void put_length(buffer *to, size_t at, size_t length) {
    for (size_t i = 0; i < 4; i++) to->bytes[at + i] = (uint8_t)(length >> (8 * i));
}

static void put_container(buffer *to, uint8_t tag, size_t length) {
    put(to, tag);
    put_length(to, to->used, length);
    to->used += 4;
}

// How many bytes the character at `text` has in strict UTF-8, 0 where it is none.
static size_t character_size(const uint8_t *text) {
    if (text[0] < 0x80) return 1;
    size_t size = text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2;
    if (text[0] < 0xC2 || text[0] > 0xF4) return 0;
    for (size_t i = 1; i < size; i++) // a text ends with a zero, which is none of these
        if ((text[i] & 0xC0) != 0x80) return 0;
    if ((text[0] == 0xE0 && text[1] < 0xA0) || (text[0] == 0xED && text[1] > 0x9F) ||
        (text[0] == 0xF0 && text[1] < 0x90) || (text[0] == 0xF4 && text[1] > 0x8F))
        return 0; // overlong, a surrogate, or above U+10FFFF
    return size;
}

// A byte that is no text becomes a lone surrogate, as Python decodes names of files.
static void put_text(buffer *to, const char *from) {
    put(to, TAG_STR);
    size_t at = to->used;
    to->used += 4;
    const uint8_t *text = (const uint8_t *)from;
    while (*text) {
        size_t size = character_size(text);
        if (size) {
            memcpy(to->bytes + to->used, text, size);
            to->used += size;
            text += size;
        } else {
            unsigned code = 0xDC00U + *text++;
            put(to, 0xED);
            put(to, (uint8_t)(0x80U | (code >> 6 & 0x3FU)));
            put(to, (uint8_t)(0x80U | (code & 0x3FU)));
        }
    }
    put_length(to, at, to->used - at - 4);
}

static void put_number(buffer *to, int number) {
    bool is_short = number >= INT8_MIN && number <= INT8_MAX;
    put(to, is_short ? TAG_INT8 : TAG_INT32);
    for (size_t i = 0; i < (is_short ? 1U : 4U); i++)
        put(to, (uint8_t)((uint32_t)number >> (8 * i)));
}

bool vis_tell_denial(const vis_denial *said) {
    static const char key[] = "denial";
    const char *texts[] = {said->event, said->right, said->rule, said->path, said->file};
    size_t room = sizeof key + (size_t)ITEM_BYTES * (DENIAL_PARTS + 4);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        room += 3 * strlen(texts[i]);
    buffer made = {.bytes = malloc(room)};
    if (!made.bytes) return false;
    put(&made, VALUE_VERSION);
    put_container(&made, TAG_DICT, 1);
    put_text(&made, key);
    put_container(&made, TAG_TUPLE, DENIAL_PARTS);
    put_text(&made, said->event);
    put_text(&made, said->right);
    put_text(&made, said->rule);
    put_text(&made, said->path);
    put_number(&made, said->number);
    put_text(&made, said->file);
    put_number(&made, said->line);
    bool sent = vis_send_aside(FRAME_DENIED, made.bytes, made.used);
    free(made.bytes);
    return sent;
}
