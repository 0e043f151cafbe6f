/* session.h - counts the sessions of a process and tells how many more it can carry.
 *
 * For servers whose sessions last minutes (voice, agents, streams): each session is
 * begun and ended here, CPU and other resources are read beside them, and the result,
 * effective capacity, is encoded as the balancer in front wants to hear it. Link with
 * `pkg-config --cflags --libs evenkeel`; docs/guide/session.md is the guide.
 *
 * This header is what the library promises: functions keep their meaning, structs only
 * grow at the end and say their size, enums only gain values. C99 or C++, with gcc or
 * clang. Nothing here prints, exits, changes a signal or the locale's numbers; a thread
 * is started only if options.thread_us asks for it.
 * Threads: any function from any thread, except new, free and add_resource, which their
 * caller keeps apart from the others.
 */
#ifndef EVENKEEL_SESSION_H
#define EVENKEEL_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EK_SESSION_API __attribute__((visibility("default")))

/* Functions that can fail return 0 or one of these. */
enum ek_session_status {
    EK_SESSION_OK = 0,
    EK_SESSION_ENOMEM = -1, /* out of memory */
    EK_SESSION_EINVAL = -2, /* a value out of its range */
    EK_SESSION_ESPACE = -4, /* the caller's buffer, or a table, is too small */
    EK_SESSION_EIO = -7,    /* CPU could not be read, or a thread not started */
    EK_SESSION_EFULL = -8   /* at the limit, or draining: send the session elsewhere */
};

EK_SESSION_API const char *ek_session_status_text(int status);
EK_SESSION_API const char *ek_tracker_version(void); /* "0.1.0" */

/* ---- The tracker ---- */

struct ek_tracker;

/* Whose CPU. The quota of the cgroup and of those above it bounds the cores in any
 * case, and so does the affinity of the process. */
enum ek_tracker_cpu {
    EK_TRACKER_CPU_AUTO,    /* the cgroup if it has a quota, else the process */
    EK_TRACKER_CPU_PROCESS, /* this process */
    EK_TRACKER_CPU_CGROUP,  /* its cgroup v2: worker processes are counted with it */
    EK_TRACKER_CPU_NONE     /* told, but it bounds nothing: the work is on a GPU, or a
                               batch of any size takes all cores */
};

enum ek_tracker_smoothing {
    EK_TRACKER_EWMA, /* exponentially weighted, time constant window_us */
    EK_TRACKER_MEAN  /* sliding mean over window_us */
};

/* Names of the ORCA named metrics, changeable by options.orca_names. */
enum ek_tracker_orca_name {
    EK_ORCA_ACTIVE_SESSIONS,    /* "active_sessions" */
    EK_ORCA_SESSION_COST,       /* "session_cost", cores */
    EK_ORCA_EFFECTIVE_CAPACITY, /* "effective_capacity", sessions */
    EK_ORCA_REMAINING_SESSIONS, /* "remaining_sessions" */
    EK_ORCA_YOUNG_SESSIONS,     /* "young_sessions": begun within window_us */
    EK_ORCA_YOUNG_WEIGHT,       /* "young_weight": share of theirs that CPU lacks */
    EK_ORCA_SAFETY_FACTOR,      /* "safety_factor" */
    EK_ORCA_N_NAMES
};

#define EK_SESSION_TABLE_MAX 262141 /* sessions at once in one tracker */
#define EK_FACTOR_AUTO       0.0
#define EK_BASE_LEARN        (-1.0)

struct ek_tracker_options {
    size_t size;             /* sizeof, set by ek_tracker_options_init */
    int32_t max_sessions;    /* hard limit: begin is refused at it; 0: table_sessions */
    int32_t table_sessions;  /* 24 bytes each, untouched until used; 65536 */
    int64_t deadline_us;     /* a session is ended for you after it; 20 minutes */
    int64_t window_us;       /* of smoothing; 10 s */
    int64_t sample_us;       /* reads closer than this share a sample; 500 ms */
    int64_t thread_us;       /* 0, or: a thread samples so often */
    enum ek_tracker_cpu cpu; /* AUTO */
    enum ek_tracker_smoothing smoothing; /* EWMA */
    bool uses_host;         /* count what others take of the machine; false */
    int32_t agent_proxies;  /* proxies that share `maxconn:` of the agent line; 0: it
                               is left out */
    double cores;           /* 0: the least of affinity and quotas */
    double target;          /* share of a core that sessions may fill, (0, 1]; 0.8 */
    double base_cores;      /* CPU without sessions; EK_BASE_LEARN: read when idle */
    double prior_cost;      /* cores of a session before one was seen; 0.1 */
    double prior_weight;    /* sessions the prior counts as; 10 */
    double safety_factor;   /* 1 to 10, or EK_FACTOR_AUTO; 2.0 */
    double z;               /* AUTO: standard deviations kept free; 2.33 */
    const char *cgroup_dir; /* NULL: found; a folder with cpu.stat and cpu.max */
    const char *proc_dir;   /* NULL: "/proc" */
    /* Called with the tracker's lock held: neither may call the tracker. */
    int64_t (*now_us)(void *arg); /* NULL: the system's monotonic clock */
    /* NULL: as `cpu` says; else CPU used so far by what serves the sessions. A return
     * that is not 0 is a failure. */
    int (*cpu_us)(void *arg, int64_t *us);
    void *arg;                  /* of both */
    const char *orca_names[16]; /* by ek_tracker_orca_name; NULL: the default, "": left
                                   out; 1 to 64 letters, digits and . _ - */
};

