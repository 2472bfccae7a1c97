// Network, sockets of the file system, desktops and services of the machine.

#include <winsock2.h>

#include <ws2tcpip.h>

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "probe.h"

#include <wincred.h>

// A listener of the host, on a port that the system has picked for it alone.
typedef struct {
    SOCKET socket;
    bool stream;
    bool other; // not the loopback address
    char address[64];
    char port[16];
} host_port;

static bool listens(host_port *listener, int family, const struct sockaddr *address,
                    int size) {
    struct sockaddr_storage bound;
    int length = sizeof bound;
    memcpy(&bound, address, (size_t)size);
    listener->socket = socket(family, listener->stream ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (listener->socket == INVALID_SOCKET ||
        bind(listener->socket, (struct sockaddr *)&bound, size) ||
        (listener->stream && listen(listener->socket, 4)) ||
        getsockname(listener->socket, (struct sockaddr *)&bound, &length))
        return false;
    u_long yes = 1;
    ioctlsocket(listener->socket, (long)FIONBIO, &yes);
    return getnameinfo((struct sockaddr *)&bound, length, listener->address,
                       sizeof listener->address, listener->port, sizeof listener->port,
                       NI_NUMERICHOST | NI_NUMERICSERV) == 0;
}

// The first address of this machine that is not the loopback.
static bool other_address(int family, struct sockaddr_storage *address, int *size) {
    char name[256];
    struct addrinfo hints = {.ai_family = family};
    struct addrinfo *found = NULL;
    if (gethostname(name, sizeof name) || getaddrinfo(name, NULL, &hints, &found))
        return false;
    bool done = false;
    for (const struct addrinfo *at = found; at && !done; at = at->ai_next) {
        const struct sockaddr_in *four = (const void *)at->ai_addr;
        const struct sockaddr_in6 *six = (const void *)at->ai_addr;
        if (family == AF_INET && (ntohl(four->sin_addr.s_addr) >> 24) == 127) continue;
        if (family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr)) continue;
        memcpy(address, at->ai_addr, at->ai_addrlen);
        *size = (int)at->ai_addrlen;
        done = true;
    }
    freeaddrinfo(found);
    return done;
}

static int open_listeners(host_port all[8]) {
    static const int families[] = {AF_INET, AF_INET6};
    int count = 0;
    for (int family = 0; family < 2; family++)
        for (int other = 0; other < 2; other++)
            for (int stream = 0; stream < 2; stream++) {
                struct sockaddr_storage address = {.ss_family = (short)families[family]};
                struct sockaddr_in *four = (void *)&address;
                struct sockaddr_in6 *six = (void *)&address;
                int size = family ? (int)sizeof *six : (int)sizeof *four;
                if (other && !other_address(families[family], &address, &size)) continue;
                if (!other && family) six->sin6_addr.s6_addr[15] = 1;
                if (!other && !family) four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                host_port *listener = &all[count];
                listener->stream = stream != 0;
                listener->other = other != 0;
                if (listens(listener, families[family], (struct sockaddr *)&address,
                            size))
                    count++;
            }
    return count;
}

// How many connections or packets have come, and away with them.
static int came(const host_port *listener) {
    int count = 0;
    char bytes[16];
    for (;;) {
        if (!listener->stream) {
            if (recv(listener->socket, bytes, sizeof bytes, 0) < 0) return count;
        } else {
            SOCKET accepted = accept(listener->socket, NULL, NULL);
            if (accepted == INVALID_SOCKET) return count;
            closesocket(accepted);
        }
        count++;
    }
}

static void network(const probe_host *probe) {
    WSADATA data;
    host_port all[8] = {0};
    DONE((uint32_t)WSAStartup(MAKEWORD(2, 2), &data));
    int count = open_listeners(all);
    printf("listeners %d\n", count);
    // Eight on a machine with an address of each family; never less than those of
    // loopback.
    CHECK(count >= 4);
    probe_jail *jail = probe_open(probe);
    for (int i = 0; i < count; i++) {
        const char *kind = all[i].stream ? "tcp" : "udp";
        DONE(probe_outside(probe,
                           PROBE_WORD("connect", kind, all[i].address, all[i].port)));
        Sleep(100);
        CHECK(came(&all[i]) >= 1);
        EQUAL(
            probe_inside(jail, PROBE_WORD("connect", kind, all[i].address, all[i].port)),
            WSAEACCES);
        Sleep(100);
        EQUAL((uint32_t)came(&all[i]), 0);
    }
    probe_close(jail);
    for (int i = 0; i < count; i++) closesocket(all[i].socket);
}

static void local_sockets(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    probe_jail *sibling = probe_open(probe);
    char *outside = probe_format("%s\\outside", probe->folder);
    PROBE_ALLOWED(jail, "talk-local", probe_format("%s\\work\\own", jail->info.root));
    PROBE_DENIED(jail, WSAEACCES, "bind-local", outside);
    EQUAL(probe_inside(jail, PROBE_WORD("bind-local",
                                        probe_format("%s\\work\\s", sibling->info.root))),
          WSAEACCES);
    CHECK(probe_inside(jail, PROBE_WORD("bind-local", "@abstract")) != 0);
    probe_close(sibling);
    probe_close(jail);
}

