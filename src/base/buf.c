#include "base/buf.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void ek_buf_init(struct ek_buf *b, size_t max)
{
    *b = (struct ek_buf){.max = max};
}

void ek_buf_release(struct ek_buf *b)
{
    ek_free(b->data);
    ek_buf_init(b, b->max);
}

void ek_buf_reset(struct ek_buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = 0;
}

int ek_buf_reserve(struct ek_buf *b, size_t extra)
{
    if (extra > b->max - b->len)
        return EK_ELIMIT;
    size_t need = b->len + extra;
    if (need <= b->cap && b->data)
        return 0;
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap < need)
        cap = cap > b->max / 2 ? b->max : cap * 2;
    if (cap > b->max)
        cap = b->max;
    size_t bytes;
    if (!ek_add_size(&bytes, cap, 1))
        return EK_ENOMEM;
    char *p = ek_realloc_array(b->data, bytes, 1);
    if (!p)
        return EK_ENOMEM;
    b->data = p;
    b->cap = cap;
    b->data[b->len] = 0;
    return 0;
}

int ek_buf_add(struct ek_buf *b, const void *p, size_t n)
{
    int rc = ek_buf_reserve(b, n);
    if (rc)
        return rc;
    if (n)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = 0;
    return 0;
}

int ek_buf_add_char(struct ek_buf *b, char c)
{
    return ek_buf_add(b, &c, 1);
}

int ek_buf_add_str(struct ek_buf *b, const char *s)
{
    return ek_buf_add(b, s, strlen(s));
}

int ek_buf_addv(struct ek_buf *b, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    int rc = n < 0 ? EK_EINVAL : ek_buf_reserve(b, (size_t)n);
    if (!rc) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return rc;
}

int ek_buf_addf(struct ek_buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int rc = ek_buf_addv(b, fmt, args);
    va_end(args);
    return rc;
}

void ek_buf_consume(struct ek_buf *b, size_t n)
{
    assert(n <= b->len);
    if (n == 0)
        return;
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
    b->data[b->len] = 0;
}

char *ek_buf_take(struct ek_buf *b, size_t *len)
{
    char *p = b->data;
    if (len)
        *len = b->len;
    ek_buf_init(b, b->max);
    return p;
}
