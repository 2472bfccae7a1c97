// What processes on macOS need. Pure data; see macos_base.h.
//
// Each line is here because a program fails without it; doc/seatbelt.md says which.
// Nothing here opens a file of a user's, a key, or another program's memory.

#include "macos_base.h"

#include <string.h>

#include "macos_profile.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

// Set-id programs need no rule: the kernel starts none in a sandbox.
const char vj_macos_base[] =
    "(allow process-fork)\n"
    "(allow signal (target same-sandbox))\n"
    "(allow process-info* (target same-sandbox))\n"
    // Without it the loader ends every program before main.
    "(allow file-read* file-read-metadata file-test-existence (literal \"/\"))\n"
    // Links of the system on the way to what is granted.
    "(allow file-read-metadata file-test-existence (literal \"/etc\") (literal \"/tmp\") "
    "(literal \"/var\") (literal \"/private/etc/localtime\") "
    "(literal \"/private/etc/resolv.conf\") (literal \"/dev/stdin\") "
    "(literal \"/dev/stdout\") (literal \"/dev/stderr\"))\n"
    "(allow file-read* file-read-metadata file-test-existence file-write-data file-ioctl "
    "(literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/tty\") "
    "(literal \"/dev/dtracehelper\"))\n"
    "(allow file-read* file-read-metadata file-test-existence (literal \"/dev\") "
    "(literal \"/dev/random\") (literal \"/dev/urandom\"))\n"
    "(allow file-read* file-read-metadata file-test-existence file-write-data "
    "(subpath \"/dev/fd\"))\n"
    // By name: others show processes, serial numbers and boot arguments.
    "(allow sysctl-read (sysctl-name-prefix \"hw.optional.\") "
    "(sysctl-name-prefix \"hw.perflevel\") (sysctl-name-prefix \"sysctl.\") "
    "(sysctl-name \"hw.activecpu\") (sysctl-name \"hw.busfrequency_compat\") "
    "(sysctl-name \"hw.byteorder\") (sysctl-name \"hw.cacheconfig\") "
    "(sysctl-name \"hw.cachelinesize\") (sysctl-name \"hw.cachelinesize_compat\") "
    "(sysctl-name \"hw.cpufamily\") (sysctl-name \"hw.cpufrequency\") "
    "(sysctl-name \"hw.cpufrequency_compat\") (sysctl-name \"hw.cputype\") "
    "(sysctl-name \"hw.cpusubtype\") (sysctl-name \"hw.l1dcachesize\") "
    "(sysctl-name \"hw.l1icachesize\") (sysctl-name \"hw.l2cachesize\") "
    "(sysctl-name \"hw.l3cachesize\") (sysctl-name \"hw.logicalcpu\") "
    "(sysctl-name \"hw.logicalcpu_max\") (sysctl-name \"hw.machine\") "
    "(sysctl-name \"hw.memsize\") (sysctl-name \"hw.model\") (sysctl-name \"hw.ncpu\") "
    "(sysctl-name \"hw.nperflevels\") (sysctl-name \"hw.packages\") "
    "(sysctl-name \"hw.pagesize\") (sysctl-name \"hw.pagesize_compat\") "
    "(sysctl-name \"hw.physicalcpu\") (sysctl-name \"hw.physicalcpu_max\") "
    "(sysctl-name \"hw.tbfrequency\") (sysctl-name \"hw.tbfrequency_compat\") "
    "(sysctl-name \"hw.vectorunit\") (sysctl-name \"kern.argmax\") "
    "(sysctl-name \"kern.hostname\") (sysctl-name \"kern.maxfilesperproc\") "
    "(sysctl-name \"kern.maxproc\") (sysctl-name \"kern.ngroups\") "
    "(sysctl-name \"kern.osproductversion\") (sysctl-name \"kern.osrelease\") "
    "(sysctl-name \"kern.ostype\") (sysctl-name \"kern.osvariant_status\") "
    "(sysctl-name \"kern.osversion\") (sysctl-name \"kern.secure_kernel\") "
    "(sysctl-name \"kern.usrstack64\") (sysctl-name \"kern.version\") "
    "(sysctl-name \"machdep.cpu.brand_string\") (sysctl-name \"vm.loadavg\"))\n"
    // The user database, the log, names of time zones that change, the folder for
    // temporary files.
    "(allow mach-lookup (global-name \"com.apple.system.opendirectoryd.libinfo\") "
    "(global-name \"com.apple.system.opendirectoryd.membership\") "
    "(global-name \"com.apple.system.logger\") "
    "(global-name \"com.apple.system.notification_center\") "
    "(global-name \"com.apple.bsd.dirhelper\"))\n"
    "(allow ipc-posix-shm-read-data "
    "(ipc-posix-name \"apple.shm.notification_center\"))\n"
    "(allow system-socket (socket-domain AF_UNIX))\n";

// Locks of multiprocessing have these names for a moment. Shared memory would be
// everybody's of this user on the whole machine, so it needs a grant. Terminals are those
// that a process of the jail has made: the kernel marks them.
const char vj_macos_base_python[] =
    "(allow ipc-posix-sem (ipc-posix-name-prefix \"/mp-\"))\n"
    // By it OpenMP finds a second copy of itself in one process.
    "(allow ipc-posix-shm-read-data ipc-posix-shm-write-create "
    "ipc-posix-shm-write-data ipc-posix-shm-write-unlink "
    "(ipc-posix-name-regex \"^/__KMP_REGISTERED_LIB_[0-9]+$\"))\n"
    // uv and urllib ask for the settings of proxies, and uv ends where nobody answers.
    "(allow mach-lookup (global-name \"com.apple.SystemConfiguration.configd\"))\n"
    "(allow pseudo-tty)\n"
    "(allow file-read* file-read-metadata file-test-existence file-write-data file-ioctl "
    "(literal \"/dev/ptmx\") (require-all (regex \"^/dev/ttys[0-9]+$\") "
    "(extension \"com.apple.sandbox.pty\")))\n";