/* The defaults, above. `size` is sizeof *o. */
EK_SESSION_API void ek_tracker_options_init(struct ek_tracker_options *o, size_t size);

/* Strings of `o` are copied. `why` (may be NULL) gets a sentence on failure.
 * Errors: EINVAL, ENOMEM, EIO. */
EK_SESSION_API int ek_tracker_new(struct ek_tracker **t,
                                  const struct ek_tracker_options *o, char *why,
                                  size_t why_size);

/* NULL is fine. No session of it may be ended afterwards. */
EK_SESSION_API void ek_tracker_free(struct ek_tracker *t);

/* ---- Sessions ---- */

/* Lies where the caller likes and may be copied: any copy ends the session, once. */
struct ek_session {
    struct ek_tracker *tracker; /* borrowed */
    uint64_t id;                /* 0: none; never used twice by a tracker */
};

#define EK_SESSION_NONE                                                                \
    {                                                                                  \
        NULL, 0                                                                        \
    }

/* Counts a session. EFULL: it is not counted (ending *s is harmless), and the balancer
 * should hear a refusal that it can take elsewhere (503, UNAVAILABLE).
 * Cost: no lock, no system call, < 50 ns when threads do not meet; at the limit, begin
 * looks once for sessions past their deadline before it refuses. */
EK_SESSION_API int ek_session_begin(struct ek_tracker *t, struct ek_session *s);

/* True for the one call that ended it; false, and nothing happens, when it was over
 * (ended, or past its deadline) or never began. Cost: as begin. */
EK_SESSION_API bool ek_session_end(const struct ek_session *s);

/* Its deadline is now `us` away; false when it was over. For sessions known to live. */
EK_SESSION_API bool ek_session_extend(const struct ek_session *s, int64_t us);

EK_SESSION_API bool ek_session_is_open(const struct ek_session *s);

/* A session of the block: begun here, ended on every way out of it (return, break,
 * goto, a C++ exception).
 *
 *     EK_SESSION_SCOPE(session, tracker);
 *     if (!session.id)
 *         return refuse(client);
 */
#define EK_SESSION_SCOPE(name, tracker_)                                               \
    struct ek_session name __attribute__((cleanup(ek_session_leave))) =                \
        EK_SESSION_NONE;                                                               \
    (void)ek_session_begin(tracker_, &name)

static inline void ek_session_leave(struct ek_session *s)
{
    (void)ek_session_end(s);
}

/* The hard limit from now on, 0: table_sessions. Sessions over it go on. EINVAL. */
EK_SESSION_API int ek_tracker_set_limit(struct ek_tracker *t, int32_t max_sessions);

/* While on, begin is refused and every report says that this server is draining. */
EK_SESSION_API void ek_tracker_drain(struct ek_tracker *t, bool is_on);

/* ---- Resources beside CPU ---- */

#define EK_RESOURCE_NAME_MAX 40
#define EK_RESOURCE_MAX      8

struct ek_resource_options {
    size_t size;          /* sizeof, set by ek_tracker_resource_init */
    const char *name;     /* as a metric's, not "cpu", not "sessions"; "memory" is
                             ORCA's mem_utilization */
    double total;         /* in any unit; > 0 */
    double target;        /* share that may be used, (0, 1]; 1 */
    double prior_cost;    /* of a session; 0: unknown, it binds once sessions use it */
    double base;          /* used without sessions; 0 */
    double safety_factor; /* 0: the tracker's; 1 for what is taken one by one */
};

EK_SESSION_API void ek_tracker_resource_init(struct ek_resource_options *o,
                                             size_t size);

