// The control thread: obeys the host while the interpreter is busy.
//
// It never takes the GIL, so it answers while C code of the guest holds it. An interrupt
// is a private signal to the thread that runs guest code: it wakes system calls and makes
// the interpreter run a handler at its next chance. A signal that fell between two such
// chances is lost, and a guest may swallow the exception: hence the repetition.
#include "linux_worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

// Packet of the host: one letter and the number of the run it is about.
typedef struct __attribute__((packed)) {
    char order;   // 'I' interrupt that run, 'D' write all stacks to the control socket,
                  // 'H' send this packet back, 'F' take the descriptors of a copy,
                  // which come with it, and end
    uint64_t run; // with 'H' and 'F' any number
} control_packet;

static struct sigaction interrupt_action; // as the bootstrap installed it
static struct sigaction dump_action;

static void write_stacks(void) {
    // The guest may have replaced the action; the default one would end the process.
    sigaction(VIS_SIGNAL_DUMP, &dump_action, NULL);
    // faulthandler writes from the handler, on this thread, before raise() returns.
    if (dump_action.sa_handler != SIG_DFL) raise(VIS_SIGNAL_DUMP);
    char end = '\0';
    (void)!send(vis_this_process.control, &end, 1, MSG_NOSIGNAL);
}

// Interrupt `run` if it is under way. Returns the milliseconds until the next try, or -1
// when the run is over: an order may arrive before its run has begun, or after it ended.
static int interrupt(uint64_t run) {
    if (atomic_load(&vis_this_worker.ended_run) >= run) return -1;
    if (atomic_load(&vis_this_worker.active_run) != run) return VIS_INTERRUPT_EARLY_MS;
    sigaction(VIS_SIGNAL_INTERRUPT, &interrupt_action, NULL); // as above
    pthread_kill(vis_this_process.main_thread, VIS_SIGNAL_INTERRUPT);
    return VIS_INTERRUPT_REPEAT_MS;
}

// Read one order; descriptors that come with one go to `vis_this_process.for_copy`.
static ssize_t read_order(control_packet *packet) {
    struct iovec part = {.iov_base = packet, .iov_len = sizeof *packet};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof vis_this_process.for_copy)];
    } ancillary;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = ancillary.space,
                             .msg_controllen = sizeof ancillary.space};
    ssize_t size =
        recvmsg(vis_this_process.control, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0) return size;
    struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    if (first && first->cmsg_type == SCM_RIGHTS &&
        first->cmsg_len == CMSG_LEN(sizeof vis_this_process.for_copy))
        memcpy(vis_this_process.for_copy, CMSG_DATA(first),
               sizeof vis_this_process.for_copy);
    return size;
}

static void *obey(void *unused) {
    (void)unused;
    uint64_t target = 0;
    int pause = -1;
    for (;;) {
        struct pollfd wait = {.fd = vis_this_process.control, .events = POLLIN};
        int ready = poll(&wait, 1, pause);
        if (ready < 0 && errno != EINTR) return NULL;
        if (ready > 0) {
            control_packet packet;
            ssize_t size = read_order(&packet);
            if (size == 0) _exit(122); // the host is gone
            if (size < 0 && errno != EAGAIN && errno != EINTR) return NULL;
            if (size != sizeof packet) continue;
            if (packet.order == 'D') write_stacks();
            if (packet.order == 'F') return NULL;
            if (packet.order == 'H') // a heartbeat; nobody waits for one that is dropped
                (void)!send(wait.fd, &packet, sizeof packet, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (packet.order == 'I') target = packet.run;
        }
        // After any other order too: many of them must not put an interrupt off.
        pause = interrupt(target);
    }
}

// Called after the bootstrap has installed its two handlers, and again by a worker that
// was copied, and by its copy: what the guest made of the handlers meanwhile is not
// theirs.
PyObject *vis_start_control(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    if (vis_this_process.control < 0 || vis_this_process.control_runs) {
        PyErr_SetString(PyExc_RuntimeError, "no control socket, or already started");
        return NULL;
    }
    static bool knows_handlers;
    if (!knows_handlers) {
        vis_this_process.main_thread = pthread_self();
        if (sigaction(VIS_SIGNAL_INTERRUPT, NULL, &interrupt_action) ||
            sigaction(VIS_SIGNAL_DUMP, NULL, &dump_action))
            return PyErr_SetFromErrno(PyExc_OSError);
        knows_handlers = true;
    }
    sigset_t all_but_dump, before;
    sigfillset(&all_but_dump);
    sigdelset(&all_but_dump, VIS_SIGNAL_DUMP);
    // A new thread inherits the mask of its maker.
    pthread_sigmask(SIG_SETMASK, &all_but_dump, &before);
    int failure = pthread_create(&vis_this_process.control_thread, NULL, obey, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure) {
        errno = failure;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    vis_this_process.control_runs = true;
    Py_RETURN_NONE;
}

void vis_open_to_interrupts(void) {
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, VIS_SIGNAL_INTERRUPT);
    pthread_sigmask(SIG_UNBLOCK, &ours, NULL); // an earlier run may have blocked it
    sigaction(VIS_SIGNAL_INTERRUPT, &interrupt_action, NULL);
}