const char vj_macos_base_node[] =
    "(allow iokit-open (iokit-registry-entry-class \"RootDomainUserClient\"))\n"
    "(allow mach-lookup (global-name \"com.apple.FSEvents\"))\n"
    "(allow sysctl-write (sysctl-name \"kern.tcsm_enable\"))\n";

// Addresses only: an unfiltered rule would open every AF_UNIX socket as well. The
// keychain (com.apple.SecurityServer) is not part of it.
const char vj_macos_base_network[] =
    "(allow system-socket (socket-domain AF_INET) (socket-domain AF_INET6))\n"
    "(allow network-outbound (remote ip \"*:*\") "
    "(literal \"/private/var/run/mDNSResponder\"))\n"
    "(allow network-inbound (local ip \"*:*\"))\n"
    "(allow network-bind (local ip \"*:*\"))\n"
    "(allow mach-lookup (global-name \"com.apple.SystemConfiguration.configd\") "
    "(global-name \"com.apple.SystemConfiguration.DNSConfiguration\") "
    "(global-name \"com.apple.networkd\") (global-name \"com.apple.trustd.agent\"))\n"
    "(allow sysctl-read (sysctl-name-prefix \"net.routetable.\"))\n";

static const char *const always[] = {
    "/Library/Apple",
    "/System/Cryptexes",
    "/System/Library/CoreServices/SystemVersion.plist",
    "/System/Library/Frameworks",
    "/System/Library/PrivateFrameworks",
    "/System/Library/SubFrameworks",
    "/System/Library/dyld",
    "/System/Volumes/Preboot/Cryptexes",
    "/System/iOSSupport/System/Library",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
    "/usr/lib",
    "/usr/share",
};
const vj_macos_paths vj_macos_read_always = {always, COUNT(always)};

// Of what Homebrew installs not its folders var and etc, where servers keep their data.
static const char *const minimal[] = {
    "/Library/Frameworks",
    "/System/Library",
    "/bin",
    "/opt/homebrew/Cellar",
    "/opt/homebrew/Frameworks",
    "/opt/homebrew/bin",
    "/opt/homebrew/etc/ca-certificates",
    "/opt/homebrew/etc/openssl@3",
    "/opt/homebrew/include",
    "/opt/homebrew/lib",
    "/opt/homebrew/libexec",
    "/opt/homebrew/opt",
    "/opt/homebrew/sbin",
    "/opt/homebrew/share",
    "/private/etc/bashrc",
    "/private/etc/group",
    "/private/etc/hosts",
    "/private/etc/manpaths",
    "/private/etc/passwd",
    "/private/etc/paths",
    "/private/etc/paths.d",
    "/private/etc/profile",
    "/private/etc/protocols",
    "/private/etc/services",
    "/private/etc/shells",
    "/private/etc/ssl",
    "/private/etc/zprofile",
    "/private/etc/zshrc",
    "/private/var/run/resolv.conf",
    "/private/var/select",
    "/sbin",
    "/usr/bin",
    "/usr/include",
    "/usr/lib",
    "/usr/libexec",
    "/usr/local/Cellar",
    "/usr/local/Frameworks",
    "/usr/local/bin",
    "/usr/local/etc/ca-certificates",
    "/usr/local/etc/openssl@3",
    "/usr/local/include",
    "/usr/local/lib",
    "/usr/local/libexec",
    "/usr/local/opt",
    "/usr/local/sbin",
    "/usr/local/share",
    "/usr/sbin",
    "/usr/share",
};
const vj_macos_paths vj_macos_read_system = {minimal, COUNT(minimal)};

// /usr/bin/git is a shim that starts the git of the developer tools.
static const char *const git[] = {
    "/Applications/Xcode.app",
    "/Library/Developer/CommandLineTools",
    "/private/var/db/xcode_select_link",
    "/private/var/select",
};
const vj_macos_paths vj_macos_read_git = {git, COUNT(git)};

// Services by which a program of the user's is started outside of the jail, or told what
// to do: no rule of a profile would follow it there.
static const char *const starters[] = {
    "com.apple.coreservices.appleevents",
    "com.apple.coreservices.launchservicesd",
    "com.apple.coreservices.quarantine-resolver",
    "com.apple.xpc.smd",
    "com.apple.xpc.loginitemregisterd",
    "com.apple.pbs.fetch_services",
};

static bool is_name(const char *name) {
    size_t length = strnlen(name, VJ_MACOS_SERVICE_MAX + 1);
    if (!length || length > VJ_MACOS_SERVICE_MAX) return false;
    for (const char *at = name; *at; at++) {
        bool is_plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                        (*at >= '0' && *at <= '9') || strchr("-._:/@", *at);
        if (!is_plain) return false;
    }
    return true;
}

bool vj_macos_is_memory(const char *name) {
    return !strncmp(name, VJ_MACOS_MEMORY, VJ_MACOS_MEMORY_LENGTH);
}

const char *vj_macos_service_refused(const char *name) {
    if (!is_name(name)) return "the name of a service is wrong";
    // A short prefix would be everybody's memory.
    const char *prefix = name + VJ_MACOS_MEMORY_LENGTH;
    if (vj_macos_is_memory(name) && (prefix[0] != '/' || strlen(prefix) < 4))
        return "posix-shm: is followed by / and at least three characters";
    for (size_t i = 0; i < COUNT(starters); i++) {
        if (!strcmp(name, starters[i]))
            return "by this service programs are started outside of the jail";
    }
    return NULL;
}
