/* chat_terminal.c - reads lines with libedit (or plainly, when standard input is no
 * terminal), keeps the history of the conversation, obeys commands.
 *
 * Invariant: `messages` ends with a whole exchange between answers; a question whose
 * answer failed is taken back, so that it can be asked again. */
#include "cli/chat_terminal.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/terminal.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <wchar.h>

#define TEXT_MAX ((size_t)16 << 20) /* one message, one answer */

static volatile sig_atomic_t was_interrupted;
static int wake_fd = -1; /* eventfd: readable since a Ctrl-C */

/* The eventfd, because a signal just before a read would let that sleep. */
static void on_interrupt(int signal_number)
{
    (void)signal_number;
    int saved = errno;
    uint64_t one = 1;
    was_interrupted = 1;
    ssize_t n = write(wake_fd, &one, sizeof one);
    (void)n;
    errno = saved;
}

static bool is_stopped(void)
{
    return was_interrupted != 0;
}

struct chat {
    struct ek_chat_backend *backend;
    const struct ek_chat_options *options;
    json_t *messages; /* array of {role, content}; [0] is the system prompt, if any */
    struct ek_buf answer; /* the answer as it comes */
    bool is_output_gone;  /* standard output takes no more */
    bool is_tty;          /* input and output are terminals: colours, prompt, editing */
    EditLine *edit;       /* NULL when !is_tty */
    History *lines;
    char *plain; /* line of a plain input, getline's */
    size_t plain_cap;
};

static void show_text(void *arg, const char *p, size_t n)
{
    struct chat *c = arg;
    if (ek_terminal_write(stdout, p, n)) {
        c->is_output_gone = true;
        was_interrupted = 1; /* nobody would see the rest */
    }
    /* Past the ceiling the answer is still shown; history keeps its beginning. */
    int rc = ek_buf_add(&c->answer, p, n);
    (void)rc;
}

static int add_message(json_t *messages, const char *role, const char *text, size_t n)
{
    json_t *m = json_object();
    if (!m || json_object_set_new(m, "role", json_string(role)) ||
        json_object_set_new(m, "content", json_stringn(text, n)) ||
        json_array_append(messages, m)) {
        json_decref(m);
        return EK_ENOMEM;
    }
    json_decref(m);
    return 0;
}

static int start_over(struct chat *c, const char *system)
{
    json_array_clear(c->messages);
    return system ? add_message(c->messages, "system", system, strlen(system)) : 0;
}

