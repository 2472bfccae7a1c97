// Single ports between the jail's network namespace and the host's loopback.
//
//   inbound     a port of the host's loopback leads to a port of the jail's
//   host_ports  a port of the jail's loopback leads to the same one of the host's
//
// The jail has a network namespace of its own, and a socket belongs to the one in
// which it was made. So two small processes of the jail share the work:
//
//   dialer  stays in the host's namespace. It makes the listeners of inbound, and
//           then, one for each request, sockets that connect to the ports of
//           host_ports. It sees no byte that a guest sent. linux_ports.c
//   relay   lives in the jail's. It makes the listeners of host_ports, takes the
//           sockets of the dialer, and moves the bytes. linux_relay.c
//
// Both have no capability, no file (Landlock), a list of the calls they may make, and
// no descriptor but those sockets. They end with the jail, and the ports with them.
#ifndef VJ_LINUX_PORTS_H
#define VJ_LINUX_PORTS_H

#include "linux_init.h"

// In both processes, after all other descriptors are closed.
enum { VJ_PORTS_PEER = 0, VJ_PORTS_SUPERVISOR = 1, VJ_PORTS_FIRST_FREE = 2 };

typedef struct {
    uint32_t operation; // of the plan
    uint16_t listens;   // on this port ...
    uint16_t leads_to;  // ... and leads to this one
    int listener;
    int inbound;
} vj_port;

typedef struct {
    vj_port port[VJ_PORTS_MAX];
    uint32_t count;
} vj_ports;

// A socket on the loopback address, with the SOCK_ flags given; a negative errno.
long vj_loopback_listen(uint16_t port);
long vj_loopback_connect(uint16_t port); // does not wait
// Receive one descriptor; -errno, or -EPIPE when the other end is gone.
long vj_receive_descriptor(int socket, vj_message *message, int flags);

// Give up everything but what the descriptors allow; 0 or a negative errno.
long vj_ports_confine(const vj_setup *setup, const vj_ports *ports, int is_dialer);

_Noreturn void vj_relay_serve(const vj_ports *ports);

#endif
