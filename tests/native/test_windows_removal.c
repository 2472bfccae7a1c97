// What a context leaves of what guests and others have made in its folders: nothing, and
// nothing else goes or is made.
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
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "windows_case.h"

// Windows lets go of the images of a guest a moment after its job is empty.
static void what_is_busy_goes_a_moment_later(void) {
    static const uint32_t codes[] = {VJ_WINDOWS_ERROR_ACCESS_DENIED,
                                     VJ_WINDOWS_ERROR_SHARING_VIOLATION};
    case_begin();
    for (size_t i = 0; i < 2; i++) {
        vj_windows_id context = 0;
        check_status(create(&context, NULL, VJ_WINDOWS_REMOVE_WORK), VJ_WINDOWS_OK,
                     "create");
        fake_busy(3, codes[i]);
        close_context(context);
        check(!case_files(), "all of it");
    }
    // One that stays so is told, in a time with a bound.
    vj_windows_id context = 0;
    check_status(create(&context, NULL, VJ_WINDOWS_REMOVE_WORK), VJ_WINDOWS_OK, "create");
    fake_busy(UINT32_MAX, VJ_WINDOWS_ERROR_SHARING_VIOLATION);
    fake_forget();
    vj_windows_error *error = case_error();
    check_status(vj_windows_close(context, error), VJ_WINDOWS_SYSTEM, "close");
    check(error->os_error == VJ_WINDOWS_ERROR_SHARING_VIOLATION &&
              fake_count("remove_path") > 10 && fake_count("remove_path") <= 102,
          "after two seconds");
    fake_busy(0, 0);
    close_context(context);
    check(!case_files(), "and goes when it can");
    case_end();
}

// A guest leaves a directory that lets nobody in: it goes, and W14 holds: no other
// descriptor is changed, and none outside of the context.
static void what_a_guest_has_locked_goes(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_context_info info;
    check_status(create(&context, &info, VJ_WINDOWS_REMOVE_WORK), VJ_WINDOWS_OK,
                 "create");
    mkdir(case_path(below_jails(&info, "temp/locked")), 0700);
    case_write(below_jails(&info, "temp/locked/file"), "x");
    fake_lock(below_jails(&info, "temp/locked"), FAKE_LOCK_LIST);
    fake_fail_named("reclaim", FAKE_INJECTED);
    check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_SYSTEM, "close");
    fake_fail_named(NULL, 0);
    check(!fake_descriptors_outside("jails"), "nothing else is touched");
    fake_forget();
    close_context(context);
    check(!case_files() && fake_count("reclaim") == 1, "all is gone");
    case_end();
}

// A directory that may be listed, and in which nobody deletes: it is the directory that
// gets other rights, since a file might have another name elsewhere.
static void what_a_guest_lets_nobody_delete_goes(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_context_info info;
    check_status(create(&context, &info, VJ_WINDOWS_REMOVE_WORK), VJ_WINDOWS_OK,
                 "create");
    mkdir(case_path(below_jails(&info, "work/kept")), 0700);
    mkdir(case_path(below_jails(&info, "work/kept/below")), 0700);
    case_write(below_jails(&info, "work/kept/file"), "x");
    case_write(below_jails(&info, "work/kept/below/file"), "x");
    fake_lock(below_jails(&info, "work/kept"), FAKE_LOCK_ENTRIES);
    fake_lock(below_jails(&info, "work/kept/below"), FAKE_LOCK_LIST | FAKE_LOCK_ENTRIES);
    fake_forget();
    close_context(context);
    check(!case_files() && fake_count("reclaim") == 2, "all is gone");
    case_end();
}

// Without its owner's rights nothing helps; the context says so until somebody else has
// removed it, and an empty one goes all the same.
static void what_has_no_owner_is_told(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_context_info info;
    check_status(create(&context, &info, 0), VJ_WINDOWS_OK, "create");
    mkdir(case_path(below_jails(&info, "temp/empty")), 0700);
    mkdir(case_path(below_jails(&info, "temp/lost")), 0700);
    case_write(below_jails(&info, "temp/lost/file"), "x");
    fake_lock(below_jails(&info, "temp/empty"), FAKE_LOCK_LIST | FAKE_LOCK_OWNER);
    fake_lock(below_jails(&info, "temp/lost"), FAKE_LOCK_LIST | FAKE_LOCK_OWNER);
    vj_windows_error *error = case_error();
    check_status(vj_windows_close(context, error), VJ_WINDOWS_SYSTEM, "close");
    check(error->os_error == VJ_WINDOWS_ERROR_ACCESS_DENIED, "says why");
    check(strstr(error->text, "\\temp\\lost") && strstr(error->text, ": C:\\jails\\vj-"),
          "and where");
    check(!unlink(case_path(below_jails(&info, "temp/lost/file"))), "by hand");
    close_context(context);
    check(!case_exists(below_jails(&info, "temp")), "and the rest goes");
    case_end();
}

