#include "cli/terminal.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

int ek_terminal_add(struct ek_buf *out, const char *p, size_t n, const char *kept)
{
    int rc = 0;
    for (size_t i = 0; i < n && !rc;) {
        uint32_t c = 0;
        size_t len = ek_utf8_decode(&c, p + i, n - i);
        bool is_kept = len == 1 && c && strchr(kept, (int)c);
        if (len == 0 || (is_control(c) && !is_kept)) {
            rc = ek_buf_addf(out, "\\x%02x", (unsigned)(len ? c : (unsigned char)p[i]));
            len = len ? len : 1;
        } else {
            rc = ek_buf_add(out, p + i, len);
        }
        i += len;
    }
    return rc;
}

static int write_all(FILE *to, const char *p, size_t n)
{
    return (n > 0 && fwrite(p, 1, n, to) != n) || fflush(to) ? EK_EIO : 0;
}

int ek_terminal_write(FILE *to, const char *p, size_t n)
{
    if (!isatty(fileno(to)))
        return write_all(to, p, n);
    struct ek_buf text;
    ek_buf_init(&text, 4 * n + 1);
    int rc = ek_terminal_add(&text, p, n, "\n\t");
    if (!rc)
        rc = write_all(to, text.data, text.len);
    ek_buf_release(&text);
    return rc;
}
