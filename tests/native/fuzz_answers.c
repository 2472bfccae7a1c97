// What the host makes of messages from a jail, whatever is in them.
//
// sources: native/visjail/plan.c native/visjail/error.c native/visjail/posix_capture.c
// sources: native/visjail/linux_bubblewrap.c native/visjail/linux_stream.c
// sources: native/visjail/posix_stream.c native/visjail/linux_calls.c
// sources: native/visjail/posix_refusals.c native/visjail/posix_message.c
// libraries: -lpthread
//
// A supervisor that a guest has taken over can send what it wants. The host's own
// functions read the packets of one input from a real socket, with real descriptors
// beside them; then the other end closes. No descriptor may be left.
#include "fuzz.h"

#include "../../native/visjail/posix_open.c"
#include "../../native/visjail/posix_process.c"

#define PACKETS_MAX 6
#define PACKET_ROOM 1024

#define LOOKED_AT 96 // more than one input can bring

static int descriptors_open(void) {
    int count = 0;
    for (int i = 0; i < LOOKED_AT; i++) count += fcntl(i, F_GETFD) >= 0;
    return count;
}

static void send_packet(fuzz_input *input, int socket) {
    vj_message message;
    char rest[PACKET_ROOM];
    int sent[VJ_DESCRIPTORS_MAX];
    uint32_t count = fuzz_below(input, 4) ? fuzz_below(input, 3)
                                          : fuzz_below(input, VJ_DESCRIPTORS_MAX + 1);
    fuzz_take(input, &message, sizeof message);
    // Most packets of a known kind and right length, or nothing behind is reached.
    if (fuzz_below(input, 8)) message.kind = 1 + fuzz_below(input, VJ_MESSAGE_EXITED + 1);
    size_t size = fuzz_below(input, 3) ? 0 : fuzz_below(input, sizeof rest);
    if (fuzz_below(input, 4)) message.data_size = (uint32_t)size;
    fuzz_take(input, rest, size);
    for (uint32_t i = 0; i < count; i++) sent[i] = 0;
    vj_error ignored;
    vj_send(socket, &message, rest, size, sent, count, &ignored);
}

static void read_as_host(fuzz_input *input, int socket) {
    vj_jail jail = {.owner = getpid(), .control = socket};
    jail.process = jail.outer = jail.spare = -1;
    pthread_mutex_init(&jail.lock, NULL);
    pthread_mutex_init(&jail.end, NULL);
    vj_error error;
    memset(&error, 0, sizeof error);
    vj_jail_info info;
    memset(&info, 0, sizeof info);
    int taken[4] = {-1, -1, -1, -1};
    vj_message answer;
    vj_run run = {.jail = &jail, .owner = getpid(), .channel = socket};
    pthread_mutex_init(&run.lock, NULL);
    vj_exit result;
    switch (fuzz_below(input, 6)) {
    case 0:
        if (await_ready(&jail, &info, &error) != VJ_OK) find_process(&jail);
        FUZZ_CHECK(info.answer_count <= VJ_ANSWERS_MAX);
        FUZZ_CHECK(info.port_count <= sizeof info.ports / sizeof *info.ports);
        break;
    case 1: await_answer(&jail, VJ_MESSAGE_KEEPER, taken, 1, &error); break;
    case 2: await_answer(&jail, VJ_MESSAGE_TERMINAL, taken, 2, &error); break;
    case 3: await_answer(&jail, VJ_MESSAGE_PAIRS, taken, 4, &error); break;
    case 4: await_kind(socket, VJ_MESSAGE_STARTED, &answer, &error); break;
    default:
        while (!vj_run_ended(&run, true, &result)) {
        }
        break;
    }
    FUZZ_CHECK(memchr(error.text, 0, sizeof error.text));
    for (int i = 0; i < 4; i++) close_slot(&taken[i]);
    close_slot(&jail.process);
    close_slot(&jail.spare);
    pthread_mutex_destroy(&run.lock);
    pthread_mutex_destroy(&jail.lock);
    pthread_mutex_destroy(&jail.end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {.at = data, .left = size};
    int before = descriptors_open();
    int pair[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    uint32_t packets = fuzz_below(&input, PACKETS_MAX + 1);
    for (uint32_t i = 0; i < packets; i++) send_packet(&input, pair[1]);
    close(pair[1]);
    read_as_host(&input, pair[0]);
    close(pair[0]);
    FUZZ_CHECK(descriptors_open() == before);
    return 0;
}
