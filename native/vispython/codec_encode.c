// The encoding half of the value codec.
//
// Values may change while they are encoded: reduce() and default() run Python code. So no
// borrowed reference is kept across them, and a container whose size changed is an error.
#include <string.h>

#include "codec.h"

// Where a value sits inside the outermost one: also the chain of ancestors that finds
// cycles.
struct step {
    const struct step *up;
    PyObject *container; // borrowed; an ancestor keeps it alive
    PyObject *key;       // borrowed; for a value of a dict
    Py_ssize_t index;    // for an item; -1 where an index says nothing
};

struct writer {
    struct codec_state *state;
    const struct codec_options *options;
    unsigned char *data; // `small` until it is full, then memory of our own
    Py_ssize_t used;
    Py_ssize_t room;
    Py_ssize_t nodes_left;
    int keys_open; // keys that the current value is or is inside of
    unsigned char small[512];
};

static int write_value(struct writer *writer, PyObject *value, const struct step *at,
                       int depth);

static int grow(struct writer *writer, Py_ssize_t needed) {
    Py_ssize_t room = writer->room;
    while (room < needed) room *= 2;
    if (room > writer->options->max_bytes) room = writer->options->max_bytes;
    unsigned char *data = writer->data == writer->small ? NULL : writer->data;
    unsigned char *moved = PyMem_Realloc(data, (size_t)room);
    if (moved == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (data == NULL) memcpy(moved, writer->small, (size_t)writer->used);
    writer->data = moved;
    writer->room = room;
    return 0;
}

// `size` bytes to write to, or NULL with an exception.
static unsigned char *extend(struct writer *writer, Py_ssize_t size) {
    if (size > writer->options->max_bytes - writer->used) {
        PyErr_Format(PyExc_ValueError, "cannot encode: larger than %zd bytes",
                     writer->options->max_bytes);
        return NULL;
    }
    if (size > writer->room - writer->used && grow(writer, writer->used + size) < 0)
        return NULL;
    unsigned char *place = writer->data + writer->used;
    writer->used += size;
    return place;
}

static void put_little(unsigned char *place, uint64_t bits, unsigned width) {
    for (unsigned i = 0; i < width; i++) place[i] = (unsigned char)(bits >> (8U * i));
}

static int write_tag(struct writer *writer, int tag) {
    unsigned char *place = extend(writer, 1);
    if (place == NULL) return -1;
    *place = (unsigned char)tag;
    return 0;
}

// A tag and a 32-bit length. max_bytes is below 2**32, so a length that does not fit in
// 32 bits cannot be followed by its content either.
static int write_head(struct writer *writer, int tag, Py_ssize_t length) {
    if (length > writer->options->max_bytes) {
        PyErr_Format(PyExc_ValueError, "cannot encode: larger than %zd bytes",
                     writer->options->max_bytes);
        return -1;
    }
    unsigned char *place = extend(writer, 5);
    if (place == NULL) return -1;
    place[0] = (unsigned char)tag;
    put_little(place + 1, (uint64_t)length, 4);
    return 0;
}

static int write_block(struct writer *writer, int tag, const char *bytes,
                       Py_ssize_t length) {
    if (write_head(writer, tag, length) < 0) return -1;
    unsigned char *place = extend(writer, length);
    if (place == NULL) return -1;
    if (length > 0) memcpy(place, bytes, (size_t)length);
    return 0;
}

// ---- where: the path of a value, for messages ----

static PyObject *describe_step(const struct step *step) {
    if (step->key == NULL) {
        if (step->index < 0) return PyUnicode_FromString("");
        return PyUnicode_FromFormat("[%zd]", step->index);
    }
    if (PyUnicode_CheckExact(step->key) && PyUnicode_GetLength(step->key) <= 80)
        return PyUnicode_FromFormat("[%R]", step->key);
    if (PyLong_CheckExact(step->key)) {
        int overflow = 0;
        long long number = PyLong_AsLongLongAndOverflow(step->key, &overflow);
        if (overflow == 0) return PyUnicode_FromFormat("[%lld]", number);
    }
    return PyUnicode_FromString("[...]");
}

static PyObject *describe_path(const struct step *at) {
    const struct step *steps[CODEC_LARGEST_DEPTH + 1];
    int count = 0;
    for (; at != NULL && count <= CODEC_LARGEST_DEPTH; at = at->up) steps[count++] = at;
    PyObject *path = PyUnicode_FromString("value");
    while (path != NULL && count > 0) {
        PyObject *part = describe_step(steps[--count]);
        if (part == NULL) {
            Py_DECREF(path);
            return NULL;
        }
        PyObject *longer = PyUnicode_Concat(path, part);
        Py_DECREF(part);
        Py_DECREF(path);
        path = longer;
    }
    return path;
}

// Raise `type` with `reason` and the path of the value. Always -1.
static int refuse(PyObject *type, const char *reason, const struct step *at) {
    PyObject *path = describe_path(at);
    if (path == NULL) return -1;
    PyErr_Format(type, "cannot encode %U: %s", path, reason);
    Py_DECREF(path);
    return -1;
}

// ---- scalars ----

static int write_big_int(struct writer *writer, PyObject *value) {
    struct codec_state *state = writer->state;
    PyObject *bits = PyObject_CallFunctionObjArgs(state->int_bit_length, value, NULL);
    if (bits == NULL) return -1;
    Py_ssize_t length = PyLong_AsSsize_t(bits);
    Py_DECREF(bits);
    if (length < 0) return -1;
    length = length / 8 + 1;
    // Checked before int.to_bytes makes a copy of that size.
    if (length > writer->options->max_bytes - writer->used) {
        PyErr_Format(PyExc_ValueError, "cannot encode: larger than %zd bytes",
                     writer->options->max_bytes);
        return -1;
    }
    PyObject *arguments = Py_BuildValue("(OnO)", value, length, state->little);
    if (arguments == NULL) return -1;
    PyObject *bytes =
        PyObject_Call(state->int_to_bytes, arguments, state->signed_keyword);
    Py_DECREF(arguments);
    if (bytes == NULL) return -1;
    char *data = NULL;
    int status = PyBytes_AsStringAndSize(bytes, &data, &length);
    if (status == 0) {
        // -2**(8k-1) needs a byte less than its bit length suggests.
        unsigned char last = (unsigned char)data[length - 1];
        unsigned char below = (unsigned char)data[length - 2];
        if (last == 0xFF && below >= 0x80) length--;
        if (writer->keys_open > 0 && length > CODEC_LARGEST_KEY_INT) {
            PyErr_Format(PyExc_ValueError,
                         "cannot encode: a key with an int over %d bytes",
                         CODEC_LARGEST_KEY_INT);
            status = -1;
        } else {
            status = write_block(writer, TAG_BIGINT, data, length);
        }
    }
    Py_DECREF(bytes);
    return status;
}

static int write_int(struct writer *writer, PyObject *value) {
    int overflow = 0;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0) return write_big_int(writer, value);
    if (number == -1 && PyErr_Occurred()) return -1;
    int tag = TAG_INT64;
    unsigned width = 8;
    if (number >= INT8_MIN && number <= INT8_MAX) {
        tag = TAG_INT8;
        width = 1;
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        tag = TAG_INT32;
        width = 4;
    }
    unsigned char *place = extend(writer, 1 + width);
    if (place == NULL) return -1;
    place[0] = (unsigned char)tag;
    put_little(place + 1, (uint64_t)number, width);
    return 0;
}

