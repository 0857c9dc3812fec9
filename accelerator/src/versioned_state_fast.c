/* The accelerator of versioned-state: checks and packs plain values in one pass, and recognises unchanged values by
   their marks.

   Each function gives the answer of the package's own Python code, or None where that code has to decide: for a value
   of another type, a text with a lone surrogate, an int beyond 64 bits, a value that is too deep or too long.

   No function calls back into Python or releases the GIL while it reads a value, so no value changes meanwhile;
   ``pack_all`` looks for Ctrl-C between values. Nothing here keeps state: a call that is interrupted leaves nothing
   behind. Only MemoryError and wrong arguments raise, besides Ctrl-C.

   Marks are the content of some values in the order of a walk, one word for each leaf or container:

       leaf           the address of the object. It is immutable, and the marks own a reference, so that no address is
                      used again.
       list of n      4 * n + 1
       dict of n      4 * n + 3, followed by key, value, key, value ...

   Addresses of objects are even, and words of containers are odd. So no leaf is ever taken for a container, whatever a
   program puts into a value: if small ints stood for the sizes of containers, [[-5, "a"], "b"] would pass
   for [-5, ["a", "b"]]. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef PYPY_VERSION
#error "versioned-state-fast is for CPython: it relies on objects that keep their address"
#endif

/* The meaning of the functions and of their arguments. The package uses a module of its own number only. */
#define ABI 1

/* More containers within containers than any caller asks for, so that the C stack suffices on every thread. */
#define MOST_DEPTH 200

/* Values after which pack_all looks for Ctrl-C: some milliseconds. */
#define BETWEEN_SIGNALS 1024

/* Limits up to which a value that does not fit into the first room gets all of the room at once: they are most often
   its very size. */
#define EXPECTED (1 << 17)

#define LIST_WORD(size) (((uintptr_t)(size) << 2) | 1)
#define DICT_WORD(size) (((uintptr_t)(size) << 2) | 3)
#define IS_LEAF(word) (((word)&1) == 0)

/* Packing */

enum { PACKED = 0, GIVEN_UP = 1, NO_MEMORY = -1 };

typedef struct {
    unsigned char *bytes;
    Py_ssize_t length, room, limit; /* the room is allocated; a value longer than the limit is given up */
    Py_ssize_t words;               /* of the marks of what was packed */
    unsigned char inside[1024];     /* the first room: most values are small */
} Buffer;

static void
begin(Buffer *buffer, Py_ssize_t limit)
{
    buffer->bytes = buffer->inside;
    buffer->length = buffer->words = 0;
    buffer->room = sizeof(buffer->inside);
    buffer->limit = limit;
}

static void
end(Buffer *buffer)
{
    if (buffer->bytes != buffer->inside)
        PyMem_Free(buffer->bytes);
}

static int
grow(Buffer *buffer, Py_ssize_t more)
{
    if (more > buffer->limit - buffer->length)
        return GIVEN_UP;
    Py_ssize_t room = buffer->room;
    int is_first = buffer->bytes == buffer->inside;
    if (is_first && buffer->limit <= EXPECTED)
        room = buffer->limit;
    while (room - buffer->length < more)
        room = room > PY_SSIZE_T_MAX / 2 ? PY_SSIZE_T_MAX : room * 2;
    unsigned char *bytes = PyMem_Realloc(is_first ? NULL : buffer->bytes, (size_t)room);
    if (bytes == NULL)
        return NO_MEMORY;
    if (is_first)
        memcpy(bytes, buffer->inside, (size_t)buffer->length);
    buffer->bytes = bytes;
    buffer->room = room;
    return PACKED;
}

static inline int
reserve(Buffer *buffer, Py_ssize_t more)
{
    if (more <= buffer->room - buffer->length && more <= buffer->limit - buffer->length)
        return PACKED;
    return grow(buffer, more);
}

/* Write a byte that says what follows, and a number of 0, 1, 2, 4 or 8 bytes. */
static inline int
put(Buffer *buffer, unsigned char code, int size, uint64_t number)
{
    int failed = reserve(buffer, 1 + size);
    if (failed)
        return failed;
    unsigned char *at = buffer->bytes + buffer->length;
    *at = code;
    for (int i = size; i > 0; i--, number >>= 8)
        at[i] = (unsigned char)number;
    buffer->length += 1 + size;
    return PACKED;
}

