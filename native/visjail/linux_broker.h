// The broker: answers the system calls of guests that a filter cannot judge.
//
// A filter sees numbers, not the path behind a pointer. A jail whose plan asks
// for it installs one more filter that hands some calls to one process, the
// broker, which judges each and carries it out itself. There can be one such
// listener per chain of filters, so all clauses that need one share this one:
//
//   linux_broker.c          start, and one notification after the other
//   linux_broker_guest.c    what a call means: memory, descriptors, folders
//   linux_broker_connect.c  connect(2), and which sockets it may lead to
//   linux_broker_bind.c     bind(2)
//   linux_broker_create.c   other calls that make names, beside held ones
//   linux_broker_target.c   which folder and name a path means
//   linux_broker_names.c    which names are held, and where
//   linux_broker_refuse.c   the record of what was refused, for the host
//
// Pid 1 and the keepers are under the filter too, because their children
// inherit it; they make none of the calls. The broker is not: it is forked before.
// It stands in a Landlock domain with the rules of the guests (but for the wall around
// names that do not exist yet, where it makes the others), in which theirs lie, so that
// it may look at them and they neither signal nor trace it. It has no descriptor that
// leads out of the jail, and a list of the calls it may make. Of its capabilities it
// keeps CAP_SYS_PTRACE, over programs of the jail alone: otherwise Yama, or a guest that
// is not dumpable, would keep it from looking. The supervisors are out of its reach: they
// were executed outside of the jail's user namespace. For sockets it keeps CAP_NET_ADMIN
// too, where the network namespace is the jail's own: the kernel asks for it before it
// says which file a socket is bound to.
//
// When the broker ends the kernel answers the trapped calls with ENOSYS.
#ifndef VJ_LINUX_BROKER_H
#define VJ_LINUX_BROKER_H

#include <linux/seccomp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "linux_init.h"

typedef struct {
    const vj_setup *setup;
    int listener;
} vj_broker;

// What an act returns besides 0 and a negative errno.
enum {
    // Let the kernel carry it out, with whatever the guest's memory holds by then:
    // only for what stays harmless then.
    VJ_BROKER_CONTINUE = 1,
    // It has been answered already, or the guest is gone.
    VJ_BROKER_ANSWERED,
};

typedef long (*vj_broker_act)(const vj_broker *broker,
                              const struct seccomp_notif *notification);

typedef struct {
    int number; // of the system call
    // Whether it may wait for something that a guest holds up. Then it runs in a
    // child of the broker, and changes nothing of the broker's memory.
    int may_wait;
    vj_broker_act act;
} vj_broker_call;

// The calls of one clause, ended by an act of NULL.
extern const vj_broker_call vj_broker_socket_calls[];
extern const vj_broker_call vj_broker_name_calls[];
// Remember what the clause stands on; a negative errno ends the opening.
long vj_broker_sockets_prepare(const vj_setup *setup);
long vj_broker_names_prepare(const vj_setup *setup);

// Whether the guest still waits for the answer. Until this has been asked, what
// was read of a guest may be another process's, with a reused number.
int vj_broker_waits(const vj_broker *broker, uint64_t id);

typedef struct {
    vj_refusal_kind kind;
    int error; // a positive errno
    const char *folder;
    size_t folder_length;
    const char *name; // in it, or NULL
    size_t name_length;
} vj_refused;

// Keep a record of what is refused to the thread of a notification, and return the errno
// that its act then returns.
long vj_refuse(const vj_broker *broker, uint64_t id, uint32_t thread,
               const vj_refused *refused);

// ---- looking at the guest `thread` of a notification -----------------------
// Each returns a negative errno where it cannot.

// Copy exactly `size` bytes from the guest's memory.
long vj_guest_read(uint32_t thread, uint64_t address, void *to, size_t size);
// Copy a string with its NUL, never reading past the page in which it ends;
// returns its length, or -ENAMETOOLONG.
long vj_guest_string(uint32_t thread, uint64_t address, char *to, size_t capacity);
// A number in its /proc/PID/status, behind `label` with its newline and tab.
long vj_guest_status(uint32_t thread, const char *label);
// A duplicate of one of its descriptors.
long vj_guest_descriptor(uint32_t thread, int number);
// Make its umask (Linux 4.7) this process's own, until the next.
long vj_guest_take_umask(uint32_t thread);
// The folder that a path starts from: its descriptor, or AT_FDCWD. O_PATH.
long vj_guest_directory(uint32_t thread, int directory);

// ---- sockets ---------------------------------------------------------------

// A duplicate of the guest's socket, and a copy of the address: what connect and bind
// have in common.
typedef struct {
    int socket;
    int length;
    int by_path;
    union {
        struct sockaddr common;
        struct sockaddr_un local;
        char space[sizeof(struct sockaddr_storage) + 1]; // and a NUL
    } address;
} vj_socket_call;

#define VJ_SOCKET_PATH_OFFSET offsetof(struct sockaddr_un, sun_path)

// Whatever it returns, `call->socket` is to be closed.
long vj_socket_call_read(const vj_broker *broker,
                         const struct seccomp_notif *notification, vj_socket_call *call);
// Answer bind(2), in a jail with any clause that needs the broker.
long vj_broker_bind(const vj_broker *broker, const struct seccomp_notif *notification);
// Whether one more socket's file can be remembered, and to do so: what guests may connect
// to where `sockets` are granted.
long vj_own_socket_room(void);
void vj_own_socket_remember(const vj_setup *setup, int socket);

#endif
