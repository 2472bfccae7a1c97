// A host of jails and of Python workers, in C alone. See README.md.
#ifndef EXAMPLE_HOST_H
#define EXAMPLE_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <visjail.h>

#define REFUSED      125 // exit code: nothing was started, or it could not be served
#define TIMED_OUT    124
#define OUTPUT_LIMIT (1u << 20) // bytes that are kept of each stream

// Write a guest's `text`. All but printable ASCII becomes a question mark: it could be an
// order to the terminal.
void show(FILE *stream, const char *text, size_t size);

// One line on stderr; returns REFUSED.
int complain(const char *what, const char *why);
int complain_error(const vj_error *error);

// ---- jail.c: a policy in C, and runs in the jail that it makes

// Open a jail in which the system's programs, and the paths of `granted` (NULL behind the
// last), can be read; without network, with a /tmp of its own. NULL after a complaint.
vj_jail *open_jail(const char *init_path, const char *const *granted);

// Start `arguments` (NULL behind the last), whose descriptors are 0, 1, ... in this
// order. NULL after a complaint.
vj_run *start(vj_jail *jail, char *const *arguments, const int32_t *descriptors,
              uint32_t descriptor_count, uint64_t timeout_ns);

// Run them, show what they print, and return the exit code as a shell counts it.
int run_program(vj_jail *jail, char *const *arguments);

// ---- worker.c: one worker of an archive

// Let a worker of the archive `root` evaluate a Python expression, and print its value.
int evaluate(vj_jail *jail, const char *root, const char *expression);

// ---- frames.c: the protocol of workers (doc/reference/protocol.md)

enum { HELLO = 1, RUN = 2, RESULT = 7, DENIED = 8, BYE = 14, DISPLAY = 15 };

typedef struct {
    char *data;
    size_t size;
    size_t capacity;
    bool failed; // no memory
} buffer;

typedef struct {
    int socket;
    uint64_t sent;
    uint64_t received;
} channel;

void put(buffer *to, const void *bytes, size_t size);
void put_text(buffer *to, const char *text);
void put_number(buffer *to, uint8_t tag, uint32_t number);

bool send_frame(channel *with, uint8_t type, const buffer *payload);
// The next frame; false: it is none, or the worker is gone. Free payload->data.
bool receive_frame(channel *with, uint8_t *type, buffer *payload);

// A place in an encoded value.
typedef struct {
    const uint8_t *data;
    size_t size;
} place;

// Go past one item of at most 64 parts in each other. False: there is none.
bool skip(place *at, int depth);
// Go past the tag and the number of pairs of a dict, to what the key `name` stands for.
bool find(place at, const char *name, place *value);
// What a STR holds.
bool text_of(place at, const char **text, size_t *size);

#endif
