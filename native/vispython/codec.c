// The Python face of the value codec: encode(), decode(), bind_types().
#include "codec.h"

#include "core.h"

_Static_assert(sizeof(Py_ssize_t) == 8, "limits are written for 64-bit sizes");
_Static_assert(sizeof(double) == 8, "floats cross as IEEE 754 binary64");

// RANGE DATE TIME DATETIME TIMEDELTA TIMEZONE DECIMAL FRACTION UUID PATH RECORD HANDLE
// BUFFER ARRAY TABLE REPR COLLECTION BLOB
const unsigned char codec_arity[COMPOSITE_COUNT] = {3, 3, 6, 9, 3, 2, 1, 2, 1,
                                                    1, 3, 3, 2, 3, 1, 2, 3, 2};

Py_ssize_t codec_path_parts(PyObject *text) {
    if (!PyUnicode_CheckExact(text)) return 0;
    Py_ssize_t length = PyUnicode_GetLength(text);
    Py_ssize_t parts = 0;
    Py_ssize_t at = PyUnicode_FindChar(text, '/', 0, length, 1);
    while (at >= 0) {
        parts++;
        at = PyUnicode_FindChar(text, '/', at + 1, length, 1);
    }
    return parts;
}

static int read_limit(PyObject *value, const char *name, long long largest,
                      Py_ssize_t *out) {
    if (!PyLong_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be an int", name);
        return -1;
    }
    int overflow = 0;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (number == -1 && overflow == 0 && PyErr_Occurred()) return -1;
    if (overflow != 0 || number < 1 || number > largest) {
        PyErr_Format(PyExc_ValueError, "%s must be from 1 to %lld", name, largest);
        return -1;
    }
    *out = (Py_ssize_t)number;
    return 0;
}

static int are_builders(PyObject *value) {
    return PyTuple_CheckExact(value) && PyTuple_Size(value) == COMPOSITE_COUNT;
}

static int read_option(PyObject *name, PyObject *value, int encoding,
                       struct codec_options *options) {
    if (PyUnicode_CompareWithASCIIString(name, "max_bytes") == 0)
        return read_limit(value, "max_bytes", CODEC_LARGEST_BYTES, &options->max_bytes);
    if (PyUnicode_CompareWithASCIIString(name, "max_nodes") == 0)
        return read_limit(value, "max_nodes", CODEC_LARGEST_NODES, &options->max_nodes);
    if (PyUnicode_CompareWithASCIIString(name, "max_depth") == 0) {
        Py_ssize_t depth = 0;
        if (read_limit(value, "max_depth", CODEC_LARGEST_DEPTH, &depth) < 0) return -1;
        options->max_depth = (int)depth;
        return 0;
    }
    if (encoding && PyUnicode_CompareWithASCIIString(name, "beside") == 0)
        return read_limit(value, "beside", CODEC_LARGEST_BYTES, &options->beside);
    if (encoding && PyUnicode_CompareWithASCIIString(name, "default") == 0) {
        if (value != Py_None && !PyCallable_Check(value)) {
            PyErr_SetString(PyExc_TypeError, "default must be callable or None");
            return -1;
        }
        options->fallback = value == Py_None ? NULL : value;
        return 0;
    }
    if (encoding && PyUnicode_CompareWithASCIIString(name, "reduce") == 0) {
        if (!PyCallable_Check(value)) {
            PyErr_SetString(PyExc_TypeError, "reduce must be callable");
            return -1;
        }
        options->reduce = value;
        return 0;
    }
    if (!encoding && PyUnicode_CompareWithASCIIString(name, "builders") == 0) {
        if (!are_builders(value)) {
            PyErr_Format(PyExc_TypeError, "builders must be a tuple of %d callables",
                         COMPOSITE_COUNT);
            return -1;
        }
        options->builders = value;
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "unexpected keyword argument %R", name);
    return -1;
}

// One positional argument, the rest by keyword.
static int read_arguments(PyObject *const *args, Py_ssize_t count, PyObject *names,
                          int encoding, struct codec_options *options) {
    if (count != 1) {
        PyErr_Format(PyExc_TypeError, "expected 1 positional argument, got %zd", count);
        return -1;
    }
    *options = (struct codec_options){
        .max_bytes = CODEC_DEFAULT_BYTES,
        .max_nodes = CODEC_DEFAULT_NODES,
        .beside = CODEC_LARGEST_BYTES,
        .max_depth = CODEC_DEFAULT_DEPTH,
    };
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        if (name == NULL) return -1;
        if (read_option(name, args[count + i], encoding, options) < 0) return -1;
    }
    return 0;
}