static void put_double(unsigned char *place, double number) {
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    put_little(place, bits, 8);
}

static int write_float(struct writer *writer, PyObject *value) {
    double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) return -1;
    unsigned char *place = extend(writer, 9);
    if (place == NULL) return -1;
    place[0] = TAG_FLOAT;
    put_double(place + 1, number);
    return 0;
}

static int write_complex(struct writer *writer, PyObject *value) {
    double real = PyComplex_RealAsDouble(value);
    double imaginary = PyComplex_ImagAsDouble(value);
    if (PyErr_Occurred()) return -1;
    unsigned char *place = extend(writer, 17);
    if (place == NULL) return -1;
    place[0] = TAG_COMPLEX;
    put_double(place + 1, real);
    put_double(place + 9, imaginary);
    return 0;
}

// Text with lone surrogates, and long text, whose UTF-8 the str would keep for its life.
static int write_str_copy(struct writer *writer, PyObject *value) {
    PyObject *bytes = PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass");
    if (bytes == NULL) return -1;
    char *data = NULL;
    Py_ssize_t length = 0;
    int status = PyBytes_AsStringAndSize(bytes, &data, &length);
    if (status == 0) status = write_block(writer, TAG_STR, data, length);
    Py_DECREF(bytes);
    return status;
}