// Deeper than any path of Windows is long, which a guest gets by moving a deep directory
// into another one.
static void what_is_deep_goes(void) {
    case_begin();
    enum { DEPTH = 300 };
    vj_windows_id context = 0;
    vj_windows_context_info info;
    check_status(create(&context, &info, VJ_WINDOWS_REMOVE_WORK), VJ_WINDOWS_OK,
                 "create");
    int folder = open(case_path(below_jails(&info, "temp")), O_PATH | O_CLOEXEC);
    for (int i = 0; i < DEPTH; i++) {
        check(!mkdirat(folder, "d", 0700), "a level");
        int below = openat(folder, "d", O_PATH | O_CLOEXEC);
        close(folder);
        folder = below;
    }
    close(folder);
    close_context(context);
    check(!case_files(), "all of it");
    case_end();
}

// Another program of the user puts a link in the place of a folder while it is removed.
static char swapped[600], aside[600], target[600];

static void swap(void) {
    if (!rename(swapped, aside)) check(!symlink(target, swapped), "a link");
}

// The same while a context is made: nothing is made behind the link, whatever rights it
// was given, or the context is refused.
static void link_packages(void) {
    const struct dirent *entry = NULL;
    char path[600];
    DIR *jails = opendir(case_path("jails"));
    while (jails && (entry = readdir(jails))) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "jails/%.100s/temp/Packages", entry->d_name);
        // What is held cannot be deleted on Windows, and not renamed either.
        if (fake_is_held(path) || rmdir(case_path(path))) continue;
        check(!symlink(case_path("sources"), case_path(path)), "a link");
    }
    if (jails) closedir(jails);
}

static unsigned entries_of(const char *below) {
    unsigned count = 0;
    DIR *listing = opendir(case_path(below));
    while (listing && readdir(listing)) count++;
    if (listing) closedir(listing);
    return count - 2;
}

static void nothing_is_made_behind_a_link(void) {
    unsigned refused = 0;
    uint64_t number = 1;
    for (; number < 200; number++) {
        case_begin();
        vj_windows_id context = 0;
        fake_forget();
        fake_act(number, link_packages);
        vj_windows_status status = create(&context, NULL, VJ_WINDOWS_REMOVE_WORK);
        bool over = fake_calls() < number;
        fake_act(0, NULL);
        if (status == VJ_WINDOWS_OK) close_context(context);
        else refused++;
        check(!case_files(), "nothing is left");
        check(entries_of("sources") == 2, "nor made elsewhere");
        case_end();
        if (over) break;
    }
    check(refused && number < 200, "and a link is seen");
}

static void no_removal_follows_what_was_swapped(void) {
    uint64_t number = 1;
    for (; number < 500; number++) {
        case_begin();
        vj_windows_id context = 0;
        vj_windows_context_info info;
        check_status(create(&context, &info, VJ_WINDOWS_REMOVE_WORK), VJ_WINDOWS_OK,
                     "create");
        mkdir(case_path(below_jails(&info, "temp/a")), 0700);
        mkdir(case_path(below_jails(&info, "temp/a/lib")), 0700);
        // The names of what the link leads to.
        case_write(below_jails(&info, "temp/a/guest.exe"), "x");
        case_write(below_jails(&info, "temp/a/lib/one.py"), "x");
        snprintf(swapped, sizeof swapped, "%s", case_path(below_jails(&info, "temp/a")));
        snprintf(aside, sizeof aside, "%s", case_path(below_jails(&info, "temp/b")));
        snprintf(target, sizeof target, "%s", case_path("sources"));
        fake_forget();
        fake_act(number, swap);
        close_context(context);
        bool over = fake_calls() < number;
        fake_act(0, NULL);
        check(case_exists("sources/guest.exe") && case_exists("sources/lib/one.py") &&
                  case_exists("sources/lib/deep/two.py"),
              "the sources are there");
        check(!case_files(), "and the jail is not");
        case_end();
        if (over) break;
    }
    check(number > 40 && number < 500, "at each call of a close");
}

int main(void) {
    what_is_busy_goes_a_moment_later();
    what_a_guest_has_locked_goes();
    what_a_guest_lets_nobody_delete_goes();
    what_has_no_owner_is_told();
    what_is_deep_goes();
    nothing_is_made_behind_a_link();
    no_removal_follows_what_was_swapped();
    return 0;
}
