// WindowsJail over a table of its own: what each call does, and what it asks of Windows.
//
// sources: native/visjail/identifiers.c native/visjail/streams.c
// sources: native/visjail/posix_monitor.c native/visjail/windows_core.c
// sources: native/visjail/windows_context.c native/visjail/windows_close.c
// sources: native/visjail/windows_stage.c native/visjail/windows_spawn.c
// sources: native/visjail/windows_process.c native/visjail/windows_console.c
// sources: native/visjail/windows_streams.c native/visjail/windows_remove.c
// sources: native/visjail/windows_marker.c native/visjail/windows_stale.c
// sources: native/visjail/windows_text.c native/visjail/windows_command.c
// sources: native/visjail/windows_names.c native/visjail/windows_identity.c
// sources: native/visjail/sha256.c tests/native/windows_case.c
// sources: tests/native/fake_windows_os.c tests/native/fake_windows_files.c
// sources: tests/native/fake_windows_streams.c
// sources: tests/native/fake_windows_guests.c tests/native/fake_windows_control.c
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "windows_case.h"
#include "windows_core.h"

// ---- create

// W9: sizes and versions; W67: nothing is touched on a Windows that lacks something.
static void requests_are_checked(void) {
    case_begin();
    vj_windows_context_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    vj_windows_create_options options = {.size = sizeof options,
                                         .version = VJ_WINDOWS_VERSION,
                                         .parent = text_of("C:\\jails")};
    vj_windows_id context = 0;
    options.version = 2;
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "another version");
    options.version = VJ_WINDOWS_VERSION;
    options.size++;
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "another size");
    options.size--;
    vj_windows_error other = {.size = 4, .version = VJ_WINDOWS_VERSION};
    check_status(vj_windows_create(&options, &context, &info, &other), VJ_WINDOWS_REFUSED,
                 "an error record of another size");
    options.flags = 1u << 31;
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "an unknown flag");
    options.flags = 0;
    options.parent = (vj_windows_text){"C:\\jails\0x", 10};
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "a NUL in a text");
    options.parent = text_of("C:\\jails\xed\xa0\x80");
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "half a surrogate pair");
    options.parent = text_of("jails");
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "a relative parent");
    options.parent = text_of("C:\\sources\\guest.exe");
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "a parent that is a file");
    check(fake_count("directory_create") == 0 && fake_count("profile_create") == 0,
          "and nothing was made");
    fake_lack(VJ_WINDOWS_NEEDS_LPAC | VJ_WINDOWS_NEEDS_DESKTOP);
    fake_forget();
    options.parent = text_of("C:\\jails");
    vj_windows_error *error = case_error();
    check_status(vj_windows_create(&options, &context, &info, error),
                 VJ_WINDOWS_UNAVAILABLE, "a Windows that lacks something");
    check(strstr(error->text, "LPAC") && strstr(error->text, "private desktops") &&
              !strstr(error->text, "pseudo"),
          "names what is missing, and that alone");
    check(fake_calls() == 1 && !strcmp(fake_call(1), "features"),
          "and asks nothing else");
    uint32_t build = 0;
    check_status(vj_windows_probe(&build, case_error()), VJ_WINDOWS_UNAVAILABLE, "probe");
    check(build == 26100 && !context, "with the build");
    case_end();
}