/* Write the size of a text, list or dict: in the byte ``small`` if it is less than ``below``, else after ``wide`` or
   the byte after that. */
static inline int
put_size(Buffer *buffer, Py_ssize_t size, unsigned char small, Py_ssize_t below, unsigned char wide)
{
    if (size < below)
        return put(buffer, (unsigned char)(small | size), 0, 0);
    if (size <= 0xffff)
        return put(buffer, wide, 2, (uint64_t)size);
    if ((uint64_t)size <= 0xffffffffu)
        return put(buffer, (unsigned char)(wide + 1), 4, (uint64_t)size);
    return GIVEN_UP;
}

static int
put_int(Buffer *buffer, PyObject *value)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow < 0)
        return GIVEN_UP;
    if (overflow > 0) {
        /* Not PyLong_AsUnsignedLongLong: making its exception may start the collector, and so code that changes
           values. */
        unsigned long long low = PyLong_AsUnsignedLongLongMask(value);
        PyObject *again = PyLong_FromUnsignedLongLong(low);
        if (again == NULL)
            return NO_MEMORY;
        int is_equal = PyObject_RichCompareBool(value, again, Py_EQ); /* both are exact ints */
        Py_DECREF(again);
        return is_equal == 1 ? put(buffer, 0xcf, 8, low) : is_equal == 0 ? GIVEN_UP : NO_MEMORY;
    }
    if (number >= 0) {
        if (number < 0x80)
            return put(buffer, (unsigned char)number, 0, 0);
        if (number <= 0xff)
            return put(buffer, 0xcc, 1, (uint64_t)number);
        if (number <= 0xffff)
            return put(buffer, 0xcd, 2, (uint64_t)number);
        if (number <= 0xffffffffLL)
            return put(buffer, 0xce, 4, (uint64_t)number);
        return put(buffer, 0xcf, 8, (uint64_t)number);
    }
    if (number >= -0x20)
        return put(buffer, (unsigned char)number, 0, 0);
    if (number >= -0x80)
        return put(buffer, 0xd0, 1, (uint64_t)number);
    if (number >= -0x8000)
        return put(buffer, 0xd1, 2, (uint64_t)number);
    if (number >= -0x80000000LL)
        return put(buffer, 0xd2, 4, (uint64_t)number);
    return put(buffer, 0xd3, 8, (uint64_t)number);
}

static inline int
put_text_size(Buffer *buffer, Py_ssize_t size)
{
    if (size >= 32 && size <= 0xff)
        return put(buffer, 0xd9, 1, (uint64_t)size);
    return put_size(buffer, size, 0xa0, 32, 0xda);
}

/* The bytes of a text in UTF-8, or -1 if it has a surrogate, which has none; and these bytes, written from ``at`` on.
   For each width of the characters on its own, with no branch in the first loop, so that the compiler makes vectors of
   it: most characters of most texts are ASCII, also where a few are not. ``ascii`` are the bits that four ASCII
   characters do not have. */
#define TEXT_OF(WIDTH, TYPE, ASCII)                                                                                    \
    static Py_ssize_t size_of_##WIDTH(const TYPE *data, Py_ssize_t length)                                             \
    {                                                                                                                  \
        Py_ssize_t more = 0;                                                                                           \
        int has_surrogate = 0;                                                                                         \
        for (Py_ssize_t i = 0; i < length; i++) {                                                                      \
            uint32_t character = data[i];                                                                              \
            more += (character >= 0x80) + (character >= 0x800) + (character >= 0x10000);                               \
            has_surrogate |= (character & 0xfffff800u) == 0xd800u;                                                     \
        }                                                                                                              \
        return has_surrogate ? -1 : length + more;                                                                     \
    }                                                                                                                  \
                                                                                                                       \
    static void write_##WIDTH(unsigned char *at, const TYPE *data, Py_ssize_t length)                                  \
    {                                                                                                                  \
        Py_ssize_t i = 0;                                                                                              \
        while (i < length) {                                                                                           \
            for (; i + 4 <= length; i += 4, at += 4) {                                                                 \
                if ((data[i] | data[i + 1] | data[i + 2] | data[i + 3]) & (TYPE)(ASCII))                               \
                    break;                                                                                             \
                at[0] = (unsigned char)data[i];                                                                        \
                at[1] = (unsigned char)data[i + 1];                                                                    \
                at[2] = (unsigned char)data[i + 2];                                                                    \
                at[3] = (unsigned char)data[i + 3];                                                                    \
            }                                                                                                          \
            for (Py_ssize_t end = i + 4 < length ? i + 4 : length; i < end; i++)                                       \
                at = write_character(at, data[i]);                                                                     \
        }                                                                                                              \
    }

