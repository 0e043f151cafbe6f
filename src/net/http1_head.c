/* http1_head.c - the meaning of a request's head: request line, target, fields. The
 * head is cut in place: NULs replace the bytes behind each string. */
#include "net/http1_int.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

bool ek_http1_is_token_char(unsigned char c)
{
    /* Digits, letters and !#$%&'*+-.^_`|~ (RFC 9110 5.6.2), a bit each. */
    static const uint64_t bits[4] = {0x03ff6cfa00000000, 0x57ffffffc7fffffe};
    return bits[c >> 6] >> (c & 63) & 1;
}

bool ek_http1_is_value_char(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

bool ek_http1_is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!ek_http1_is_token_char((unsigned char)s[i]))
            return false;
    }
    return n > 0;
}

/* Is none of eight bytes below 0x20 or 0x7f? A byte's highest bit tells of it: of the
 * difference, where the byte itself has none. */
static bool is_plain(uint64_t x)
{
    const uint64_t each = UINT64_C(0x0101010101010101), high = each * 0x80;
    uint64_t del = x ^ each * 0x7f;
    return !(((x - each * 0x20) & ~x & high) | ((del - each) & ~del & high));
}

bool ek_http1_is_value(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t x;
        if (n - i >= sizeof x) {
            memcpy(&x, s + i, sizeof x);
            if (is_plain(x)) {
                i += sizeof x;
                continue;
            }
        }
        if (!ek_http1_is_value_char((unsigned char)s[i++]))
            return false;
    }
    return true;
}

/* Target ----------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Only visible ASCII, and none of `refused`. */
static bool is_visible_without(const char *s, const char *refused)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c <= 0x20 || c >= 0x7f || strchr(refused, c))
            return false;
    }
    return true;
}

/* Decodes %XX in place; the result is no longer. False at a bad escape or %00. */
static bool decode_path(char *s)
{
    char *out = s;
    for (; *s; s++) {
        if (*s != '%') {
            *out++ = *s;
            continue;
        }
        int hi = hex_digit(s[1]);
        int lo = hi < 0 ? -1 : hex_digit(s[2]);
        if (lo < 0 || hi * 16 + lo == 0)
            return false;
        *out++ = (char)(hi * 16 + lo);
        s += 2;
    }
    *out = 0;
    return true;
}

/* "http://host:1/p?q" -> "/p?q"; NULL when it is not of that form. The authority has
 * no say here: this server has one host. */
static char *skip_authority(char *target)
{
    size_t scheme = 0;
    if (strncasecmp(target, "http://", 7) == 0)
        scheme = 7;
    else if (strncasecmp(target, "https://", 8) == 0)
        scheme = 8;
    else
        return NULL;
    size_t n = strcspn(target + scheme, "/?");
    if (n == 0 || memchr(target + scheme, '@', n))
        return NULL;
    return target + scheme + n;
}

static void parse_target(struct ek_http1 *p, char *target)
{
    if (!is_visible_without(target, "#")) {
        ek_http1_fail(p, 400, "the request target has a character it may not have");
        return;
    }
    p->request.query = "";
    if (strcmp(target, "*") == 0 && strcmp(p->request.method, "OPTIONS") == 0) {
        p->request.path = target;
        return;
    }
    char *path = target[0] == '/' ? target : skip_authority(target);
    if (!path) {
        ek_http1_fail(p, 400, "the request target is neither a path nor an http URL");
        return;
    }
    char *query = strchr(path, '?');
    if (query) {
        *query = 0;
        p->request.query = query + 1;
    }
    if (!decode_path(path))
        ek_http1_fail(p, 400, "the path has a bad percent escape");
    p->request.path = path[0] ? path : "/";
}

/* Request line ----------------------------------------------------------------- */

