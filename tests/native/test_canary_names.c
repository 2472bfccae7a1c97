// The canaries make and remove names in the folder that they opened, and in no other.
//
// sources: native/visjail/linux_canary_names.c native/visjail/linux_paths.c
// sources: native/visjail/linux_text.c

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "linux_canary.h"

static int count_entries(const char *path) {
    DIR *folder = opendir(path);
    assert(folder);
    int count = -2; // . and ..
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static void write_file(const char *path) {
    int file = open(path, O_CREAT | O_WRONLY | O_EXCL, 0600);
    assert(file >= 0);
    close(file);
}

// The control: in a folder it makes what it tries, and leaves it as it was.
static void test_folder(void) {
    assert(mkdir("real", 0700) == 0);
    write_file("real/beside");
    assert(vj_canary_make("real/q") == 0);
    assert(vj_canary_make_simply("real/q") == 0);
    assert(count_entries("real") == 1 && access("real/beside", F_OK) == 0);
    assert(rmdir("real") != 0 && errno == ENOTEMPTY);
}

static void expect_nothing(const char *path) {
    assert(vj_canary_make(path) == -ESTALE);
    assert(vj_canary_make_simply(path) == -ESTALE);
}

// What a guest of another jail puts on the way leads to no making and no removing.
static void test_link(void) {
    char here[VJ_PATH_MAX], path[VJ_PATH_MAX + 16];
    assert(getcwd(here, sizeof here));
    assert(mkdir("elsewhere", 0700) == 0 && mkdir("elsewhere/deep", 0700) == 0);
    assert(symlink("elsewhere", "link") == 0);
    expect_nothing("link/q");
    snprintf(path, sizeof path, "%s/link/q", here);
    expect_nothing(path);
    snprintf(path, sizeof path, "%s/link/deep/q", here);
    expect_nothing(path);
    expect_nothing("gone/q");
    assert(count_entries("elsewhere") == 1 && count_entries("elsewhere/deep") == 0);
    write_file("elsewhere/q");
    expect_nothing("link/q");
    assert(access("elsewhere/q", F_OK) == 0);
}

// What stands there is not what was made.
static void test_present(void) {
    assert(mkdir("full", 0700) == 0);
    write_file("full/q");
    assert(vj_canary_make("full/q") == -EEXIST);
    assert(access("full/q", F_OK) == 0);
}

static void test_names(void) {
    vj_canary_name one, other;
    assert(vj_canary_name_choose(&one) == 0 && vj_canary_name_choose(&other) == 0);
    assert(strcmp(one.text, other.text) != 0 &&
           strncmp(one.text, ".visruntime-", 12) == 0);
    assert(mkdir("open", 0700) == 0);
    VJ_AUTO_FD folder = open("open", O_PATH | O_DIRECTORY);
    assert(vj_canary_make_directory_in(folder) == 0 && count_entries("open") == 0);
}

int main(void) {
    char top[] = "/tmp/visruntime-canary-XXXXXX";
    assert(mkdtemp(top) && chdir(top) == 0);
    test_folder();
    test_link();
    test_present();
    test_names();
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", top);
    assert(system(command) == 0);
    return 0;
}
