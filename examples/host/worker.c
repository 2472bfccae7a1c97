// One worker: started, greeted, asked, and sent away (doc/reference/worker.md).
//
// Three things of the archive make it: bin/vispython, which starts the archive's Python;
// lib/worker/start.py, the text that this Python gets; lib/worker/bootstrap, the first
// frame.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host.h"

#define WORKER_NS     (20u * 1000000000ull) // start, question and end together
#define MOST_OF_FILE  (8u << 20)
#define FIRST_REQUEST 1

static buffer read_file(const char *root, const char *name) {
    char path[PATH_MAX + 64];
    buffer content = {0};
    snprintf(path, sizeof path, "%s/%s", root, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    char part[4096];
    ssize_t got = file < 0 ? -1 : 0;
    while (file >= 0 && (got = read(file, part, sizeof part)) > 0 &&
           content.size < MOST_OF_FILE)
        put(&content, part, (size_t)got);
    if (got != 0 || content.failed) {
        complain(path, got < 0 ? strerror(errno) : "is too large");
        content.failed = true;
    }
    if (file >= 0) close(file);
    return content;
}

// ---- the start -----------------------------------------------------------------

static vj_run *start_worker(vj_jail *jail, const char *root, channel *with,
                            int *control) {
    buffer code = read_file(root, "lib/worker/start.py");
    put(&code, "", 1);
    char program[PATH_MAX + 64];
    snprintf(program, sizeof program, "%s/bin/vispython", root);
    char *const arguments[] = {program, "--archive", "--channel", "3",       "--control",
                               "4",     "--",        "-I",        "-S",      "-B",
                               "-X",    "utf8",      "-c",        code.data, NULL};
    // Of the jail's network namespace, as is all that a guest gets.
    int ends[4] = {-1, -1, -1, -1};
    vj_error error = {0};
    vj_run *run = NULL;
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0) complain("/dev/null", strerror(errno));
    else if (!code.failed && vj_jail_pairs(jail, ends, &error) != VJ_OK)
        complain_error(&error);
    else if (!code.failed) {
        // What it prints goes nowhere; a real host would read it meanwhile.
        const int32_t descriptors[] = {nothing, nothing, nothing, ends[1], ends[3]};
        run = start(jail, arguments, descriptors, 5, WORKER_NS);
    }
    free(code.data);
    close(nothing);
    close(ends[1]);
    close(ends[3]);
    *with = (channel){.socket = ends[0]};
    *control = ends[2];
    return run;
}

// This host explains nothing to the worker and takes nothing from it: the jail does that.
static bool send_settings(channel *with) {
    static const char *const allowed[] = {"processes", "ctypes", "native"};
    buffer said = {0};
    put(&said, "\x01", 1);
    put_number(&said, 0x14, 1);
    put_text(&said, "confine");
    put_number(&said, 0x14, 5);
    put_text(&said, "rules");
    put_number(&said, 0x10, 0);
    put_text(&said, "closed");
    put_number(&said, 0x10, 0);
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        put_text(&said, allowed[i]);
        put(&said, "\x03", 1);
    }
    bool sent = send_frame(with, HELLO, &said);
    free(said.data);
    return sent;
}

// A place of the one value in `payload`, if it is one and nothing follows it.
static bool value_of(const buffer *payload, place *value) {
    if (!payload->size || payload->data[0] != 1) return false;
    *value =
        (place){.data = (const uint8_t *)payload->data + 1, .size = payload->size - 1};
    place end = *value;
    return skip(&end, 0) && end.size == 0;
}

static bool is_tag(place value, uint8_t tag) {
    return value.size > 0 && value.data[0] == tag;
}

static bool greet(channel *with, const char *root) {
    buffer bootstrap = read_file(root, "lib/worker/bootstrap");
    bool sent = send_frame(with, HELLO, &bootstrap) && send_settings(with);
    free(bootstrap.data);
    uint8_t type;
    buffer hello, ready;
    place said, hook, error;
    bool greeted = sent && receive_frame(with, &type, &hello);
    if (greeted) {
        greeted = type == HELLO && value_of(&hello, &said) &&
                  find(said, "hook_before_init", &hook) && is_tag(hook, 0x03);
        free(hello.data);
    }
    if (greeted && (greeted = receive_frame(with, &type, &ready))) {
        greeted = type == RESULT && value_of(&ready, &said) &&
                  find(said, "error", &error) && is_tag(error, 0x01);
        free(ready.data);
    }
    if (!greeted) complain("worker", "it did not greet as the protocol says");
    return greeted;
}

