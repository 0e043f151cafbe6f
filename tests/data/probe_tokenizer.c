/* probe_tokenizer FILE.gguf | tokenizer.json [tokenizer_config.json]
 *
 * Answers one line a request line on standard input:
 *   plain HEX         ids of the text as a user's
 *   parse HEX         ids with special tokens read
 *   bos HEX           as parse, BOS first where the model asks for it
 *   mask HEX HEX      ids with special tokens read where the second text's byte is 0
 *   decode ID ...     the text in hex, special tokens left out
 *   special ID ...    the text in hex with special tokens
 *   stream ID ...     what the streaming detokenizer shows, pieces joined by commas
 *   steps HEX         operations that encoding took
 *   info              size bos eos adds_bos kind
 * A file that does not load prints "error: ..." and ends with 3.
 */
#include "base/file.h"
#include "base/mem.h"
#include "data/tokenizer_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
    return c >= 'a' ? c - 'a' + 10 : c - '0';
}

/* The hex word at *p as bytes; *p moves behind it. */
static char *read_hex(char **p, size_t *n)
{
    size_t len = strcspn(*p, " \n");
    char *bytes = malloc(len / 2 + 1);
    *n = len / 2;
    for (size_t i = 0; bytes && i < *n; i++)
        bytes[i] = (char)(hex_digit((*p)[2 * i]) << 4 | hex_digit((*p)[2 * i + 1]));
    *p += len;
    *p += **p == ' ';
    return bytes;
}

static void print_hex(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%02x", (unsigned char)p[i]);
}

static int answer_encode(const struct ek_tokenizer *t, const char *op, char *p)
{
    size_t n, n_mask = 0;
    uint64_t steps = 0;
    char *text = read_hex(&p, &n);
    char *mask = strcmp(op, "mask") == 0 ? read_hex(&p, &n_mask) : NULL;
    bool is_user = strcmp(op, "plain") == 0;
    struct ek_ids ids;
    ek_ids_init(&ids, SIZE_MAX / 8);
    int rc = ek_tok_encode_counted(t, &ids, text, n, (uint8_t *)mask,
                                   is_user ? EK_SPECIALS_PLAIN : EK_SPECIALS_PARSE,
                                   strcmp(op, "bos") == 0, &steps);
    if (strcmp(op, "steps") == 0)
        printf("%llu", (unsigned long long)steps);
    else
        for (size_t i = 0; i < ids.n; i++)
            printf("%s%d", i ? " " : "", ids.ids[i]);
    printf("\n");
    ek_ids_release(&ids);
    free(text);
    free(mask);
    return rc;
}

static int answer_decode(const struct ek_tokenizer *t, const char *op, char *p)
{
    struct ek_ids ids;
    struct ek_buf out;
    int rc = 0;
    ek_ids_init(&ids, SIZE_MAX / 8);
    ek_buf_init(&out, SIZE_MAX / 2);
    for (char *end; !rc; p = end) {
        long id = strtol(p, &end, 10);
        if (end == p)
            break;
        rc = ek_ids_add(&ids, (int32_t)id);
    }
    if (!rc && strcmp(op, "stream") == 0) {
        struct ek_detok d;
        ek_detok_init(&d, t, true, false);
        for (size_t i = 0; !rc && i <= ids.n; i++) {
            ek_buf_reset(&out);
            rc = i < ids.n ? ek_detok_feed(&d, &out, ids.ids[i])
                           : ek_detok_finish(&d, &out);
            fputs(i ? "," : "", stdout);
            print_hex(out.data, out.len);
        }
    } else if (!rc) {
        rc = ek_tokenizer_decode(t, &out, ids.ids, ids.n, strcmp(op, "special") == 0);
        print_hex(out.data, out.len);
    }
    printf("\n");
    ek_ids_release(&ids);
    ek_buf_release(&out);
    return rc;
}

static int answer(const struct ek_tokenizer *t, char *line)
{
    size_t n_op = strcspn(line, " \n");
    char *p = line + n_op + (line[n_op] == ' ');
    line[n_op] = 0;
    if (strcmp(line, "info") == 0) {
        printf("%d %d %d %d %s\n", ek_tokenizer_size(t), ek_tokenizer_bos(t),
               ek_tokenizer_eos(t), ek_tokenizer_adds_bos(t), ek_tokenizer_kind(t));
        return 0;
    }
    if (strcmp(line, "decode") == 0 || strcmp(line, "special") == 0 ||
        strcmp(line, "stream") == 0)
        return answer_decode(t, line, p);
    return answer_encode(t, line, p);
}

static int load_json(struct ek_tokenizer **t, char **files, int n, struct ek_err *err)
{
    struct ek_buf json, config;
    ek_buf_init(&json, SIZE_MAX / 2);
    ek_buf_init(&config, SIZE_MAX / 2);
    int rc = ek_file_read(&json, files[0], err);
    if (!rc && n > 1)
        rc = ek_file_read(&config, files[1], err);
    if (!rc)
        rc = ek_tokenizer_from_json(t, json.data, json.len, config.data, config.len,
                                    files[0], err);
    ek_buf_release(&json);
    ek_buf_release(&config);
    return rc;
}

static int load(struct ek_tokenizer **t, char **files, int n, struct ek_err *err)
{
    size_t len = strlen(files[0]);
    if (len > 5 && strcmp(files[0] + len - 5, ".json") == 0)
        return load_json(t, files, n, err);
    struct ek_gguf *g = NULL;
    int rc = ek_gguf_open(&g, files[0], err);
    if (!rc)
        rc = ek_tokenizer_from_gguf(t, g, err);
    ek_gguf_free(g);
    return rc;
}

int main(int argc, char **argv)
{
    struct ek_tokenizer *t = NULL;
    struct ek_err err = EK_ERR_INIT;
    char *line = NULL;
    size_t cap = 0;
    if (argc < 2 || load(&t, argv + 1, argc - 1, &err)) {
        printf("error: %s\n", err.text);
        return 3;
    }
    int rc = 0;
    while (!rc && getline(&line, &cap, stdin) > 0) {
        rc = answer(t, line);
        fflush(stdout);
    }
    free(line);
    ek_tokenizer_free(t);
    return rc ? 1 : 0;
}
