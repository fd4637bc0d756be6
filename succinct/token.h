/* The value of a plain small int without a call, -1 for any other object. */
#ifndef SUCCINCT_TOKEN_H
#define SUCCINCT_TOKEN_H

#include <Python.h>
#include <stdint.h>

static inline int64_t small_token(PyObject *object) {
    if (!PyLong_CheckExact(object)) return -1;
#if PY_VERSION_HEX >= 0x030C0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)object)) return -1;
    Py_ssize_t value = PyUnstable_Long_CompactValue((PyLongObject *)object);
    return value >= 0 ? (int64_t)value : -1;
#else
    Py_ssize_t digits = Py_SIZE(object); /* negative for a negative number */
    if (digits == 0) return 0;
    return digits == 1 ? (int64_t)((PyLongObject *)object)->ob_digit[0] : -1;
#endif
}

#endif
