#include "serve/auth.h"

#include "base/file.h"

#include <openssl/evp.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#define KEYS_BYTES_MAX (1u << 20)

void ek_auth_init(struct ek_auth *a)
{
    ek_buf_init(&a->keys, KEYS_BYTES_MAX);
}

void ek_auth_release(struct ek_auth *a)
{
    if (a->keys.data)
        explicit_bzero(a->keys.data, a->keys.len);
    ek_buf_release(&a->keys);
}

static int add(struct ek_auth *a, const char *key, size_t n)
{
    int rc = ek_buf_add(&a->keys, key, n);
    return rc ? rc : ek_buf_add_char(&a->keys, '\n');
}

int ek_auth_add(struct ek_auth *a, const char *key, struct ek_err *err)
{
    if (!*key || strpbrk(key, "\r\n"))
        return ek_err_set(err, EK_EINVAL,
                          "the API key is empty or has a line end in it");
    int rc = add(a, key, strlen(key));
    return rc ? ek_err_set(err, rc, "no memory for the API key") : 0;
}

int ek_auth_add_file(struct ek_auth *a, const char *path, struct ek_err *err)
{
    struct ek_buf text;
    size_t before = a->keys.len;
    ek_buf_init(&text, KEYS_BYTES_MAX);
    int rc = ek_file_read(&text, path, err);
    for (size_t i = 0; !rc && i < text.len;) {
        const char *line = text.data + i;
        size_t n = 0;
        while (i + n < text.len && line[n] != '\n')
            n++;
        i += n + 1;
        while (n > 0 && strchr(" \t\r", line[n - 1]))
            n--;
        if (n > 0 && *line != '#')
            rc = add(a, line, n);
    }
    if (!rc && a->keys.len == before)
        rc = ek_err_set(err, EK_EINVAL, "%s: holds no API key (one a line)", path);
    if (text.data)
        explicit_bzero(text.data, text.len);
    ek_buf_release(&text);
    return rc;
}

/* 1 when equal. Reads all of `given` whatever the key says. */
static unsigned is_equal(const char *key, size_t key_n, const char *given, size_t n)
{
    unsigned diff = key_n != n;
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)(given[i] ^ key[key_n ? i % key_n : 0]);
    return diff == 0;
}

/* What stands after "Bearer ". */
static const char *token_of(const char *authorization)
{
    const char *given = authorization + 7;
    while (*given == ' ')
        given++;
    return given;
}

bool ek_auth_allows(const struct ek_auth *a, const char *authorization)
{
    if (a->keys.len == 0)
        return true;
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return false;
    const char *given = token_of(authorization);
    size_t n = strlen(given);
    unsigned is_good = 0;
    for (size_t i = 0; i < a->keys.len;) {
        const char *end = memchr(a->keys.data + i, '\n', a->keys.len - i);
        size_t key_n = (size_t)(end - (a->keys.data + i));
        is_good |= is_equal(a->keys.data + i, key_n, given, n);
        i += key_n + 1;
    }
    return is_good && n > 0;
}

/* One part of the salt, typed by its place: there or not, its length, its bytes. */
static int digest_part(EVP_MD_CTX *ctx, const char *text)
{
    const uint64_t n = text ? strlen(text) : 0;
    const uint64_t head[2] = {text != NULL, n};
    int is_good = EVP_DigestUpdate(ctx, head, sizeof head);
    if (is_good && n > 0)
        is_good = EVP_DigestUpdate(ctx, text, n);
    return is_good ? 0 : EK_ENOMEM;
}

int ek_auth_salt(struct ek_salt *salt, const struct ek_auth *a,
                 const char *authorization, const char *cache_salt)
{
    static const char domain[] = "evenkeel prefix cache salt";
    const char *key = a->keys.len > 0 ? token_of(authorization) : NULL;
    unsigned char sum[EVP_MAX_MD_SIZE];
    if (!key && !cache_salt) {
        *salt = (struct ek_salt){0};
        return 0;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int rc = EK_ENOMEM;
    if (ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) &&
        EVP_DigestUpdate(ctx, domain, sizeof domain))
        rc = digest_part(ctx, key);
    if (!rc)
        rc = digest_part(ctx, cache_salt);
    if (!rc && !EVP_DigestFinal_ex(ctx, sum, NULL))
        rc = EK_ENOMEM;
    EVP_MD_CTX_free(ctx);
    if (!rc)
        memcpy(salt, sum, sizeof *salt);
    return rc;
}