static PyObject *encode(PyObject *module, PyObject *const *args, Py_ssize_t count,
                        PyObject *names) {
    struct codec_options options;
    if (read_arguments(args, count, names, 1, &options) < 0) return NULL;
    return codec_encode(&core_state_of(module)->codec, args[0], &options);
}

static PyObject *decode(PyObject *module, PyObject *const *args, Py_ssize_t count,
                        PyObject *names) {
    struct codec_options options;
    if (read_arguments(args, count, names, 0, &options) < 0) return NULL;
    // Only bytes: memory that can change between two looks at it is not decodable safely.
    if (!PyBytes_CheckExact(args[0])) {
        PyErr_SetString(PyExc_TypeError, "decode() takes exactly a bytes object");
        return NULL;
    }
    char *data = NULL;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(args[0], &data, &size) < 0) return NULL;
    return codec_decode(&core_state_of(module)->codec, (const unsigned char *)data, size,
                        &options);
}

static PyObject *bind_types(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyCallable_Check(args[0]) || !are_builders(args[1])) {
        PyErr_Format(PyExc_TypeError, "expected a callable and a tuple of %d callables",
                     COMPOSITE_COUNT);
        return NULL;
    }
    PyObject *reduce = args[0];
    PyObject *builders = args[1];
    struct codec_state *state = &core_state_of(module)->codec;
    if (state->reduce != NULL) {
        if (state->reduce == reduce && state->builders == builders) Py_RETURN_NONE;
        PyErr_SetString(PyExc_RuntimeError, "the codec's types are bound already");
        return NULL;
    }
    Py_INCREF(reduce);
    state->reduce = reduce;
    Py_INCREF(builders);
    state->builders = builders;
    Py_RETURN_NONE;
}

static PyMethodDef codec_methods[] = {
    {"encode", (PyCFunction)(void (*)(void))encode, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR(
         "encode(value, /, *, max_bytes=67108864, max_depth=64, max_nodes=1000000,\n"
         "       default=None, reduce=..., beside=4294967295) -> bytes\n\n"
         "Encode a value. TypeError: a type that does not cross, unless default(value)\n"
         "returns (id, type name, repr); with None as id it stands for no object.\n"
         "ValueError: a cycle or a limit. reduce: for this call instead of the one that\n"
         "was bound; it is asked about bytes and bytearrays longer than beside, too.")},
    {"decode", (PyCFunction)(void (*)(void))decode, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR(
         "decode(data, /, *, max_bytes=67108864, max_depth=64, max_nodes=1000000,\n"
         "       builders=...)\n\n"
         "Decode bytes that encode() made. ValueError names the byte that is wrong.\n"
         "builders: for this call instead of those that were bound.")},
    {"bind_types", (PyCFunction)(void (*)(void))bind_types, METH_FASTCALL,
     PyDoc_STR("bind_types(reduce, builders) -> None\n\n"
               "Give the codec its composite types, once.")},
    {NULL, NULL, 0, NULL},
};

int codec_setup(PyObject *module, struct codec_state *state) {
    PyObject *integer = (PyObject *)&PyLong_Type;
    state->int_bit_length = PyObject_GetAttrString(integer, "bit_length");
    if (state->int_bit_length == NULL) return -1;
    state->int_to_bytes = PyObject_GetAttrString(integer, "to_bytes");
    if (state->int_to_bytes == NULL) return -1;
    state->int_from_bytes = PyObject_GetAttrString(integer, "from_bytes");
    if (state->int_from_bytes == NULL) return -1;
    state->signed_keyword = Py_BuildValue("{sO}", "signed", Py_True);
    if (state->signed_keyword == NULL) return -1;
    state->little = PyUnicode_FromString("little");
    if (state->little == NULL) return -1;
    return PyModule_AddFunctions(module, codec_methods);
}

int codec_traverse(struct codec_state *state, visitproc visit, void *arg) {
    Py_VISIT(state->int_bit_length);
    Py_VISIT(state->int_to_bytes);
    Py_VISIT(state->int_from_bytes);
    Py_VISIT(state->signed_keyword);
    Py_VISIT(state->little);
    Py_VISIT(state->reduce);
    Py_VISIT(state->builders);
    return 0;
}

void codec_clear(struct codec_state *state) {
    Py_CLEAR(state->int_bit_length);
    Py_CLEAR(state->int_to_bytes);
    Py_CLEAR(state->int_from_bytes);
    Py_CLEAR(state->signed_keyword);
    Py_CLEAR(state->little);
    Py_CLEAR(state->reduce);
    Py_CLEAR(state->builders);
}