// W11: a root of 64 random bits, made atomically, and no other source of them. W12: the
// bound of sun_path, before anything is made. W13: descriptors at creation. W24: a
// marker.
static void a_context_is_made(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_context_info info;
    char text[512];
    check_status(create(&context, &info, 0), VJ_WINDOWS_OK, "create");
    const char *name = strrchr(info.root, '\\') + 1;
    check(strlen(name) == 19 && !strncmp(name, "vj-", 3) &&
              strspn(name + 3, "0123456789abcdef") == 16,
          "vj- and 16 digits");
    check(!strncmp(info.package_sid, "S-1-15-2-", 9) && fake_has_profile(info.package),
          "a profile");
    check(strstr(info.package, name) != NULL, "whose name is unique with the root's");
    char folders[3][160];
    snprintf(folders[0], sizeof folders[0], "temp/Packages/%s", info.package);
    snprintf(folders[1], sizeof folders[1], "temp/Packages/%s/AC", info.package);
    snprintf(folders[2], sizeof folders[2], "temp/Packages/%s/AC/Temp", info.package);
    // The last four are what Windows names to the guest, and does not make.
    const char *const places[] = {
        "", "app", "work", "temp", "temp/Packages", folders[0], folders[1], folders[2]};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *descriptor = fake_descriptor(below_jails(&info, places[i]));
        check(descriptor && strstr(descriptor, "D:P(") &&
                  strstr(descriptor, info.package_sid) && strstr(descriptor, FAKE_USER),
              "a directory is born with its descriptor");
        check(!strstr(descriptor, ";;;WD)") && !strstr(descriptor, ";;;BU)") &&
                  !strstr(descriptor, ";;;AC)") && !strstr(descriptor, "S-1-15-2-1)") &&
                  !strstr(descriptor, "S-1-15-2-2)"),
              "and nobody else is in it");
    }
    const char *marker = fake_descriptor(below_jails(&info, VJ_WINDOWS_MARKER_NAME));
    check(marker && !strstr(marker, info.package_sid), "a marker that no guest reads");
    case_read(below_jails(&info, VJ_WINDOWS_MARKER_NAME), text, sizeof text);
    vj_windows_marker read;
    check(vj_windows_marker_read(text, strlen(text), &read) &&
              !strcmp(read.nonce, name) && !strcmp(read.package, info.package) &&
              read.pid == FAKE_PID && read.created == FAKE_CREATED && !read.flags,
          "that says whose it is");
    case_write(below_jails(&info, "work/result"), "of the guest");
    case_write(below_jails(&info, "temp/scrap"), "of the guest");
    close_context(context);
    // W23: what was worked stays, and the rest goes.
    check(!strcmp(case_read(below_jails(&info, "work/result"), text, sizeof text),
                  "of the guest"),
          "work stays");
    check(!case_exists(below_jails(&info, "temp")) &&
              !case_exists(below_jails(&info, "app")) &&
              !case_exists(below_jails(&info, VJ_WINDOWS_MARKER_NAME)) &&
              !fake_has_profile(info.package),
          "the rest does not");
    check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_STALE,
                 "a number that was closed");
    case_end();
}

static void everything_goes_if_it_was_asked_for(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_context_info info;
    check_status(create(&context, &info, VJ_WINDOWS_REMOVE_WORK), VJ_WINDOWS_OK,
                 "create");
    case_write(below_jails(&info, "work/result"), "of the guest");
    mkdir(case_path(below_jails(&info, "temp/a")), 0700);
    mkdir(case_path(below_jails(&info, "temp/a/b")), 0700);
    case_write(below_jails(&info, "temp/a/b/c"), "deep");
    // A link is removed and not followed, as a junction of a guest must be.
    check(!symlink(case_path("sources"), case_path(below_jails(&info, "temp/a/link"))),
          "a link");
    close_context(context);
    check(!case_files() && case_exists("sources/lib/one.py"), "but no source of it");
    case_end();
}

static void a_root_that_exists_is_never_taken(void) {
    case_begin();
    vj_windows_id first = 0, second = 0;
    fake_lie(FAKE_SAME_RANDOM);
    check_status(create(&first, NULL, 0), VJ_WINDOWS_OK, "create");
    fake_forget();
    vj_windows_status status = create(&second, NULL, 0);
    check_status(status, VJ_WINDOWS_SYSTEM, "the same name again");
    check(!second && fake_count("fake_random") == 8, "is tried a few times, and no more");
    fake_lie(0);
    check_status(create(&second, NULL, 0), VJ_WINDOWS_OK, "and another name works");
    close_context(first);
    close_context(second);
    // No clock stands in for the system's random numbers.
    fake_fail_named("fake_random", FAKE_INJECTED);
    check_status(create(&first, NULL, 0), VJ_WINDOWS_SYSTEM, "no random numbers");
    fake_fail_named(NULL, 0);
    check(!first && fake_count("directory_create") && !fake_left(true), "no context");
    case_end();
}