static bool is_known_method(const char *m)
{
    static const char *const known[] = {"GET",   "HEAD",   "POST",   "PUT",
                                        "PATCH", "DELETE", "OPTIONS"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(m, known[i]) == 0)
            return true;
    }
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* HTTP/1.x, x above 1 counting as 1 (RFC 9110 2.5). */
static void parse_version(struct ek_http1 *p, const char *v)
{
    if (strlen(v) != 8 || strncmp(v, "HTTP/", 5) != 0 || !is_digit(v[5]) ||
        v[6] != '.' || !is_digit(v[7])) {
        ek_http1_fail(p, 400, "the request line is not METHOD TARGET HTTP/1.1");
        return;
    }
    p->minor = v[7] == '0' ? 0 : 1;
    if (v[5] != '1')
        ek_http1_fail(p, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
}

static void parse_request_line(struct ek_http1 *p, char *line)
{
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version || !ek_http1_is_token(line, (size_t)(target - line))) {
        ek_http1_fail(p, 400, "the request line is not METHOD TARGET HTTP/1.1");
        return;
    }
    *target++ = 0;
    *version++ = 0;
    parse_version(p, version);
    if (p->phase == EK_HTTP1_FAILED)
        return;
    p->request.method = line;
    p->is_head = strcmp(line, "HEAD") == 0;
    if (is_known_method(line))
        parse_target(p, target);
    else
        ek_http1_fail(p, 501, "the method is not known here");
}

/* Fields ----------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

/* One line "name: value" of n bytes, NUL-terminated. */
static void parse_field(struct ek_http1 *p, char *line, size_t n)
{
    char *colon = memchr(line, ':', n);
    if (!colon || !ek_http1_is_token(line, (size_t)(colon - line))) {
        ek_http1_fail(p, 400,
                      is_space(line[0]) ? "a header line is folded"
                                        : "a header line is not NAME: VALUE");
        return;
    }
    if (p->request.n_headers == EK_HTTP1_MAX_HEADERS) {
        ek_http1_fail(p, 431, "too many headers");
        return;
    }
    for (char *s = line; s < colon; s++) {
        if (*s >= 'A' && *s <= 'Z')
            *s |= 0x20;
    }
    char *value = colon + 1, *end = line + n;
    while (value < end && is_space(*value))
        value++;
    while (end > value && is_space(end[-1]))
        end--;
    *colon = 0;
    *end = 0;
    p->headers[p->request.n_headers++] =
        (struct ek_http_header){.name = line, .value = value};
}

/* Next member of a comma-separated list; false at its end. */
static bool next_member(const char **list, const char **member, size_t *n)
{
    const char *s = *list;
    while (is_space(*s) || *s == ',')
        s++;
    if (!*s)
        return false;
    size_t len = strcspn(s, ",");
    *list = s + len;
    while (len > 0 && is_space(s[len - 1]))
        len--;
    *member = s;
    *n = len;
    return true;
}

static bool is_word(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && strncasecmp(s, word, n) == 0;
}

static void read_connection(const char *value, bool *has_close, bool *has_keep)
{
    const char *s;
    size_t n;
    while (next_member(&value, &s, &n)) {
        *has_close |= is_word(s, n, "close");
        *has_keep |= is_word(s, n, "keep-alive");
    }
}

static void read_length(struct ek_http1 *p, const char *value)
{
    uint64_t v = 0;
    if (!*value) {
        ek_http1_fail(p, 400, "Content-Length is not a number");
        return;
    }
    for (const char *s = value; *s; s++) {
        if (!is_digit(*s)) {
            ek_http1_fail(p, 400, "Content-Length is not a number");
            return;
        }
        uint64_t digit = (uint64_t)(*s - '0');
        /* An absurd length stays absurd: UINT64_MAX is over every limit. */
        v = v > (UINT64_MAX - digit) / 10 ? UINT64_MAX : v * 10 + digit;
    }
    p->left = v;
}

/* RFC 9112 6.1: a request whose last coding is not chunked has no length at all; one
 * with other codings before it could be read, but not by us. */