static void services(const probe_host *probe) {
    static wchar_t name[] = L"visjail-probe";
    CREDENTIALW secret = {.Type = CRED_TYPE_GENERIC,
                          .TargetName = name,
                          .CredentialBlobSize = 6,
                          .CredentialBlob = (LPBYTE) "secret",
                          .Persist = CRED_PERSIST_SESSION,
                          .UserName = name};
    const wchar_t pipe_name[] = L"\\\\.\\pipe\\visjail-probe-host";
    CHECK(CredWriteW(&secret, 0));
    probe_jail *jail = probe_open(probe);
    DONE(probe_outside(probe, PROBE_WORD("credential", "visjail-probe")));
    CHECK(probe_inside(jail, PROBE_WORD("credential", "visjail-probe")) != 0);
    CHECK(CredDeleteW(name, CRED_TYPE_GENERIC, 0));
    HANDLE pipe = CreateNamedPipeW(pipe_name, PIPE_ACCESS_DUPLEX, PIPE_TYPE_BYTE, 4, 64,
                                   64, 0, NULL);
    CHECK(pipe != INVALID_HANDLE_VALUE);
    PROBE_DENIED(jail, ERROR_ACCESS_DENIED, "open-pipe",
                 "\\\\.\\pipe\\visjail-probe-host");
    CloseHandle(pipe);
    PROBE_DENIED(jail, ERROR_ACCESS_DENIED, "service-manager");
    // The scheduler of tasks, by its class.
    DONE(probe_outside(probe,
                       PROBE_WORD("activate", "{0F87369F-A4E5-4CFC-BD3E-73E6154572DD}")));
    CHECK(probe_inside(jail, PROBE_WORD("activate",
                                        "{0F87369F-A4E5-4CFC-BD3E-73E6154572DD}")) != 0);
    probe_close(jail);
}

// What this build says of the null device: the harness does not need it, and people have
// to know.
static void null_device(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    DONE(probe_outside(probe, PROBE_WORD("overwrite", "NUL")));
    printf("nul %lu\n",
           (unsigned long)probe_inside(jail, PROBE_WORD("overwrite", "NUL")));
    probe_close(jail);
}

typedef HDESK(WINAPI *open_desktop)(LPCWSTR, DWORD, BOOL, ACCESS_MASK);
typedef BOOL(WINAPI *close_desktop)(HDESK);

static void desktop(const probe_host *probe) {
    HMODULE library = LoadLibraryExW(L"user32.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    open_desktop open =
        (open_desktop)(void (*)(void))GetProcAddress(library, "OpenDesktopW");
    close_desktop close =
        (close_desktop)(void (*)(void))GetProcAddress(library, "CloseDesktop");
    CHECK(open && close);
    probe_jail *jail = probe_open(probe);
    probe_jail *sibling = probe_open(probe);
    // A program that loads USER32 starts, and is on a desktop of its own.
    PROBE_ALLOWED(jail, "desktop");
    const char *said = strstr(jail->output, "desktop ");
    CHECK(said && strncmp(said, "desktop error", 13) != 0 &&
          strncmp(said, "desktop Default", 15) != 0);
    char name[PROBE_TEXT] = "";
    CHECK(sscanf(said, "desktop %1000s", name) == 1);
    PROBE_ALLOWED(jail, "enter-desktop", name, "0x81");
    EQUAL(probe_inside(jail, PROBE_WORD("enter-desktop", name, "0x1FF")),
          ERROR_ACCESS_DENIED);
    PROBE_ALLOWED(sibling, "desktop");
    said = strstr(sibling->output, "desktop ");
    char other[PROBE_TEXT] = "";
    CHECK(said && sscanf(said, "desktop %1000s", other) == 1 && strcmp(name, other) != 0);
    CHECK(probe_inside(jail, PROBE_WORD("enter-desktop", other, "0x81")) != 0);
    printf("default %lu\n", (unsigned long)probe_inside(
                                jail, PROBE_WORD("enter-desktop", "Default", "0x81")));
    wchar_t wide[PROBE_TEXT];
    CHECK(MultiByteToWideChar(CP_UTF8, 0, name, -1, wide, PROBE_TEXT) > 0);
    HDESK before = open(wide, 0, FALSE, DESKTOP_READOBJECTS);
    CHECK(before != NULL);
    CHECK(close(before));
    probe_close(sibling);
    probe_close(jail);
    CHECK(!open(wide, 0, FALSE, DESKTOP_READOBJECTS));
}

static void clipboard(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    uint32_t outside = probe_outside(probe, PROBE_WORD("clipboard"));
    uint32_t inside = probe_inside(jail, PROBE_WORD("clipboard"));
    printf("clipboard %lu %lu\n", (unsigned long)outside, (unsigned long)inside);
    CHECK(inside != 0);
    probe_close(jail);
}

const probe_entry probe_machine[] = {
    {"network", network},   {"local-sockets", local_sockets},
    {"services", services}, {"null-device", null_device},
    {"desktop", desktop},   {"clipboard", clipboard},
    {NULL, NULL},
};
