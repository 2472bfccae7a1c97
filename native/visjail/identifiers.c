// A table of numbered objects; see identifiers.h. Makes no system call but for its lock.

#include "identifiers.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 16u

void vj_identified_begin(vj_identified *object, uint32_t kind,
                         void (*destroy)(vj_identified *object)) {
    object->id = 0;
    object->kind = kind;
    object->references = 1;
    object->destroy = destroy;
}

// Numbers only grow, so that the table is always in order.
static size_t place_of(const vj_identifiers *table, int64_t id) {
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->objects[middle]->id < id) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool has(const vj_identifiers *table, size_t place, int64_t id) {
    return place < table->count && table->objects[place]->id == id;
}

static bool make_room(vj_identifiers *table) {
    if (table->count < table->capacity) return true;
    size_t wanted = table->capacity ? table->capacity * 2 : FIRST_CAPACITY;
    vj_identified **larger = realloc(table->objects, wanted * sizeof(vj_identified *));
    if (!larger) return false;
    table->objects = larger;
    table->capacity = wanted;
    return true;
}

bool vj_identifiers_add(vj_identifiers *table, vj_identified *object) {
    vj_monitor_enter(&table->monitor);
    bool fits = table->last < INT64_MAX && make_room(table);
    if (fits) {
        object->id = ++table->last;
        object->references++;
        table->objects[table->count++] = object;
    }
    vj_monitor_leave(&table->monitor);
    return fits;
}

vj_identified *vj_identifiers_find(vj_identifiers *table, int64_t id, uint32_t kind) {
    vj_identified *found = NULL;
    vj_monitor_enter(&table->monitor);
    size_t place = place_of(table, id);
    if (has(table, place, id) && table->objects[place]->kind == kind) {
        found = table->objects[place];
        found->references++;
    }
    vj_monitor_leave(&table->monitor);
    return found;
}

bool vj_identifiers_remove(vj_identifiers *table, vj_identified *object) {
    vj_monitor_enter(&table->monitor);
    size_t place = place_of(table, object->id);
    bool known = has(table, place, object->id);
    if (known) {
        table->count--;
        memmove(table->objects + place, table->objects + place + 1,
                (table->count - place) * sizeof(vj_identified *));
        if (!table->count) {
            // So that a process that has closed everything holds nothing.
            free(table->objects);
            table->objects = NULL;
            table->capacity = 0;
        }
    }
    vj_monitor_leave(&table->monitor);
    if (known) vj_identifiers_drop(table, object);
    return known;
}

void vj_identifiers_hold(vj_identifiers *table, vj_identified *object) {
    vj_monitor_enter(&table->monitor);
    object->references++;
    vj_monitor_leave(&table->monitor);
}

void vj_identifiers_drop(vj_identifiers *table, vj_identified *object) {
    vj_monitor_enter(&table->monitor);
    bool last = --object->references == 0;
    vj_monitor_leave(&table->monitor);
    if (last) object->destroy(object);
}
