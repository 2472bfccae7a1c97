// A policy as a Seatbelt profile (SBPL), which macOS compiles and enforces. Pure: makes
// no system call, and is built and tested on every platform.
//
// Apple documents neither the language nor its order of rules. What this relies on was
// measured by others (doc/seatbelt.md has the list), and is chosen so that most of it
// does not matter:
//
//   * everything is denied by default, or by name where the default does not; first come
//     rules of every process, then what the policy allows, then what it denies, and after
//     the first deny of a path nothing is allowed. A deny spares by itself what is
//     allowed again below it.
//   * allows and denies of one right name the same operations, so that it does not matter
//     which of a wide and a narrow operation is asked first.
//   * no path of a policy is in the text: paths are parameters.
//   * a filter is compared with the path that the kernel finds, without links. One that
//     the kernel never finds would deny nothing, so it is rewritten or refused.
#ifndef VJ_MACOS_PROFILE_H
#define VJ_MACOS_PROFILE_H

#include <stdint.h>

#include "error.h"
#include "policy.h"

#define VJ_MACOS_PROFILE_VERSION 1u
// Bytes of one string; sandbox_init refuses longer ones in a text.
#define VJ_MACOS_STRING_MAX  1024u
#define VJ_MACOS_TEXT_MAX    (4u << 20)
#define VJ_MACOS_NAMES_MAX   1000u // services, sockets and ports, each
#define VJ_MACOS_SERVICE_MAX 255u

enum {
    // The host's network; without it the only addresses are those of `host_ports`.
    VJ_MACOS_NETWORK_OPEN = 1u << 0,
    // Programs and configuration of the system can be read, as system="minimal".
    VJ_MACOS_SYSTEM = 1u << 1,
    // Names that differ in case only are one name on the volumes of the grants.
    VJ_MACOS_IGNORES_CASE = 1u << 2,
};

// Programs that need more than every process does. uv needs nothing more, but
// UV_LINK_MODE=copy: no profile allows links.
enum {
    VJ_MACOS_PYTHON = 1u << 0,
    VJ_MACOS_NODE = 1u << 1,
    VJ_MACOS_GIT = 1u << 2,
};

typedef struct {
    uint32_t size; // of this structure
    uint32_t version;
    uint32_t flags;
    uint32_t programs;
    const char *own; // the jail's own folder, writable, the place of its sockets; or NULL
    const char *terminal;        // device of the run's own terminal, or NULL
    const char *const *sockets;  // that may be connected to
    const char *const *services; // Mach services, or "posix-shm:/PREFIX"
    const uint16_t *host_ports;  // of this machine, TCP
    uint32_t socket_count;
    uint32_t service_count;
    uint32_t host_port_count;
    uint32_t reserved;
} vj_macos_settings;

typedef struct {
    char *text;
    // Name, value, name, value: each ended by NUL, as sandbox_init_with_parameters takes
    // them one by one.
    char *parameters;
    uint64_t text_size; // without the NUL at its end
    uint64_t parameters_size;
    uint32_t parameter_count; // pairs
    uint32_t reserved;
} vj_macos_profile;

// Write the profile. Paths come as fcntl(F_GETPATH) gives them on macOS: without links,
// and in the volume's own spelling where it ignores case.
// `*profile` is zero unless it returns VJ_OK; free it with
// vj_macos_profile_free.
//
// VJ_REFUSED names in `error->index` the rule that cannot be held (-1: it is none of
// them): a path that the kernel never finds, or that a text cannot carry; a private
// place, of which macOS has none; a rule on a device; a name kept from being made whose
// other spellings cannot be told.
vj_status vj_macos_profile_build(const vj_macos_settings *settings, const vj_rule *rules,
                                 uint64_t rule_count, vj_macos_profile *profile,
                                 vj_error *error);
void vj_macos_profile_free(vj_macos_profile *profile);

// The path by which the kernel knows `path`: /tmp, /var, /etc and /home are links on
// every macOS. `capacity` is at least VJ_MACOS_STRING_MAX + 1.
vj_status vj_macos_path(const char *path, char *resolved, uint64_t capacity,
                        vj_error *error);

// Why a service is not given even by its name, or NULL: it is no name, or by the service
// programs are started outside of the jail.
const char *vj_macos_service_refused(const char *name);

#endif
