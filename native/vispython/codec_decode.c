// The decoding half of the value codec: everything it reads is hostile.
//
// Order in every function: check what the data claims against what is there and against
// the limits, then allocate. Each byte is read once.
#include <string.h>

#include "clock.h"
#include "codec.h"

// Sets and dicts above this many keys are filled under the clock.
#define KEYS_UNTIMED 64

// CPU time that filling sets and dicts may take. Hashes of ints are predictable, so keys
// can be chosen to collide and make filling quadratic. Only what is filled under the
// clock adds to it: other parts cost a guest nothing to send. An honest plain key takes
// up to 300 ns; hashing a Fraction, in Python, 1 us for each of its parts.
#define WORK_FREE_NS       100000000LL
#define WORK_PER_PLAIN_NS  1000LL
#define WORK_PER_COSTLY_NS 2000LL // of each part of any other key
#define WORK_PER_BYTE_NS   10LL

// After so much of it, and after so many values, other threads of the process get a turn.
#define WORK_TURN_NS 2000000LL
#define VALUES_TURN  4096

struct reader {
    struct codec_state *state;
    const struct codec_options *options;
    const unsigned char *start;
    const unsigned char *at;
    const unsigned char *end;
    Py_ssize_t nodes_left;
    long long work_ns;    // spent on filling sets and dicts
    long long allowed_ns; // for that
    long long turn_ns;    // of it, when other threads had their last turn
    unsigned values;      // read so far
    int keys_open;        // keys that the current value is or is inside of
    int data_depth; // depth of the array, table or blob whose fields are read; 0: none
};

static PyObject *read_value(struct reader *reader, int depth);

// Raise ValueError with the offset of `where`. Always NULL.
static PyObject *fail(const struct reader *reader, const unsigned char *where,
                      const char *what) {
    PyErr_Format(PyExc_ValueError, "cannot decode: %s at byte %zd", what,
                 (Py_ssize_t)(where - reader->start));
    return NULL;
}

// `size` bytes, or NULL with an exception where the data is too short.
static const unsigned char *take(struct reader *reader, Py_ssize_t size) {
    if (size > reader->end - reader->at) {
        fail(reader, reader->at, "the data ends too early");
        return NULL;
    }
    const unsigned char *bytes = reader->at;
    reader->at += size;
    return bytes;
}

static uint64_t get_little(const unsigned char *bytes, unsigned width) {
    uint64_t bits = 0;
    for (unsigned i = 0; i < width; i++) bits |= (uint64_t)bytes[i] << (8U * i);
    return bits;
}

// A 32-bit length of things that take at least `unit` bytes each; -1 with an exception.
static Py_ssize_t read_length(struct reader *reader, Py_ssize_t unit) {
    const unsigned char *bytes = take(reader, 4);
    if (bytes == NULL) return -1;
    Py_ssize_t length = (Py_ssize_t)get_little(bytes, 4);
    if (length > (reader->end - reader->at) / unit) {
        fail(reader, bytes, "a length is larger than the data that is left");
        return -1;
    }
    return length;
}

// The length of a container, with its members paid for in advance: what a claimed length
// makes us allocate is bounded over the whole value, not for each container.
static Py_ssize_t read_count(struct reader *reader, Py_ssize_t each) {
    const unsigned char *where = reader->at;
    Py_ssize_t count = read_length(reader, each);
    if (count < 0) return -1;
    if (count > reader->nodes_left / each) {
        fail(reader, where, "more parts than allowed");
        return -1;
    }
    reader->nodes_left -= count * each;
    return count;
}

// ---- scalars ----

static PyObject *read_int(struct reader *reader, int tag) {
    const unsigned char *where = reader->at - 1;
    unsigned width = tag == TAG_INT8 ? 1 : tag == TAG_INT32 ? 4 : 8;
    const unsigned char *bytes = take(reader, width);
    if (bytes == NULL) return NULL;
    uint64_t bits = get_little(bytes, width);
    long long number = tag == TAG_INT8    ? (int8_t)bits
                       : tag == TAG_INT32 ? (int32_t)bits
                                          : (int64_t)bits;
    int too_wide = (tag == TAG_INT32 && number >= INT8_MIN && number <= INT8_MAX) ||
                   (tag == TAG_INT64 && number >= INT32_MIN && number <= INT32_MAX);
    if (too_wide) return fail(reader, where, "an int is not in its shortest form");
    return PyLong_FromLongLong(number);
}

