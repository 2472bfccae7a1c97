// The protocol of workers, as doc/reference/protocol.md has it: frames, and the few
// values that this host writes and reads. What comes from a worker is believed in
// nothing.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "host.h"

#define HEADER_SIZE  16u
#define MOST_CONTROL (1u << 20) // bytes of payload
#define MOST_VALUE   (64u << 20)
#define CHUNK        (64u << 10)
#define DEEPEST      64

// ---- what is written -----------------------------------------------------------

static bool reserve(buffer *to, size_t more) {
    if (to->failed) return false;
    if (more <= to->capacity - to->size) return true;
    size_t capacity = to->capacity ? to->capacity : 256;
    while (capacity - to->size < more) capacity *= 2;
    char *data = realloc(to->data, capacity);
    if (!data) {
        to->failed = true;
        return false;
    }
    to->data = data;
    to->capacity = capacity;
    return true;
}

void put(buffer *to, const void *bytes, size_t size) {
    if (!reserve(to, size)) return;
    memcpy(to->data + to->size, bytes, size);
    to->size += size;
}

// All numbers are little endian, whatever this machine is.
static void write_little(uint8_t *to, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(number >> (8 * i));
}

static uint64_t read_little(const uint8_t *from, int bytes) {
    uint64_t number = 0;
    for (int i = bytes; i-- > 0;) number = number << 8 | from[i];
    return number;
}

void put_number(buffer *to, uint8_t tag, uint32_t number) {
    uint8_t bytes[5] = {tag};
    write_little(bytes + 1, number, 4);
    put(to, bytes, sizeof bytes);
}

void put_text(buffer *to, const char *text) {
    size_t size = strlen(text);
    if (size > MOST_VALUE) to->failed = true; // send_frame would refuse it
    else put_number(to, 0x0a, (uint32_t)size);
    put(to, text, size);
}

// ---- frames --------------------------------------------------------------------

static bool send_all(int socket, const void *data, size_t size) {
    for (const char *at = data; size;) {
        ssize_t sent = send(socket, at, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

bool send_frame(channel *with, uint8_t type, const buffer *payload) {
    if (payload->failed || payload->size > MOST_VALUE) return false;
    uint8_t header[HEADER_SIZE] = {1, type};
    write_little(header + 4, payload->size, 4);
    write_little(header + 8, ++with->sent, 8);
    return send_all(with->socket, header, sizeof header) &&
           send_all(with->socket, payload->data, payload->size);
}

static bool receive_all(int socket, void *data, size_t size) {
    for (char *at = data; size;) {
        ssize_t got = recv(socket, at, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

static uint32_t most_bytes(uint8_t type) {
    switch (type) {
    case HELLO:
    case DENIED: return MOST_CONTROL;
    case RESULT:
    case DISPLAY: return MOST_VALUE;
    default: return 0; // no other one is asked for, so none may come
    }
}

bool receive_frame(channel *with, uint8_t *type, buffer *payload) {
    uint8_t header[HEADER_SIZE];
    *payload = (buffer){0};
    if (!receive_all(with->socket, header, sizeof header)) return false;
    *type = header[1];
    uint64_t left = read_little(header + 4, 4);
    if (header[0] != 1 || header[2] || header[3] || !most_bytes(*type) ||
        left > most_bytes(*type) || read_little(header + 8, 8) != ++with->received)
        return false;
    // The length is a claim: memory is taken as the bytes come.
    while (left && reserve(payload, left < CHUNK ? left : CHUNK)) {
        size_t part = left < CHUNK ? left : CHUNK;
        if (!receive_all(with->socket, payload->data + payload->size, part)) break;
        payload->size += part;
        left -= part;
    }
    return left == 0;
}

// ---- what is read --------------------------------------------------------------

// The number of bytes behind the tag of an item that has a fixed one.
static size_t fixed_size(uint8_t tag) {
    static const uint8_t sizes[] = {
        [0x04] = 1, [0x05] = 4, [0x06] = 8, [0x08] = 8, [0x09] = 16};
    return tag < sizeof sizes ? sizes[tag] : 0;
}

// The number of fields of a composite item.
static uint32_t field_count(uint8_t tag) {
    static const uint8_t counts[] = {3, 3, 6, 9, 3, 2, 1, 2, 1,
                                     1, 3, 3, 2, 3, 1, 2, 3, 2};
    return tag >= 0x20 && tag - 0x20u < sizeof counts ? counts[tag - 0x20] : 0;
}

static bool forward(place *at, size_t size) {
    if (size > at->size) return false;
    at->data += size;
    at->size -= size;
    return true;
}

bool skip(place *at, int depth) {
    if (!at->size || depth > DEEPEST) return false;
    uint8_t tag = at->data[0];
    forward(at, 1);
    if (tag >= 0x01 && tag <= 0x03) return true; // None, False, True
    if (fixed_size(tag)) return forward(at, fixed_size(tag));
    uint64_t items = field_count(tag);
    if (!items) {
        if (at->size < 4) return false;
        items = read_little(at->data, 4);
        forward(at, 4);
        if (tag == 0x07 || (tag >= 0x0a && tag <= 0x0c)) return forward(at, items);
        if (tag < 0x10 || tag > 0x14) return false;
        if (tag == 0x14) items *= 2;
    }
    // Each item takes a byte at least, so that this ends with what there is.
    while (items--)
        if (!skip(at, depth + 1)) return false;
    return true;
}

bool text_of(place at, const char **text, size_t *size) {
    if (at.size < 5 || at.data[0] != 0x0a) return false;
    *size = read_little(at.data + 1, 4);
    *text = (const char *)at.data + 5;
    return *size <= at.size - 5;
}

bool find(place at, const char *name, place *value) {
    if (at.size < 5 || at.data[0] != 0x14) return false;
    uint64_t pairs = read_little(at.data + 1, 4);
    for (forward(&at, 5); pairs--;) {
        const char *key = NULL;
        size_t size = 0;
        bool same = text_of(at, &key, &size) && size == strlen(name) &&
                    memcmp(key, name, size) == 0;
        if (!skip(&at, 1)) return false;
        *value = at;
        if (!skip(&at, 1)) return false;
        value->size -= at.size; // this item and no more
        if (same) return true;
    }
    return false;
}