static inline unsigned char *
write_character(unsigned char *at, uint32_t character)
{
    if (character < 0x80) {
        *at++ = (unsigned char)character;
        return at;
    }
    if (character < 0x800)
        *at++ = (unsigned char)(0xc0 | character >> 6);
    else {
        if (character < 0x10000)
            *at++ = (unsigned char)(0xe0 | character >> 12);
        else {
            *at++ = (unsigned char)(0xf0 | character >> 18);
            *at++ = (unsigned char)(0x80 | (character >> 12 & 0x3f));
        }
        *at++ = (unsigned char)(0x80 | (character >> 6 & 0x3f));
    }
    *at++ = (unsigned char)(0x80 | (character & 0x3f));
    return at;
}

TEXT_OF(1, Py_UCS1, 0x80)
TEXT_OF(2, Py_UCS2, 0xff80)
TEXT_OF(4, Py_UCS4, 0xffffff80)

static int
put_text(Buffer *buffer, PyObject *value)
{
#if PY_VERSION_HEX < 0x030C0000
    if (!PyUnicode_IS_READY(value))
        return GIVEN_UP;
#endif
    Py_ssize_t length = PyUnicode_GET_LENGTH(value);
    if (length > buffer->limit - buffer->length)
        return GIVEN_UP;
    if (PyUnicode_IS_COMPACT_ASCII(value)) {
        int failed = put_text_size(buffer, length);
        if (!failed)
            failed = reserve(buffer, length);
        if (failed)
            return failed;
        memcpy(buffer->bytes + buffer->length, PyUnicode_1BYTE_DATA(value), (size_t)length);
        buffer->length += length;
        return PACKED;
    }
    /* Not PyUnicode_AsUTF8AndSize, which keeps the bytes beside the text for as long as it lives, nor an encoder whose
       exception for a surrogate may start the collector. */
    int kind = PyUnicode_KIND(value);
    const void *data = PyUnicode_DATA(value);
    /* At most four times a length that is within the limit: no overflow where limits are a few MiB. */
    Py_ssize_t size = kind == PyUnicode_1BYTE_KIND ? size_of_1(data, length)
                      : kind == PyUnicode_2BYTE_KIND ? size_of_2(data, length)
                                                     : size_of_4(data, length);
    if (size < 0)
        return GIVEN_UP;
    int failed = put_text_size(buffer, size);
    if (!failed)
        failed = reserve(buffer, size);
    if (failed)
        return failed;
    unsigned char *at = buffer->bytes + buffer->length;
    if (kind == PyUnicode_1BYTE_KIND)
        write_1(at, data, length);
    else if (kind == PyUnicode_2BYTE_KIND)
        write_2(at, data, length);
    else
        write_4(at, data, length);
    buffer->length += size;
    return PACKED;
}

/* Write a value. ``depth``: how many containers within each other it may be. */
static int
put_value(Buffer *buffer, PyObject *value, int depth)
{
    PyTypeObject *cls = Py_TYPE(value);
    buffer->words++;
    if (cls == &PyUnicode_Type)
        return put_text(buffer, value);
    if (cls == &PyLong_Type)
        return put_int(buffer, value);
    if (value == Py_None)
        return put(buffer, 0xc0, 0, 0);
    if (cls == &PyBool_Type)
        return put(buffer, value == Py_True ? 0xc3 : 0xc2, 0, 0);
    if (cls == &PyFloat_Type) {
        double number = PyFloat_AS_DOUBLE(value);
        uint64_t bits;
        memcpy(&bits, &number, sizeof(bits));
        return put(buffer, 0xcb, 8, bits);
    }
    if (depth <= 0)
        return GIVEN_UP;
    if (cls == &PyList_Type) {
        Py_ssize_t size = PyList_GET_SIZE(value);
        int failed = put_size(buffer, size, 0x90, 16, 0xdc);
        for (Py_ssize_t i = 0; !failed && i < size; i++)
            failed = put_value(buffer, PyList_GET_ITEM(value, i), depth - 1);
        return failed;
    }
    if (cls != &PyDict_Type)
        return GIVEN_UP;
    int failed = put_size(buffer, PyDict_GET_SIZE(value), 0x80, 16, 0xde);
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (!failed && PyDict_Next(value, &position, &key, &item)) {
        if (Py_TYPE(key) != &PyUnicode_Type)
            return GIVEN_UP;
        buffer->words++;
        failed = put_text(buffer, key);
        if (!failed)
            failed = put_value(buffer, item, depth - 1);
    }
    return failed;
}