static int write_str(struct writer *writer, PyObject *value) {
    Py_ssize_t characters = PyUnicode_GetLength(value);
    if (characters < 0) return -1;
    if (characters > writer->options->max_bytes - writer->used) {
        PyErr_Format(PyExc_ValueError, "cannot encode: larger than %zd bytes",
                     writer->options->max_bytes);
        return -1;
    }
    if (characters > 4096) return write_str_copy(writer, value);
    Py_ssize_t length = 0;
    const char *data = PyUnicode_AsUTF8AndSize(value, &length);
    if (data != NULL) return write_block(writer, TAG_STR, data, length);
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return -1;
    PyErr_Clear();
    return write_str_copy(writer, value);
}

static int write_bytes(struct writer *writer, PyObject *value) {
    char *data = NULL;
    Py_ssize_t length = 0;
    if (PyBytes_AsStringAndSize(value, &data, &length) < 0) return -1;
    return write_block(writer, TAG_BYTES, data, length);
}

// ---- containers ----

static int changed(void) {
    PyErr_SetString(PyExc_RuntimeError, "a container changed size while it was encoded");
    return -1;
}

// Checks that come before the items of a container or the fields of a composite.
static int enter(struct writer *writer, PyObject *value, const struct step *at,
                 int depth) {
    for (const struct step *step = at; step != NULL; step = step->up)
        if (step->container == value)
            return refuse(PyExc_ValueError, "it contains itself", at);
    if (depth < writer->options->max_depth) return 0;
    PyErr_Format(PyExc_ValueError, "cannot encode: nested more than %d levels deep",
                 writer->options->max_depth);
    return -1;
}

// Count `parts` more; 0, or -1 with an exception when there are too many.
static int count_parts(struct writer *writer, Py_ssize_t parts) {
    if (parts <= writer->nodes_left) {
        writer->nodes_left -= parts;
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "cannot encode: more than %zd parts",
                 writer->options->max_nodes);
    return -1;
}

static int write_list(struct writer *writer, PyObject *value, const struct step *at,
                      int depth) {
    Py_ssize_t count = PyList_Size(value);
    if (count < 0 || write_head(writer, TAG_LIST, count) < 0) return -1;
    struct step here = {.up = at, .container = value};
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyList_Size(value) != count) return changed();
        PyObject *item = PyList_GetItem(value, i);
        if (item == NULL) return -1;
        Py_INCREF(item);
        here.index = i;
        int status = write_value(writer, item, &here, depth);
        Py_DECREF(item);
        if (status < 0) return -1;
    }
    return PyList_Size(value) == count ? 0 : changed();
}

