#include "net/static.h"

#include <string.h>

const struct ek_static_file *ek_static_find(const struct ek_static_file *files,
                                            const char *path)
{
    if (!strcmp(path, "/"))
        path = "/index.html";
    for (const struct ek_static_file *f = files; f->path; f++) {
        if (!strcmp(f->path, path))
            return f;
    }
    return NULL;
}

int ek_static_add_headers(struct ek_http_exchange *x)
{
    static const char *const headers[][2] = {
        {"Content-Security-Policy",
         "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cache-Control", "no-cache"},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0] && !rc; i++)
        rc = ek_http_add_header(x, headers[i][0], headers[i][1]);
    return rc;
}