static const char *system_prompt(const struct chat *c)
{
    const json_t *first = json_array_get(c->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    if (!role || strcmp(role, "system") != 0)
        return NULL;
    return json_string_value(json_object_get(first, "content"));
}

static void show_speed(const struct chat *c, const struct ek_chat_sink *s)
{
    if (!c->is_tty || s->n_answer == 0)
        return;
    double tail = (double)(s->total_us - s->first_us) * 1e-6;
    fprintf(stderr, "\033[2m%ld tokens", (long)s->n_answer);
    if (s->n_answer > 1 && tail > 0)
        fprintf(stderr, ", %.1f tok/s", (double)(s->n_answer - 1) / tail);
    fprintf(stderr, ", first after %.2f s, prompt %ld%s\033[0m\n",
            (double)s->first_us * 1e-6, (long)s->n_prompt,
            s->is_cut ? ", cut at max_tokens" : "");
}

/* Asks the backend about c->messages and appends its answer. */
static int answer(struct chat *c, struct ek_err *err)
{
    struct ek_chat_sink sink = {
        .on_text = show_text, .arg = c, .is_stopped = is_stopped};
    ek_buf_reset(&c->answer);
    was_interrupted = 0;
    int rc = c->backend->answer(c->backend->ctx, c->messages, &sink, err);
    if (c->answer.len > 0 && c->answer.data[c->answer.len - 1] != '\n')
        putchar('\n');
    if (fflush(stdout))
        c->is_output_gone = true;
    if (!rc && c->is_output_gone)
        rc = ek_err_set(err, EK_EIO, "standard output: %s", ek_status_text(EK_EIO));
    if (rc)
        return rc;
    show_speed(c, &sink);
    const char *text = c->answer.data ? c->answer.data : "";
    return add_message(c->messages, "assistant", text, c->answer.len);
}

static void say(const struct chat *c, const char *text)
{
    fprintf(stderr, c->is_tty ? "\033[2m%s\033[0m\n" : "%s\n", text);
}

static void say_error(const struct ek_err *err)
{
    fprintf(stderr, "keel chat: %s\n", err->text);
}

static void save(const struct chat *c, const char *path)
{
    struct ek_err err = EK_ERR_INIT;
    if (!*path) {
        say(c, "usage: /save FILE");
        return;
    }
    json_malloc_t json_alloc;
    json_free_t json_release;
    json_get_alloc_funcs(&json_alloc, &json_release);
    char *text = json_dumps(c->messages, JSON_INDENT(2));
    if (!text || ek_file_write(path, text, strlen(text), &err))
        say_error(&err);
    else
        fprintf(stderr, "saved %zu messages to %s\n", json_array_size(c->messages),
                path);
    json_release(text);
}

static const char help[] =
    "/reset          forget the conversation, keep the system prompt\n"
    "/system [TEXT]  show or set the system prompt (setting it starts over)\n"
    "/save FILE      write the conversation as JSON\n"
    "/help           this list\n"
    "/quit           end (also Ctrl-D)\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next one.";

/* True when the program should go on. */
static bool obey(struct chat *c, const char *line)
{
    static const char blanks[] = " \t";
    size_t n = strcspn(line, blanks);
    const char *rest = line + n + strspn(line + n, blanks);
    if (n == 5 && !memcmp(line, "/quit", n))
        return false;
    if (n == 5 && !memcmp(line, "/exit", n))
        return false;
    if (n == 5 && !memcmp(line, "/help", n)) {
        say(c, help);
    } else if (n == 5 && !memcmp(line, "/save", n)) {
        save(c, rest);
    } else if (n == 6 && !memcmp(line, "/reset", n)) {
        const char *old = system_prompt(c);
        char *kept = old ? ek_strndup(old, strlen(old)) : NULL;
        if (start_over(c, kept))
            say(c, "out of memory");
        ek_free(kept);
        say(c, "The conversation starts over.");
    } else if (n == 7 && !memcmp(line, "/system", n)) {
        if (*rest && !start_over(c, rest))
            say(c, "The system prompt is set; the conversation starts over.");
        else
            say(c, system_prompt(c) ? system_prompt(c) : "(the model's own default)");
    } else {
        fprintf(stderr, "unknown command %.*s; /help lists them\n", (int)n, line);
    }
    return true;
}

static char *show_prompt(EditLine *edit)
{
    static char first[] = "> ", more[] = "… ";
    void *is_more = NULL;
    el_get(edit, EL_CLIENTDATA, &is_more);
    return is_more ? more : first;
}

/* libedit gives the terminal back in line mode between lines, where a Ctrl-D typed
 * during an answer would be an end of input that nobody reads, and letters would show
 * up in the text. So libedit's own idea of that mode is changed: what is typed waits
 * unseen, as it is, for the next line, and there is no moment between two modes. el_end
 * restores the terminal as it was found. */
static int hold_typing(EditLine *edit)
{
    return el_set(edit, EL_SETTY, "-x", "-icanon", "-echo", NULL);
}

/* For libedit: the next character of the keyboard; 0 at its end, -1 after a Ctrl-C.
 * Bytes that are no character are dropped. */
static int get_char(EditLine *edit, wchar_t *out)
{
    (void)edit;
    mbstate_t state = {0};
    for (;;) {
        struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {wake_fd, POLLIN, 0}};
        char byte;
        if (was_interrupted || (poll(fds, 2, -1) < 0 && errno != EINTR))
            return -1;
        if (was_interrupted || fds[1].revents) {
            was_interrupted = 1;
            return -1;
        }
        if (fds[0].revents == 0)
            continue;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n <= 0)
            return (int)n;
        size_t k = mbrtowc(out, &byte, 1, &state);
        if (k <= 1)
            return 1;
        if (k == (size_t)-1)
            state = (mbstate_t){0};
    }
}

/* One line without its end, in *line (valid until the next). Returns its length, -1 at
 * the end of input, -2 when Ctrl-C threw the line away. */
static ssize_t read_line(struct chat *c, const char **line, bool is_more)
{
    ssize_t n;
    if (c->edit) {
        int count = 0;
        el_set(c->edit, EL_CLIENTDATA, is_more ? c : NULL);
        was_interrupted = 0;
        uint64_t n_before;
        while (read(wake_fd, &n_before, sizeof n_before) > 0)
            continue; /* what stopped an answer stops no line */
        *line = el_gets(c->edit, &count);
        if (!*line || count <= 0)
            return was_interrupted ? -2 : -1;
        n = count;
        HistEvent event;
        if (n > 1)
            history(c->lines, &event, H_ENTER, *line);
    } else {
        n = getline(&c->plain, &c->plain_cap, stdin);
        *line = c->plain;
        if (n < 0)
            return -1;
    }
    while (n > 0 && ((*line)[n - 1] == '\n' || (*line)[n - 1] == '\r'))
        n--;
    return n;
}

