/* report.h - decoders of what backends say about their load.
 *
 *   endpoint-load-metrics: TEXT cpu_utilization=0.3, named_metrics.active_sessions=4
 *   endpoint-load-metrics: JSON {"cpu_utilization":0.3,"named_metrics":{...}}
 *   endpoint-load-metrics: BIN <base64 of xds.data.orca.v3.OrcaLoadReport>
 *   endpoint-load-metrics-bin: <the same>        a trailer of gRPC
 *   {"active_sessions":4,"effective_capacity":14.2,...}   body of a poll (session.h)
 *   up 28% maxconn:7                             HAProxy's agent-check
 *
 * Strict in form: one bad byte refuses the whole report, as does a key that is there
 * twice. Unknown names are skipped, all of them are forms that grow. Whether a figure
 * can be is the pool's to judge; NaN comes through from the binary form alone.
 * *r is written on success only.
 * Errors of all: EK_EFORMAT; EK_ELIMIT over EK_REPORT_BYTES_MAX or EK_REPORT_KEYS_MAX;
 * EK_ENOMEM (JSON alone). Threads: any. No allocation but for JSON.
 * Source: cncf/xds orca_load_report.proto; gRFC A51; HAProxy's configuration manual,
 * agent-check.
 */
#ifndef EVENKEEL_ROUTE_REPORT_H
#define EVENKEEL_ROUTE_REPORT_H

#include "base/status.h"
#include "route/load.h"

#include <stddef.h>

#define EK_REPORT_BYTES_MAX 16384
#define EK_REPORT_KEYS_MAX  64

/* Named metrics of ORCA that the pool understands; their names can be changed, as the
 * tracker's can. */
enum ek_report_name {
    EK_REPORT_ACTIVE,
    EK_REPORT_COST,
    EK_REPORT_CAPACITY,
    EK_REPORT_REMAINING,
    EK_REPORT_YOUNG,
    EK_REPORT_YOUNG_WEIGHT,
    EK_REPORT_FACTOR,
    EK_REPORT_N_NAMES
};
struct ek_report_names {
    const char *at[EK_REPORT_N_NAMES]; /* NULL: the default, "active_sessions" ... */
};

/* The value of endpoint-load-metrics. names: NULL for the defaults. */
int ek_report_header(struct ek_load_report *r, const char *text, size_t n,
                     const struct ek_report_names *names) EK_MUST_USE;

/* The value of endpoint-load-metrics-bin: base64, padded or not. */
int ek_report_trailer(struct ek_load_report *r, const char *text, size_t n,
                      const struct ek_report_names *names) EK_MUST_USE;

/* The bytes of an OrcaLoadReport: a message of OpenRcaService.StreamCoreMetrics without
 * gRPC's five bytes. */
int ek_report_proto(struct ek_load_report *r, const void *bytes, size_t n,
                    const struct ek_report_names *names) EK_MUST_USE;

/* The body of a poll: the tracker's JSON. */
int ek_report_json(struct ek_load_report *r, const char *text, size_t n) EK_MUST_USE;

/* An agent's line; what comes after its CR or LF is not looked at. */
int ek_report_agent(struct ek_load_report *r, const char *text, size_t n) EK_MUST_USE;

#endif