static void a_path_must_fit_a_socket(void) {
    case_begin();
    // "\vj-", 16 digits, "\work\visruntime.sock" and NUL follow the parent.
    char path[128] = "C:\\jails\\";
    size_t longest = 0;
    for (size_t length = 40; length < 90; length++) {
        memset(path + 9, 'n', length);
        path[9 + length] = 0;
        char host[128];
        snprintf(host, sizeof host, "jails/%s", path + 9);
        mkdir(case_path(host), 0700);
        vj_windows_id context = 0;
        vj_windows_context_info info = {.size = sizeof info, .version = 1};
        const vj_windows_create_options options = {
            .size = sizeof options, .version = 1, .parent = text_of(path)};
        vj_windows_error *error = case_error();
        fake_forget();
        vj_windows_status status = vj_windows_create(&options, &context, &info, error);
        bool fits = vj_windows_socket_bytes(path) <= VJ_WINDOWS_SOCKET_BYTES_MAX;
        check_status(status, fits ? VJ_WINDOWS_OK : VJ_WINDOWS_REFUSED, path);
        if (fits) {
            longest = 9 + length;
            close_context(context);
        } else {
            char needed[8];
            snprintf(needed, sizeof needed, "%zu", vj_windows_socket_bytes(path));
            check(strstr(error->text, needed) && !fake_count("directory_create"),
                  "the length is told, and nothing was made");
        }
    }
    // 107 bytes and their NUL.
    check(longest + strlen("\\vj-0123456789abcdef\\work\\visruntime.sock") == 107,
          "the bound itself fits");
    case_end();
}

static void what_windows_answers_is_compared(void) {
    case_begin();
    static const uint32_t lies[] = {FAKE_OTHER_DESCRIPTOR, FAKE_OTHER_PROFILE};
    for (size_t i = 0; i < 2; i++) {
        vj_windows_id context = 0;
        fake_lie(lies[i]);
        check_status(create(&context, NULL, 0), VJ_WINDOWS_MISMATCH, "another answer");
        check(!context && !fake_left(true) && !case_files(), "leaves nothing");
    }
    fake_lie(0);
    case_end();
}

// ---- stage

// W15: copies; W17 and W18: what is refused; W19: bounds, and all or nothing.
static void sources_are_copied(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_context_info info;
    char text[64];
    check_status(create(&context, &info, 0), VJ_WINDOWS_OK, "create");
    check(!link(case_path("sources/guest.exe"), case_path("sources/second-name")),
          "link");
    check_status(stage(context, "C:\\sources\\lib", "Lib"), VJ_WINDOWS_OK, "directory");
    check_status(stage(context, "C:/sources/guest.exe", "bin/guest.exe"), VJ_WINDOWS_OK,
                 "file");
    check(!strcmp(case_read(below_jails(&info, "app/Lib/deep/two.py"), text, sizeof text),
                  "two = 2"),
          "what is deep");
    struct stat source, copy;
    check(!stat(case_path("sources/guest.exe"), &source) &&
              !stat(case_path(below_jails(&info, "app/bin/guest.exe")), &copy) &&
              source.st_ino != copy.st_ino && copy.st_nlink == 1,
          "a copy, and no second name");
    case_write("sources/guest.exe", "another program");
    check(!strcmp(case_read(below_jails(&info, "app/bin/guest.exe"), text, sizeof text),
                  "a program"),
          "that does not change with its source");
    const char *descriptor = fake_descriptor(below_jails(&info, "app/Lib/one.py"));
    check(descriptor && strstr(descriptor, "0x1200a9"), "which the guest may only read");
    close_context(context);
    case_end();
}

static void check_refused(vj_windows_id context, const char *source,
                          const char *destination) {
    unsigned before = case_files();
    vj_windows_status status = stage(context, source, destination);
    check_status(status, VJ_WINDOWS_REFUSED, destination);
    check(case_files() == before, "and nothing is staged");
    vj_windows_context_state state;
    vj_windows_state_of(context, &state, case_error());
    check(state == VJ_WINDOWS_CONTEXT_OPEN, "the context goes on");
}