/* A whole message: lines joined while they end in a backslash. Returns as read_line. */
static ssize_t read_message(struct chat *c, struct ek_buf *text)
{
    ek_buf_reset(text);
    for (bool is_more = false;; is_more = true) {
        const char *line;
        ssize_t n = read_line(c, &line, is_more);
        if (n < 0)
            return n == -1 && text->len > 0 ? (ssize_t)text->len : n;
        bool goes_on = n > 0 && line[n - 1] == '\\';
        if (ek_buf_add(text, line, (size_t)n - goes_on) ||
            (goes_on && ek_buf_add_char(text, '\n'))) {
            say(c, "The message is too long.");
            return -2;
        }
        if (!goes_on)
            return (ssize_t)text->len;
    }
}

/* Until the end of the input, or of the output. */
static int converse(struct chat *c, struct ek_buf *text, struct ek_err *out_err)
{
    for (;;) {
        ssize_t n = read_message(c, text);
        if (n == -2) {
            fputs("\n", stderr);
            continue;
        }
        if (n < 0)
            return 0;
        if (n == 0)
            continue;
        if (text->data[0] == '/') {
            if (!obey(c, text->data))
                return 0;
            continue;
        }
        size_t before = json_array_size(c->messages);
        struct ek_err err = EK_ERR_INIT;
        int rc = add_message(c->messages, "user", text->data, text->len);
        if (rc)
            ek_err_set(&err, rc, "the message is not UTF-8 text, or memory is short");
        else
            rc = answer(c, &err);
        if (c->is_output_gone) {
            *out_err = err;
            return rc;
        }
        if (rc) {
            say_error(&err);
            while (json_array_size(c->messages) > before)
                json_array_remove(c->messages, before);
        }
    }
}

static int open_editor(struct chat *c)
{
    c->edit = el_init("keel", stdin, stdout, stderr);
    c->lines = history_init();
    if (!c->edit || !c->lines)
        return EK_ENOMEM;
    HistEvent event;
    history(c->lines, &event, H_SETSIZE, 1000);
    history(c->lines, &event, H_SETUNIQUE, 1);
    el_set(c->edit, EL_PROMPT, show_prompt);
    el_set(c->edit, EL_EDITOR, "emacs");
    el_set(c->edit, EL_HIST, history, c->lines);
    el_set(c->edit, EL_SIGNAL, 0);
    el_set(c->edit, EL_GETCFN, get_char);
    return hold_typing(c->edit) ? EK_EIO : 0;
}

static int chat_init(struct chat *c, struct ek_chat_backend *b,
                     const struct ek_chat_options *o)
{
    *c = (struct chat){.backend = b, .options = o};
    ek_buf_init(&c->answer, TEXT_MAX);
    wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_fd < 0)
        return EK_EIO;
    /* Without SA_RESTART, so that a read at the prompt comes back. */
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    c->messages = json_array();
    return c->messages ? start_over(c, o->system) : EK_ENOMEM;
}

static void chat_release(struct chat *c)
{
    signal(SIGINT, SIG_DFL);
    close(wake_fd);
    wake_fd = -1;
    json_decref(c->messages);
    ek_buf_release(&c->answer);
    ek_free(c->plain);
    if (c->edit)
        el_end(c->edit);
    if (c->lines)
        history_end(c->lines);
}

int ek_chat_terminal_run(struct ek_chat_backend *b, const struct ek_chat_options *o,
                         struct ek_err *err)
{
    struct chat c;
    struct ek_buf text;
    ek_buf_init(&text, TEXT_MAX);
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
        setlocale(LC_CTYPE, "C.UTF-8");
    int rc = chat_init(&c, b, o);
    c.is_tty = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (!rc && c.is_tty)
        rc = open_editor(&c);
    if (rc) {
        ek_err_set(err, rc, "%s", ek_status_text(rc));
        goto out;
    }
    if (c.is_tty) {
        rc = ek_terminal_write(stderr, b->name, strlen(b->name));
        fputs(". /help lists commands, Ctrl-D ends.\n", stderr);
    }
    if (!rc)
        rc = converse(&c, &text, err);
out:
    chat_release(&c);
    ek_buf_release(&text);
    return rc;
}

int ek_chat_ask(struct ek_chat_backend *b, const struct ek_chat_options *o,
                struct ek_err *err)
{
    struct chat c;
    int rc = chat_init(&c, b, o);
    if (!rc)
        rc = add_message(c.messages, "user", o->ask, strlen(o->ask));
    if (rc)
        ek_err_set(err, rc, "the question is not UTF-8 text, or memory is short");
    else
        rc = answer(&c, err);
    if (!rc && was_interrupted)
        rc = ek_err_set(err, EK_ECANCELED, "interrupted");
    chat_release(&c);
    return rc;
}
