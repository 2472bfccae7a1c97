// Descriptors, SIDs, tokens and profiles of the table.

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "windows_win32.h"

uint32_t vj_win32_security_open(const vj_windows_os *os, const uint16_t *sddl,
                                vj_windows_security *security) {
    (void)os;
    *security = NULL;
    vj_windows_security made = calloc(1, sizeof *made);
    if (!made) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    if (!ConvertStringSecurityDescriptorToSecurityDescriptorW(sddl, SDDL_REVISION_1,
                                                              &made->descriptor, NULL)) {
        uint32_t code = vj_win32_error();
        free(made);
        return code;
    }
    made->attributes =
        (SECURITY_ATTRIBUTES){sizeof made->attributes, made->descriptor, FALSE};
    *security = made;
    return 0;
}

uint32_t vj_win32_security_close(const vj_windows_os *os, vj_windows_security security) {
    (void)os;
    LocalFree(security->descriptor);
    free(security);
    return 0;
}

static bool same_entry(void *actual, const void *expected, GENERIC_MAPPING mapping) {
    const ACE_HEADER *header = expected;
    if (((const ACE_HEADER *)actual)->AceSize != header->AceSize) return false;
    // Entries of each kind that a jail asks for begin with the header and the rights.
    ACCESS_ALLOWED_ACE left;
    ACCESS_ALLOWED_ACE right;
    if (header->AceSize < sizeof right) return false;
    memcpy(&left, actual, sizeof left);
    memcpy(&right, expected, sizeof right);
    MapGenericMask(&right.Mask, &mapping);
    const size_t skip = offsetof(ACCESS_ALLOWED_ACE, SidStart);
    return !memcmp(&left, &right, skip) &&
           !memcmp((const char *)actual + skip, (const char *)expected + skip,
                   header->AceSize - skip);
}

static bool same_acl(PACL actual, PACL expected, const GENERIC_MAPPING *mapping) {
    if (!actual || !expected) return actual == expected;
    if (actual->AceCount != expected->AceCount) return false;
    for (DWORD i = 0; i < expected->AceCount; i++) {
        void *left = NULL;
        void *right = NULL;
        if (!GetAce(actual, i, &left) || !GetAce(expected, i, &right)) return false;
        if (!same_entry(left, right, *mapping)) return false;
    }
    return true;
}

static bool same_label(PSECURITY_DESCRIPTOR actual, PSECURITY_DESCRIPTOR expected,
                       const GENERIC_MAPPING *mapping) {
    BOOL wanted = FALSE;
    BOOL there = FALSE;
    BOOL defaulted = FALSE;
    PACL left = NULL;
    PACL right = NULL;
    if (!GetSecurityDescriptorSacl(expected, &wanted, &right, &defaulted)) return false;
    if (!GetSecurityDescriptorSacl(actual, &there, &left, &defaulted)) return false;
    // One label more than was asked for is another descriptor.
    if (!wanted) return !there || !left || !left->AceCount;
    return there && same_acl(left, right, mapping);
}

bool vj_win32_same_descriptor(PSECURITY_DESCRIPTOR actual, PSECURITY_DESCRIPTOR expected,
                              const GENERIC_MAPPING *mapping) {
    PSID owner = NULL;
    PSID wanted_owner = NULL;
    BOOL defaulted = FALSE;
    if (!GetSecurityDescriptorOwner(expected, &wanted_owner, &defaulted) ||
        !GetSecurityDescriptorOwner(actual, &owner, &defaulted))
        return false;
    if (wanted_owner && (!owner || !EqualSid(owner, wanted_owner))) return false;
    SECURITY_DESCRIPTOR_CONTROL control = 0;
    SECURITY_DESCRIPTOR_CONTROL wanted_control = 0;
    DWORD revision = 0;
    if (!GetSecurityDescriptorControl(actual, &control, &revision) ||
        !GetSecurityDescriptorControl(expected, &wanted_control, &revision))
        return false;
    if ((control ^ wanted_control) & SE_DACL_PROTECTED) return false;
    BOOL there = FALSE;
    BOOL wanted = FALSE;
    PACL dacl = NULL;
    PACL wanted_dacl = NULL;
    if (!GetSecurityDescriptorDacl(actual, &there, &dacl, &defaulted) ||
        !GetSecurityDescriptorDacl(expected, &wanted, &wanted_dacl, &defaulted))
        return false;
    // No DACL is everything for everybody, and equal to nothing that a jail asks for.
    if (!there || !dacl || !wanted || !wanted_dacl) return false;
    return same_acl(dacl, wanted_dacl, mapping) && same_label(actual, expected, mapping);
}