static int write_tuple(struct writer *writer, PyObject *value, const struct step *at,
                       int depth) {
    Py_ssize_t count = PyTuple_Size(value);
    if (count < 0 || write_head(writer, TAG_TUPLE, count) < 0) return -1;
    struct step here = {.up = at, .container = value};
    for (Py_ssize_t i = 0; i < count; i++) {
        here.index = i;
        PyObject *item = PyTuple_GetItem(value, i);
        if (item == NULL || write_value(writer, item, &here, depth) < 0) return -1;
    }
    return 0;
}

static int write_key(struct writer *writer, PyObject *key, const struct step *at,
                     int depth) {
    writer->keys_open++;
    int status = write_value(writer, key, at, depth);
    writer->keys_open--;
    return status;
}

static int write_set(struct writer *writer, PyObject *value, const struct step *at,
                     int depth) {
    Py_ssize_t count = PySet_Size(value);
    int tag = PyFrozenSet_CheckExact(value) ? TAG_FROZENSET : TAG_SET;
    if (count < 0 || write_head(writer, tag, count) < 0) return -1;
    PyObject *items = PyObject_GetIter(value);
    if (items == NULL) return -1;
    struct step here = {.up = at, .container = value, .index = -1};
    PyObject *item;
    int status = 0;
    while (status == 0 && (item = PyIter_Next(items)) != NULL) {
        status = write_key(writer, item, &here, depth);
        Py_DECREF(item);
        count--;
    }
    Py_DECREF(items);
    if (status < 0 || PyErr_Occurred()) return -1;
    return count == 0 ? 0 : changed();
}

static int write_dict(struct writer *writer, PyObject *value, const struct step *at,
                      int depth) {
    Py_ssize_t count = PyDict_Size(value);
    if (count < 0 || write_head(writer, TAG_DICT, count) < 0) return -1;
    struct step here = {.up = at, .container = value, .index = -1};
    Py_ssize_t position = 0;
    Py_ssize_t left = count;
    PyObject *key;
    PyObject *item;
    while (PyDict_Next(value, &position, &key, &item)) {
        if (left-- == 0) return changed();
        Py_INCREF(key);
        Py_INCREF(item);
        here.key = NULL;
        int status = write_key(writer, key, &here, depth);
        here.key = key;
        if (status == 0) status = write_value(writer, item, &here, depth);
        Py_DECREF(key);
        Py_DECREF(item);
        if (status < 0) return -1;
        if (PyDict_Size(value) != count) return changed();
    }
    return left == 0 ? 0 : changed();
}

// ---- everything else ----

// `parts` is (tag, *fields) from reduce(): the tag decides how many fields there are. Or
// it is (None, other): `other` crosses instead, one level deeper so that this comes to an
// end.
static int write_composite(struct writer *writer, PyObject *value, PyObject *parts,
                           const struct step *at, int depth) {
    PyObject *number = PyTuple_Check(parts) ? PyTuple_GetItem(parts, 0) : NULL;
    if (number == Py_None && PyTuple_Size(parts) == 2) {
        struct step here = {.up = at, .container = value, .index = -1};
        if (enter(writer, value, at, depth) < 0) return -1;
        return write_value(writer, PyTuple_GetItem(parts, 1), &here, depth + 1);
    }
    if (number == NULL || !PyLong_Check(number)) {
        PyErr_SetString(PyExc_TypeError, "reduce() must return None or (tag, *fields)");
        return -1;
    }
    long tag = PyLong_AsLong(number);
    if (tag == -1 && PyErr_Occurred()) return -1;
    if (tag < COMPOSITE_FIRST || tag >= COMPOSITE_FIRST + COMPOSITE_COUNT ||
        PyTuple_Size(parts) != codec_arity[tag - COMPOSITE_FIRST] + 1) {
        PyErr_SetString(PyExc_TypeError, "reduce() returned a wrong tag or field count");
        return -1;
    }
    if (tag >= COMPOSITE_NO_KEY && writer->keys_open > 0)
        return refuse(PyExc_TypeError, "a type that is no key in a key", at);
    if (enter(writer, value, at, depth) < 0 || write_tag(writer, (int)tag) < 0) return -1;
    if (tag == COMPOSITE_PATH &&
        count_parts(writer, codec_path_parts(PyTuple_GetItem(parts, 1))) < 0)
        return -1;
    struct step here = {.up = at, .container = value, .index = -1};
    for (Py_ssize_t i = 0; i < codec_arity[tag - COMPOSITE_FIRST]; i++) {
        PyObject *field = PyTuple_GetItem(parts, i + 1);
        if (field == NULL || write_value(writer, field, &here, depth + 1) < 0) return -1;
    }
    return 0;
}

