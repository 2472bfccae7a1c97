// The relay: moves bytes between two sockets until both sides have said all.
//
// One process, one thread, a fixed table. Of each direction at most one buffer is
// held: a reader that is slow makes its writer wait, as TCP does. With the table
// full, new connections wait in the backlog of their listener.

#include <errno.h>
#include <linux/tcp.h>
#include <linux/time_types.h>
#include <poll.h>
#include <sys/socket.h>

#include "linux_ports.h"

#define CONNECTIONS_MAX 256
#define BUFFER_SIZE     16384
#define SIGNAL_SET_SIZE 8
#define IPPROTO_OF_TCP  6
#define REST_NS         100000000

// One direction: what was read of `from` and is not yet written to the other side.
typedef struct {
    uint32_t start;
    uint32_t end;
    int read_all; // end of file was read ...
    int said;     // ... and passed on
    char buffer[BUFFER_SIZE];
} flow;

typedef struct {
    int side[2]; // 0 came in, 1 leads on; -1: none
    int connected;
    flow flows[2]; // flows[i] comes from side[i]
} connection;

typedef struct {
    const vj_ports *ports;
    connection connections[CONNECTIONS_MAX];
    uint32_t open; // the first so many of `order` are in use
    uint16_t order[CONNECTIONS_MAX];
    // Requests to the dialer that are under way: it answers in order.
    uint16_t asked[CONNECTIONS_MAX];
    uint32_t asked_count;
    int dialer_is_gone;
    int rests; // out of descriptors or memory: no new connections for a moment
} service;

static uint32_t held(const flow *one) {
    return one->end - one->start;
}

// ---- opening and closing ---------------------------------------------------