uint32_t vj_win32_security_equal(const vj_windows_os *os, vj_windows_handle file,
                                 vj_windows_security security, bool *equal) {
    (void)os;
    static const GENERIC_MAPPING mapping = {FILE_GENERIC_READ, FILE_GENERIC_WRITE,
                                            FILE_GENERIC_EXECUTE, FILE_ALL_ACCESS};
    *equal = false;
    PSECURITY_DESCRIPTOR actual = NULL;
    DWORD code = GetSecurityInfo(vj_win32_handle(file), SE_FILE_OBJECT,
                                 OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION |
                                     LABEL_SECURITY_INFORMATION,
                                 NULL, NULL, NULL, NULL, &actual);
    if (code) return code;
    *equal = vj_win32_same_descriptor(actual, security->descriptor, &mapping);
    LocalFree(actual);
    return 0;
}

uint32_t vj_win32_sid_text(PSID sid, uint16_t *text, uint32_t capacity) {
    LPWSTR whole = NULL;
    if (!ConvertSidToStringSidW(sid, &whole)) return vj_win32_error();
    uint32_t code = vj_win32_copy(text, capacity, whole);
    LocalFree(whole);
    return code;
}

// ---- profiles of AppContainers

typedef HRESULT(WINAPI *create_profile)(PCWSTR, PCWSTR, PCWSTR, PSID_AND_ATTRIBUTES,
                                        DWORD, PSID *);
typedef HRESULT(WINAPI *delete_profile)(PCWSTR);

uint32_t vj_win32_profile_create(const vj_windows_os *os, const uint16_t *name,
                                 uint16_t *sid, uint32_t capacity) {
    (void)os;
    create_profile call = (create_profile)(void (*)(void))vj_win32_late(
        L"userenv.dll", "CreateAppContainerProfile");
    if (!call) return VJ_WINDOWS_ERROR_NOT_SUPPORTED;
    PSID made = NULL;
    uint32_t code = vj_win32_of_result(call(name, name, name, NULL, 0, &made));
    if (code) return code;
    code = vj_win32_sid_text(made, sid, capacity);
    FreeSid(made);
    return code;
}

uint32_t vj_win32_profile_delete(const vj_windows_os *os, const uint16_t *name) {
    (void)os;
    delete_profile call = (delete_profile)(void (*)(void))vj_win32_late(
        L"userenv.dll", "DeleteAppContainerProfile");
    if (!call) return VJ_WINDOWS_ERROR_NOT_SUPPORTED;
    uint32_t code = vj_win32_of_result(call(name));
    bool gone = code == VJ_WINDOWS_ERROR_FILE_NOT_FOUND ||
                code == VJ_WINDOWS_ERROR_PATH_NOT_FOUND ||
                code == VJ_WINDOWS_ERROR_NOT_FOUND;
    return gone ? 0 : code;
}

// ---- tokens

uint32_t vj_win32_token(HANDLE token, int which, void **answer) {
    *answer = NULL;
    DWORD size = 0;
    GetTokenInformation(token, (TOKEN_INFORMATION_CLASS)which, NULL, 0, &size);
    if (!size) return vj_win32_error();
    void *made = calloc(1, size);
    if (!made) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    if (!GetTokenInformation(token, (TOKEN_INFORMATION_CLASS)which, made, size, &size)) {
        uint32_t code = vj_win32_error();
        free(made);
        return code;
    }
    *answer = made;
    return 0;
}

static uint32_t flag_of(HANDLE token, int which, bool *flag) {
    DWORD value = 0;
    DWORD size = 0;
    // The header of some compilers ends before the newest number.
    // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange)
    TOKEN_INFORMATION_CLASS asked_for = (TOKEN_INFORMATION_CLASS)which;
    // headers
    if (!GetTokenInformation(token, asked_for, &value, sizeof value, &size))
        return vj_win32_error();
    *flag = value != 0;
    return 0;
}

