// What a keeper makes of a request, whatever is in it.
//
// sources: native/visjail/linux_spawn.c
// libraries: -no-pie -Wl,--unresolved-symbols=ignore-in-object-files
//
// The keeper's own code receives the packets of one input from a real socket and splits
// them into a directory, arguments and an environment. Only the last step is not taken:
// instead of starting a program, every string is read, as execve would.
#include "fuzz.h"

#include "../../native/visjail/linux_keeper.c"

#define PACKET_ROOM 8192

static const vj_plan no_plan;
static uint64_t seen;

// In linux_spawn.c the program starts here: the struct begins as vj_start does there.
typedef struct {
    const vj_setup *setup;
    vj_request *request;
    const char *directory;
    char **arguments;
    char **environment;
} started;

long vj_spawn_shared(int (*function)(void *), void *argument, void *stack_top) {
    (void)function;
    (void)stack_top;
    const started *start = argument;
    uint32_t count = 0;
    seen += strlen(start->directory);
    for (char **at = start->arguments; *at; at++, count++) seen += strlen(*at);
    FUZZ_CHECK(count == start->request->message.argument_count);
    count = 0;
    for (char **at = start->environment; *at; at++, count++) seen += strlen(*at);
    FUZZ_CHECK(count == start->request->message.environment_count);
    return 1;
}

long vj_message_send(int socket, const vj_message *message, const void *data, size_t size,
                     const int *descriptors, uint32_t count) {
    struct iovec parts[2] = {
        {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message},
        {.iov_base = (void *)(uintptr_t)data, .iov_len = size},
    };
    char control[CMSG_SPACE(VJ_DESCRIPTORS_MAX * sizeof(int))]
        __attribute__((aligned(8)));
    memset(control, 0, sizeof control);
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};
    if (count) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(part), descriptors, count * sizeof(int));
    }
    return sendmsg(socket, &header, MSG_NOSIGNAL);
}

// The strings of a request: those that are asked for, or bytes without any order.
static size_t draw_strings(fuzz_input *input, vj_message *message, char *data) {
    size_t size = 0;
    message->argument_count = fuzz_below(input, 8);
    message->environment_count = fuzz_below(input, 8);
    uint32_t wanted = 1 + message->argument_count + message->environment_count;
    for (uint32_t i = 0; i < wanted; i++) {
        size_t length = fuzz_below(input, 64);
        fuzz_take(input, data + size, length);
        size += length;
        data[size++] = 0;
    }
    message->data_size = (uint32_t)size;
    switch (fuzz_below(input, 6)) {
    case 0: fuzz_take(input, &message->argument_count, sizeof(uint32_t)); break;
    case 1: fuzz_take(input, &message->environment_count, sizeof(uint32_t)); break;
    case 2: fuzz_take(input, &message->data_size, sizeof(uint32_t)); break;
    default: break;
    }
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {.at = data, .left = size};
    int pair[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    vj_message message;
    char strings[PACKET_ROOM];
    int sent[VJ_DESCRIPTORS_MAX] = {0};
    uint32_t count = fuzz_below(&input, VJ_DESCRIPTORS_MAX);
    fuzz_take(&input, &message, sizeof message);
    size_t length = draw_strings(&input, &message, strings);
    if (fuzz_below(&input, 8)) message.kind = VJ_MESSAGE_SPAWN;
    if (fuzz_below(&input, 8)) message.descriptor_count = count;
    for (uint32_t i = 0; fuzz_below(&input, 4) && i < count; i++) {
        message.descriptor_numbers[i] = (int32_t)fuzz_below(&input, 20) - 2;
    }
    // A file operation forks before anything is read. A memfd would come from the host's
    // own library, which seals one of the size that it announces.
    message.flags &= ~(uint32_t)(VJ_SPAWN_FILE | VJ_SPAWN_MEMFD);
    vj_message_send(pair[1], &message, strings, length, sent, count);
    close(pair[1]);

    vj_setup setup = {.plan = &no_plan, .ruleset = -1};
    vj_request request;
    memset(&request, 0, sizeof request);
    vj_stage stage = VJ_STAGE_REQUEST;
    long result = receive(pair[0], &request, 1);
    if (result > 0) {
        start(&setup, &request, &stage);
        FUZZ_CHECK(stage < VJ_STAGE_END);
        close_descriptors(&request);
    }
    close(pair[0]);
    return 0;
}
