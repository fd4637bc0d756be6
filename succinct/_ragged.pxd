from libc.stdint cimport int64_t


# A token of a list or tuple; ValueError if it is out of range, TypeError if it is no integer.
cdef int64_t as_token(object item, object items) except -1
