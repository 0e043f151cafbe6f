#include "serve/static.h"

#include <string.h>

const struct ek_static_file *ek_static_find(const char *path)
{
    if (!strcmp(path, "/"))
        path = "/index.html";
    for (const struct ek_static_file *f = ek_static_files; f->path; f++) {
        if (!strcmp(f->path, path))
            return f;
    }
    return NULL;
}
