// Identities and descriptors on Windows in C, under sanitizers.
//
// sources: native/visjail/windows_identity.c native/visjail/sha256.c
//
// W4: there is one capability, and none can be asked for. W13: the descriptors of a
// jail's folders are these, letter by letter, and name nobody but owner, system and
// package. W25, W26: identifiers of packages and capabilities are those that Windows
// derives. W41, W55: a pipe is the host's alone, and of a desktop a guest gets exactly
// 0x81.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sha256.h"
#include "windows_identity.h"

static void expect(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void check_hash(const void *data, size_t size, const char *wanted) {
    uint8_t digest[VJ_SHA256_SIZE];
    char text[2 * VJ_SHA256_SIZE + 1];
    vj_sha256(data, size, digest);
    for (size_t i = 0; i < VJ_SHA256_SIZE; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
    expect(!strcmp(text, wanted), wanted);
}

// The examples that NIST gives for FIPS 180-4.
static void hash(void) {
    check_hash("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_hash("abc", 3,
               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    check_hash(two, sizeof two - 1,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *million = malloc(1000000);
    if (!million) abort();
    memset(million, 'a', 1000000);
    check_hash(million, 1000000,
               "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

static void derive(void) {
    char sid[VJ_WINDOWS_SID_SIZE];
    static const char edge[] = "S-1-15-2-3624051433-2125758914-1423191267-1740899205-"
                               "1073925389-3782572162-737981194";
    expect(!vj_windows_package_sid("microsoft.microsoftedge_8wekyb3d8bbwe", sid) &&
               !strcmp(sid, edge),
           "another package");
    expect(!vj_windows_package_sid("Microsoft.MicrosoftEdge_8wekyb3d8bbwe", sid) &&
               !strcmp(sid, edge),
           "a package's name has a case");
    expect(!vj_windows_capability_sid("registryRead", sid) &&
               !strcmp(sid, "S-1-15-3-1024-1065365936-1281604716-3511738428-1654721687-"
                            "432734479-3232135806-4053264122-3456934681"),
           "another capability");
    expect(vj_windows_package_sid("", sid) == VJ_WINDOWS_EMPTY && !sid[0], "no name");
    expect(vj_windows_package_sid("a b", sid) == VJ_WINDOWS_CHARACTER && !sid[0],
           "a space");
    char name[VJ_WINDOWS_PACKAGE_UNITS_MAX + 2];
    memset(name, 'a', sizeof name);
    name[VJ_WINDOWS_PACKAGE_UNITS_MAX + 1] = 0;
    expect(vj_windows_package_sid(name, sid) == VJ_WINDOWS_TOO_LONG, "65 characters");
    name[VJ_WINDOWS_PACKAGE_UNITS_MAX] = 0;
    expect(vj_windows_package_sid(name, sid) == VJ_WINDOWS_FINE, "64 characters");
    expect(!vj_windows_package_name("vj-0123456789abcdef", name, sizeof name) &&
               !strcmp(name, "visruntime.vj-0123456789abcdef"),
           "another name of a package");
    expect(vj_windows_package_name("vj-0123456789abcdef", name, 8) ==
                   VJ_WINDOWS_TOO_LONG &&
               !name[0],
           "a name that was cut");
}

static void list_capabilities(void) {
    const char *const *names = NULL;
    expect(vj_windows_capabilities(&names) == 1 && !strcmp(names[0], "registryRead"),
           "another list of capabilities");
}

#define OWNER   "S-1-5-21-1-2-3-1001"
#define PACKAGE "S-1-15-2-7"

static void describe(void) {
    static const char *const golden[VJ_WINDOWS_OBJECT_END] = {
        [VJ_WINDOWS_ROOT] =
            "O:" OWNER "D:P(A;;FA;;;SY)(A;;FA;;;" OWNER ")(A;;0x1000a0;;;" PACKAGE ")",
        [VJ_WINDOWS_APP] = "O:" OWNER "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;" OWNER
                           ")(A;OICI;0x1200a9;;;" PACKAGE ")",
        [VJ_WINDOWS_WORK] =
            "O:" OWNER "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;" OWNER ")(A;;0x1201bf;;;" PACKAGE
            ")(A;OICIIO;0x1301bf;;;" PACKAGE ")S:(ML;OICI;NW;;;LW)",
        [VJ_WINDOWS_DESKTOP] = "O:" OWNER "D:P(A;;GA;;;SY)(A;;GA;;;" OWNER
                               ")(A;;0x81;;;" PACKAGE ")S:(ML;;NW;;;LW)",
        [VJ_WINDOWS_PROGRAM] =
            "O:" OWNER "D:P(A;;GA;;;SY)(A;;GA;;;" OWNER ")(A;;0x12ffff;;;" PACKAGE ")",
        [VJ_WINDOWS_PRIVATE] = "O:" OWNER "D:P(A;;GA;;;SY)(A;;GA;;;" OWNER ")",
        [VJ_WINDOWS_RECLAIMED] = "O:" OWNER "D:P(A;;FA;;;SY)(A;;FA;;;" OWNER ")",
    };
    for (int object = 0; object < VJ_WINDOWS_OBJECT_END; object++) {
        char sddl[VJ_WINDOWS_SDDL_SIZE];
        vj_windows_fault fault =
            vj_windows_sddl((vj_windows_object)object, OWNER, PACKAGE, sddl, sizeof sddl);
        expect(!fault && !strcmp(sddl, golden[object]), golden[object]);
        // A descriptor is whole or is none.
        size_t length = strlen(sddl);
        char *small = malloc(length);
        if (!small) abort();
        fault = vj_windows_sddl((vj_windows_object)object, OWNER, PACKAGE, small, length);
        expect(fault == VJ_WINDOWS_TOO_LONG && !small[0], "a descriptor that was cut");
        free(small);
    }
}

// What goes into a descriptor unquoted is digits, so that nobody adds an entry.
static void refuse_other_identifiers(void) {
    static const char *const wrong[] = {"",         "S-1-",   "S-1--1",
                                        "S-1-5-",   "BA",     "S-1-5-21)(A;;GA;;;WD",
                                        "s-1-5-18", "S-1-5-x"};
    char sddl[VJ_WINDOWS_SDDL_SIZE], sid[VJ_WINDOWS_SID_SIZE + 1];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        expect(vj_windows_sddl(VJ_WINDOWS_ROOT, wrong[i], PACKAGE, sddl, sizeof sddl) ==
                       VJ_WINDOWS_NOT_A_SID &&
                   !sddl[0],
               wrong[i]);
        expect(vj_windows_sddl(VJ_WINDOWS_ROOT, OWNER, wrong[i], sddl, sizeof sddl) ==
                   VJ_WINDOWS_NOT_A_SID,
               wrong[i]);
    }
    memset(sid, '1', sizeof sid);
    memcpy(sid, "S-1-", 4);
    sid[VJ_WINDOWS_SID_SIZE] = 0;
    expect(vj_windows_sddl(VJ_WINDOWS_ROOT, sid, PACKAGE, sddl, sizeof sddl) ==
               VJ_WINDOWS_NOT_A_SID,
           "184 characters");
    // The longest that are taken fit.
    sid[VJ_WINDOWS_SID_SIZE - 1] = 0;
    expect(!vj_windows_sddl(VJ_WINDOWS_WORK, sid, sid, sddl, sizeof sddl),
           "the room is too small");
}

int main(void) {
    hash();
    derive();
    list_capabilities();
    describe();
    refuse_other_identifiers();
    return 0;
}