// Without the flag in the token (before Windows 10 1703) two rights tell the kinds apart:
// one that ALL APPLICATION PACKAGES have, one of the restricted ones. The less privileged
// have the latter alone.
static uint32_t probe_less_privileged(HANDLE token, bool *less_privileged) {
    static const wchar_t sddl[] =
        L"O:SYG:SYD:(A;;0x3;;;WD)(A;;0x1;;;S-1-15-2-1)(A;;0x2;;;S-1-15-2-2)";
    PSECURITY_DESCRIPTOR descriptor = NULL;
    HANDLE copy = NULL;
    GENERIC_MAPPING mapping = {1, 2, 0, 3};
    PRIVILEGE_SET privileges;
    DWORD size = sizeof privileges;
    DWORD granted = 0;
    BOOL allowed = FALSE;
    if (!ConvertStringSecurityDescriptorToSecurityDescriptorW(sddl, SDDL_REVISION_1,
                                                              &descriptor, NULL))
        return vj_win32_error();
    uint32_t code = 0;
    if (!DuplicateToken(token, SecurityIdentification, &copy) ||
        !AccessCheck(descriptor, copy, MAXIMUM_ALLOWED, &mapping, &privileges, &size,
                     &granted, &allowed))
        code = vj_win32_error();
    *less_privileged = !code && allowed && granted == 2;
    if (copy) CloseHandle(copy);
    LocalFree(descriptor);
    return code;
}

static uint32_t read_package(HANDLE handle, vj_windows_token *token) {
    void *answer = NULL;
    uint32_t code = vj_win32_token(handle, VJ_TOKEN_APP_CONTAINER_SID, &answer);
    // TOKEN_APPCONTAINER_INFORMATION is this one pointer.
    PSID sid = answer ? *(PSID *)answer : NULL;
    if (!code && sid) code = vj_win32_sid_text(sid, token->package, VJ_WINDOWS_SID_MAX);
    free(answer);
    return code;
}

static uint32_t read_capabilities(HANDLE handle, vj_windows_token *token) {
    void *answer = NULL;
    uint32_t code = vj_win32_token(handle, VJ_TOKEN_CAPABILITIES, &answer);
    if (code) return code;
    const TOKEN_GROUPS *groups = answer;
    token->capability_count = groups->GroupCount;
    for (DWORD i = 0; i < groups->GroupCount && i < VJ_WINDOWS_CAPABILITIES_READ && !code;
         i++)
        code = vj_win32_sid_text(groups->Groups[i].Sid, token->capabilities[i],
                                 VJ_WINDOWS_SID_MAX);
    free(answer);
    return code;
}

static uint32_t read_integrity(HANDLE handle, vj_windows_token *token) {
    void *answer = NULL;
    uint32_t code = vj_win32_token(handle, TokenIntegrityLevel, &answer);
    if (code) return code;
    PSID label = ((const TOKEN_MANDATORY_LABEL *)answer)->Label.Sid;
    UCHAR count = *GetSidSubAuthorityCount(label);
    if (count) token->integrity = *GetSidSubAuthority(label, (DWORD)count - 1);
    free(answer);
    return 0;
}

uint32_t vj_win32_process_token(const vj_windows_os *os, vj_windows_handle process,
                                vj_windows_token *token) {
    (void)os;
    *token = (vj_windows_token){0};
    vj_windows_token read = {0};
    HANDLE handle = NULL;
    if (!OpenProcessToken(vj_win32_handle(process), TOKEN_QUERY | TOKEN_DUPLICATE,
                          &handle))
        return vj_win32_error();
    uint32_t code = flag_of(handle, VJ_TOKEN_IS_APP_CONTAINER, &read.app_container);
    if (!code) {
        uint32_t unknown =
            flag_of(handle, VJ_TOKEN_IS_LESS_PRIVILEGED, &read.less_privileged);
        if (unknown) code = probe_less_privileged(handle, &read.less_privileged);
    }
    if (!code) code = read_package(handle, &read);
    if (!code) code = read_capabilities(handle, &read);
    if (!code) code = read_integrity(handle, &read);
    CloseHandle(handle);
    if (!code) *token = read;
    return code;
}