// The peer learns of an abort as of one: by a reset and not by an orderly end.
static void abort_side(int socket) {
    if (socket < 0) return;
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    sys(SYS_setsockopt, socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    sys(SYS_close, socket);
}

static void abort_connection(connection *one) {
    abort_side(one->side[0]);
    abort_side(one->side[1]);
    one->side[0] = one->side[1] = -1;
}

// Bytes that are small and few must not wait for more of them.
static void send_at_once(int socket) {
    int on = 1;
    sys(SYS_setsockopt, socket, IPPROTO_OF_TCP, TCP_NODELAY, &on, sizeof on);
}

static void reset_flow(flow *one) {
    one->start = one->end = 0;
    one->read_all = one->said = 0;
}

// A connection that waits for the dialer has no second side.
static int waits_for_dialer(const service *state, uint16_t number) {
    for (uint32_t i = 0; i < state->asked_count; i++) {
        if (state->asked[i] == number) return 1;
    }
    return 0;
}

static void ask_dialer(service *state, uint16_t number, uint32_t port) {
    vj_message request = {.index = (int32_t)port};
    if (state->dialer_is_gone ||
        vj_message_send(VJ_PORTS_PEER, &request, 0, 0, 0, 0) < 0) {
        abort_connection(&state->connections[number]);
        return;
    }
    state->asked[state->asked_count++] = number;
}

static void lead_on(connection *one, long socket) {
    if (socket < 0) {
        abort_connection(one);
        return;
    }
    one->side[1] = (int)socket;
    send_at_once(one->side[1]);
}

static void accept_one(service *state, uint32_t index) {
    const vj_port *port = &state->ports->port[index];
    long came = sys(SYS_accept4, port->listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (came < 0) { // it has gone again, or there is nothing left to take it with
        state->rests =
            came == -EMFILE || came == -ENFILE || came == -ENOMEM || came == -ENOBUFS;
        return;
    }
    uint16_t number = state->order[state->open++];
    connection *one = &state->connections[number];
    one->side[0] = (int)came;
    one->side[1] = -1;
    one->connected = 0;
    reset_flow(&one->flows[0]);
    reset_flow(&one->flows[1]);
    send_at_once(one->side[0]);
    if (port->inbound) lead_on(one, vj_loopback_connect(port->leads_to));
    else ask_dialer(state, number, index);
}

static void take_answer(service *state) {
    vj_message message = {0};
    long socket = vj_receive_descriptor(VJ_PORTS_PEER, &message, MSG_DONTWAIT);
    if (socket == -EAGAIN) return;
    if (socket == -EPIPE && !message.error) {
        state->dialer_is_gone = 1;
        for (uint32_t i = 0; i < state->asked_count; i++) {
            abort_connection(&state->connections[state->asked[i]]);
        }
        state->asked_count = 0;
        return;
    }
    if (!state->asked_count) vj_exit_process(1);
    connection *one = &state->connections[state->asked[0]];
    state->asked_count--;
    memmove(state->asked, state->asked + 1, state->asked_count * sizeof *state->asked);
    if (one->side[0] >= 0) lead_on(one, socket);
    else if (socket >= 0) sys(SYS_close, socket);
}

// ---- moving bytes ----------------------------------------------------------

// Both return 0, or -1 when the connection is broken.
static int take(flow *one, int from) {
    if (one->end == BUFFER_SIZE) return 0;
    long size =
        sys(SYS_recvfrom, from, one->buffer + one->end, BUFFER_SIZE - one->end, 0, 0);
    if (size == -EAGAIN || size == -EINTR) return 0;
    if (size < 0) return -1;
    if (size == 0) one->read_all = 1;
    one->end += (uint32_t)size;
    return 0;
}

static int give(flow *one, int to) {
    while (held(one)) {
        long size =
            sys(SYS_sendto, to, one->buffer + one->start, held(one), MSG_NOSIGNAL, 0);
        if (size == -EAGAIN || size == -EINTR) return 0;
        if (size < 0) return -1;
        one->start += (uint32_t)size;
    }
    one->start = one->end = 0;
    if (one->read_all && !one->said) {
        one->said = 1;
        // The other side may have gone by itself.
        sys(SYS_shutdown, to, SHUT_WR);
    }
    return 0;
}

static int is_refused(connection *one) {
    int error = 0;
    uint32_t size = sizeof error;
    sys(SYS_getsockopt, one->side[1], SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
}

static void attend(connection *one, const short ready[2]) {
    if (!one->connected) {
        if (ready[0] & (POLLERR | POLLHUP)) {
            abort_connection(one);
            return;
        }
        if (one->side[1] < 0 || !(ready[1] & (POLLOUT | POLLERR | POLLHUP))) return;
        if (is_refused(one)) {
            abort_connection(one);
            return;
        }
        one->connected = 1;
        return;
    }
    int broken = 0;
    for (int i = 0; i < 2 && !broken; i++) {
        if (ready[i] & POLLERR) broken = 1;
        if (!broken && (ready[i] & (POLLIN | POLLHUP)) && !one->flows[i].read_all) {
            broken = take(&one->flows[i], one->side[i]);
        }
    }
    for (int i = 0; i < 2 && !broken; i++) {
        broken = give(&one->flows[i], one->side[1 - i]);
    }
    if (broken) {
        abort_connection(one);
    } else if (one->flows[0].said && one->flows[1].said) {
        sys(SYS_close, one->side[0]);
        sys(SYS_close, one->side[1]);
        one->side[0] = one->side[1] = -1;
    }
}

// What this side is waited for. POLLERR and POLLHUP always come.
static short wanted(const connection *one, int i) {
    if (one->side[i] < 0) return 0;
    if (!one->connected) return i == 1 ? POLLOUT : 0;
    short events = 0;
    const flow *from = &one->flows[i];
    if (!from->read_all && from->end < BUFFER_SIZE) events |= POLLIN;
    if (held(&one->flows[1 - i])) events |= POLLOUT;
    return events;
}

// ---- service ---------------------------------------------------------------

static void forget_closed(service *state) {
    for (uint32_t i = 0; i < state->open;) {
        uint16_t number = state->order[i];
        // One that waits for the dialer keeps its place until the answer comes.
        if (state->connections[number].side[0] >= 0 || waits_for_dialer(state, number)) {
            i++;
            continue;
        }
        state->order[i] = state->order[--state->open];
        state->order[state->open] = number;
    }
}

_Noreturn void vj_relay_serve(const vj_ports *ports) {
    static service state;
    static struct pollfd events[2 * CONNECTIONS_MAX + VJ_PORTS_MAX + 1];
    state.ports = ports;
    for (uint16_t i = 0; i < CONNECTIONS_MAX; i++) {
        state.order[i] = i;
        state.connections[i].side[0] = state.connections[i].side[1] = -1;
    }
    for (;;) {
        uint32_t served = state.open;
        for (uint32_t i = 0; i < served; i++) {
            const connection *one = &state.connections[state.order[i]];
            for (int side = 0; side < 2; side++) {
                short want = wanted(one, side);
                // A side from which nothing is wanted would wake us with POLLHUP.
                int idle = !want && one->connected;
                events[2 * i + (uint32_t)side] =
                    (struct pollfd){.fd = idle ? -1 : one->side[side], .events = want};
            }
        }
        uint32_t count = 2 * served;
        events[count++] = (struct pollfd){.fd = state.dialer_is_gone ? -1 : VJ_PORTS_PEER,
                                          .events = POLLIN};
        int room = state.open < CONNECTIONS_MAX && !state.rests;
        for (uint32_t i = 0; i < ports->count; i++) {
            events[count++] = (struct pollfd){.fd = room ? ports->port[i].listener : -1,
                                              .events = POLLIN};
        }
        struct __kernel_timespec rest = {.tv_nsec = REST_NS};
        long result =
            sys(SYS_ppoll, events, count, state.rests ? &rest : 0, 0, SIGNAL_SET_SIZE);
        state.rests = 0;
        if (result < 0 && result != -EINTR) vj_exit_process(1);
        if (result <= 0) continue;
        for (uint32_t i = 0; i < served; i++) {
            connection *one = &state.connections[state.order[i]];
            short ready[2] = {events[2 * i].revents, events[2 * i + 1].revents};
            if (one->side[0] >= 0 && (ready[0] || ready[1])) attend(one, ready);
        }
        if (events[2 * served].revents) take_answer(&state);
        forget_closed(&state);
        for (uint32_t i = 0; i < ports->count; i++) {
            int listens = (events[2 * served + 1 + i].revents & POLLIN) != 0;
            if (listens && state.open < CONNECTIONS_MAX) accept_one(&state, i);
        }
    }
}