// ---- one question --------------------------------------------------------------

static bool ask(channel *with, const char *expression) {
    buffer said = {0};
    const uint8_t id[] = {0x04, FIRST_REQUEST};
    put(&said, "\x01", 1);
    put_number(&said, 0x14, 6);
    put_text(&said, "id");
    put(&said, id, sizeof id);
    put_text(&said, "op");
    put_text(&said, "eval");
    put_text(&said, "code");
    put_text(&said, expression);
    put_text(&said, "inputs");
    put_number(&said, 0x14, 0);
    put_text(&said, "filename");
    put(&said, "\x01", 1);
    put_text(&said, "data_only");
    put(&said, "\x03", 1);
    bool sent = send_frame(with, RUN, &said);
    free(said.data);
    return sent;
}

static int64_t signed_number(place value, int bytes) {
    uint64_t number = 0;
    for (int i = bytes; i > 0; i--) number = number << 8 | value.data[i];
    int unused = 64 - 8 * bytes;
    return (int64_t)(number << unused) >> unused;
}

static void print_value(place value) {
    const char *text;
    size_t size;
    double number;
    switch (value.data[0]) {
    case 0x01: puts("None"); return;
    case 0x02: puts("False"); return;
    case 0x03: puts("True"); return;
    case 0x04: printf("%lld\n", (long long)signed_number(value, 1)); return;
    case 0x05: printf("%lld\n", (long long)signed_number(value, 4)); return;
    case 0x06: printf("%lld\n", (long long)signed_number(value, 8)); return;
    case 0x08: {
        uint64_t bits = (uint64_t)signed_number(value, 8);
        memcpy(&number, &bits, sizeof number);
        printf("%.17g\n", number);
        return;
    }
    case 0x0a:
        if (text_of(value, &text, &size)) show(stdout, text, size);
        putchar('\n');
        return;
    default:
        printf("a value with the tag 0x%02x, of %zu bytes\n", value.data[0], value.size);
    }
}

static int print_answer(const buffer *payload) {
    place said, id, error, value, part;
    const char *text;
    size_t size;
    if (!value_of(payload, &said) || !find(said, "id", &id) || !is_tag(id, 0x04) ||
        id.data[1] != FIRST_REQUEST || !find(said, "error", &error) ||
        !find(said, "value", &value))
        return complain("worker", "its answer is none");
    if (is_tag(error, 0x01)) {
        print_value(value);
        return 0;
    }
    if (find(error, "type", &part) && text_of(part, &text, &size))
        show(stderr, text, size);
    fputs(": ", stderr);
    if (find(error, "message", &part) && text_of(part, &text, &size))
        show(stderr, text, size);
    fputc('\n', stderr);
    return 1;
}

static int await_answer(channel *with) {
    for (;;) {
        uint8_t type;
        buffer payload;
        bool whole = receive_frame(with, &type, &payload);
        int code = REFUSED;
        if (!whole)
            complain("worker", "it is gone, or says what this host does not know");
        else if (type == RESULT) code = print_answer(&payload);
        free(payload.data);
        // A denial and a display are told and not asked, so nothing is answered.
        if (!whole || type == RESULT || type == HELLO) return code;
    }
}

int evaluate(vj_jail *jail, const char *root, const char *expression) {
    channel with;
    int control;
    int code = REFUSED;
    vj_run *run = start_worker(jail, root, &with, &control);
    if (run && greet(&with, root)) {
        if (ask(&with, expression)) code = await_answer(&with);
        else complain("worker", "it takes no question");
        send_frame(&with, BYE, &(buffer){0});
    }
    close(with.socket);
    close(control);
    vj_run_free(run); // and ends it, if it does not leave
    return code;
}
