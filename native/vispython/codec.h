// The value codec: Python values to bytes and back, data only.
//
// The format is specified in doc/reference/protocol.md. The host decodes bytes that
// hostile code wrote, so the decoder bounds depth, parts, bytes and hashing work before
// it spends them, and never names, imports or calls anything that the data chooses.
#ifndef VIS_CODEC_H
#define VIS_CODEC_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

#define CODEC_VERSION           1
#define CODEC_DEFAULT_BYTES     (64LL * 1024 * 1024)
#define CODEC_DEFAULT_DEPTH     64
#define CODEC_DEFAULT_NODES     1000000
#define CODEC_LARGEST_BYTES     0xFFFFFFFFLL // lengths are 32 bits wide
#define CODEC_LARGEST_DEPTH     256          // each level is a C stack frame
#define CODEC_LARGEST_NODES     0x7FFFFFFFLL
#define CODEC_LARGEST_TYPE_NAME 1024 // characters
#define CODEC_LARGEST_REPR      8192 // characters
// Bytes of an int in a key: comparing an int with a Decimal takes quadratic time.
#define CODEC_LARGEST_KEY_INT 1024

// Every tag is one byte. 0 is never valid, so that zeroed memory is refused at once.
enum codec_tag {
    TAG_NONE = 0x01,
    TAG_FALSE = 0x02,
    TAG_TRUE = 0x03,
    TAG_INT8 = 0x04,
    TAG_INT32 = 0x05,
    TAG_INT64 = 0x06,
    TAG_BIGINT = 0x07,
    TAG_FLOAT = 0x08,
    TAG_COMPLEX = 0x09,
    TAG_STR = 0x0A,
    TAG_BYTES = 0x0B,
    TAG_BYTEARRAY = 0x0C,
    TAG_LIST = 0x10,
    TAG_TUPLE = 0x11,
    TAG_SET = 0x12,
    TAG_FROZENSET = 0x13,
    TAG_DICT = 0x14,
};

// Composite tags follow each other from here. Each is followed by a fixed number of
// complete values; Python builds and takes apart the objects (guest/values.py, same
// order).
#define COMPOSITE_FIRST  0x20
#define COMPOSITE_COUNT  18
#define COMPOSITE_PATH   0x29
#define COMPOSITE_HANDLE 0x2B
// From here on composites cannot be keys: to hash a large one reads all of it, two
// objects may have one repr, and collections can change.
#define COMPOSITE_NO_KEY 0x2C
#define COMPOSITE_BUFFER 0x2C // only as data of the three after it that have some
#define COMPOSITE_ARRAY  0x2D
#define COMPOSITE_TABLE  0x2E
#define COMPOSITE_BLOB   0x31
#define COMPOSITE_REPR   0x2F
// Its builder fills another dict with the same keys, which takes as long as the first
// time.
#define COMPOSITE_COLLECTION 0x30
extern const unsigned char codec_arity[COMPOSITE_COUNT];

struct codec_state {
    PyObject
        *int_bit_length;    // int.bit_length, int.to_bytes and int.from_bytes, taken from
    PyObject *int_to_bytes; // the type so that a subclass cannot replace them
    PyObject *int_from_bytes;
    PyObject *signed_keyword; // {"signed": True}
    PyObject *little;         // "little"
    PyObject *reduce;         // value -> (tag, *fields) or None; NULL until bound
    PyObject *builders;       // tuple of COMPOSITE_COUNT callables; NULL until bound
};

struct codec_options {
    Py_ssize_t max_bytes;
    Py_ssize_t max_nodes;
    // Bytes and bytearrays of more than so many bytes are shown to reduce (encode only).
    Py_ssize_t beside;
    int max_depth;
    PyObject *fallback; // borrowed; NULL if unknown types are refused (encode only)
    PyObject *reduce;   // borrowed; for this call instead of the state's (encode only)
    PyObject *builders; // borrowed; the same (decode only)
};

// Add the codec's functions to `module` and fill `state`. -1 with an exception on
// failure.
int codec_setup(PyObject *module, struct codec_state *state);
int codec_traverse(struct codec_state *state, visitproc visit, void *arg);
void codec_clear(struct codec_state *state);

// What a path costs beyond its items: every separator makes one more object in memory.
// 0 for anything that is not a str.
Py_ssize_t codec_path_parts(PyObject *text);

// A new bytes object, or NULL with TypeError (unknown type) or ValueError (cycle, limit).
PyObject *codec_encode(struct codec_state *state, PyObject *value,
                       const struct codec_options *options);

// A new value, or NULL with ValueError that names the byte where the data is wrong.
PyObject *codec_decode(struct codec_state *state, const unsigned char *data,
                       Py_ssize_t size, const struct codec_options *options);

#endif