static PyObject *read_big_int(struct reader *reader) {
    const unsigned char *where = reader->at - 1;
    Py_ssize_t length = read_length(reader, 1);
    if (length < 0) return NULL;
    const unsigned char *bytes = take(reader, length);
    if (bytes == NULL) return NULL;
    // Nine bytes and minimal is the same as: it does not fit in INT64.
    int redundant = length < 9 ||
                    (bytes[length - 1] == 0x00 && bytes[length - 2] < 0x80) ||
                    (bytes[length - 1] == 0xFF && bytes[length - 2] >= 0x80);
    if (redundant) return fail(reader, where, "an int is not in its shortest form");
    if (reader->keys_open > 0 && length > CODEC_LARGEST_KEY_INT)
        return fail(reader, where, "an int that is too large for a key");
    struct codec_state *state = reader->state;
    PyObject *arguments =
        Py_BuildValue("(y#O)", (const char *)bytes, length, state->little);
    if (arguments == NULL) return NULL;
    PyObject *number =
        PyObject_Call(state->int_from_bytes, arguments, state->signed_keyword);
    Py_DECREF(arguments);
    return number;
}

static double get_double(const unsigned char *bytes) {
    uint64_t bits = get_little(bytes, 8);
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static PyObject *read_float(struct reader *reader) {
    const unsigned char *bytes = take(reader, 8);
    return bytes == NULL ? NULL : PyFloat_FromDouble(get_double(bytes));
}

static PyObject *read_complex(struct reader *reader) {
    const unsigned char *bytes = take(reader, 16);
    if (bytes == NULL) return NULL;
    return PyComplex_FromDoubles(get_double(bytes), get_double(bytes + 8));
}

static PyObject *read_str(struct reader *reader) {
    const unsigned char *where = reader->at - 1;
    Py_ssize_t length = read_length(reader, 1);
    if (length < 0) return NULL;
    const char *bytes = (const char *)take(reader, length);
    if (bytes == NULL) return NULL;
    PyObject *text = PyUnicode_DecodeUTF8(bytes, length, "surrogatepass");
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return fail(reader, where, "a str is not UTF-8");
    }
    return text;
}

static PyObject *read_bytes(struct reader *reader, int tag) {
    Py_ssize_t length = read_length(reader, 1);
    if (length < 0) return NULL;
    const char *bytes = (const char *)take(reader, length);
    if (bytes == NULL) return NULL;
    return tag == TAG_BYTES ? PyBytes_FromStringAndSize(bytes, length)
                            : PyByteArray_FromStringAndSize(bytes, length);
}

// ---- sequences ----

// Places are filled with None first: builders run Python code meanwhile, and another
// thread must never find an empty place through the garbage collector.
static PyObject *read_list(struct reader *reader, int depth) {
    Py_ssize_t count = read_count(reader, 1);
    if (count < 0) return NULL;
    PyObject *list = PyList_New(count);
    if (list == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(Py_None);
        if (PyList_SetItem(list, i, Py_None) < 0) goto failed;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = read_value(reader, depth);
        if (item == NULL || PyList_SetItem(list, i, item) < 0) goto failed;
    }
    return list;
failed:
    Py_DECREF(list);
    return NULL;
}

// Whether comparing two such keys takes next to no time, whatever they hold.
static int is_plain(PyObject *key) {
    return PyUnicode_CheckExact(key) || PyLong_CheckExact(key) ||
           PyFloat_CheckExact(key) || PyBytes_CheckExact(key) || key == Py_None ||
           PyBool_Check(key);
}