static void what_cannot_be_staged_is_refused(void) {
    case_begin();
    vj_windows_id context = 0;
    check_status(create(&context, NULL, 0), VJ_WINDOWS_OK, "create");
    static const char *const destinations[] = {
        "",        "../x",   "a/../b",   "C:\\x", "C:x",  "\\x",   "/x",   "a\\b",
        "a:b",     "nul",    "COM1.txt", "a./b",  "a ",   "a\x01", "a?",   "a//b",
        "conout$", "a*.txt", "a/",       ".",     "LPT9", "a|b",   "a\"b", "A~1.TXT"};
    for (size_t i = 0; i < sizeof destinations / sizeof *destinations; i++) {
        check_refused(context, "C:\\sources\\guest.exe", destinations[i]);
    }
    static const char *const sources[] = {"sources\\guest.exe",     "\\\\host\\share\\x",
                                          "\\\\?\\C:\\sources",     "\\\\.\\C:\\sources",
                                          "C:\\sources\\..\\jails", "C:\\sources:stream"};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        check_refused(context, sources[i], "x");
    }
    check(!symlink("guest.exe", case_path("sources/link")), "a link");
    check_refused(context, "C:\\sources\\link", "x");
    check_refused(context, "C:\\sources", "x");
    unlink(case_path("sources/link"));
    check(!mkfifo(case_path("sources/fifo"), 0600), "a FIFO");
    check_refused(context, "C:\\sources\\fifo", "x");
    check_refused(context, "C:\\sources", "x");
    unlink(case_path("sources/fifo"));
    // Two names that Windows takes for one, also of two calls.
    check_status(stage(context, "C:\\sources\\lib", "Lib"), VJ_WINDOWS_OK, "stage");
    check_refused(context, "C:\\sources\\guest.exe", "lib");
    check_refused(context, "C:\\sources\\guest.exe", "LIB/other");
    check_refused(context, "C:\\sources\\lib", "Lib");
    check_status(stage(context, "C:\\sources\\missing", "x"), VJ_WINDOWS_SYSTEM,
                 "missing");
    close_context(context);
    case_end();
}

static void staging_is_bounded(void) {
    case_begin();
    vj_windows_id context = 0;
    check_status(create(&context, NULL, 0), VJ_WINDOWS_OK, "create");
    unsigned before = case_files();
    // Below `sources`: 2 directories, 3 files, 23 bytes, and `sources` itself.
    const vj_windows_source sources[] = {{text_of("C:\\sources"), text_of("")}};
    static const struct {
        uint32_t depth;
        uint64_t files, bytes, names;
        vj_windows_status status;
    } bounds[] = {
        {3, 6, 23, 0, VJ_WINDOWS_OK},       {2, 6, 23, 0, VJ_WINDOWS_REFUSED},
        {3, 5, 23, 0, VJ_WINDOWS_REFUSED},  {3, 6, 22, 0, VJ_WINDOWS_REFUSED},
        {3, 6, 23, 64, VJ_WINDOWS_REFUSED},
    };
    for (size_t i = sizeof bounds / sizeof *bounds; i-- > 0;) {
        const vj_windows_stage_request request = {.size = sizeof request,
                                                  .version = 1,
                                                  .sources = sources,
                                                  .source_count = 1,
                                                  .most_depth = bounds[i].depth,
                                                  .most_files = bounds[i].files,
                                                  .most_bytes = bounds[i].bytes,
                                                  .most_name_bytes = bounds[i].names};
        vj_windows_stage_info info = {.size = sizeof info, .version = 1};
        vj_windows_error *error = case_error();
        check_status(vj_windows_stage(context, &request, &info, error), bounds[i].status,
                     "bounds");
        if (bounds[i].status != VJ_WINDOWS_OK) {
            check(case_files() == before && error->index == 0, "nothing is staged");
        } else {
            check(info.files == 3 && info.directories == 3 && info.bytes == 23,
                  "counted");
        }
    }
    close_context(context);
    case_end();
}

static uint64_t time_of_change(const char *below) {
    struct stat status;
    check(!lstat(case_path(below), &status), below);
    return (uint64_t)status.st_ctim.tv_sec * 1000000000u +
           (uint64_t)status.st_ctim.tv_nsec;
}

// W14: only what is made has descriptors; of sources nothing is changed, not even when
// copying them fails. W31: and nothing is made without one (the table dies of that).
static void nothing_of_the_host_is_changed(void) {
    case_begin();
    static const char *const sources[] = {"sources", "sources/lib", "sources/lib/deep",
                                          "sources/lib/one.py", "sources/guest.exe"};
    uint64_t before[5];
    vj_windows_id context = 0;
    for (size_t i = 0; i < 5; i++) before[i] = time_of_change(sources[i]);
    uint64_t parent = time_of_change("");
    check_status(create(&context, NULL, 0), VJ_WINDOWS_OK, "create");
    check_status(stage(context, "C:\\sources", "all"), VJ_WINDOWS_OK, "stage");
    check_status(stage(context, "C:\\sources\\lib", "ALL"), VJ_WINDOWS_REFUSED, "again");
    fake_fail_named("file_read", FAKE_INJECTED);
    check_status(stage(context, "C:\\sources", "more"), VJ_WINDOWS_SYSTEM, "a failure");
    fake_fail_named(NULL, 0);
    check(!fake_descriptors_outside("jails"), "descriptors of what was made");
    close_context(context);
    for (size_t i = 0; i < 5; i++) {
        check(time_of_change(sources[i]) == before[i], sources[i]);
    }
    check(time_of_change("") == parent, "nor of what is above");
    case_end();
}