static inline int
clamped(Py_ssize_t depth)
{
    return depth > MOST_DEPTH ? MOST_DEPTH : (int)(depth < 0 ? 0 : depth);
}

/* A value as bytes, or None, as a new reference; NULL without memory. */
static PyObject *
packed(PyObject *value, Py_ssize_t depth, Py_ssize_t limit)
{
    Buffer buffer;
    begin(&buffer, limit);
    PyObject *answer = NULL;
    switch (put_value(&buffer, value, clamped(depth))) {
    case PACKED:
        answer = PyBytes_FromStringAndSize((const char *)buffer.bytes, buffer.length);
        break;
    case GIVEN_UP:
        answer = Py_NewRef(Py_None);
        break;
    default:
        PyErr_NoMemory();
    }
    end(&buffer);
    return answer;
}

/* Read the numbers that follow the first argument. */
static int
read_numbers(const char *name, PyObject *const *args, Py_ssize_t nargs, int count, Py_ssize_t *numbers)
{
    if (nargs != 1 + count) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d arguments (%zd given)", name, 1 + count, nargs);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        numbers[i] = PyLong_AsSsize_t(args[1 + i]);
        if (numbers[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

PyDoc_STRVAR(pack_doc, "pack(value, depth, limit, /)\n--\n\n"
                       "Return a value as MessagePack, or None if it is not plain, has more than ``depth`` containers\n"
                       "within each other, or is longer than ``limit`` bytes.");

static PyObject *
pack(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t numbers[2];
    if (read_numbers("pack", args, nargs, 2, numbers) < 0)
        return NULL;
    return packed(args[0], numbers[0], numbers[1]);
}

PyDoc_STRVAR(pack_all_doc, "pack_all(values, depth, limit, /)\n--\n\n"
                           "Return the values of a list as ``pack`` does, as a list of the same length. The list must\n"
                           "be the caller's own.");

static PyObject *
pack_all(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t numbers[2];
    if (read_numbers("pack_all", args, nargs, 2, numbers) < 0)
        return NULL;
    PyObject *values = args[0];
    if (!PyList_CheckExact(values)) {
        PyErr_SetString(PyExc_TypeError, "pack_all() takes a list");
        return NULL;
    }
    Py_ssize_t size = PyList_GET_SIZE(values);
    PyObject *cells = PyList_New(size);
    for (Py_ssize_t i = 0; cells != NULL && i < size; i++) {
        if (i % BETWEEN_SIGNALS == BETWEEN_SIGNALS - 1 && PyErr_CheckSignals() < 0) {
            Py_CLEAR(cells);
            break;
        }
        /* Making the list of cells, or a handler of a signal, may have run code that changes the list. */
        PyObject *cell;
        if (i < PyList_GET_SIZE(values)) {
            PyObject *value = Py_NewRef(PyList_GET_ITEM(values, i));
            cell = packed(value, numbers[0], numbers[1]);
            Py_DECREF(value);
        }
        else
            cell = Py_NewRef(Py_None);
        if (cell == NULL)
            Py_CLEAR(cells);
        else
            PyList_SET_ITEM(cells, i, cell);
    }
    return cells;
}

/* Marks */

typedef struct {
    PyObject_VAR_HEAD
    Py_ssize_t values; /* how many values were marked */
    uintptr_t words[];
} Marks;

static PyTypeObject *marks_type;

/* Write the words of a value that ``put_value`` has packed just now. */
static uintptr_t *
write_words(PyObject *value, uintptr_t *at)
{
    if (PyList_CheckExact(value)) {
        Py_ssize_t size = PyList_GET_SIZE(value);
        *at++ = LIST_WORD(size);
        for (Py_ssize_t i = 0; i < size; i++)
            at = write_words(PyList_GET_ITEM(value, i), at);
        return at;
    }
    if (!PyDict_CheckExact(value)) {
        *at++ = (uintptr_t)Py_NewRef(value);
        return at;
    }
    *at++ = DICT_WORD(PyDict_GET_SIZE(value));
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (PyDict_Next(value, &position, &key, &item)) {
        *at++ = (uintptr_t)Py_NewRef(key);
        at = write_words(item, at);
    }
    return at;
}

/* The word after those of a value, or NULL if the value differs from them. The words say where a value ends, and how
   deep it is, so that nothing beyond them is read. */
static const uintptr_t *
match_words(PyObject *value, const uintptr_t *at)
{
    uintptr_t word = *at++;
    if (word == (uintptr_t)value) /* first: most parts are leaves that have not changed */
        return at;
    if (IS_LEAF(word))
        return NULL;
    if (PyList_CheckExact(value)) {
        Py_ssize_t size = PyList_GET_SIZE(value);
        if (word != LIST_WORD(size))
            return NULL;
        for (Py_ssize_t i = 0; i < size; i++) {
            at = match_words(PyList_GET_ITEM(value, i), at);
            if (at == NULL)
                return NULL;
        }
        return at;
    }
    if (!PyDict_CheckExact(value) || word != DICT_WORD(PyDict_GET_SIZE(value)))
        return NULL;
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (PyDict_Next(value, &position, &key, &item)) {
        if (*at++ != (uintptr_t)key)
            return NULL;
        at = match_words(item, at);
        if (at == NULL)
            return NULL;
    }
    return at;
}

PyDoc_STRVAR(pack_marked_doc, "pack_marked(values, start, stop, depth, limit, /)\n--\n\n"
                              "Return ``values[start:stop]`` as one MessagePack array, and the marks of the same\n"
                              "moment; or None as ``pack`` does, each value of at most ``depth`` containers within\n"
                              "each other, or if there are no such values.");

static PyObject *
pack_marked(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t numbers[4];
    if (read_numbers("pack_marked", args, nargs, 4, numbers) < 0)
        return NULL;
    PyObject *values = args[0];
    Py_ssize_t start = numbers[0], stop = numbers[1];
    int depth = clamped(numbers[2]);
    /* First, because a new tuple may start the collector, and so code that changes values. */
    PyObject *answer = PyTuple_New(2);
    if (answer == NULL)
        return NULL;
    if (!PyList_CheckExact(values) || start < 0 || stop < start || stop > PyList_GET_SIZE(values)) {
        Py_DECREF(answer);
        Py_RETURN_NONE;
    }
    Buffer buffer;
    begin(&buffer, numbers[3]);
    int failed = put_size(&buffer, stop - start, 0x90, 16, 0xdc);
    for (Py_ssize_t i = start; !failed && i < stop; i++)
        failed = put_value(&buffer, PyList_GET_ITEM(values, i), depth);
    if (!failed) {
        /* Neither bytes nor marks are known to the collector, so making them starts it no more than packing did. */
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)buffer.bytes, buffer.length);
        Marks *marks = bytes == NULL ? NULL : (Marks *)marks_type->tp_alloc(marks_type, buffer.words);
        if (marks == NULL) {
            Py_XDECREF(bytes);
            failed = NO_MEMORY;
        }
        else {
            marks->values = stop - start;
            uintptr_t *at = marks->words;
            for (Py_ssize_t i = start; i < stop; i++)
                at = write_words(PyList_GET_ITEM(values, i), at);
            PyTuple_SET_ITEM(answer, 0, bytes);
            PyTuple_SET_ITEM(answer, 1, (PyObject *)marks);
        }
    }
    end(&buffer);
    if (!failed)
        return answer;
    Py_DECREF(answer);
    if (failed == NO_MEMORY)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(same_doc, "same($self, values, start, /)\n--\n\n"
                       "Return whether the values from ``start`` on consist of the very leaves that were marked, in\n"
                       "equal containers. False also means that equal leaves have taken their place.");

static PyObject *
marks_same(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t start;
    if (read_numbers("same", args, nargs, 1, &start) < 0)
        return NULL;
    Marks *marks = (Marks *)self;
    PyObject *values = args[0];
    if (!PyList_CheckExact(values) || start < 0 || start > PyList_GET_SIZE(values) - marks->values)
        Py_RETURN_FALSE;
    const uintptr_t *at = marks->words;
    for (Py_ssize_t i = start; i < start + marks->values; i++) {
        at = match_words(PyList_GET_ITEM(values, i), at);
        if (at == NULL)
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(begin_doc, "begin($self, marks, /)\n--\n\n"
                        "Return whether other marks begin with these: their first values were these, with the same\n"
                        "leaves.");

static PyObject *
marks_begin(PyObject *self, PyObject *other)
{
    if (Py_TYPE(other) != marks_type) {
        PyErr_SetString(PyExc_TypeError, "begin() takes marks");
        return NULL;
    }
    /* The words of a value say where it ends, so equal words are of equally many values. */
    size_t size = (size_t)Py_SIZE(self);
    return PyBool_FromLong(Py_SIZE(self) <= Py_SIZE(other) &&
                           memcmp(((Marks *)self)->words, ((Marks *)other)->words, size * sizeof(uintptr_t)) == 0);
}

static PyObject *
marks_sizeof(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromSsize_t((Py_ssize_t)sizeof(Marks) + Py_SIZE(self) * (Py_ssize_t)sizeof(uintptr_t));
}

static Py_ssize_t
marks_length(PyObject *self)
{
    return ((Marks *)self)->values;
}

static void
marks_dealloc(PyObject *self)
{
    Marks *marks = (Marks *)self;
    PyTypeObject *cls = Py_TYPE(self);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++)
        if (IS_LEAF(marks->words[i]))
            Py_DECREF((PyObject *)marks->words[i]);
    cls->tp_free(self);
    Py_DECREF(cls);
}

static PyMethodDef marks_methods[] = {
    {"same", (PyCFunction)(void (*)(void))marks_same, METH_FASTCALL, same_doc},
    {"begin", marks_begin, METH_O, begin_doc},
    {"__sizeof__", marks_sizeof, METH_NOARGS, "The bytes of memory of the marks, without the leaves."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot marks_slots[] = {
    {Py_tp_dealloc, marks_dealloc},
    {Py_tp_methods, marks_methods},
    {Py_sq_length, marks_length},
    {Py_tp_doc, "The content of some values, by the identity of their leaves. The length is the number of the values."},
    {0, NULL},
};

/* Not known to the collector: a leaf refers to nothing, so marks are part of no cycle. */
static PyType_Spec marks_spec = {
    .name = "versioned_state_fast.Marks",
    .basicsize = sizeof(Marks),
    .itemsize = sizeof(uintptr_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = marks_slots,
};

/* The module */

static PyMethodDef methods[] = {
    {"pack", (PyCFunction)(void (*)(void))pack, METH_FASTCALL, pack_doc},
    {"pack_all", (PyCFunction)(void (*)(void))pack_all, METH_FASTCALL, pack_all_doc},
    {"pack_marked", (PyCFunction)(void (*)(void))pack_marked, METH_FASTCALL, pack_marked_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "versioned_state_fast",
    .m_doc = "Packs and compares plain values for versioned_state. ABI is the number of the meaning of these "
             "functions.",
    .m_size = -1, /* one for the process: a subinterpreter with a GIL of its own is refused */
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit_versioned_state_fast(void)
{
#ifdef Py_GIL_DISABLED
    PyErr_SetString(PyExc_ImportError, "not for free-threaded builds of Python");
    return NULL;
#endif
    const char *wanted = getenv("VERSIONED_STATE_FAST");
    if (wanted != NULL && strcmp(wanted, "0") == 0) {
        PyErr_SetString(PyExc_ImportError, "switched off by VERSIONED_STATE_FAST=0");
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (marks_type == NULL)
        marks_type = (PyTypeObject *)PyType_FromSpec(&marks_spec);
    if (marks_type == NULL || PyModule_AddIntConstant(module, "ABI", ABI) < 0 ||
        PyModule_AddObjectRef(module, "Marks", (PyObject *)marks_type) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
