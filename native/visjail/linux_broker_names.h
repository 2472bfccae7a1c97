// Which names the creation broker makes for guests. See linux_broker_create.c.
#ifndef VJ_LINUX_BROKER_NAMES_H
#define VJ_LINUX_BROKER_NAMES_H

#include "linux_broker.h"

typedef enum {
    VJ_NAME_OTHER = 0,
    VJ_NAME_ABOVE, // on the way to a denied one: a new folder may be made, nothing else
    VJ_NAME_KEPT,  // denied, or below it, and was there when the jail opened
    VJ_NAME_HELD,  // a denied name, or below one: nothing is made there
} vj_name;

// A folder of the jail, open by O_PATH, and its path, looked up once.
typedef struct {
    int folder;
    char path[VJ_PATH_MAX];
    size_t length;
} vj_place;

// Fill `place->path`; a negative errno for a folder that is out of sight, -ESTALE for one
// that was removed.
long vj_place_look_up(vj_place *place);
// Whether the wall lets no guest make a name directly in it.
int vj_place_is_walled(const vj_place *place);
// Whether it lies in a folder in which guests make names themselves, wherever that folder
// has been moved to. Where it does not, no guest moves it or replaces what is above it.
int vj_place_is_in_free(const vj_place *place);
// What `name`, of `length` bytes and without a slash, is in it.
vj_name vj_place_name(const vj_place *place, const char *name, size_t length);

#endif
