/* access.c - one log line a request: who asked for what, what came of it, how long it
 * took. Never what was asked or answered, nor the query string (keys stand in those).
 */
#include "base/clock.h"
#include "base/log.h"
#include "serve/server_int.h"

#include <string.h>

#define PATH_CAP   256 /* bytes of a path or reason that are logged */
#define CODE_GONE  499 /* the client left before its answer began; never sent */
#define CODE_WRONG 400 /* from here on something went wrong */

static double ms_since(int64_t us)
{
    return (double)(ek_clock_us() - us) / 1e3;
}

void ek_access_reply(const struct ek_server *s, const struct ek_http_request *r,
                     const char *id, int code)
{
    bool is_read = strcmp(r->method, "POST") != 0;
    char path[PATH_CAP];
    ek_log_quote(path, sizeof path, r->path);
    ek_log(is_read && code < CODE_WRONG ? EK_LOG_DEBUG : EK_LOG_INFO, "access",
           "id=%s method=%s path=\"%s\" status=%d ms=%.1f", id, r->method, path, code,
           ms_since(s->arrived_us));
}

void ek_access_call(const struct ek_call *c)
{
    bool is_chat = c->params.kind == EK_API_CHAT;
    int32_t n = c->n_jobs * (int32_t)c->params.n;
    enum ek_finish worst = EK_FINISH_NONE; /* in the order of the enum */
    for (int32_t i = 0; i < n; i++)
        worst = c->choices[i].finish > worst ? c->choices[i].finish : worst;
    ek_log(EK_LOG_INFO, "access",
           "id=%s method=POST path=\"%s\" status=%d ms=%.1f stream=%d choices=%d "
           "prompt_tokens=%lld cached_tokens=%lld completion_tokens=%lld finish=%s",
           c->id, is_chat ? "/v1/chat/completions" : "/v1/completions",
           c->status ? c->status : CODE_GONE, ms_since(c->start_us), c->params.stream,
           n, (long long)c->usage.prompt_tokens, (long long)c->usage.cached_tokens,
           (long long)c->usage.completion_tokens, ek_finish_name(worst));
}

void ek_access_bad(int code, const char *reason)
{
    char why[PATH_CAP];
    ek_log_quote(why, sizeof why, reason);
    ek_log(EK_LOG_INFO, "access", "status=%d why=\"%s\"", code, why);
}