static int valid_handle(PyObject *parts) {
    if (!PyTuple_CheckExact(parts) || PyTuple_Size(parts) != 3) return 0;
    PyObject *number = PyTuple_GetItem(parts, 0);
    PyObject *name = PyTuple_GetItem(parts, 1);
    PyObject *text = PyTuple_GetItem(parts, 2);
    if ((!PyLong_CheckExact(number) && number != Py_None) ||
        !PyUnicode_CheckExact(name) || !PyUnicode_CheckExact(text))
        return 0;
    return PyUnicode_GetLength(name) <= CODEC_LARGEST_TYPE_NAME &&
           PyUnicode_GetLength(text) <= CODEC_LARGEST_REPR;
}

// What default() says of a value: HANDLE with a number, REPR without one.
static int write_handle(struct writer *writer, PyObject *value, const struct step *at,
                        int depth) {
    PyObject *parts =
        PyObject_CallFunctionObjArgs(writer->options->fallback, value, NULL);
    if (parts == NULL) return -1;
    int status = -1;
    if (!valid_handle(parts)) {
        PyErr_Format(PyExc_TypeError,
                     "default() must return (int or None, str of at most %d, str of at "
                     "most %d)",
                     CODEC_LARGEST_TYPE_NAME, CODEC_LARGEST_REPR);
    } else if (PyTuple_GetItem(parts, 0) == Py_None && writer->keys_open > 0) {
        refuse(PyExc_TypeError, "a type that is no key in a key", at);
    } else if (enter(writer, value, at, depth) == 0) {
        int named = PyTuple_GetItem(parts, 0) != Py_None;
        struct step here = {.up = at, .container = value, .index = -1};
        status = write_tag(writer, named ? COMPOSITE_HANDLE : COMPOSITE_REPR);
        for (Py_ssize_t i = named ? 0 : 1; status == 0 && i < 3; i++)
            status = write_value(writer, PyTuple_GetItem(parts, i), &here, depth + 1);
    }
    Py_DECREF(parts);
    return status;
}

static int refuse_type(PyObject *value, const struct step *at) {
    PyObject *name = PyType_GetQualName(Py_TYPE(value));
    if (name == NULL) return -1;
    PyObject *path = describe_path(at);
    if (path != NULL)
        PyErr_Format(PyExc_TypeError, "cannot encode %U: no encoding for type %.200A",
                     path, name);
    Py_XDECREF(path);
    Py_DECREF(name);
    return -1;
}

// reduce() said TypeError: one of its types, but not this value. Add the path in front.
static int refuse_reduced(const struct step *at) {
    PyObject *type = NULL;
    PyObject *error = NULL;
    PyObject *traceback = NULL;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *path = describe_path(at);
    if (path != NULL) PyErr_Format(PyExc_TypeError, "cannot encode %U: %S", path, error);
    Py_XDECREF(path);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return -1;
}

