// The judgement of files with several names. Pure; see links.h.

#include "links.h"

#include <stdlib.h>

static bool is_before(vj_file_id left, vj_file_id right) {
    if (left.device != right.device) return left.device < right.device;
    return left.inode < right.inode;
}

static int compare_links(const void *left, const void *right) {
    vj_file_id a = ((const vj_link *)left)->file;
    vj_file_id b = ((const vj_link *)right)->file;
    return is_before(b, a) - is_before(a, b);
}

static bool same_file(vj_file_id left, vj_file_id right) {
    return left.device == right.device && left.inode == right.inode;
}

bool vj_links_have(const vj_file_id *files, uint64_t count, vj_file_id file) {
    uint64_t first = 0;
    uint64_t end = count;
    while (first < end) {
        uint64_t middle = first + (end - first) / 2;
        if (same_file(files[middle], file)) return true;
        if (is_before(files[middle], file)) first = middle + 1;
        else end = middle;
    }
    return false;
}

// The names of one file. False where they contradict each other.
static bool judge_file(const vj_link *names, uint64_t count, uint8_t *kept,
                       vj_links_verdict *verdict) {
    bool hidden = false;
    bool hidden_copy = false;
    bool readable = false;
    bool writable = false;
    bool constant = false; // a name that must not change
    for (uint64_t i = 0; i < count; i++) {
        bool reads = names[i].rights & VJ_LINK_READ;
        bool writes = names[i].rights & VJ_LINK_WRITE;
        // Installed code is no secret, and installers link it all over a machine.
        hidden |= !reads && !names[i].folder;
        hidden_copy |= !reads && names[i].folder;
        readable |= reads;
        writable |= writes;
        constant |= !writes;
    }
    if (hidden && readable) return false;
    if (hidden_copy && readable) verdict->copies++;
    if (!writable || (!constant && count >= names[0].count)) return true;
    for (uint64_t i = 0; i < count; i++) {
        if (!(names[i].rights & VJ_LINK_WRITE)) continue;
        if (names[i].folder) kept[names[i].folder] = 1;
        else if (constant) return false;
        else verdict->others++;
    }
    return true;
}

void vj_links_judge(vj_link *links, uint64_t count, const vj_file_id *left_out,
                    uint64_t left_out_count, uint8_t *kept, vj_links_verdict *verdict) {
    *verdict = (vj_links_verdict){0};
    if (count) qsort(links, count, sizeof *links, compare_links);
    for (uint64_t first = 0, end = 0; first < count; first = end) {
        while (end < count && same_file(links[first].file, links[end].file)) end++;
        if (vj_links_have(left_out, left_out_count, links[first].file)) continue;
        if (judge_file(&links[first], end - first, kept, verdict)) continue;
        verdict->conflict = links[first].file;
        return;
    }
}
