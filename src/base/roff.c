#include "base/roff.h"

#include "base/utf8.h"

#include <string.h>

int ek_roff_add(struct ek_buf *out, const char *s, size_t n)
{
    bool is_line_start = true;
    int rc = 0;
    for (size_t i = 0; !rc && i < n;) {
        uint32_t c;
        size_t len = ek_utf8_decode(&c, s + i, n - i);
        const char *as = NULL;
        if (len == 0) {
            c = 0xfffd;
            len = 1;
        }
        if (is_line_start && (c == '.' || c == '\''))
            rc = ek_buf_add_str(out, "\\&");
        as = c == '\\'   ? "\\e"
             : c == '-'  ? "\\-"
             : c == '`'  ? "\\(ga"
             : c == '\'' ? "\\(aq"
             : c == '^'  ? "\\(ha"
             : c == '~'  ? "\\(ti"
                         : NULL;
        if (!rc && as)
            rc = ek_buf_add_str(out, as);
        else if (!rc && c >= 0x80)
            rc = ek_buf_addf(out, "\\[u%04X]", c);
        else if (!rc)
            rc = ek_buf_add_char(out, (char)c);
        is_line_start = c == '\n';
        i += len;
    }
    return rc;
}

int ek_roff_add_str(struct ek_buf *out, const char *before, const char *s,
                    const char *after)
{
    int rc = ek_buf_add_str(out, before);
    if (!rc)
        rc = ek_roff_add(out, s, strlen(s));
    return rc ? rc : ek_buf_add_str(out, after);
}
