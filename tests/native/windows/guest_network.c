// Acts on the network and on sockets in the file system.

#include "guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <ws2tcpip.h>

// As in afunix.h of the Windows SDK, which not every compiler has.
typedef struct {
    unsigned short family;
    char path[108];
} local_address;

static DWORD socket_error(void) {
    int error = WSAGetLastError();
    return error ? (DWORD)error : GUEST_NOTHING;
}

static BOOL begin(void) {
    WSADATA data;
    return WSAStartup(MAKEWORD(2, 2), &data) == 0;
}

static DWORD send_byte(SOCKET connection) {
    return send(connection, "x", 1, 0) == 1 ? 0 : socket_error();
}

// `connect tcp|udp ADDRESS PORT`: the first call that is refused says with what.
static DWORD connect_to(guest_words words) {
    if (!begin()) return socket_error();
    BOOL stream = !wcscmp(words.words[0], L"tcp");
    char host[64];
    char port[16];
    WideCharToMultiByte(CP_UTF8, 0, words.words[1], -1, host, sizeof host, NULL, NULL);
    WideCharToMultiByte(CP_UTF8, 0, words.words[2], -1, port, sizeof port, NULL, NULL);
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = stream ? SOCK_STREAM : SOCK_DGRAM};
    struct addrinfo *address = NULL;
    int failed = getaddrinfo(host, port, &hints, &address);
    if (failed) return (DWORD)failed;
    SOCKET connection = socket(address->ai_family, address->ai_socktype, 0);
    DWORD code = 0;
    if (connection == INVALID_SOCKET ||
        connect(connection, address->ai_addr, (int)address->ai_addrlen))
        code = socket_error();
    else code = send_byte(connection);
    freeaddrinfo(address);
    if (connection != INVALID_SOCKET) closesocket(connection);
    return code;
}

static SOCKET local_socket(const wchar_t *path, local_address *address) {
    memset(address, 0, sizeof *address);
    address->family = AF_UNIX;
    if (!WideCharToMultiByte(CP_UTF8, 0, path, -1, address->path, sizeof address->path,
                             NULL, NULL)) {
        WSASetLastError(WSAENAMETOOLONG);
        return INVALID_SOCKET;
    }
    // "@name" stands for an abstract name, which begins with NUL.
    if (address->path[0] == '@') address->path[0] = 0;
    return socket(AF_UNIX, SOCK_STREAM, 0);
}

static DWORD bind_local(guest_words words) {
    if (!begin()) return socket_error();
    local_address address;
    SOCKET listener = local_socket(words.words[0], &address);
    if (listener == INVALID_SOCKET) return socket_error();
    DWORD code = 0;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) ||
        listen(listener, 1))
        code = socket_error();
    closesocket(listener);
    return code;
}

static DWORD connect_local(guest_words words) {
    if (!begin()) return socket_error();
    local_address address;
    SOCKET connection = local_socket(words.words[0], &address);
    if (connection == INVALID_SOCKET) return socket_error();
    DWORD code = connect(connection, (struct sockaddr *)&address, sizeof address)
                     ? socket_error()
                     : send_byte(connection);
    closesocket(connection);
    return code;
}

// Both ends in one process, in a folder of the guest's own.
static DWORD talk_local(guest_words words) {
    if (!begin()) return socket_error();
    local_address address;
    SOCKET listener = local_socket(words.words[0], &address);
    if (listener == INVALID_SOCKET) return socket_error();
    SOCKET connection = socket(AF_UNIX, SOCK_STREAM, 0);
    DWORD code = 0;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) ||
        listen(listener, 1) ||
        connect(connection, (struct sockaddr *)&address, sizeof address))
        code = socket_error();
    SOCKET accepted = code ? INVALID_SOCKET : accept(listener, NULL, NULL);
    char byte = 0;
    if (!code) code = send_byte(connection);
    if (!code && recv(accepted, &byte, 1, 0) != 1) code = socket_error();
    if (accepted != INVALID_SOCKET) closesocket(accepted);
    closesocket(connection);
    closesocket(listener);
    return code ? code : byte == 'x' ? 0 : GUEST_NOTHING;
}

static DWORD open_pipe(guest_words words) {
    HANDLE pipe =
        CreateFileW(words.words[0], GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING,
                    SECURITY_SQOS_PRESENT | SECURITY_ANONYMOUS, NULL);
    if (pipe == INVALID_HANDLE_VALUE) return guest_error();
    CloseHandle(pipe);
    return 0;
}

const guest_entry guest_network[] = {
    {L"connect", 3, connect_to},          {L"bind-local", 1, bind_local},
    {L"connect-local", 1, connect_local}, {L"talk-local", 1, talk_local},
    {L"open-pipe", 1, open_pipe},         {NULL, 0, NULL},
};
