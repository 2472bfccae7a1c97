// Numbers by which a host names objects of this library.
//
// A pointer or a handle that crosses into another language can be narrowed, kept too
// long, or taken for one of another kind. A number is given out once and never again, so
// what was removed stays unknown. All calls may be made from any thread.
#ifndef VISJAIL_IDENTIFIERS_H
#define VISJAIL_IDENTIFIERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "monitor.h"

// The beginning of every object that has a number. `references` belongs to the table.
typedef struct vj_identified vj_identified;
struct vj_identified {
    int64_t id; // above 0, once it has one
    uint32_t kind;
    uint32_t references;
    void (*destroy)(vj_identified *object); // when the last reference is dropped
};

// All zero is an empty table.
typedef struct {
    vj_monitor monitor;
    int64_t last;            // number that was given out
    vj_identified **objects; // in the order of their numbers
    size_t count;
    size_t capacity;
} vj_identifiers;

// Begin the life of an object, with one reference of the caller and no number.
void vj_identified_begin(vj_identified *object, uint32_t kind,
                         void (*destroy)(vj_identified *object));

// Give the object a number; the table holds a reference from now on. False: no memory, or
// all numbers were given out.
bool vj_identifiers_add(vj_identifiers *table, vj_identified *object);

// The object of that number and kind, with one more reference, or NULL: it is unknown,
// was removed, or is of another kind.
vj_identified *vj_identifiers_find(vj_identifiers *table, int64_t id, uint32_t kind);

// Forget the number, for ever. False: somebody else did.
bool vj_identifiers_remove(vj_identifiers *table, vj_identified *object);

void vj_identifiers_hold(vj_identifiers *table, vj_identified *object);
void vj_identifiers_drop(vj_identifiers *table, vj_identified *object);

#endif