/* *id is for the calls below. Errors: EINVAL, ESPACE (EK_RESOURCE_MAX are there). */
EK_SESSION_API int ek_tracker_add_resource(struct ek_tracker *t,
                                           const struct ek_resource_options *o,
                                           int *id);

/* Its use now. Errors: EINVAL (no such id; a value negative or not finite, total 0). */
EK_SESSION_API int ek_tracker_set_resource(struct ek_tracker *t, int id, double used,
                                           double total);

/* ---- What comes out ---- */

struct ek_tracker_report {
    int64_t now_us;            /* of the tracker's clock */
    int64_t age_us;            /* of the CPU sample; grows while CPU cannot be read */
    int64_t active_sessions;   /* n */
    int64_t young_sessions;    /* of them, begun within window_us */
    int64_t session_limit;     /* what begin is refused at */
    int64_t begun_total;       /* sessions ever begun */
    int64_t expired_total;     /* of them, ended by their deadline */
    int64_t refused_total;     /* begins refused */
    int64_t window_us;         /* of the smoothing */
    double cores;              /* C, what the process may use */
    double cpu_cores;          /* smoothed, as the formula uses it */
    double own_cores;          /* smoothed, of the process or cgroup alone */
    double base_cores;         /* without sessions */
    double mean_sessions;      /* n smoothed as the CPU is */
    double cpu_utilization;    /* cpu_cores / cores */
    double session_cost;       /* cores of a session */
    double variation;          /* of a session's CPU: deviation / mean */
    double safety_factor;      /* f */
    double effective_capacity; /* sessions, >= 0 */
    double remaining_sessions; /* effective_capacity - n; negative: overloaded */
    double utilization;        /* 1 - remaining / capacity = n / capacity, at most 10 */
    double young_weight; /* mean share of a young session's CPU that cpu_cores lacks */
    enum ek_tracker_smoothing smoothing;
    bool is_draining;
    char binding[EK_RESOURCE_NAME_MAX + 1]; /* "cpu", "sessions" (the limit) or the
                                               resource that capacity is the least of */
};

/* Fills the first `size` (sizeof *r) bytes; samples when the last sample is older than
 * sample_us, and ends sessions past their deadline. Takes a lock that begin and end
 * never take. Cost: microseconds, and some ns an open session. */
EK_SESSION_API void ek_tracker_read(struct ek_tracker *t, struct ek_tracker_report *r,
                                    size_t size);

struct ek_resource_report {
    double used, total;
    double session_cost; /* 0: unknown */
    double capacity;     /* sessions, at most session_limit */
};
EK_SESSION_API int ek_tracker_read_resource(struct ek_tracker *t, int id,
                                            struct ek_resource_report *r, size_t size);

/* Reads CPU now, whatever sample_us says. Errors: EIO. */
EK_SESSION_API int ek_tracker_sample(struct ek_tracker *t);

enum ek_tracker_encoding {
    EK_TRACKER_ORCA_TEXT,    /* response header endpoint-load-metrics */
    EK_TRACKER_ORCA_JSON,    /* the same */
    EK_TRACKER_ORCA_BIN,     /* the same */
    EK_TRACKER_ORCA_TRAILER, /* trailer endpoint-load-metrics-bin */
    EK_TRACKER_ORCA_PROTO,   /* bytes of xds.data.orca.v3.OrcaLoadReport */
    EK_TRACKER_ORCA_GRPC,    /* the same behind gRPC's 5 bytes: a message of the stream
                                OpenRcaService.StreamCoreMetrics */
    EK_TRACKER_JSON,         /* application/json, for a poll over HTTP */
    EK_TRACKER_AGENT,        /* HAProxy's agent-check line, with its newline */
    EK_TRACKER_PROMETHEUS    /* text format 0.0.4, names evenkeel_... */
};

#define EK_TRACKER_ENCODED_MAX 8192 /* no encoding is longer */

/* Reads as ek_tracker_read does and writes *len bytes and a NUL (not counted) to out.
 * Header encodings are values: the name comes from the function below.
 * Errors: EINVAL, ESPACE (*len says how many bytes there are; out holds none). */
EK_SESSION_API int ek_tracker_encode(struct ek_tracker *t, enum ek_tracker_encoding e,
                                     char *out, size_t size, size_t *len);

/* "endpoint-load-metrics", "endpoint-load-metrics-bin"; NULL: no header's value. */
EK_SESSION_API const char *ek_tracker_encoding_header(enum ek_tracker_encoding e);

/* The Content-Type of a body in it; NULL: no body. */
EK_SESSION_API const char *ek_tracker_encoding_type(enum ek_tracker_encoding e);

#ifdef __cplusplus
}
#endif

#endif