static int write_other(struct writer *writer, PyObject *value, const struct step *at,
                       int depth) {
    PyObject *reduce = writer->options->reduce;
    if (reduce == NULL) reduce = writer->state->reduce;
    if (reduce != NULL) {
        PyObject *parts = PyObject_CallFunctionObjArgs(reduce, value, NULL);
        if (parts == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
            if (writer->options->fallback == NULL) return refuse_reduced(at);
            PyErr_Clear();
            return write_handle(writer, value, at, depth);
        }
        int reduced = parts != Py_None;
        int status = reduced ? write_composite(writer, value, parts, at, depth) : 0;
        Py_DECREF(parts);
        if (reduced) return status;
    }
    // A subclass of these three crosses as its base value, read without its overrides.
    if (PyLong_Check(value)) return write_int(writer, value);
    if (PyFloat_Check(value)) return write_float(writer, value);
    if (PyUnicode_Check(value)) return write_str(writer, value);
    if (writer->options->fallback != NULL) return write_handle(writer, value, at, depth);
    return refuse_type(value, at);
}

static int write_octets(struct writer *writer, PyObject *value) {
    if (PyBytes_CheckExact(value)) return write_bytes(writer, value);
    return write_block(writer, TAG_BYTEARRAY, PyByteArray_AsString(value),
                       PyByteArray_Size(value));
}

// Bytes that are large enough to lie beside the encoding, if reduce() can place them.
static int write_large(struct writer *writer, PyObject *value, const struct step *at,
                       int depth) {
    PyObject *reduce = writer->options->reduce;
    if (reduce == NULL || writer->keys_open > 0) return write_octets(writer, value);
    PyObject *parts = PyObject_CallFunctionObjArgs(reduce, value, NULL);
    if (parts == NULL) return -1;
    int status = parts == Py_None ? write_octets(writer, value)
                                  : write_composite(writer, value, parts, at, depth);
    Py_DECREF(parts);
    return status;
}

static int write_value(struct writer *writer, PyObject *value, const struct step *at,
                       int depth) {
    if (count_parts(writer, 1) < 0) return -1;
    if (PyUnicode_CheckExact(value)) return write_str(writer, value);
    if (PyLong_CheckExact(value)) return write_int(writer, value);
    if (value == Py_None) return write_tag(writer, TAG_NONE);
    if (value == Py_True) return write_tag(writer, TAG_TRUE);
    if (value == Py_False) return write_tag(writer, TAG_FALSE);
    if (PyFloat_CheckExact(value)) return write_float(writer, value);
    if (PyComplex_CheckExact(value)) return write_complex(writer, value);
    if (PyBytes_CheckExact(value) || PyByteArray_CheckExact(value)) {
        if (PyObject_Length(value) > writer->options->beside)
            return write_large(writer, value, at, depth);
        return write_octets(writer, value);
    }
    int is_dict = PyDict_CheckExact(value);
    int is_list = PyList_CheckExact(value);
    int is_tuple = PyTuple_CheckExact(value);
    if (!is_dict && !is_list && !is_tuple && !PySet_CheckExact(value) &&
        !PyFrozenSet_CheckExact(value))
        return write_other(writer, value, at, depth);
    if (enter(writer, value, at, depth) < 0) return -1;
    if (is_dict) return write_dict(writer, value, at, depth + 1);
    if (is_list) return write_list(writer, value, at, depth + 1);
    if (is_tuple) return write_tuple(writer, value, at, depth + 1);
    return write_set(writer, value, at, depth + 1);
}

PyObject *codec_encode(struct codec_state *state, PyObject *value,
                       const struct codec_options *options) {
    struct writer writer;
    writer.state = state;
    writer.options = options;
    writer.data = writer.small;
    writer.used = 0;
    writer.room = (Py_ssize_t)sizeof writer.small;
    if (writer.room > options->max_bytes) writer.room = options->max_bytes;
    writer.nodes_left = options->max_nodes;
    writer.keys_open = 0;
    PyObject *bytes = NULL;
    if (write_tag(&writer, CODEC_VERSION) == 0 &&
        write_value(&writer, value, NULL, 0) == 0)
        bytes = PyBytes_FromStringAndSize((const char *)writer.data, writer.used);
    if (writer.data != writer.small) PyMem_Free(writer.data);
    return bytes;
}
