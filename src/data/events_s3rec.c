/* events_s3rec.c - "USER ITEM ITEM ...": the files of S3-Rec and its successors. */
#include "data/events_read_int.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The word at line[at,n), its length in *len. */
static size_t skip_blanks(const char *line, size_t at, size_t n)
{
    while (at < n && is_blank(line[at]))
        at++;
    return at;
}

static size_t word_length(const char *line, size_t at, size_t n)
{
    size_t end = at;
    while (end < n && !is_blank(line[end]))
        end++;
    return end - at;
}

/* That the word is a whole number from 1 to 2^31-1, written in one way only: so equal
 * ids are equal words. */
static bool is_id(const char *word, size_t len)
{
    uint64_t v = 0;
    if (len == 0 || len > 10 || word[0] == '0')
        return false;
    for (size_t i = 0; i < len; i++) {
        if (word[i] < '0' || word[i] > '9')
            return false;
        v = 10 * v + (uint64_t)(word[i] - '0');
    }
    return v <= INT32_MAX;
}

static int refuse_id(struct ek_read *r, const char *what, const char *word, size_t len,
                     size_t at)
{
    return ek_read_refuse(r, EK_EFORMAT, at + 1,
                          "%s '%.*s': expected a whole number, 1 to 2147483647", what,
                          len < 40 ? (int)len : 40, word);
}

static int take_user(struct ek_read *r, const char *word, size_t len, size_t at,
                     int32_t *user)
{
    if (!is_id(word, len))
        return refuse_id(r, "user", word, len, at);
    int64_t n_before = r->build.users.n;
    int rc = ek_intern_put(&r->build.users, word, len, user);
    if (rc)
        return ek_read_failed(r, rc);
    if (*user < n_before)
        return ek_read_refuse(
            r, EK_EFORMAT, at + 1,
            "user '%.*s' had a line before: expected one line a user, "
            "with all items",
            (int)len, word);
    return 0;
}

static int take_line(struct ek_read *r, const char *line, size_t n)
{
    int32_t user = 0;
    size_t at = skip_blanks(line, 0, n), len = word_length(line, at, n);
    if (len == 0)
        return 0; /* an empty line */
    int rc = take_user(r, line + at, len, at, &user);
    at = skip_blanks(line, at + len, n);
    if (!rc && at == n)
        rc = ek_read_refuse(r, EK_EFORMAT, at + 1,
                            "the user has no item: expected USER ITEM ITEM ...");
    while (!rc && at < n) {
        int32_t item = 0;
        len = word_length(line, at, n);
        if (!is_id(line + at, len))
            return refuse_id(r, "item", line + at, len, at);
        rc = ek_intern_put(&r->build.items, line + at, len, &item);
        if (!rc)
            rc = ek_build_row(&r->build, user, item, 0);
        if (rc)
            return ek_read_failed(r, rc);
        at = skip_blanks(line, at + len, n);
    }
    return rc;
}

int ek_read_s3rec(struct ek_read *r)
{
    const char *line;
    size_t n;
    int rc;
    ek_build_init(&r->build, false);
    while (!(rc = ek_read_line(r, &line, &n)) && line) {
        rc = take_line(r, line, n);
        if (rc)
            break;
    }
    return rc;
}