// ---- states

// W52: each state takes what it takes.
static void states_follow_each_other(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_spawn_info info;
    check_status(create(&context, NULL, 0), VJ_WINDOWS_OK, "create");
    check_status(spawn(context, "exit 0", 0, &info), VJ_WINDOWS_STATE, "not sealed");
    check_status(vj_windows_seal(context, case_error()), VJ_WINDOWS_OK, "seal");
    check_status(vj_windows_seal(context, case_error()), VJ_WINDOWS_STATE, "sealed");
    check_status(stage(context, "C:\\sources\\lib", "Lib"), VJ_WINDOWS_STATE, "too late");
    fake_fail_named("profile_delete", FAKE_INJECTED);
    vj_windows_error *error = case_error();
    check_status(vj_windows_close(context, error), VJ_WINDOWS_SYSTEM,
                 "a close that fails");
    check(error->os_error == FAKE_INJECTED && !strcmp(error->step, "profile"),
          "says how");
    vj_windows_context_state state;
    check_status(vj_windows_state_of(context, &state, case_error()), VJ_WINDOWS_OK, "");
    check(state == VJ_WINDOWS_CONTEXT_POISONED, "leaves a poisoned context");
    check_status(spawn(context, "exit 0", 0, &info), VJ_WINDOWS_POISONED, "that runs");
    check_status(stage(context, "C:\\sources\\lib", "L"), VJ_WINDOWS_POISONED, "takes");
    check_status(vj_windows_seal(context, case_error()), VJ_WINDOWS_POISONED, "nothing");
    fake_fail_named(NULL, 0);
    close_context(context);
    case_end();
}

// ---- what is stale

