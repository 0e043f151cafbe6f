/* report_json.c - ORCA as JSON, and the body of a poll as the tracker writes it. */
#include "base/json.h"
#include "route/report_int.h"

#include <math.h>
#include <string.h>

static int parse(json_t **root, struct ek_text t)
{
    static const struct ek_json_limits limits = {
        .max_bytes = EK_REPORT_BYTES_MAX,
        .max_values = 4 * EK_REPORT_KEYS_MAX,
        .max_depth = 4,
    };
    int rc = ek_json_parse(root, t.p, t.n, &limits, NULL);
    if (!rc && !json_is_object(*root)) {
        json_decref(*root);
        rc = EK_EFORMAT;
    }
    return rc;
}

static int take_map(struct ek_report_making *m, const char *name, json_t *map)
{
    const char *key;
    json_t *v;
    bool is_named = !strcmp(name, "named_metrics") || !strcmp(name, "namedMetrics");
    json_object_foreach(map, key, v)
    {
        if (!json_is_number(v) || !*key)
            return EK_EFORMAT;
        if (is_named)
            ek_report_set_named(m, ek_text_of(key, strlen(key)), json_number_value(v));
    }
    return 0;
}

int ek_report_orca_json(struct ek_report_making *m, struct ek_text t)
{
    json_t *root, *v;
    const char *key;
    int rc = parse(&root, t);
    if (rc)
        return rc;
    json_object_foreach(root, key, v)
    {
        if (json_is_object(v))
            rc = take_map(m, key, v);
        else if (json_is_number(v) && *key)
            ek_report_set(m, ek_text_of(key, strlen(key)), json_number_value(v));
        else
            rc = EK_EFORMAT;
        if (rc)
            break;
    }
    json_decref(root);
    return rc;
}

struct key {
    const char *name;
    uint32_t bit;
    size_t offset;
};

#define AT(member) offsetof(struct ek_load_report, member)

static const struct key keys[] = {
    {"active_sessions", EK_LOAD_ACTIVE, AT(active_sessions)},
    {"young_sessions", EK_LOAD_YOUNG, AT(young_sessions)},
    {"young_weight", EK_LOAD_YOUNG_WEIGHT, AT(young_weight)},
    {"session_cost", EK_LOAD_COST, AT(session_cost)},
    {"effective_capacity", EK_LOAD_CAPACITY, AT(effective_capacity)},
    {"remaining_sessions", EK_LOAD_REMAINING, AT(remaining_sessions)},
    {"utilization", EK_LOAD_APPLICATION, AT(application_utilization)},
    {"safety_factor", EK_LOAD_FACTOR, AT(safety_factor)},
    {"variation", EK_LOAD_VARIATION, AT(variation)},
    {"cores", EK_LOAD_CORES, AT(cores)},
    {"window_seconds", EK_LOAD_WINDOW, AT(window_s)},
};

/* A number of the object; 0 and *v untouched when it is not there. */
static int get(json_t *root, const char *name, double *v, bool *is_there)
{
    json_t *value = json_object_get(root, name);
    *is_there = value != NULL;
    if (!value)
        return 0;
    if (!json_is_number(value))
        return EK_EFORMAT;
    *v = json_number_value(value);
    return 0;
}

static int take_poll(struct ek_load_report *r, json_t *root)
{
    double cpu = 0, age = 0;
    bool is_there, has_cpu, has_age;
    json_t *draining = json_object_get(root, "draining");
    json_t *binding = json_object_get(root, "binding");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        double *at = (double *)(void *)((char *)r + keys[i].offset);
        int rc = get(root, keys[i].name, at, &is_there);
        if (rc)
            return rc;
        r->has |= is_there ? keys[i].bit : 0;
    }
    if (get(root, "cpu_cores", &cpu, &has_cpu) ||
        get(root, "age_seconds", &age, &has_age))
        return EK_EFORMAT;
    if (has_cpu && r->cores > 0) {
        r->has |= EK_LOAD_CPU;
        r->cpu_utilization = cpu / r->cores;
    }
    r->age_us = age > 0 ? (int64_t)(fmin(age, 1e9) * 1e6) : 0;
    if ((draining && !json_is_boolean(draining)) ||
        (binding && !json_is_string(binding)))
        return EK_EFORMAT;
    const char *name = binding ? json_string_value(binding) : "";
    r->binds_elsewhere = name[0] && strcmp(name, "cpu") != 0;
    if (draining)
        r->state = json_is_true(draining) ? EK_LOAD_SAYS_DRAIN : EK_LOAD_SAYS_READY;
    return 0;
}

int ek_report_json(struct ek_load_report *r, const char *text, size_t n)
{
    struct ek_load_report made = {0};
    json_t *root;
    int rc = parse(&root, ek_text_of(text, n));
    if (rc)
        return rc;
    rc = take_poll(&made, root);
    json_decref(root);
    if (!rc)
        *r = made;
    return rc;
}