// What a key takes of the data is time for putting it somewhere, each part of it once.
static PyObject *read_key(struct reader *reader, int depth) {
    const unsigned char *start = reader->at;
    Py_ssize_t nodes = reader->nodes_left + 1;
    long long allowed = reader->allowed_ns;
    reader->keys_open++;
    PyObject *key = read_value(reader, depth);
    reader->keys_open--;
    if (key == NULL) return NULL;
    allowed += (nodes - reader->nodes_left) *
                   (is_plain(key) ? WORK_PER_PLAIN_NS : WORK_PER_COSTLY_NS) +
               (reader->at - start) * WORK_PER_BYTE_NS;
    if (reader->allowed_ns < allowed) reader->allowed_ns = allowed;
    return key;
}

// `count` values as a tuple; the caller has paid for them. Every `key_step`-th is a key;
// 0: none.
static PyObject *read_items(struct reader *reader, Py_ssize_t count, int key_step,
                            int depth) {
    PyObject *tuple = PyTuple_New(count);
    if (tuple == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(Py_None);
        if (PyTuple_SetItem(tuple, i, Py_None) < 0) goto failed;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int is_key = key_step > 0 && i % key_step == 0;
        PyObject *item = is_key ? read_key(reader, depth) : read_value(reader, depth);
        if (item == NULL || PyTuple_SetItem(tuple, i, item) < 0) goto failed;
    }
    return tuple;
failed:
    Py_DECREF(tuple);
    return NULL;
}

static PyObject *read_tuple(struct reader *reader, int depth) {
    Py_ssize_t count = read_count(reader, 1);
    return count < 0 ? NULL : read_items(reader, count, 0, depth);
}

// ---- sets and dicts ----

// A key raised while it was hashed or compared: the data's fault, unless memory ran out.
static int key_failed(const struct reader *reader, const unsigned char *where) {
    if (PyErr_ExceptionMatches(PyExc_Exception) &&
        !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyErr_Clear();
        fail(reader, where, "a key cannot be hashed");
    }
    return -1;
}

static int add_key(const struct reader *reader, PyObject *target, PyObject *key,
                   PyObject *value, const unsigned char *where) {
    Py_ssize_t before = value == NULL ? PySet_Size(target) : PyDict_Size(target);
    int status =
        value == NULL ? PySet_Add(target, key) : PyDict_SetItem(target, key, value);
    if (status < 0) return key_failed(reader, where);
    Py_ssize_t after = value == NULL ? PySet_Size(target) : PyDict_Size(target);
    if (after == before + 1) return 0;
    fail(reader, where, "a key appears twice");
    return -1;
}

// Nothing here is seen by others but through the garbage collector, as while builders
// run.
static void give_turn(void) {
    PyEval_RestoreThread(PyEval_SaveThread());
}

static int work_allowed(struct reader *reader, long long spent,
                        const unsigned char *where) {
    reader->work_ns += spent;
    if (reader->work_ns > reader->allowed_ns) {
        fail(reader, where, "keys that collide on purpose");
        return -1;
    }
    if (reader->work_ns - reader->turn_ns >= WORK_TURN_NS) {
        reader->turn_ns = reader->work_ns;
        give_turn();
    }
    return 0;
}

// A key that may be costly to compare goes in under the clock on its own. It is hashed
// before: hashing is linear, and types that keep their hash then pay for nothing but the
// comparisons.
static int add_costly_key(struct reader *reader, PyObject *target, PyObject *key,
                          PyObject *value, const unsigned char *where) {
    if (PyObject_Hash(key) == -1) return key_failed(reader, where);
    long long before = vis_thread_time();
    if (add_key(reader, target, key, value, where) < 0) return -1;
    return work_allowed(reader, vis_thread_time() - before, where);
}