// W24: by its marker and its nonce, and only when its host is dead.
static void only_the_dead_are_cleaned_up(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_context_info info;
    uint64_t removed = 9;
    const vj_windows_text parent = text_of("C:\\jails");
    char name[64], marker[512];
    // A live context: its marker is open.
    check_status(create(&context, &info, 0), VJ_WINDOWS_OK, "create");
    check_status(vj_windows_remove_stale(&parent, &removed, case_error()), VJ_WINDOWS_OK,
                 "stale");
    check(!removed && case_exists(below_jails(&info, "app")), "the living stay");
    close_context(context);
    // By hand: what a host leaves that was killed.
    static const struct {
        const char *root, *nonce, *package;
        uint32_t pid;
        uint64_t created;
        uint32_t flags;
        bool goes;
        bool foreign;
    } cases[] = {
        {"vj-00000000000000a1", "vj-00000000000000a1", "visruntime.vj-00000000000000a1",
         99, 7, 0, true, false},
        {"vj-00000000000000a2", "vj-00000000000000a2", "visruntime.vj-00000000000000a2",
         99, 7, VJ_WINDOWS_REMOVE_WORK, true, false},
        // The pid lives, and is that process.
        {"vj-00000000000000a3", "vj-00000000000000a3", "visruntime.vj-00000000000000a3",
         11, 7, 0, false, false},
        // The pid lives, and is another process.
        {"vj-00000000000000a4", "vj-00000000000000a4", "visruntime.vj-00000000000000a4",
         11, 8, 0, true, false},
        // A marker of another root, a package of another root, a name of another form.
        {"vj-00000000000000a5", "vj-00000000000000a1", "visruntime.vj-00000000000000a5",
         99, 7, 0, false, false},
        {"vj-00000000000000a6", "vj-00000000000000a6", "visruntime.vj-00000000000000a5",
         99, 7, 0, false, false},
        {"vj-0000000000000a7", "vj-0000000000000a7", "visruntime.vj-0000000000000a7", 99,
         7, 0, false, false},
        // Somebody else's, who would have the profile of this name deleted.
        {"vj-00000000000000a9", "vj-00000000000000a9", "visruntime.vj-00000000000000a9",
         99, 7, VJ_WINDOWS_REMOVE_WORK, false, true},
    };
    fake_owner(11, 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(name, sizeof name, "jails/%s", cases[i].root);
        mkdir(case_path(name), 0700);
        static const char *const places[] = {"app", "work", "temp"};
        for (size_t j = 0; j < 3; j++) {
            snprintf(name, sizeof name, "jails/%s/%s", cases[i].root, places[j]);
            mkdir(case_path(name), 0700);
            snprintf(name, sizeof name, "jails/%s/%s/file", cases[i].root, places[j]);
            case_write(name, "x");
        }
        vj_windows_marker own = {
            .pid = cases[i].pid, .created = cases[i].created, .flags = cases[i].flags};
        snprintf(own.nonce, sizeof own.nonce, "%s", cases[i].nonce);
        snprintf(own.package, sizeof own.package, "%s", cases[i].package);
        size_t size = vj_windows_marker_write(&own, marker, sizeof marker);
        check(size && !marker[size], "a marker");
        snprintf(name, sizeof name, "jails/%s/" VJ_WINDOWS_MARKER_NAME, cases[i].root);
        case_write(name, marker);
        // All of this anybody can write; not the owner and the rights of the root.
        char sid[VJ_WINDOWS_SID_SIZE], sddl[VJ_WINDOWS_SDDL_SIZE];
        check(vj_windows_package_sid(cases[i].package, sid) == VJ_WINDOWS_FINE &&
                  vj_windows_sddl(VJ_WINDOWS_ROOT,
                                  cases[i].foreign ? "S-1-5-21-9-9-9-1002" : FAKE_USER,
                                  sid, sddl, sizeof sddl) == VJ_WINDOWS_FINE,
              "a descriptor");
        snprintf(name, sizeof name, "jails/%s", cases[i].root);
        fake_describe(name, sddl);
    }
    // And a directory of the form without any marker.
    mkdir(case_path("jails/vj-00000000000000a8"), 0700);
    // One that fails does not keep the others.
    fake_forget();
    fake_fail_named("profile_delete", FAKE_INJECTED);
    vj_windows_error *error = case_error();
    check_status(vj_windows_remove_stale(&parent, &removed, error), VJ_WINDOWS_SYSTEM,
                 "a failure");
    check(!removed && error->os_error == FAKE_INJECTED &&
              fake_count("profile_delete") == 3,
          "is told when all were tried");
    fake_fail_named(NULL, 0);
    check_status(vj_windows_remove_stale(&parent, &removed, case_error()), VJ_WINDOWS_OK,
                 "stale");
    check(removed == 3, "three were stale");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(name, sizeof name, "jails/%s/app", cases[i].root);
        check(case_exists(name) != cases[i].goes, cases[i].root);
        snprintf(name, sizeof name, "jails/%s/work/file", cases[i].root);
        bool work_goes = cases[i].goes && cases[i].flags & VJ_WINDOWS_REMOVE_WORK;
        check(case_exists(name) != work_goes, name);
    }
    check(case_exists("jails/vj-00000000000000a8"), "a name alone says nothing");
    case_end();
}

static void markers_are_read_strictly(void) {
    static const char *const wrong[] = {
        "",
        "visjail context 1\n",
        "visjail context 2\nn\np\n1 2 3\n",
        "visjail context 1\nn\np\n1 2\n",
        "visjail context 1\nn\np\n1 2 3\nmore",
        "visjail context 1\nn\np\n-1 2 3\n",
        "visjail context 1\nn\np\n4294967296 2 3\n",
        "visjail context 1\nn\np\n1 18446744073709551616 3\n",
        "visjail context 1\nn\np\n1 2 3 \n",
        "visjail context 1\nn\np\n1  2 3\n",
        "visjail context 1\nabcdefghijabcdefghij\np\n1 2 3\n"};
    vj_windows_marker marker;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        check(!vj_windows_marker_read(wrong[i], strlen(wrong[i]), &marker), wrong[i]);
    }
    static const char right[] = "visjail context 1\nn\np\n1 18446744073709551615 3\n";
    check(vj_windows_marker_read(right, sizeof right - 1, &marker) &&
              marker.created == UINT64_MAX && marker.pid == 1 && marker.flags == 3,
          right);
}

int main(void) {
    requests_are_checked();
    a_context_is_made();
    everything_goes_if_it_was_asked_for();
    a_root_that_exists_is_never_taken();
    a_path_must_fit_a_socket();
    what_windows_answers_is_compared();
    sources_are_copied();
    what_cannot_be_staged_is_refused();
    staging_is_bounded();
    nothing_of_the_host_is_changed();
    states_follow_each_other();
    only_the_dead_are_cleaned_up();
    markers_are_read_strictly();
    return 0;
}