static void read_coding(struct ek_http1 *p, const char *value)
{
    p->is_chunked = strcasecmp(value, "chunked") == 0;
    if (p->is_chunked)
        return;
    const char *s, *last = "";
    size_t n, last_n = 0, n_chunked = 0;
    while (next_member(&value, &s, &n)) {
        n_chunked += is_word(s, n, "chunked");
        last = s;
        last_n = n;
    }
    if (n_chunked == 1 && is_word(last, last_n, "chunked"))
        ek_http1_fail(p, 501, "no transfer coding but \"chunked\" is known here");
    else
        ek_http1_fail(p, 400, "Transfer-Encoding does not end in one \"chunked\"");
}

struct seen {
    int n_host, n_length, n_coding;
    bool has_close, has_keep;
};

static void read_field(struct ek_http1 *p, struct seen *seen,
                       const struct ek_http_header *h)
{
    if (strcmp(h->name, "host") == 0) {
        seen->n_host++;
        if (!is_visible_without(h->value, "/?#@\\\"<>,"))
            ek_http1_fail(p, 400, "Host is not HOST or HOST:PORT");
    } else if (strcmp(h->name, "content-length") == 0) {
        seen->n_length++;
        read_length(p, h->value);
    } else if (strcmp(h->name, "transfer-encoding") == 0) {
        seen->n_coding++;
        read_coding(p, h->value);
    } else if (strcmp(h->name, "connection") == 0) {
        read_connection(h->value, &seen->has_close, &seen->has_keep);
    } else if (strcmp(h->name, "expect") == 0 && p->minor > 0) {
        if (strcasecmp(h->value, "100-continue") == 0)
            p->expects_continue = true;
        else
            ek_http1_fail(p, 417, "no expectation but 100-continue can be met");
    }
}

static void check_fields(struct ek_http1 *p)
{
    struct seen seen = {0};
    for (size_t i = 0; i < p->request.n_headers && p->phase == EK_HTTP1_HEAD; i++)
        read_field(p, &seen, &p->headers[i]);
    if (p->phase == EK_HTTP1_FAILED)
        return;
    if (seen.n_host > 1 || (seen.n_host == 0 && p->minor > 0))
        ek_http1_fail(p, 400, "Host must be given exactly once");
    else if (seen.n_length > 1)
        ek_http1_fail(p, 400, "Content-Length is given more than once");
    else if (seen.n_coding > 1)
        ek_http1_fail(p, 400, "Transfer-Encoding is given more than once");
    else if (seen.n_coding && seen.n_length)
        ek_http1_fail(p, 400, "both Content-Length and Transfer-Encoding are given");
    else if (seen.n_coding && p->minor == 0)
        ek_http1_fail(p, 400, "Transfer-Encoding in an HTTP/1.0 request");
    p->is_keep_alive = !seen.has_close && (p->minor > 0 || seen.has_keep);
}

void ek_http1_parse_head(struct ek_http1 *p)
{
    char *line = p->head.data;
    if (line[0] == '\r')
        line += 2; /* the empty line allowed in front */
    bool is_first = true;
    while (p->phase == EK_HTTP1_HEAD) {
        char *end = strchr(line, '\r'); /* the scan let no NUL and no lone CR pass */
        assert(end);
        if (end == line && !is_first)
            break;
        *end = 0;
        if (is_first)
            parse_request_line(p, line);
        else
            parse_field(p, line, (size_t)(end - line));
        is_first = false;
        line = end + 2;
    }
    if (p->phase == EK_HTTP1_HEAD)
        check_fields(p);
}

/* Reasons ---------------------------------------------------------------------- */

const char *ek_http1_reason(int code)
{
    static const struct {
        int code;
        const char *text;
    } table[] = {
        {100, "Continue"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].code == code)
            return table[i].text;
    }
    return "Unknown";
}
