/* status.h - the closed table of outcomes.
 *
 * A fallible function returns 0 or one of these negative codes; values leave through
 * out-pointers, which are written only on success. The sentence for a person goes to
 * a struct ek_err (err.h) at the borders: loading, configuration, requests.
 */
#ifndef EVENKEEL_BASE_STATUS_H
#define EVENKEEL_BASE_STATUS_H

/* X(name, value, text) */
#define EK_STATUS_TABLE(X)                                                             \
    X(EK_ENOMEM, -1, "out of memory")                                                  \
    X(EK_EINVAL, -2, "invalid value")                                                  \
    X(EK_EFORMAT, -3, "malformed input")                                               \
    X(EK_ELIMIT, -4, "over a stated limit")                                            \
    X(EK_ENOENT, -5, "not found")                                                      \
    X(EK_EUNSUP, -6, "not supported")                                                  \
    X(EK_EIO, -7, "input/output failure")                                              \
    X(EK_EBUSY, -8, "busy, try again later")                                           \
    X(EK_EAGAIN, -9, "would block")                                                    \
    X(EK_ECLOSED, -10, "peer is gone")                                                 \
    X(EK_ETIMEOUT, -11, "timed out")                                                   \
    X(EK_ECANCELED, -12, "canceled")                                                   \
    X(EK_EPERM, -13, "not permitted")                                                  \
    X(EK_EPAGE, -14, "page check failed")

enum ek_status {
    EK_OK = 0,
#define X(name, value, text) name = value,
    EK_STATUS_TABLE(X)
#undef X
};

#define EK_MUST_USE          __attribute__((warn_unused_result))
#define EK_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The table's text for `status`; "unknown status" for a value outside the table.
 * Cannot fail. Threads: any. */
const char *ek_status_text(int status);

/* "EK_ENOMEM" and so on; "?" for a value outside the table. */
const char *ek_status_name(int status);

#endif
