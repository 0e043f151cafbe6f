/* probe_orca.c - one busy tracker in every encoding: "NAME HEX" a line. */
#include <evenkeel/session.h>
#include <stdio.h>

static int64_t now, used;

static int64_t read_now(void *arg)
{
    (void)arg;
    return now;
}

static int read_used(void *arg, int64_t *us)
{
    (void)arg;
    *us = used;
    return 0;
}

static int add(struct ek_tracker *t, const char *name, double in_use, double total)
{
    struct ek_resource_options o;
    int id;
    ek_tracker_resource_init(&o, sizeof o);
    o.name = name;
    o.total = total;
    int rc = ek_tracker_add_resource(t, &o, &id);
    return rc ? rc : ek_tracker_set_resource(t, id, in_use, total);
}

/* 10 sessions that take 2 of 4 cores: cost 0.15, capacity 10 + 1.2 / 0.3 = 14. */
static int load(struct ek_tracker *t)
{
    struct ek_session s;
    int rc = add(t, "memory", 10, 100);
    if (!rc)
        rc = add(t, "kv_pages", 200, 1000);
    for (int i = 0; i < 10 && !rc; i++)
        rc = ek_session_begin(t, &s);
    if (!rc)
        rc = ek_tracker_sample(t);
    for (int i = 0; i < 3 && !rc; i++) {
        now += 10000000;
        used += 20000000;
        rc = ek_tracker_sample(t);
    }
    return rc;
}

int main(void)
{
    static const char *const names[] = {"text",    "json_header", "bin",
                                        "trailer", "proto",       "grpc",
                                        "json",    "agent",       "prometheus"};
    struct ek_tracker_options o;
    struct ek_tracker *t;
    ek_tracker_options_init(&o, sizeof o);
    o.now_us = read_now;
    o.cpu_us = read_used;
    o.cores = 4;
    o.base_cores = 0;
    o.smoothing = EK_TRACKER_MEAN;
    if (ek_tracker_new(&t, &o, NULL, 0) || load(t))
        return 1;
    for (int e = 0; e <= EK_TRACKER_PROMETHEUS; e++) {
        char text[EK_TRACKER_ENCODED_MAX];
        size_t len;
        if (ek_tracker_encode(t, (enum ek_tracker_encoding)e, text, sizeof text, &len))
            return 1;
        printf("%s ", names[e]);
        for (size_t i = 0; i < len; i++)
            printf("%02x", (unsigned char)text[i]);
        printf("\n");
    }
    ek_tracker_free(t);
    return 0;
}