static int fill_small(struct reader *reader, PyObject *target, Py_ssize_t count,
                      int pairs, int depth) {
    int costly = 0; // stays: a plain key is compared with the costly ones before it
    for (Py_ssize_t i = 0; i < count; i++) {
        const unsigned char *where = reader->at;
        long long allowed = reader->allowed_ns;
        PyObject *key = read_key(reader, depth);
        if (key == NULL) return -1;
        costly = costly || !is_plain(key);
        if (!costly) reader->allowed_ns = allowed; // for none of the clock's time
        PyObject *value = pairs ? read_value(reader, depth) : NULL;
        int status = pairs && value == NULL ? -1 : 0;
        if (status == 0)
            status = costly ? add_costly_key(reader, target, key, value, where)
                            : add_key(reader, target, key, value, where);
        Py_XDECREF(value);
        Py_DECREF(key);
        if (status < 0) return -1;
    }
    return 0;
}

// Move `items` (keys, or keys and values in turn) into `target`.
static int fill_large(struct reader *reader, PyObject *target, PyObject *items, int pairs,
                      const unsigned char *where) {
    Py_ssize_t count = PyTuple_Size(items);
    Py_ssize_t width = pairs ? 2 : 1;
    int costly = 0;
    long long before = vis_thread_time();
    for (Py_ssize_t i = 0; i < count; i += width) {
        PyObject *key = PyTuple_GetItem(items, i);
        PyObject *value = pairs ? PyTuple_GetItem(items, i + 1) : NULL;
        costly = costly || !is_plain(key);
        int status = costly ? add_costly_key(reader, target, key, value, where)
                            : add_key(reader, target, key, value, where);
        if (status < 0) return -1;
        if (costly || i % (KEYS_UNTIMED * width) != 0) continue;
        long long now = vis_thread_time();
        if (work_allowed(reader, now - before, where) < 0) return -1;
        before = now;
    }
    return costly ? 0 : work_allowed(reader, vis_thread_time() - before, where);
}

static int fill(struct reader *reader, PyObject *target, Py_ssize_t count, int pairs,
                int depth) {
    if (count <= KEYS_UNTIMED) return fill_small(reader, target, count, pairs, depth);
    const unsigned char *where = reader->at;
    int width = pairs ? 2 : 1;
    PyObject *items = read_items(reader, count * width, width, depth);
    if (items == NULL) return -1;
    int status = fill_large(reader, target, items, pairs, where);
    Py_DECREF(items);
    return status;
}

static PyObject *read_keyed(struct reader *reader, int tag, int depth) {
    int pairs = tag == TAG_DICT;
    Py_ssize_t count = read_count(reader, pairs ? 2 : 1);
    if (count < 0) return NULL;
    PyObject *target = pairs            ? PyDict_New()
                       : tag == TAG_SET ? PySet_New(NULL)
                                        : PyFrozenSet_New(NULL);
    if (target == NULL) return NULL;
    if (fill(reader, target, count, pairs, depth) < 0) {
        Py_DECREF(target);
        return NULL;
    }
    return target;
}

// ---- composites ----

static Py_ssize_t keys_of(PyObject *data) {
    return data != NULL && PyDict_CheckExact(data) ? PyDict_Size(data) : 0;
}

