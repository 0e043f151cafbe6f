/* encode_int.h - the encodings: encode.c chooses and writes what is not ORCA. */
#ifndef EVENKEEL_SESSION_ENCODE_INT_H
#define EVENKEEL_SESSION_ENCODE_INT_H

#include "session/out.h"
#include "session/tracker_int.h"

/* Bytes of an OrcaLoadReport with every name at its longest: 24 metrics. */
#define EK_ORCA_PROTO_MAX 2048

/* orca.c: `e` is one of the ORCA encodings. */
void ek_put_orca(struct ek_session_out *o, const struct ek_tracker *t,
                 const struct ek_snapshot *s, enum ek_tracker_encoding e);

#endif
