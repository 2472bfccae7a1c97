// Files with several names (hard links): what one name of a file gives that another
// one does not. Pure: posix_search.c fills the table, and nothing here looks at files.
#ifndef VJ_LINKS_H
#define VJ_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VJ_LINK_READ = 1u << 0, // the rules let the guest read this name
    VJ_LINK_WRITE = 1u << 1,
};

typedef struct {
    uint64_t device; // as in vj_fact
    uint64_t inode;
} vj_file_id;

// One name. No path: a guest can make millions of names at long paths.
typedef struct {
    vj_file_id file;
    uint32_t count;  // names of the file, found or not
    uint32_t folder; // of installed code around the name: its number, or 0
    uint32_t rights; // VJ_LINK_*
    uint32_t reserved;
} vj_link;

typedef struct {
    // A file of which one name gives what another denies; an inode of 0: there is none.
    vj_file_id conflict;
    // Writable names outside of installed code whose file has names that were not found.
    uint64_t others;
    // Files of installed code that are denied under one name and readable under another.
    uint64_t copies;
} vj_links_verdict;

// Judge all names together but those of the files `left_out`, which are sorted (see
// vj_links_have); sorts the names. `kept[number]`
// becomes 1 for each folder of installed code that must stay as it is: `kept` has one
// byte more than there are.
void vj_links_judge(vj_link *links, uint64_t count, const vj_file_id *left_out,
                    uint64_t left_out_count, uint8_t *kept, vj_links_verdict *verdict);

// Whether one of `files` is this one. They are sorted by device, then by inode: a guest
// can make ten thousand secrets with several names, and is asked about a million files.
bool vj_links_have(const vj_file_id *files, uint64_t count, vj_file_id file);

#endif