static PyObject *read_composite(struct reader *reader, int tag, int depth) {
    const unsigned char *where = reader->at - 1;
    PyObject *builders = reader->options->builders;
    if (builders == NULL) builders = reader->state->builders;
    if (builders == NULL) return fail(reader, where, "a type that is not bound");
    if (tag >= COMPOSITE_NO_KEY && reader->keys_open > 0)
        return fail(reader, where, "a type that is no key in a key");
    if (tag == COMPOSITE_BUFFER &&
        (reader->data_depth == 0 || reader->data_depth != depth - 1))
        return fail(reader, where, "a buffer that is nobody's data");
    Py_ssize_t arity = codec_arity[tag - COMPOSITE_FIRST];
    if (arity > reader->nodes_left) return fail(reader, where, "more parts than allowed");
    reader->nodes_left -= arity;
    int outer = reader->data_depth;
    int has_data =
        tag == COMPOSITE_ARRAY || tag == COMPOSITE_TABLE || tag == COMPOSITE_BLOB;
    reader->data_depth = has_data ? depth : 0;
    PyObject *fields = read_items(reader, arity, 0, depth);
    reader->data_depth = outer;
    if (fields == NULL) return NULL;
    Py_ssize_t extra =
        tag == COMPOSITE_PATH ? codec_path_parts(PyTuple_GetItem(fields, 0)) : 0;
    if (extra > reader->nodes_left) {
        Py_DECREF(fields);
        return fail(reader, where, "more parts than allowed");
    }
    reader->nodes_left -= extra;
    PyObject *builder = PyTuple_GetItem(builders, tag - COMPOSITE_FIRST);
    Py_ssize_t refilled =
        tag == COMPOSITE_COLLECTION ? keys_of(PyTuple_GetItem(fields, 1)) : 0;
    int refills = refilled > KEYS_UNTIMED;
    if (refills) reader->allowed_ns += refilled * WORK_PER_COSTLY_NS;
    long long before = refills ? vis_thread_time() : 0;
    PyObject *value = builder == NULL ? NULL : PyObject_CallObject(builder, fields);
    Py_DECREF(fields);
    if (value != NULL && refills &&
        work_allowed(reader, vis_thread_time() - before, where) < 0) {
        Py_DECREF(value);
        return NULL;
    }
    if (value == NULL && PyErr_ExceptionMatches(PyExc_Exception) &&
        !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyErr_Clear();
        return fail(reader, where, "fields that its type does not allow");
    }
    return value;
}

// A value that holds others. `depth` counts the levels that are open already.
static PyObject *read_nested(struct reader *reader, int tag, int depth) {
    const unsigned char *where = reader->at - 1;
    int composite = tag >= COMPOSITE_FIRST && tag < COMPOSITE_FIRST + COMPOSITE_COUNT;
    if (!composite && (tag < TAG_LIST || tag > TAG_DICT))
        return fail(reader, where, "an unknown tag");
    if (depth >= reader->options->max_depth)
        return fail(reader, where, "more levels than allowed");
    if (composite) return read_composite(reader, tag, depth + 1);
    if (tag == TAG_LIST) return read_list(reader, depth + 1);
    if (tag == TAG_TUPLE) return read_tuple(reader, depth + 1);
    return read_keyed(reader, tag, depth + 1);
}

static PyObject *read_value(struct reader *reader, int depth) {
    const unsigned char *byte = take(reader, 1);
    if (byte == NULL) return NULL;
    if (++reader->values % VALUES_TURN == 0) give_turn();
    switch (*byte) {
    case TAG_NONE: Py_INCREF(Py_None); return Py_None;
    case TAG_FALSE: return PyBool_FromLong(0);
    case TAG_TRUE: return PyBool_FromLong(1);
    case TAG_INT8:
    case TAG_INT32:
    case TAG_INT64: return read_int(reader, *byte);
    case TAG_BIGINT: return read_big_int(reader);
    case TAG_FLOAT: return read_float(reader);
    case TAG_COMPLEX: return read_complex(reader);
    case TAG_STR: return read_str(reader);
    case TAG_BYTES:
    case TAG_BYTEARRAY: return read_bytes(reader, *byte);
    default: return read_nested(reader, *byte, depth);
    }
}

PyObject *codec_decode(struct codec_state *state, const unsigned char *data,
                       Py_ssize_t size, const struct codec_options *options) {
    struct reader reader = {
        .state = state,
        .options = options,
        .start = data,
        .at = data,
        .end = data + size,
        .nodes_left = options->max_nodes - 1,
        .allowed_ns = WORK_FREE_NS,
    };
    if (size > options->max_bytes) return fail(&reader, data, "more bytes than allowed");
    const unsigned char *version = take(&reader, 1);
    if (version == NULL) return NULL;
    if (*version != CODEC_VERSION)
        return fail(&reader, version, "an unknown format version");
    PyObject *value = read_value(&reader, 0);
    if (value != NULL && reader.at != reader.end) {
        Py_DECREF(value);
        return fail(&reader, reader.at, "bytes after the value");
    }
    return value;
}
